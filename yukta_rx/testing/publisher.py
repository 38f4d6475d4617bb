"""TestPublisher: a source that a test drives by hand; it remembers demand. Feature: ENG-01."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Outcome, Slot
from yukta_rx.streams.source import SourceStage

if TYPE_CHECKING:
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.stage import Stage


@dataclass(frozen=True, slots=True)
class Pull:
    """Demand that reached the publisher: so many more elements, at this time of the loop."""

    n: int
    time: float


class TestPublisher(Flow[Any]):
    """A Flow whose elements, completion and failure come from the test; for one circuit.

    What it is asked for is what every edge to its children lets it run ahead, so the first pull
    is as large as the smallest window among them. Its methods are called on the event loop.

    Attributes:
        pulls: the demand that came, in order.
        subscribed_at: when its circuit got to it, None before.
        cancelled_at: when the last of its children had cancelled, None before.
        ended_at: when it ended, in whatever way, None before.
    """

    __test__ = False

    def __init__(self, name: str = "test publisher") -> None:
        super().__init__(NodePlan(name=name, body=_TestBody(self), last=Slot.CALL))
        self.pulls: list[Pull] = []
        self.subscribed_at: float | None = None
        self.cancelled_at: float | None = None
        self.ended_at: float | None = None
        self._stage: _TestStage | None = None
        self._changed = asyncio.Event()

    # -- what the test does

    def emit(self, *values: Any) -> None:
        """Emit `values`.

        Raises:
            AssertionError: nobody has subscribed, or has asked for so many.
        """
        stage = self._running()
        assert len(values) <= self.demand, f"{len(values)} elements for a demand of {self.demand}"
        stage.emit(list(values))

    def complete(self) -> None:
        """End successfully."""
        self._running().end(Outcome.COMPLETED)

    def fail(self, error: BaseException) -> None:
        """End with `error`."""
        self._running().end(Outcome.FAILED, error)

    async def pulled(self, n: int) -> None:
        """Wait until at least `n` elements have been asked for altogether."""
        while self.requested < n:
            self._changed.clear()
            await self._changed.wait()

    # -- what the test looks at

    @property
    def demand(self) -> int:
        """Elements that may be emitted now: what the slowest live child still asks for."""
        stage = self._stage
        if stage is None or stage.ended:
            return 0
        return min((edge.credit for edge in stage.outs if not edge.dead), default=0)

    @property
    def requested(self) -> int:
        """Elements that were asked for altogether."""
        return sum(pull.n for pull in self.pulls)

    @property
    def cancelled(self) -> bool:
        """Whether every child has cancelled."""
        return self.cancelled_at is not None

    def _running(self) -> _TestStage:
        assert self._stage is not None, "not subscribed, or its circuit has not started yet"
        return self._stage

    # -- told by the stage

    def _wired(self, stage: _TestStage) -> None:
        assert self._stage is None, "a TestPublisher serves one circuit"
        self._stage = stage

    def _pull(self, n: int, time: float) -> None:
        if self.subscribed_at is None:
            self.subscribed_at = time
        if n > 0:
            self.pulls.append(Pull(n, time))
            self._changed.set()

    def _end(self, outcome: Outcome, time: float) -> None:
        self.ended_at = time
        if outcome is Outcome.CANCELLED:
            self.cancelled_at = time


@dataclass(frozen=True, slots=True, eq=False)
class _TestBody:
    publisher: TestPublisher

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        stage = _TestStage(plan, circuit, self.publisher)
        self.publisher._wired(stage)
        return stage


class _TestStage(SourceStage):
    __slots__ = ("granted", "publisher")

    def __init__(self, plan: NodePlan, circuit: Circuit, publisher: TestPublisher) -> None:
        super().__init__(plan, circuit)
        self.publisher = publisher
        self.granted = 0

    def run(self) -> None:
        self.room()
        if self.ended:
            return
        if not self.touched:
            self.touch()
        granted = min((edge.credit + edge.passed for edge in self.outs), default=0)
        self.publisher._pull(granted - self.granted, self.circuit.loop.time())
        self.granted = max(granted, self.granted)

    def close(self, outcome: Outcome, error: BaseException | None = None) -> None:
        self.publisher._end(outcome, self.circuit.loop.time())
        super().close(outcome, error)
