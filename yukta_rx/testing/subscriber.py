"""TestSubscriber: records signals with their time, and controls demand. Feature: ENG-01."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.streams.protocol import FlowSubscriber, FlowSubscription

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal: its kind (`next`, `error`, `completed`), its value, and the loop's time."""

    kind: str
    value: Any
    time: float


class TestSubscriber(FlowSubscriber[Any]):
    """A subscriber for tests: requests what it is told, remembers what it gets.

    Args:
        demand: requested at once in `on_subscribe`; 0 for none.
        refill: requested after each element.
        on_next: called with each element, after it was recorded.
    """

    __test__ = False

    def __init__(
        self,
        demand: int = 0,
        *,
        refill: int = 0,
        on_next: Callable[[Any], None] | None = None,
    ) -> None:
        self.signals: list[Signal] = []
        self.subscription: FlowSubscription | None = None
        self.subscribed = 0
        self.requested = 0
        self._demand = demand
        self._refill = refill
        self._on_next = on_next
        self._changed = asyncio.Event()

    # -- signals

    def on_subscribe(self, subscription: FlowSubscription) -> None:
        """Keep the first subscription, dispose of any other (rule 2.5)."""
        self.subscribed += 1
        if self.subscription is not None:
            subscription.dispose()
            return
        self.subscription = subscription
        if self._demand:
            self.request(self._demand)

    def on_next(self, value: Any) -> None:
        """Record an element."""
        self._record("next", value)
        if self._on_next is not None:
            self._on_next(value)
        if self._refill:
            self.request(self._refill)

    def on_error(self, error: Exception) -> None:
        """Record the error."""
        self._record("error", error)

    def on_completed(self) -> None:
        """Record the completion."""
        self._record("completed", None)

    def _record(self, kind: str, value: Any) -> None:
        self.signals.append(Signal(kind, value, asyncio.get_running_loop().time()))
        self._changed.set()

    # -- what the test does

    def request(self, n: int) -> None:
        """Ask for `n` more elements."""
        assert self.subscription is not None, "not subscribed"
        self.requested += n
        self.subscription.request(n)

    def cancel(self) -> None:
        """Dispose of the subscription."""
        assert self.subscription is not None, "not subscribed"
        self.subscription.dispose()

    async def until(self, predicate: Callable[[TestSubscriber], bool]) -> None:
        """Wait until `predicate(self)` holds; it is looked at after each signal."""
        while not predicate(self):
            self._changed.clear()
            await self._changed.wait()

    async def ended(self) -> None:
        """Wait for the terminal signal."""
        await self.until(lambda me: me.terminal is not None)

    # -- what the test looks at

    @property
    def values(self) -> list[Any]:
        """The elements so far."""
        return [signal.value for signal in self.signals if signal.kind == "next"]

    @property
    def terminal(self) -> Signal | None:
        """The terminal signal, if it came."""
        for signal in self.signals:
            if signal.kind != "next":
                return signal
        return None

    @property
    def error(self) -> Exception | None:
        """The error, if the Flow failed."""
        terminal = self.terminal
        return terminal.value if terminal is not None and terminal.kind == "error" else None

    @property
    def completed(self) -> bool:
        """Whether the Flow completed."""
        terminal = self.terminal
        return terminal is not None and terminal.kind == "completed"

    @property
    def marble(self) -> str:
        """The signals in short: `1 2 3 |`, an error as `X`."""
        marks = {"completed": "|", "error": "X"}
        return " ".join(
            str(signal.value) if signal.kind == "next" else marks[signal.kind]
            for signal in self.signals
        )
