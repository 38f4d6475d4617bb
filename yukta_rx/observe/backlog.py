"""Backlog: what waits in the tracker, bounded by bytes; who fills it beyond that is held back.

A run is held back when it says something while too much waits, and all go on once half of it is
gone. Log lines, of which a node may write any number within one call, are dropped and counted where
twice as much waits. So the bound is twice the limit and what the held runs still have in hand.

Feature: OBS-01.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from yukta_rx.model.weight import weigh
from yukta_rx.observe.line_quota import Dropped

if TYPE_CHECKING:
    from datetime import datetime

    from yukta_rx.metrics import Meters
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.observe.sampler import LiveRun, Watched
    from yukta_rx.observe.shelf import Shelf

ENVELOPE: Final = 512
"""Bytes of an event without its data."""


class Backlog:
    """Events between `emit` and the feed, with their bytes.

    Args:
        limit: bytes that may wait before runs are held back.
        meters: where depth, bytes and the runs that are held back are shown.
        runs: the runs that may be held back.

    Attributes:
        inbox: what is to be applied, each with its bytes.
        outbox: what is to be handed to the feed, each with its bytes.
        bytes: those of both.
        full: whether more waits than may.
    """

    __slots__ = (
        "_behind",
        "_held",
        "_holds",
        "_limit",
        "_runs",
        "bytes",
        "full",
        "inbox",
        "outbox",
    )

    def __init__(self, limit: int, meters: Meters, runs: Shelf[Watched]) -> None:
        self._limit = limit
        self._runs = runs
        self._held: dict[str, LiveRun] = {}
        self._holds = meters.counter("yukta.tracker.holds")
        self.inbox: deque[tuple[ExecutionEvent | Dropped, int]] = deque()
        self.outbox: deque[tuple[ExecutionEvent, int]] = deque()
        self.bytes = 0
        self.full = False
        self._behind = False
        meters.watch("yukta.tracker.queue.depth", lambda: len(self.inbox) + len(self.outbox))
        meters.watch("yukta.tracker.queue.bytes", lambda: self.bytes)
        meters.watch("yukta.tracker.held", lambda: len(self._held))

    @property
    def crowded(self) -> bool:
        """Whether so much waits that log lines have to be dropped."""
        return self.bytes > 2 * self._limit

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self.inbox and not self.outbox

    def come(self, event: ExecutionEvent | Dropped) -> None:
        """Something was said; the run that said it is held back if too much waits."""
        size = ENVELOPE
        if not isinstance(event, Dropped):
            try:
                size += weigh(event.data)
            except Exception:
                # What cannot be weighed is a defect, and the feed tells of it when it comes there.
                size = ENVELOPE
        self.inbox.append((event, size))
        self.bytes += size
        if self.bytes > self._limit:
            self.full = True
        if self.full or self._behind:
            self._hold(event.first if isinstance(event, Dropped) else event)

    def add(self, event: ExecutionEvent) -> None:
        """An event that did not come through the inbox is ready for the feed."""
        size = ENVELOPE + weigh(event.data)
        self.outbox.append((event, size))
        self.bytes += size

    def gone(self, size: int) -> None:
        """Something has left the inbox or the outbox."""
        self.bytes -= size
        if self.full and 2 * self.bytes <= self._limit:
            self.full = False
            self._let_go()

    def behind(self, on: bool) -> None:
        """The store that events go to has as much waiting as it may, or has room again."""
        self._behind = on
        self._let_go()

    def _let_go(self) -> None:
        if self.full or self._behind:
            return
        held, self._held = self._held, {}
        for run in held.values():
            run.hold(False)

    def release(self, execution_id: str) -> None:
        """A run has ended."""
        if (run := self._held.pop(execution_id, None)) is not None:
            run.hold(False)

    def _hold(self, event: ExecutionEvent) -> None:
        execution_id = event.execution_id
        watched = self._runs.get(execution_id)
        if watched is not None and watched.run is not None and execution_id not in self._held:
            self._held[execution_id] = watched.run
            self._holds.add(1)
            watched.run.hold(True)

    def age(self, now: datetime) -> float:
        """Seconds since the oldest event that waits happened."""
        waiting = self.outbox or self.inbox
        if not waiting:
            return 0.0
        oldest = waiting[0][0]
        event = oldest.first if isinstance(oldest, Dropped) else oldest
        return max(0.0, (now - event.time).total_seconds())
