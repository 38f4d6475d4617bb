"""Tickets: what the scheduler gives to starts, and how it shows them. Feature: ADM-01."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from datetime import datetime

    from yukta_rx.control.waiting_line import Cap, Place
    from yukta_rx.errors import YuktaError
    from yukta_rx.streams.clock import Timer

HIGHEST: Final = 1_000_000
"""Priorities lie between this and its negative."""


class Outlook(StrEnum):
    """What would become of a start now."""

    WOULD_RUN = "WOULD_RUN"
    WOULD_QUEUE = "WOULD_QUEUE"
    WOULD_REJECT = "WOULD_REJECT"


class Source(StrEnum):
    """Where limits come from."""

    CONFIG = "CONFIG"
    LOG = "LOG"


class Ticket:
    """A start that was admitted: it has a slot, or waits for one.

    Attributes:
        place: who and where.
        queued_at: when it came, aware.
        granted: done once it has a slot; fails with a `YuktaError` if it never gets one.
        refused: told when it gets none.
        timer: due when it has waited too long.
        stopped: why it must not begin, where it was stopped when it had just got its slot.
        shown: whether the run is known, so that it may be listed.
        told: whether somebody was told that it waits, and went away.
        unheard: whether the store may have let go of it without saying so.
    """

    __slots__ = (
        "execution_id",
        "granted",
        "place",
        "queued_at",
        "refused",
        "session_id",
        "shown",
        "status",
        "stopped",
        "timer",
        "told",
        "unheard",
        "workflow_id",
    )

    def __init__(
        self,
        place: Place,
        queued_at: datetime,
        granted: asyncio.Future[None],
        refused: Callable[[TaskStatus, YuktaError], None],
    ) -> None:
        self.place = place
        self.queued_at = queued_at
        self.granted = granted
        self.refused = refused
        self.timer: Timer | None = None
        self.stopped: YuktaError | None = None
        self.shown, self.told, self.unheard = True, False, False
        # What the audit says of it, as of a run.
        self.execution_id, self.session_id = place.execution_id, place.session_id
        self.workflow_id = place.workflow_id
        self.status = TaskStatus.QUEUED

    @property
    def waiting(self) -> bool:
        """Whether it waits for a slot."""
        return not self.granted.done()

    @property
    def given(self) -> bool:
        """Whether it has got its slot."""
        done = self.granted.done() and not self.granted.cancelled()
        return done and self.granted.exception() is None

    def check(self) -> None:
        """Raise what it was refused with, if it was."""
        refused = self.granted.done() and not self.granted.cancelled() and self.granted.exception()
        if refused:
            raise refused

    def refuse(self, status: TaskStatus, error: YuktaError) -> None:
        """It gets no slot: its run ends with `status` because of `error`."""
        self.refused(status, error)
        self.granted.set_exception(error)
        # Looked at here: nobody may be waiting for it yet.
        self.granted.exception()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A start that waits, as it is shown.

    Attributes:
        ticket: the start.
        position: its place in the order, from 1.
        reason: the limit that it waits for.
        detail: the same as a sentence.
    """

    ticket: Ticket
    position: int
    reason: Cap
    detail: str

    def as_dict(self) -> dict[str, Any]:
        """The start as the queue shows it."""
        place = self.ticket.place
        return {
            "position": self.position,
            "executionId": place.execution_id,
            "sessionId": place.session_id,
            "workflowId": place.workflow_id,
            "priority": place.priority,
            "queuedTime": rfc3339(self.ticket.queued_at),
            "waitReason": str(self.reason),
            "detail": self.detail,
        }

    def why(self) -> dict[str, Any]:
        """What the run waits for, as its detail shows it."""
        since = rfc3339(self.ticket.queued_at)
        return {"kind": "QUEUE", "since": since, "detail": self.detail}


def priority_fault(value: Any) -> str | None:
    """What is wrong with a priority as a sentence, None if it is fine."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Comparing from both sides refuses NaN as well.
    if number and -HIGHEST <= value <= HIGHEST:
        return None
    return f"must be a number from -{HIGHEST} to {HIGHEST}, higher first"
