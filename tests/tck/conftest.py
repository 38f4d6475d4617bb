"""Every operator as a Flow to be checked; a new operator needs a line here."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as rx

from yukta_rx import operators as ops
from yukta_rx.model.policy import OnError, Overflow, RetryPolicy
from yukta_rx.streams.claims import Unopened
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import NodePlan, Slot
from yukta_rx.streams.rx import OverflowStrategy, from_rx
from yukta_rx.streams.threads import ThreadIterableBody
from yukta_rx.streams.through import StreamBody
from yukta_rx.testing.right_publisher import RightPublisher
from yukta_rx.testing.tck import MOST, Subject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

# -- sources


def ints(stop: int | None, error: Exception | None = None) -> Iterator[int]:
    n = 0
    while stop is None or n < stop:
        yield n
        n += 1
    if error is not None:
        raise error


async def ints_async(stop: int | None, error: Exception | None = None) -> AsyncIterator[int]:
    for n in ints(stop, error):
        if n % 3 == 1:
            await asyncio.sleep(0.001)
        yield n


def paced(stop: int | None, error: Exception | None = None) -> Flow[int]:
    return from_iterable(lambda: ints(stop, error))


def in_thread(stop: int | None, error: Exception | None = None) -> Flow[int]:
    body = ThreadIterableBody(lambda: ints(stop, error))
    return Flow(NodePlan(name="thread source", body=body, last=Slot.CALL))


def unpaced(stop: int | None, error: Exception | None = None) -> Observable[int]:
    """Pushes everything at once; without end, an element per 10 ms."""
    if stop is None:
        return reactivex.interval(0.01)
    pushed = reactivex.from_iterable(range(stop))
    return pushed if error is None else reactivex.concat(pushed, reactivex.throw(error))


def through(operator: ops.Operator, source: Callable[..., Flow[Any]] = paced) -> Subject:
    """The operator over a source; it must give one element for each."""
    return of(lambda *a: source(*a).pipe(operator))


def of(flow: Callable[..., Flow[Any]]) -> Subject:
    """A subject of one function of (count or None, error or None)."""
    return Subject(
        make=lambda count: flow(count, None),
        failing=lambda count, error: flow(count, error),
        endless=lambda: flow(None, None),
    )


# -- functions


async def suspending(value: int) -> int:
    await asyncio.sleep(0.001)
    return value


async def immediate(value: int) -> int:
    return value


def one(value: int) -> Iterator[int]:
    yield value


async def one_async(value: int) -> AsyncIterator[int]:
    await asyncio.sleep(0.001)
    yield value


async def copy(stream: AsyncIterator[int]) -> AsyncIterator[int]:
    async for value in stream:
        yield value


async def pass_barrier() -> None:
    await asyncio.sleep(0.001)


class Watcher:
    """A status observer that does nothing."""

    def touched(self, stage: Any) -> None:
        pass

    def ended(self, stage: Any, outcome: Any, error: Any) -> None:
        pass


def halves(stop: int | None, error: Exception | None = None) -> tuple[Flow[int], Flow[int]]:
    """Two sources that have `stop` elements together; the first fails."""
    if stop is None:
        return paced(None), paced(None)
    return paced(stop // 2, error), paced(stop - stop // 2)


def merged(stop: int | None, error: Exception | None = None) -> Flow[int]:
    return ops.merge(*halves(stop, error))


def merged_strictly(stop: int | None, error: Exception | None = None) -> Flow[int]:
    first, second = halves(stop, error)
    return first.pipe(ops.merge_parents(second, join=ops.AllSuccess(), prefetch=1))


def diamond(stop: int | None, error: Exception | None = None) -> Flow[int]:
    """One source, two children, one join; every other element goes one way."""
    shared = paced(stop, error).pipe(ops.broadcast())
    even = shared.pipe(ops.call(lambda n: n if n % 2 == 0 else None))
    odd = shared.pipe(ops.call(lambda n: n if n % 2 else None))
    return ops.merge(even, odd)


KEPT_VALVES: list[ops.Valve] = []
"""A user who keeps the handle must not keep the subscriber alive with it."""


def valved(stop: int | None, error: Exception | None = None) -> Flow[int]:
    handle = ops.Valve()
    KEPT_VALVES[:] = [handle]
    return paced(stop, error).pipe(ops.valve(handle), ops.call(lambda n: n))


def watched(stop: int | None, error: Exception | None = None) -> Flow[int]:
    clock = ops.IdleClock(LoopClock(asyncio.get_running_loop()), 1000.0)
    return paced(stop, error).pipe(ops.call(suspending), ops.idle_timeout(clock))


def loop_clock() -> LoopClock:
    return LoopClock(asyncio.get_running_loop())


def due(stop: int | None, error: Exception | None = None) -> Flow[int]:
    clock = ops.Deadline(loop_clock(), 1000.0)
    return paced(stop, error).pipe(ops.call(suspending), ops.deadline(clock))


def limited() -> ops.Operator:
    return ops.element_timeout(ops.ElementTimeout(loop_clock(), 1000.0))


def timed(stop: int | None, error: Exception | None = None) -> Flow[int]:
    return paced(stop, error).pipe(ops.call(suspending), limited())


def retried(
    fn: Any, stop: int | None, error: Exception | None = None, *, blocking: bool = False
) -> Flow[int]:
    """Every third element fails at the first attempt."""
    seen: set[int] = set()

    def first(n: int) -> None:
        if n % 3 == 1 and n not in seen:
            seen.add(n)
            raise LookupError(n)

    if inspect.isasyncgenfunction(fn):

        async def failing(n: int) -> AsyncIterator[int]:
            first(n)
            async for value in fn(n):
                yield value
    elif inspect.iscoroutinefunction(fn):

        async def failing(n: int) -> int:
            first(n)
            return await fn(n)
    elif inspect.isgeneratorfunction(fn):

        def failing(n: int) -> Iterator[int]:
            first(n)
            yield from fn(n)
    else:

        def failing(n: int) -> int:
            first(n)
            return fn(n)

    backoff = ops.Backoff(RetryPolicy(max_attempts=2, backoff_ms=1), loop_clock())
    return paced(stop, error).pipe(ops.call(failing, blocking=blocking), ops.retry(backoff))


def routed() -> ops.Operator:
    return ops.on_error(ops.FailureLedger(OnError.ROUTE, None, loop_clock()))


def unhurried(stop: int | None, error: Exception | None = None) -> Flow[int]:
    """As fast as it can, but not without end at once: a buffer that drops would take it all."""
    return paced(stop, error) if stop is not None else from_async_iterable(lambda: ints_async(None))


async def in_list(value: int) -> list[int]:
    await asyncio.sleep(0.001)
    return [value]


def line(stop: int | None, error: Exception | None = None) -> Flow[int]:
    flow: Flow[int] = paced(stop, error)
    for _ in range(20):
        flow = flow.pipe(ops.prefetch(1))
    return flow


def buffered(overflow: OverflowStrategy) -> Subject:
    return of(lambda *a: ops.on_backpressure_buffer(MOST, overflow)(unpaced(*a)))


class NothingKnown:
    """Knows no element."""

    def attach(self, stage: Any) -> None: ...

    def room(self, n: int) -> int:
        return n

    def fresh(self, batch: list[Any]) -> list[Any]:
        return batch


class EveryThird:
    """Of every third element a reference travels, which is a text."""

    carries = False

    def closed(self, item: Any) -> bool:
        return isinstance(item, str)

    def around(self, fn: Any) -> Any:
        def called(item: Any) -> Any:
            if self.closed(item):
                raise Unopened
            return self.sealed(fn(item))

        return called

    async def opened(self, item: str) -> int:
        await asyncio.sleep(0.001)
        return int(item)

    def opened_in_thread(self, item: str) -> int:
        return int(item)

    def sealed(self, out: int) -> Any:
        return str(out) if out % 3 == 1 else out

    def worked_off(self, _item: Any, _opened: Any) -> None: ...

    def resealed(self, out: Any, _item: Any, _opened: Any) -> Any:
        return out


def claimed(fn: Any, **how: Any) -> Subject:
    """Sealed at the first node, opened at the second."""
    claims = EveryThird()
    seal = ops.claim_check(claims)

    def chain(*a: Any) -> Flow[int]:
        return paced(*a).pipe(seal, ops.broadcast(), ops.call(fn, **how), ops.claim_check(OPENS))

    return of(chain)


class _Opens(EveryThird):
    """Nothing leaves as a reference."""

    def sealed(self, out: int) -> Any:
        return out


OPENS = _Opens()


class Keeps:
    """Keeps elements, after a while."""

    def keep(self, chunk: Any) -> None: ...

    def kept(self) -> Any:
        return asyncio.ensure_future(asyncio.sleep(0.001))

    def last(self) -> None: ...


SUBJECTS: dict[str, Subject] = {
    # where elements come from
    "from_iterable": of(paced),
    "from_async_iterable": of(lambda *a: from_async_iterable(lambda: ints_async(*a))),
    "thread_source": of(in_thread),
    "from_rx": of(lambda *a: from_rx(unpaced(*a), OverflowStrategy.ERROR, size=100)),
    # operators, by name in `operators.__all__`, with what else they can be called with
    "map": through(ops.map(lambda n: n + 1)),
    "flat_map": through(ops.flat_map(lambda n: [n])),
    "call": through(ops.call(lambda n: n)),
    "call:async": through(ops.call(immediate)),
    "call:async suspending": through(ops.call(suspending)),
    "call:generator": through(ops.call(one)),
    "call:async generator": through(ops.call(one_async)),
    "call:blocking": through(ops.call(lambda n: n, blocking=True)),
    "call:blocking generator": through(ops.call(one, blocking=True)),
    "through": through(ops.through(copy)),
    "merge": of(merged),
    "merge_parents": of(merged_strictly),
    "prefetch": through(ops.prefetch(3)),
    "broadcast": through(ops.broadcast()),
    "broadcast:diamond": of(diamond),
    "valve": of(valved),
    "idle_timeout": of(watched),
    "deadline": of(due),
    "element_timeout": of(timed),
    "element_timeout:sync": of(lambda *a: paced(*a).pipe(ops.call(lambda n: n), limited())),
    "retry": of(lambda *a: retried(lambda n: n, *a)),
    "retry:async": of(lambda *a: retried(suspending, *a)),
    "retry:generator": of(lambda *a: retried(one, *a)),
    "retry:async generator": of(lambda *a: retried(one_async, *a)),
    "retry:blocking": of(lambda *a: retried(lambda n: n, *a, blocking=True)),
    "on_error": of(lambda *a: paced(*a).pipe(ops.call(immediate), routed())),
    "edge_buffer:DROP_OLDEST": through(ops.edge_buffer(MOST, Overflow.DROP_OLDEST), unhurried),
    "edge_buffer:DROP_NEWEST": through(ops.edge_buffer(MOST, Overflow.DROP_NEWEST), unhurried),
    "edge_buffer:SPILL": through(ops.edge_buffer(3, Overflow.SPILL), unhurried),
    "edge_buffer:BLOCK": through(ops.edge_buffer(3, Overflow.BLOCK)),
    "concurrent": of(lambda *a: paced(*a).pipe(ops.call(ConcurrentBody(in_list, 3)))),
    "claim_check": claimed(lambda n: n),
    "claim_check:async": claimed(suspending),
    "claim_check:generator": claimed(one),
    "claim_check:async generator": claimed(one_async),
    "claim_check:blocking": claimed(lambda n: n, blocking=True),
    "claim_check:blocking generator": claimed(one, blocking=True),
    "claim_check:concurrent": claimed(ConcurrentBody(in_list, 3)),
    "claim_check:through": claimed(StreamBody(copy)),
    "without_known": through(ops.without_known(NothingKnown())),
    "status": through(ops.status(Watcher())),
    "record": through(ops.record(lambda port, batch: None, pass_barrier)),
    "record:keeper": through(ops.record(keeper=Keeps())),
    "on_backpressure_buffer:ERROR": buffered(OverflowStrategy.ERROR),
    "on_backpressure_buffer:DROP_OLDEST": buffered(OverflowStrategy.DROP_OLDEST),
    "on_backpressure_buffer:DROP_NEWEST": buffered(OverflowStrategy.DROP_NEWEST),
    "on_backpressure_drop": of(lambda *a: ops.on_backpressure_drop()(unpaced(*a))),
    "on_backpressure_latest": of(
        lambda stop, error: ops.on_backpressure_latest()(slow(stop, error))
    ),
    "on_backpressure_error": of(lambda *a: ops.on_backpressure_error()(unpaced(*a))),
    # together
    "line of 20": of(line),
    "mixed": of(
        lambda *a: diamond(*a).pipe(
            ops.call(suspending), ops.call(one, blocking=True), ops.through(copy)
        )
    ),
    "written by hand": of(RightPublisher),
}


def slow(stop: int | None, error: Exception | None = None) -> Observable[int]:
    """An element per 10 ms; then the end."""
    ticks = reactivex.interval(0.01)
    if stop is None:
        return ticks
    some = ticks.pipe(rx.take(stop))
    return some if error is None else reactivex.concat(some, reactivex.throw(error))


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[request.param]


@pytest.fixture
def subjects() -> dict[str, Subject]:
    return SUBJECTS
