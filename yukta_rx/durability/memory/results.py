"""Results of runs in memory. Feature: OBS-03."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yukta_rx.durability.stores.families import CrowdedOut
from yukta_rx.durability.stores.results import (
    StoredResults,
    all_written,
    part_written,
    results_to_drop,
)
from yukta_rx.model.result_lines import decode_result, encode_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from yukta_rx.durability.stores.results import ResultPart
    from yukta_rx.metrics import Meters
    from yukta_rx.model.results import ResultEvent


@dataclass(slots=True)
class _Kept:
    """The results of one run: cursors, and the lines that stand there."""

    cursors: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    ended_at: datetime | None = None
    parent: str | None = None
    cut: int = 0


class MemoryResultStore:
    """See `ResultStore`; lost with the process. Holds the written form.

    Args:
        meters: where children are counted that went for their number.
    """

    durable = False

    def __init__(self, meters: Meters | None = None) -> None:
        self._crowded_out = CrowdedOut("results", meters)
        self._runs: dict[str, _Kept] = {}

    async def append(self, execution_id: str, results: Sequence[ResultEvent]) -> None:
        """Write results in one write."""
        self._write(execution_id, results)

    async def end(
        self,
        execution_id: str,
        results: Sequence[ResultEvent],
        ended_at: datetime,
        parent: str | None = None,
    ) -> None:
        """Write the last results and close the run."""
        kept = self._write(execution_id, results)
        if kept.ended_at is None:
            kept.ended_at, kept.parent = ended_at, parent

    async def write(self, parts: Sequence[ResultPart]) -> None:
        """Write results of several runs."""
        await all_written([part_written(self, part) for part in parts])

    async def read(
        self, execution_id: str, after: int = 0, limit: int = 100
    ) -> StoredResults | None:
        """Results behind a place."""
        kept = self._runs.get(execution_id)
        if kept is None:
            return None
        first = bisect_right(kept.cursors, after)
        lines = kept.lines[first : first + limit]
        return StoredResults(tuple(map(decode_result, lines)), kept.ended_at is not None)

    async def last(self, execution_id: str) -> int | None:
        """The cursor of the newest result."""
        kept = self._runs.get(execution_id)
        if kept is None:
            return None
        return kept.cursors[-1] if kept.cursors else 0

    async def cut(self, execution_id: str, upto: int) -> int:
        """Remove the oldest results of a run."""
        kept = self._runs.get(execution_id)
        if kept is None or not kept.cursors:
            return 0
        upto = min(upto, kept.cursors[-1] - 1)
        if upto > kept.cut:
            kept.cut = upto
            gone = bisect_right(kept.cursors, upto)
            del kept.cursors[:gone], kept.lines[:gone]
        return kept.cut

    async def trim(
        self, retained: int, ended_before: datetime | None = None, children: int = 0
    ) -> Sequence[str]:
        """Remove what is no longer kept."""
        ended = [
            (execution_id, kept.ended_at, kept.parent)
            for execution_id, kept in self._runs.items()
            if kept.ended_at is not None
        ]
        dropped, crowded = results_to_drop(ended, retained, ended_before, children)
        self._crowded_out.add(crowded)
        for execution_id in dropped:
            del self._runs[execution_id]
        return dropped

    def _write(self, execution_id: str, results: Sequence[ResultEvent]) -> _Kept:
        # All are written before any is kept.
        lines = [(result.cursor, encode_result(result)) for result in results]
        kept = self._runs.setdefault(execution_id, _Kept())
        if kept.ended_at is None:
            for cursor, line in lines:
                if not kept.cursors or cursor > kept.cursors[-1]:
                    kept.cursors.append(cursor)
                    kept.lines.append(line)
        return kept
