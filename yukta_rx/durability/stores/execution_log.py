"""ExecutionLogStore: what started, ended and was commanded, appended and never changed.

Feature: DUR-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from yukta_rx.durability.stores.families import LetGo, Member, let_go
from yukta_rx.model.execution_log import (
    STREAMS,
    IdempotencyKey,
    LogEvent,
    RunAborted,
    RunFinished,
    RunStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


CHILDREN: Final = 1000
"""Runs that others started and that are kept, unless more or fewer are asked for."""


class LogEntry(msgspec.Struct, frozen=True):
    """One event with its place.

    Attributes:
        seq: grows from entry to entry of a store, from 1; with gaps.
        event: the event.
    """

    seq: int
    event: LogEvent


class LoggedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of one run.

    Attributes:
        started: its start.
        ended: its end; None if there is none.
        resumed: how often it was resumed.
        last_seq: place of its newest entry.
    """

    started: RunStarted
    ended: RunFinished | RunAborted | None = None
    resumed: int = 0
    last_seq: int = 0


class ExecutionLogStore(Protocol):
    """Keeps the events of the newest runs.

    Guarantees:
        L1. `read` gives the entries of a stream in the order of their appends, each once, from any
            place on; `seq` grows.
        L2. A run without an end is never dropped. Every other one that no run started, a root, is
            kept at least until `retained` other roots are newer; one that a run started, a child,
            is kept as long as its root is, unless so many `children` are newer, or the child goes
            that started it. Those that go for that are counted.
        L3. When a write has returned, `read` and `runs` show it; on a durable store it also
            survives the process.
        L4. A failure raises; no answer is never taken for "there is nothing".
        L5. A write with an old fencing number raises `StaleLeaderError` and changes nothing (of a
            store that servers share).
        L6. A write is all or nothing: if it raises, none of its events is there.
        L7. A key stands for one run until it expires: a start with a key that is in force writes
            nothing and gets the first one back. A key outlives the run's other events. A key of the
            same run that is appended later, expired, sets it free.
        L8. Values come back as they were, of the same types; an event that cannot be written
            exactly is refused with the place. In place of a start payload that is kept apart,
            everything but `start_of` may give the `Blob` that stands for it. `runs` and
            `unfinished` may leave start payloads out.

    Not guaranteed: that `seq` has no gaps; any order between streams; after a
    `StoreUnavailableError`, that the write did not happen (its answer may be lost).
    """

    durable: bool
    """Whether what is written survives the process."""

    async def append_start(
        self, started: RunStarted, key: IdempotencyKey | None = None
    ) -> IdempotencyKey | None:
        """Write the start of a run, with the key that it was given, in one write.

        Returns:
            None; or the key that is in force already, of another run, and then nothing is written.
            It is in force while `started.time` is before its `expires_at`.

        Raises:
            UnserialisablePayloadError: the payload cannot be written exactly; `pointer` is its
                place below `/payload`.
            StoreUnavailableError: the store gives no answer.
        """

    async def append(self, events: Sequence[LogEvent]) -> None:
        """Write events, in this order, in one write.

        Raises:
            UnserialisablePayloadError: one cannot be written exactly; none was.
            StoreUnavailableError: the store gives no answer.
        """

    async def read(self, stream: str, after: int = 0, limit: int = 100) -> Sequence[LogEntry]:
        """Entries of a run, or of another stream, with `seq` above `after`; at most `limit`."""

    async def start_of(self, execution_id: str) -> RunStarted | None:
        """The start of a run with its payload; None if it is not kept.

        Raises:
            StoreUnavailableError: the store gives no answer, or the payload is missing or damaged.
        """

    async def runs(self) -> Sequence[LoggedRun]:
        """Every run that is kept, in the order of their newest entries."""

    async def unfinished(self) -> Sequence[RunStarted]:
        """The starts of all runs without an end, in the order of their starts."""

    async def idempotency_keys(self, now: datetime) -> Sequence[IdempotencyKey]:
        """The keys that have not expired at `now`."""


class StreamMark(msgspec.Struct, frozen=True, kw_only=True):
    """What retention looks at.

    Attributes:
        stream: the stream.
        last_seq: place of its newest entry.
        unfinished: whether it is a run that started and has no end.
        parent: the run that started it, if one did.
    """

    stream: str
    last_seq: int
    unfinished: bool
    parent: str | None = None


def streams_to_drop(marks: Iterable[StreamMark], retained: int, children: int) -> LetGo:
    """Return the runs that are no longer kept: all but the newest, and never one without an end.

    Args:
        marks: every stream of the log.
        retained: how many roots are kept at least, those without an end among them.
        children: how many children, likewise.
    """
    runs = (
        Member(mark.stream, mark.last_seq, mark.parent, stays=mark.unfinished)
        for mark in marks
        if mark.stream not in STREAMS
    )
    return let_go(runs, retained, children)


def entries_to_drop(count: int, retained: int) -> int:
    """Return how many of the oldest entries of a stream that is no run are no longer kept."""
    return max(0, count - retained)


def parent_of(event: LogEvent) -> str | None:
    """The run that started the run of an event, as far as the event says."""
    return event.parent_execution_id if isinstance(event, RunStarted) else None
