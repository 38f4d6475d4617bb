"""QueueView: the starts that wait for a slot, as they are shown. Feature: ADM-01."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from yukta_rx.control.tickets import Ticket, Waiting
from yukta_rx.control.waiting_line import Cap, WaitingLine

if TYPE_CHECKING:
    from yukta_rx.streams.clock import LoopClock

EXACT: Final = 200
"""Waiting starts up to which places are worked out anew whenever they have changed."""

STALE: Final = 1.0
"""Seconds after which they are worked out anew in a longer queue too, and after ageing."""


class QueueView:
    """What waits, and in which order; the `Scheduler` changes it.

    Args:
        clock: tells the time.
        line: the order.
    """

    def __init__(self, clock: LoopClock, line: WaitingLine) -> None:
        self._clock = clock
        self._line = line
        self._waiting: dict[str, Ticket] = {}
        self._claiming: dict[str, Ticket] = {}
        """Those that waited, have a slot, and are about to begin."""
        self._places: dict[str, int] = {}
        self._placed = (-1, -math.inf)
        """The generation of the places, and when they were worked out."""
        self._generation = 0

    def waiting(self, execution_id: str) -> Waiting | None:
        """A start that waits, and why; None if it does not.

        In a long queue its place is up to a second old, and that of a new one is the last.
        """
        ticket = self._waiting.get(execution_id)
        if ticket is None:
            return None
        count = len(self._waiting)
        self._place(anew=count <= EXACT)
        return self._shown(ticket, self._places.get(execution_id, count))

    def queue(self) -> list[Waiting]:
        """Every start that waits and is recorded, in the order in which they get slots."""
        self._place(anew=True)
        return [
            self._shown(self._waiting[execution_id], position)
            for execution_id, position in self._places.items()
            if self._waiting[execution_id].shown
        ]

    def waiting_ids(self, session_id: str, workflow_id: str | None = None) -> list[str]:
        """The starts of a session, or of one workflow of it, that have not begun."""
        return [
            execution_id
            for execution_id, ticket in (*self._waiting.items(), *self._claiming.items())
            if ticket.place.session_id == session_id
            and workflow_id in (None, ticket.place.workflow_id)
        ]

    def _place(self, *, anew: bool) -> None:
        """Work out the places, where they may have changed or `anew` allows no old ones."""
        now = self._clock.now()
        generation, then = self._placed
        if now - then < STALE and (generation == self._generation or not anew):
            return
        order = self._line.order(now)
        self._places = {place.execution_id: n for n, place in enumerate(order, 1)}
        self._placed = self._generation, now

    def _shown(self, ticket: Ticket, position: int) -> Waiting:
        place = ticket.place
        cap = self._line.blocker(place.session_id, place.workflow_id) or Cap.MAX_CONCURRENT
        detail = self._told(cap, place.session_id, place.workflow_id)
        return Waiting(ticket, position, cap, detail)

    def _told(self, cap: Cap, session_id: str, workflow_id: str) -> str:
        """What a limit is full of."""
        caps, line = self._line.caps, self._line
        name, running, most = "", line.running, caps.total
        if cap is Cap.PER_WORKFLOW:
            name = f" of workflow {session_id}/{workflow_id}"
            running, most = line.running_of(session_id, workflow_id), caps.workflow
        elif cap is Cap.PER_SESSION:
            name = f" of session {session_id}"
            running, most = line.running_of(session_id), caps.session
        return f"{running} of {most} runs{name} go on"
