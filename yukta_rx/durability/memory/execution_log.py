"""The execution log in memory. Feature: DUR-01."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from yukta_rx.durability.stores.execution_log import (
    CHILDREN,
    LogEntry,
    LoggedRun,
    StreamMark,
    entries_to_drop,
    parent_of,
    streams_to_drop,
)
from yukta_rx.durability.stores.families import CrowdedOut
from yukta_rx.model.execution_log import (
    STREAMS,
    IdempotencyKey,
    LogEvent,
    RunAborted,
    RunFinished,
    RunResumed,
    RunStarted,
    decode_event,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from yukta_rx.metrics import Meters


_ENDS: Final = frozenset({RunFinished.TYPE, RunAborted.TYPE})


@dataclass(slots=True)
class _Stream:
    """The entries of one stream: places, and the lines that stand there."""

    places: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    start: bytes | None = None
    end: bytes | None = None
    resumed: int = 0
    parent: str | None = None

    @property
    def unfinished(self) -> bool:
        return self.start is not None and self.end is None


class MemoryExecutionLogStore:
    """See `ExecutionLogStore`; lost with the process.

    Holds the written form, so that nothing that is changed later changes the log.

    Args:
        retained: runs that are kept at least.
        compact_after: events after which older runs are dropped.
        children: runs that others started and that are kept beside those.
        meters: where children are counted that went for their number.
    """

    durable = False

    def __init__(
        self,
        retained: int,
        compact_after: int,
        children: int = CHILDREN,
        meters: Meters | None = None,
    ) -> None:
        self._retained = retained
        self._children = children
        self._crowded_out = CrowdedOut("execution-log", meters)
        self._compact_after = compact_after
        self._appended = 0
        self._seq = 0
        self._streams: dict[str, _Stream] = {}
        self._keys: dict[tuple[str, str, str], IdempotencyKey] = {}

    async def append_start(
        self, started: RunStarted, key: IdempotencyKey | None = None
    ) -> IdempotencyKey | None:
        """Write a start with its key; see the Protocol."""
        if key is None:
            self._append((started,))
            return None
        known = self._keys.get(key.scope)
        if known is not None and started.time < known.expires_at:
            return known
        self._append((started, key))
        return None

    async def append(self, events: Sequence[LogEvent]) -> None:
        """Write events in one write."""
        self._append(events)

    async def read(self, stream: str, after: int = 0, limit: int = 100) -> Sequence[LogEntry]:
        """Entries behind a place."""
        kept = self._streams.get(stream)
        if kept is None:
            return []
        first = bisect_right(kept.places, after)
        last = first + limit
        found = zip(kept.places[first:last], kept.lines[first:last], strict=True)
        return [LogEntry(seq, decode_event(line)) for seq, line in found]

    async def start_of(self, execution_id: str) -> RunStarted | None:
        """The start of a run with its payload."""
        kept = self._streams.get(execution_id)
        if kept is None or kept.start is None:
            return None
        return decode_event(kept.start)  # type: ignore[return-value]

    async def runs(self) -> Sequence[LoggedRun]:
        """Every run, in the order of their newest entries."""
        found = [
            LoggedRun(
                started=decode_event(kept.start),  # type: ignore[arg-type]
                ended=None if kept.end is None else decode_event(kept.end),  # type: ignore[arg-type]
                resumed=kept.resumed,
                last_seq=kept.places[-1],
            )
            for kept in self._streams.values()
            if kept.start is not None
        ]
        return sorted(found, key=lambda run: run.last_seq)

    async def unfinished(self) -> Sequence[RunStarted]:
        """The starts of runs without an end."""
        return [
            decode_event(kept.start)  # type: ignore[misc,arg-type]
            for kept in self._streams.values()
            if kept.unfinished
        ]

    async def idempotency_keys(self, now: datetime) -> Sequence[IdempotencyKey]:
        """The keys that have not expired."""
        return [key for key in self._keys.values() if now < key.expires_at]

    def _append(self, events: Sequence[LogEvent]) -> None:
        # All are written before any is kept.
        for event, line in [(event, encode_event(event)) for event in events]:
            self._keep(self._seq + 1, event.TYPE, event.execution_id, line, parent_of(event))
            if isinstance(event, IdempotencyKey):
                self._remember(event)
        if events:
            self._grown(len(events), events[-1].time)

    def _keep(
        self, seq: int, kind: str, stream: str, line: bytes, parent: str | None = None
    ) -> None:
        """Keep the line of an event that is known by its type and stream."""
        self._seq = seq
        kept = self._streams.setdefault(stream, _Stream())
        kept.places.append(seq)
        kept.lines.append(line)
        if kind == RunStarted.TYPE:
            kept.start, kept.parent = line, parent
        elif kind in _ENDS:
            kept.end = line
        elif kind == RunResumed.TYPE:
            kept.resumed += 1

    def _grown(self, by: int, now: datetime) -> None:
        self._appended += by
        if self._appended >= self._compact_after:
            self._appended = 0
            self._compact(now)

    def _remember(self, key: IdempotencyKey) -> None:
        if key.time < key.expires_at:
            self._keys[key.scope] = key
            return
        known = self._keys.get(key.scope)
        if known is not None and known.execution_id == key.execution_id:
            del self._keys[key.scope]

    def _compact(self, now: datetime) -> None:
        marks = (
            StreamMark(
                stream=name,
                last_seq=kept.places[-1],
                unfinished=kept.unfinished,
                parent=kept.parent,
            )
            for name, kept in self._streams.items()
        )
        gone = streams_to_drop(marks, self._retained, self._children)
        for name in gone.names:
            del self._streams[name]
        self._crowded_out.add(gone.crowded)
        for name in STREAMS & self._streams.keys():
            kept = self._streams[name]
            dropped = entries_to_drop(len(kept.places), self._retained)
            del kept.places[:dropped], kept.lines[:dropped]
        self._keys = {scope: key for scope, key in self._keys.items() if now < key.expires_at}
