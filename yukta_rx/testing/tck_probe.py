"""The subscriber with which rule checks watch a publisher, and what else they share.

Feature: ENG-01.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.streams.protocol import FlowSubscriber, FlowSubscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from yukta_rx.streams.flow import Flow

PATIENCE: Final = 60.0
"""Virtual seconds that a check waits for something that must happen."""

QUIET: Final = 0.5
"""Virtual seconds that a check watches for something that must not happen."""

MOST: Final = 40
"""No check asks for a Flow of more elements than this."""


class RuleViolation(AssertionError):
    """A publisher or subscriber broke a rule; `rule` is its number."""

    def __init__(self, rule: str, fault: str) -> None:
        super().__init__(f"rule {rule}: {fault}")
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Subject:
    """What is under test, as factories; they are called on the loop, once per check or more.

    Attributes:
        make: a Flow of exactly so many elements, at most `MOST`, which then completes.
        failing: a Flow of so many elements that then fails with the error.
        endless: a Flow without end.
    """

    make: Callable[[int], Flow[Any]]
    failing: Callable[[int, Exception], Flow[Any]] | None = None
    endless: Callable[[], Flow[Any]] | None = None


class Probe(FlowSubscriber[Any]):
    """A subscriber that notes how it is called: nesting, thread, and from inside what."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.terminals: list[Exception | None] = []
        self.subscriptions: list[FlowSubscription] = []
        self.first = ""
        """The kind of the first signal."""
        self.overlaps = 0
        """Signals that came while another had not returned, or from another thread."""
        self.inside: str | None = None
        """The method of publisher or subscription that the test is in, if any."""
        self.nested: list[tuple[str, str]] = []
        """Signals that came from inside a call: (method, signal)."""
        self.at_subscribe: Callable[[], None] = _nothing
        self.at_next: Callable[[Any], None] = _ignore
        self._active = False
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    # -- signals

    def on_subscribe(self, subscription: FlowSubscription) -> None:
        """Note the subscription."""

        def act() -> None:
            self.subscriptions.append(subscription)
            if len(self.subscriptions) == 1 and subscription is not None:
                self.at_subscribe()

        self._signal("on_subscribe", act)

    def on_next(self, value: Any) -> None:
        """Note the element, then do what the check wants to be done inside `on_next`."""

        def act() -> None:
            self.values.append(value)
            self.at_next(value)

        self._signal("on_next", act)

    def on_error(self, error: Exception) -> None:
        """Note the error."""
        self._signal("on_error", lambda: self.terminals.append(error))

    def on_completed(self) -> None:
        """Note the completion."""
        self._signal("on_completed", lambda: self.terminals.append(None))

    def _signal(self, kind: str, act: Callable[[], None]) -> None:
        self.first = self.first or kind
        if kind != "on_subscribe" and self.inside is not None:
            self.nested.append((self.inside, kind))
        foreign = threading.get_ident() != self._thread
        if self._active or foreign:
            self.overlaps += 1
        before, self._active = self._active, True
        try:
            act()
        finally:
            self._active = before
            self._loop.call_soon_threadsafe(self._changed.set) if foreign else self._changed.set()

    # -- what a check does

    @property
    def subscription(self) -> FlowSubscription:
        """The first subscription that came."""
        if not self.subscriptions or self.subscriptions[0] is None:
            raise RuleViolation("1.9", "there was no on_subscribe with a subscription")
        return self.subscriptions[0]

    def request(self, n: int) -> None:
        """Request, noting what is signalled from inside the call."""
        self._within("request", lambda: self.subscription.request(n))

    def cancel(self) -> None:
        """Dispose, noting what is signalled from inside the call."""
        self._within("dispose", self.subscription.dispose)

    def subscribe_to(self, flow: Flow[Any]) -> None:
        """Subscribe, noting what is signalled from inside the call."""
        self._within("subscribe", lambda: flow.subscribe(self))

    def _within(self, name: str, act: Callable[[], Any]) -> None:
        before, self.inside = self.inside, name
        try:
            act()
        finally:
            self.inside = before

    async def until(self, predicate: Callable[[], bool]) -> bool:
        """Wait for `predicate` for `PATIENCE` virtual seconds; whether it came true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not predicate():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def got(self, n: int) -> bool:
        """Wait for `n` elements."""
        return await self.until(lambda: len(self.values) >= n)

    async def ended(self) -> bool:
        """Wait for a terminal signal."""
        return await self.until(lambda: bool(self.terminals))


def _nothing() -> None:
    """Do nothing."""


def _ignore(_value: Any) -> None:
    """Do nothing with an element."""


def expect(rule: str, holds: object, fault: str) -> None:
    """Raise `RuleViolation` with `fault` unless `holds`."""
    if not holds:
        raise RuleViolation(rule, fault)


@asynccontextmanager
async def subscribed(rule: str, flow: Flow[Any], *, demand: int = 0) -> AsyncIterator[Probe]:
    """A probe that is subscribed to `flow` and has asked for `demand`; cancelled at the end."""
    probe = Probe()
    if demand:
        probe.at_subscribe = lambda: probe.subscription.request(demand)
    probe.subscribe_to(flow)
    expect(rule, probe.subscriptions, "there was no on_subscribe")
    try:
        yield probe
    finally:
        # What a wrong publisher does at the end of another rule's check is not that check's.
        with suppress(Exception):
            probe.subscription.dispose()
        await quiet(1e-3)


async def quiet(seconds: float = QUIET) -> None:
    """Let everything happen that would in that time."""
    await asyncio.sleep(seconds)
