"""LineQuota: which log lines may wait in the tracker, shared fairly among the nodes that write.

Feature: OBS-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from yukta_rx.model.events import ExecutionEvent

    Place = tuple[str, str | None]

WAITING_LINES: Final = 10_000
"""Log lines that may wait, of whatever nodes; beyond it each node may still have its share."""


class Dropped:
    """Stands in the queue where lines of one node were dropped."""

    __slots__ = ("count", "first")

    def __init__(self, first: ExecutionEvent) -> None:
        self.first = first
        self.count = 1

    def as_event(self) -> ExecutionEvent:
        """Return the line that says so."""
        line = f"{self.count} lines dropped here"
        data = {"stream": "engine", "level": "WARNING", "line": line}
        return msgspec.structs.replace(self.first, data=data)


class LineQuota:
    """Lines that wait, from `emit` until they are handed on.

    While fewer than `limit` wait, any may. From then on only a node that has less than its share,
    `limit` divided by the nodes that have lines waiting; so at most twice as many wait, and a node
    that writes without end costs no other a line.

    Attributes:
        limit: lines that may wait in any case.
        waiting: lines that wait.
    """

    __slots__ = ("_lost", "_of", "_open", "limit", "waiting")

    def __init__(self, limit: int = WAITING_LINES) -> None:
        self.limit = limit
        self.waiting = 0
        self._of: dict[Place, int] = {}
        self._open: dict[Place, Dropped] = {}
        self._lost: dict[str, int] = {}

    def take(
        self, event: ExecutionEvent, *, crowded: bool = False
    ) -> ExecutionEvent | Dropped | None:
        """Return what is to wait for a line.

        Args:
            event: the line.
            crowded: whether so much waits of everything that one line of each node has to do.

        Returns:
            The line itself; or, where it is dropped, what says so in its place, or None if that
            waits already and nothing of the node has come since.
        """
        place = (event.execution_id, event.node_id)
        own = self._of.get(place, 0)
        if crowded:
            full = own >= 1
        else:
            full = self.waiting >= self.limit and own >= max(1, self.limit // len(self._of))
        if full:
            return self._drop(place, own, event)
        if self._open:
            # A later drop is another place in the sequence.
            self._open.pop(place, None)
        self.waiting += 1
        self._of[place] = own + 1
        return event

    def _drop(self, place: Place, own: int, event: ExecutionEvent) -> Dropped | None:
        self._lost[place[0]] = self._lost.get(place[0], 0) + 1
        marker = self._open.get(place)
        if marker is not None:
            marker.count += 1
            return None
        # It becomes a line itself.
        self.waiting += 1
        self._of[place] = own + 1
        self._open[place] = marker = Dropped(event)
        return marker

    def closed(self, marker: Dropped) -> None:
        """A marker is taken from the queue: what is dropped from now on needs another."""
        place = (marker.first.execution_id, marker.first.node_id)
        if self._open.get(place) is marker:
            del self._open[place]

    def gone(self, event: ExecutionEvent) -> None:
        """A line waits no more."""
        place = (event.execution_id, event.node_id)
        self.waiting -= 1
        own = self._of[place] - 1
        if own:
            self._of[place] = own
        else:
            del self._of[place]

    def lost(self, execution_id: str) -> int:
        """Return how many lines of a run were dropped, and forget it: the run is over."""
        return self._lost.pop(execution_id, 0)
