"""deadline: ends a node that is not done so long after its first activity. Feature: ENG-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.errors import DeadlineExceededError
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from yukta_rx.streams.clock import Clock, Timer
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.stage import Stage


class Deadline:
    """The deadline of one node; belongs to one run of a flow.

    Args:
        clock: tells the time; what pauses it pauses the deadline.
        limit: seconds from the first activity on; None until `retime` says.
    """

    __slots__ = ("_began", "_clock", "_limit", "_stage", "_timer")

    def __init__(self, clock: Clock, limit: float | None) -> None:
        self._clock = clock
        self._limit = limit
        self._began: float | None = None
        self._stage: Stage | None = None
        self._timer: Timer | None = None

    def start(self, stage: Stage) -> None:
        """Remember what to end."""
        self._stage = stage

    def touched(self) -> None:
        """First activity: from now on."""
        self._began = self._clock.now()
        self._arm()

    def retime(self, limit: float) -> None:
        """Go on with another limit in seconds, still from the first activity."""
        self._limit = limit
        if self._began is not None and self._stage is not None:
            self._arm()

    def stop(self) -> None:
        """The node has ended."""
        self._stage = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._limit is not None and self._began is not None:
            self._timer = self._clock.call_at(self._began + self._limit, self._overdue)

    def _overdue(self) -> None:
        stage = self._stage
        assert stage is not None, "the timer is cancelled when the node ends"
        detail = f"not done {self._limit:g} s after its first activity, its deadlineMs"
        stage.fail(DeadlineExceededError(detail), stage.culprit)


@back_pressure(BackPressureKind.PASS_THROUGH)
def deadline(clock: Deadline) -> Operator:
    """Fail a node that has not ended so long after its first activity.

    Marble (deadline 5)::

        source: --1--2--3--4--
        result: --1--2-X

    What the node does after its last input counts too. Only pauses stop the clock.

    Emits when: the source does.
    Back-pressures when: the children do.
    Completes when: the source completes.
    Fails when: the time is over: `DeadlineExceededError`; the call is cancelled, a thread
        abandoned. Or the source fails.
    Cancels when: the children cancel.
    Discards: what is waiting when the time is over.

    Args:
        clock: the deadline of one subscription of the flow.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.DEADLINE, deadline=clock)

    return apply
