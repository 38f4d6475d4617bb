"""Leaves: where elements leave a circuit for a subscriber, an observer or an async iterator.

Feature: ENG-01.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.protocol import UNBOUNDED, FlowSubscriber, FlowSubscription
from yukta_rx.streams.stage import Stage

if TYPE_CHECKING:
    from reactivex import abc

    from yukta_rx.streams.circuit import Circuit


@dataclass(frozen=True, slots=True, eq=False)
class ObserverBody:
    """A leaf that delivers to its stage's observer; the demand begins with `demand` elements.

    The observer is no part of the plan, which outlives the subscription (rule 3.13).
    """

    demand: int = UNBOUNDED

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """The delivering stage."""
        return ObserverStage(plan, circuit, self.demand)


class ObserverStage(Stage):
    """Delivers element by element, never more than was requested; then the terminal signal."""

    __slots__ = ("demand", "fault", "observer")

    def __init__(self, plan: NodePlan, circuit: Circuit, demand: int) -> None:
        super().__init__(plan, circuit)
        self.observer: abc.ObserverBase[Any] | None = None
        self.demand = demand
        self.fault: ValueError | None = None

    def request(self, n: int) -> None:
        """Add `n` to the demand (rules 3.8, 3.9, 3.17)."""
        if self.ended:
            return
        if n < 1:
            self.fault = ValueError(f"rule 3.9: request({n}), expected 1 or more")
            self.steer = True
        elif self.demand < UNBOUNDED:
            self.demand += n
        self.wake()

    def room(self) -> int:
        """What was requested and not yet delivered, within the quantum."""
        n = super().room()
        return min(n, self.demand)

    def run(self) -> None:
        """Deliver one batch."""
        if self.fault is not None:
            self.end(Outcome.FAILED, self.fault)
            return
        n = self.room()
        if self.ended or (not self.ins and self.complete_if_idle()) or n < 1:
            return
        edge = self.next_edge()
        if edge is None:
            return
        batch = edge.take(n)
        self.touched = True
        if self.demand < UNBOUNDED:
            self.demand -= len(batch)
        observer = self.observer
        done = 0
        try:
            for item in batch:
                done += 1
                observer.on_next(item)  # type: ignore[union-attr]
                if self.steer:
                    break
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.received += done
            self.discarded += len(batch) - done
            self.circuit.report(self, error)
            self.end(Outcome.CANCELLED)
            return
        self.received += done
        if self.ended or self.fault is not None:
            self.discarded += len(batch) - done
        if not self.ended:
            edge.release(done)
            self.count = done
            if self.more():
                self.wake()
        return

    def close(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Give the terminal signal, unless the subscriber cancelled; then let go of it."""
        observer, self.observer = self.observer, None
        super().close(outcome, error)
        assert observer is not None, "a stage is closed once"
        if outcome is Outcome.FAILED and error is not None:
            failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
            self.circuit.guard(self, lambda: observer.on_error(failure))
        elif outcome is not Outcome.CANCELLED:
            self.circuit.guard(self, observer.on_completed)


class LeafSubscription(FlowSubscription):
    """The subscription of a leaf; `dispose` may come from any thread."""

    __slots__ = ("_stage",)

    def __init__(self, stage: ObserverStage) -> None:
        self._stage: ObserverStage | None = stage

    def request(self, n: int) -> None:
        """See `FlowSubscription.request`; must be called on the loop."""
        if self._stage is not None:
            self._stage.request(n)

    def dispose(self) -> None:
        """Cancel: the leaf ends at once, the rest of its circuit as the pump gets to it."""
        stage, self._stage = self._stage, None
        if stage is None:
            return
        circuit = stage.circuit
        if threading.get_ident() == circuit.pump.thread:
            stage.end(Outcome.CANCELLED)
        elif not circuit.loop.is_closed():
            circuit.post(lambda: stage.end(Outcome.CANCELLED))


class Iteration(FlowSubscriber[Any], AsyncIterator[Any]):
    """A subscriber that is an async iterator; holds at most `prefetch` elements.

    Leaving the loop early must cancel: use it in `async with contextlib.aclosing(...)`, or call
    `aclose`.
    """

    __slots__ = (
        "_ended",
        "_error",
        "_items",
        "_low",
        "_prefetch",
        "_subscription",
        "_used",
        "_waiter",
    )

    def __init__(self, prefetch: int) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch must be 1 or more, not {prefetch}")
        self._prefetch = prefetch
        self._low = max(1, prefetch - prefetch // 4)
        self._items: deque[Any] = deque()
        self._used = 0
        self._ended = False
        self._error: Exception | None = None
        self._subscription: FlowSubscription | None = None
        self._waiter: asyncio.Future[None] | None = None

    def on_subscribe(self, subscription: FlowSubscription) -> None:
        """Ask for the first window; a second subscription is refused (rule 2.5)."""
        if self._subscription is not None:
            subscription.dispose()
            return
        self._subscription = subscription
        subscription.request(self._prefetch)

    def on_next(self, value: Any) -> None:
        """Keep an element for the iterating task."""
        self._items.append(value)
        self._wake()

    def on_error(self, error: Exception) -> None:
        """Raise in the iterating task once it has taken what came before."""
        self._ended = True
        self._error = error
        self._wake()

    def on_completed(self) -> None:
        """End the iteration once it has taken what came before."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> Any:
        while not self._items:
            if self._ended:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._used += 1
        if self._used >= self._low and self._subscription is not None:
            used, self._used = self._used, 0
            self._subscription.request(used)
        return self._items.popleft()

    async def aclose(self) -> None:
        """Cancel the subscription; elements not taken yet are dropped."""
        self._ended = True
        self._items.clear()
        self._wake()
        if self._subscription is not None:
            self._subscription.dispose()
