"""A small publisher by hand that keeps every rule, without anything of the streams core.

The checks of `yukta_rx.testing.tck` are seen to accept more than one implementation with it, and
the wrong publishers differ from it in one point each.

Feature: ENG-01.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Slot
from yukta_rx.streams.protocol import UNBOUNDED, FlowSubscriber, FlowSubscription

if TYPE_CHECKING:
    from reactivex import abc


PERIOD: Final = 1e-4
"""Seconds between two bursts; without them virtual time would stand still for an endless one."""


class RightSubscription(FlowSubscription):
    """Emits 0, 1, 2 ... from a callback of the loop, as many as were asked for."""

    def __init__(self, publisher: RightPublisher, subscriber: FlowSubscriber[Any]) -> None:
        self.publisher = publisher
        self.subscriber: FlowSubscriber[Any] | None = subscriber
        self.loop = asyncio.get_running_loop()
        self.demand = 0
        self.sent = 0
        self.done = False
        self.bad: Exception | None = None
        self.due = False

    def request(self, n: int) -> None:
        """Add to the demand and have the loop call `drain`."""
        if self.done:
            return
        if n < 1:
            self.bad = ValueError(f"rule 3.9: request({n})")
        else:
            self.demand += n
        self.schedule()

    def dispose(self) -> None:
        """Cancel; there is nothing to undo."""
        self.done = True
        self.subscriber = None

    def schedule(self) -> None:
        """Have `drain` called soon, once."""
        if not self.due:
            self.due = True
            self.loop.call_later(PERIOD, self.drain)

    def drain(self) -> None:
        """Emit what is asked for, at most 16 in one go; then the terminal signal, when due."""
        self.due = False
        for _ in range(16):
            if self.done or self.exhausted or self.bad is not None or self.demand < 1:
                break
            self.next()
        if self.done:
            return
        if self.exhausted or self.bad is not None:
            self.finish()
        elif self.demand > 0:
            self.schedule()

    @property
    def exhausted(self) -> bool:
        """Whether every element was sent."""
        size = self.publisher.size
        return size is not None and self.sent >= size

    def next(self) -> None:
        """Send one element."""
        value, self.sent = self.sent, self.sent + 1
        if self.demand < UNBOUNDED:
            self.demand -= 1
        self.send(value)

    def send(self, value: int) -> None:
        """Call `on_next`; a subscriber that raises is cancelled (rule 2.13)."""
        assert self.subscriber is not None
        try:
            self.subscriber.on_next(value)
        except Exception:
            self.dispose()

    def finish(self) -> None:
        """Send the terminal signal."""
        subscriber, error = self.subscriber, self.bad or self.publisher.error
        self.dispose()
        assert subscriber is not None
        if error is not None:
            subscriber.on_error(error)
        else:
            subscriber.on_completed()


class RightPublisher(Flow[int]):
    """A correct publisher of 0, 1, 2 ..., for tests of the rule checks.

    Args:
        size: how many elements; None for no end.
        error: ends with it, after the elements, instead of completing.
    """

    subscription: ClassVar[type[RightSubscription]] = RightSubscription
    breaks: ClassVar[tuple[str, ...]] = ()
    """Rules of which at least one check must fail for this class."""

    def __init__(self, size: int | None = None, error: Exception | None = None) -> None:
        super().__init__(NodePlan(name=type(self).__name__, last=Slot.BROADCAST))
        self.size = size
        self.error = error

    def subscribe(  # type: ignore[override]
        self,
        on_next: FlowSubscriber[Any],
        on_error: Any = None,
        on_completed: Any = None,
        *,
        scheduler: abc.SchedulerBase | None = None,
    ) -> abc.DisposableBase:
        """Give the subscriber its subscription; everything else comes from the loop."""
        made = self.subscription(self, on_next)
        on_next.on_subscribe(made)
        made.schedule()
        return made
