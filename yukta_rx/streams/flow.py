"""Flow: a reactivex Observable whose subscription carries demand.

To plain Rx a Flow is an Observable like any other: every operator of `reactivex.operators` and
every observer takes it, with unbounded demand. A `FlowSubscriber` gets a subscription with
`request(n)`. Between Flows, demand crosses every edge and no call stack does.

A Flow is a plan and nothing runs until it is subscribed. Each subscription wires a circuit of
its own, so sources begin anew; within one circuit a Flow with several children is multicast at
the pace of the slowest. What leaves the paced world is visible in the type: the inherited fluent
methods return a plain Observable, paced operators live in `yukta_rx.operators`.

Feature: ENG-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, overload

from reactivex import Observable, abc
from reactivex.internal.exceptions import SequenceContainsNoElementsError

from yukta_rx.streams.aio import AsyncIterableBody
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.leaves import Iteration, LeafSubscription, ObserverBody, ObserverStage
from yukta_rx.streams.plan import NodePlan, Outlet, Slot
from yukta_rx.streams.protocol import FlowSubscriber
from yukta_rx.streams.sync import IterableBody

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable

T = TypeVar("T")


class Flow(Observable[T]):
    """One output of a planned node, as an Observable with back-pressure."""

    def __init__(self, plan: NodePlan, port: str | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.outlet = Outlet(plan, port)

    def port(self, name: str) -> Flow[Any]:
        """The output named `name` of the same node: what it emits as `Routed(name, ...)`."""
        return Flow(self.plan, name)

    def write(self, slot: Slot, **fields: Any) -> Flow[Any]:
        """This flow with a slot written: folded into the same node, or as a new one behind it."""
        return Flow(self.plan.write(slot, self.outlet, **fields))

    @overload
    def pipe(self, *operators: Callable[[Flow[Any]], Flow[Any]]) -> Flow[Any]: ...
    @overload
    def pipe(self, *operators: Callable[[Any], Any]) -> Any: ...
    def pipe(self, *operators: Callable[[Any], Any]) -> Any:
        """Apply operators one after the other; the result is what the last one makes.

        With the paced operators of `yukta_rx.operators` that is a Flow; a plain Rx operator
        gives a plain Observable.
        """
        made: Any = self
        for operator in operators:
            made = operator(made)
        return made

    def subscribe(
        self,
        on_next: abc.ObserverBase[T] | abc.OnNext[T] | None = None,
        on_error: abc.OnError | None = None,
        on_completed: abc.OnCompleted | None = None,
        *,
        scheduler: abc.SchedulerBase | None = None,
    ) -> abc.DisposableBase:
        """Subscribe a `FlowSubscriber` with demand, or anything that plain Rx takes without.

        Must be called on a running event loop. Emits nothing itself (rule 1.9).
        """
        if isinstance(on_next, FlowSubscriber):
            return self._connect(on_next, demand=0)
        return super().subscribe(on_next, on_error, on_completed, scheduler=scheduler)

    def _subscribe_core(
        self, observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        return self._connect(observer, demand=None)

    def _connect(self, observer: abc.ObserverBase[Any], demand: int | None) -> abc.DisposableBase:
        body = ObserverBody() if demand is None else ObserverBody(demand)
        leaf = NodePlan(name="subscriber", parents=(self.outlet,), body=body)
        circuit = Circuit((leaf,))
        stage = circuit.stages[leaf]
        assert isinstance(stage, ObserverStage)
        stage.observer = observer
        subscription = LeafSubscription(stage)
        if isinstance(observer, FlowSubscriber):
            try:
                observer.on_subscribe(subscription)
            except Exception as error:
                # Rule 2.13, as for any other signal: cancelled and reported.
                circuit.report(stage, error)
                subscription.dispose()
        circuit.start()
        return subscription

    def aiter(self, prefetch: int = 64) -> Iteration:
        """An async iterator over a new subscription that holds at most `prefetch` elements.

        Close it (`contextlib.aclosing`) when the iteration may end early.
        """
        iteration = Iteration(prefetch)
        self.subscribe(iteration)
        return iteration

    def __aiter__(self) -> AsyncIterator[T]:
        return self.aiter()

    def __await__(self) -> Generator[Any, None, T]:
        return self._last().__await__()

    async def _last(self) -> T:
        iteration = self.aiter()
        found = False
        last: Any = None
        try:
            async for item in iteration:
                found, last = True, item
        finally:
            await iteration.aclose()
        if not found:
            raise SequenceContainsNoElementsError
        return cast("T", last)

    def run(self, scheduler: abc.SchedulerBase | None = None) -> NoReturn:
        """Refused: it would block the event loop that has to move the elements."""
        raise RuntimeError("Flow.run() would block the event loop; use `await flow` or aiter()")


def from_iterable(
    source: Iterable[T] | Callable[[], Iterable[T]], *, name: str = "source"
) -> Flow[T]:
    """A Flow of the elements of an iterable, drawn on the loop as they are asked for.

    A callable is called once per subscription, so a generator function can be subscribed again.
    """
    make = source if callable(source) else lambda: source
    return Flow(NodePlan(name=name, body=IterableBody(make), last=Slot.CALL))


def from_async_iterable(
    source: AsyncIterable[T] | Callable[[], AsyncIterable[T]], *, name: str = "source"
) -> Flow[T]:
    """A Flow of the elements of an async iterable, awaited only while they are asked for.

    A callable is called once per subscription. The iterator is closed when the Flow is cancelled.
    """
    make = source if callable(source) else lambda: source
    return Flow(NodePlan(name=name, body=AsyncIterableBody(make), last=Slot.CALL))
