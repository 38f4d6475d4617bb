"""Recent runs in memory. Features: CTL-04, DUR-02."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.stores.archive import ArchivedRun


class MemoryExecutionArchiveStore:
    """See `ExecutionArchiveStore`; lost with the process."""

    durable = False

    def __init__(self) -> None:
        self._runs: dict[str, ArchivedRun] = {}

    async def put(self, run: ArchivedRun, retain: int) -> Sequence[str]:
        """Keep a run among the newest `retain`; the ids of those that had to go."""
        runs = self._runs
        runs.pop(run.execution_id, None)
        runs[run.execution_id] = run
        gone = list(runs)[: max(0, len(runs) - retain)]
        for execution_id in gone:
            del runs[execution_id]
        return gone

    async def get(self, execution_id: str, *, whole: bool = True) -> ArchivedRun | None:
        """A run, None if it is not kept."""
        return self._runs.get(execution_id)

    async def ids(self) -> Sequence[str]:
        """The ids of all that are kept, the oldest first."""
        return list(self._runs)

    async def remove(self, execution_id: str) -> None:
        """Forget a run."""
        self._runs.pop(execution_id, None)
