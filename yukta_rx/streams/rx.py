"""The door between plain Rx and Flows: an Observable in, under an overflow strategy; time out.

An Observable pushes whenever it likes, so taking one in means to say what happens to elements
that nobody asked for yet. There is no default: `from_rx` takes a strategy, and so do the
`on_backpressure_*` operators.

Feature: ENG-01.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import reactivex
from reactivex import Observable, abc
from reactivex.internal.constants import UTC_ZERO
from reactivex.scheduler.eventloop import AsyncIOScheduler

from yukta_rx.errors import BackPressureOverflowError
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Outcome, Slot
from yukta_rx.streams.source import SourceStage

if TYPE_CHECKING:
    from datetime import datetime

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.stage import Stage

T = TypeVar("T")

Discard = Callable[[Any], None]


class OverflowStrategy(StrEnum):
    """What becomes of an element that finds the buffer full."""

    ERROR = "ERROR"
    DROP_OLDEST = "DROP_OLDEST"
    DROP_NEWEST = "DROP_NEWEST"


class LoopScheduler(AsyncIOScheduler):
    """The asyncio scheduler with the loop's time as its time.

    The one of reactivex tells wall-clock time, which jumps and is not virtual in tests.
    """

    @property
    def now(self) -> datetime:
        """The loop's time, as the time since an arbitrary zero."""
        return UTC_ZERO + self.to_timedelta(self._loop.time())


@dataclass(frozen=True, slots=True, eq=False)
class RxBody:
    """A source: an Observable behind a buffer of `size` elements (0: only what is asked for)."""

    observable: Observable[Any]
    size: int
    overflow: OverflowStrategy
    on_discard: Discard | None

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """The buffering source stage."""
        return RxStage(plan, circuit, self)


class RxStage(SourceStage):
    """Takes what the Observable pushes, from any thread, and emits it as credit allows."""

    can_hang = True

    __slots__ = ("armed", "body", "buffer", "foreign", "over", "subscription")

    def __init__(self, plan: NodePlan, circuit: Circuit, body: RxBody) -> None:
        super().__init__(plan, circuit)
        self.body = body
        self.buffer: deque[Any] = deque()
        self.foreign: deque[tuple[str, Any]] = deque()
        self.armed = False
        self.over: tuple[BaseException | None] | None = None
        self.subscription: abc.DisposableBase | None = None

    def run(self) -> None:
        """Subscribe at the first run; then emit what there is credit for."""
        if self.subscription is None and self.over is None and not self.touched:
            self.touch()
            self.subscription = self.body.observable.subscribe(
                lambda value: self._signal("next", value),
                lambda error: self._signal("error", error),
                lambda: self._signal("end", None),
                scheduler=LoopScheduler(self.circuit.loop),
            )
            if self.ended:
                self.release()
        n = self.room()
        if self.ended:
            return
        buffer = self.buffer
        chunk = [buffer.popleft() for _ in range(min(n, len(buffer)))]
        if chunk:
            if self.gate is not None:
                self.gate.passed(len(chunk))
            self.give(chunk)
        if buffer and n > 0:
            self.wake()
        elif not buffer and self.over is not None:
            [error] = self.over
            self.end(Outcome.COMPLETED if error is None else Outcome.FAILED, error)
        return

    def working(self) -> bool:
        """Children ask, and the Observable has given nothing."""
        return not self.buffer and all(edge.credit > 0 for edge in self.outs)

    def _signal(self, kind: str, value: Any) -> None:
        if threading.get_ident() == self.circuit.pump.thread:
            self._take(kind, value)
            return
        # One wake per burst: whoever arms it schedules the drain, the others only append.
        self.foreign.append((kind, value))
        if not self.armed:
            self.armed = True
            if not self.circuit.loop.is_closed():
                self.circuit.post(self._drain)

    def _drain(self) -> None:
        self.armed = False
        foreign = self.foreign
        while foreign:
            self._take(*foreign.popleft())

    def _take(self, kind: str, value: Any) -> None:
        if self.ended or self.over is not None:
            # It was under way when the source was cancelled, or pushed more than too much.
            if kind == "next":
                self.received += 1
                self._discard(value)
            return
        if kind == "next":
            self._offer(value)
        else:
            self.over = (value,)
        self.wake()

    def _offer(self, value: Any) -> None:
        self.received += 1
        body, buffer = self.body, self.buffer
        limit = body.size or min((edge.credit for edge in self.outs), default=1)
        if len(buffer) < limit:
            buffer.append(value)
        elif body.overflow is OverflowStrategy.ERROR:
            self._discard(value)
            self.over = (
                BackPressureOverflowError(
                    f"the Observable pushed more than the {limit} elements that may wait"
                ),
            )
            self._unsubscribe()
        elif body.overflow is OverflowStrategy.DROP_OLDEST and buffer:
            self._discard(buffer.popleft())
            buffer.append(value)
        else:
            self._discard(value)

    def _discard(self, value: Any) -> None:
        self.discarded += 1
        discard = self.body.on_discard
        if discard is not None:
            self.circuit.guard(self, lambda: discard(value))

    def _unsubscribe(self) -> None:
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            self.circuit.guard(self, subscription.dispose)

    def release(self) -> None:
        """Dispose of the subscription; what waits is dropped, counted and told."""
        self._unsubscribe()
        while self.buffer:
            self._discard(self.buffer.popleft())


def from_rx(
    observable: Observable[T],
    overflow: OverflowStrategy,
    *,
    size: int = 64,
    on_discard: Discard | None = None,
    name: str = "observable",
) -> Flow[T]:
    """Take a plain Observable into the paced world.

    Args:
        observable: subscribed once per circuit, on the loop; may push from any thread.
        overflow: what happens to an element when `size` others wait: ERROR fails the Flow with
            `BackPressureOverflowError` after what waits, DROP_OLDEST and DROP_NEWEST drop one.
        size: elements that may wait, 1 or more; 0 keeps none beyond what is asked for now.
        on_discard: hears of each element that is dropped.
        name: of the node, in errors and logs.

    Raises:
        ValueError: `size` is negative.
    """
    if size < 0:
        raise ValueError(f"size must be 0 or more, not {size}")
    body = RxBody(observable, size, OverflowStrategy(overflow), on_discard)
    return Flow(NodePlan(name=name, body=body, last=Slot.CALL))


def to_rx(flow: Flow[T]) -> Observable[T]:
    """A plain Observable of the same elements, without demand and without `FlowSubscriber`."""
    return reactivex.create(lambda observer, scheduler: flow.subscribe(observer))
