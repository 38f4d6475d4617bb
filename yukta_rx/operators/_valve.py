"""valve: pause, resume and step in front of a node's call. Feature: CTL-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.stage import Stage

OPEN: Final = -1


class Valve:
    """The handle of one `valve`: open, closed, or open for a number of elements.

    Belongs to one run of a flow. Its methods are called on the event loop and are exact: an
    element that is not in the call yet when `pause` returns stays where it is.
    """

    __slots__ = ("_permits", "_stage")

    def __init__(self) -> None:
        self._permits = OPEN
        self._stage: Stage | None = None

    @property
    def paused(self) -> bool:
        """Whether the valve is closed, or will be once its last permits are used."""
        return self._permits != OPEN

    def pause(self) -> None:
        """Let nothing more through; permits that `step` gave and nobody used are void."""
        self._permits = 0
        if self._stage is not None:
            self._stage.steer = True

    def resume(self) -> None:
        """Open."""
        self._permits = OPEN
        self._wake()

    def step(self, n: int = 1) -> None:
        """Let exactly `n` more elements through, then stay closed.

        Raises:
            ValueError: `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"step needs 1 element or more, not {n}")
        self._permits = max(self._permits, 0) + n
        if self._stage is not None:
            self._stage.steer = True
        self._wake()

    def _wake(self) -> None:
        if self._stage is not None:
            self._stage.wake()

    # -- what the stage asks (streams.plan.Gate)

    def attach(self, stage: Stage) -> None:
        """Remember the stage, to wake it."""
        self._stage = stage

    def limit(self, n: int) -> int:
        """How many of the next `n` elements may pass."""
        permits = self._permits
        return n if permits < 0 else min(n, permits)

    def passed(self, n: int) -> None:
        """Use up permits."""
        if self._permits > 0:
            self._permits = max(0, self._permits - n)


@back_pressure(BackPressureKind.FULL)
def valve(handle: Valve) -> Operator:
    """Let elements through while `handle` is open.

    Marble (`P` pause, `S` step(1), `R` resume)::

        source: --1--2--3--4--5--|
        handle: -----P----S---R---
        result: --1-------2---345|

    Emits when: an element comes and the valve is open, or permits are left.
    Back-pressures when: the valve is closed: nothing is taken from the parents, so they stop once
        the edge is full. What is under way in the call goes on.
    Completes when: the parents have completed and everything went through; a closed valve holds
        the completion back.
    Fails when: a parent fails, also while closed.
    Cancels when: every child has cancelled, also while closed.
    Discards: nothing.

    Args:
        handle: the valve; belongs to one subscription at a time.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.VALVE, gate=handle)

    return apply
