"""What every operator does alike: signals, demand and cancellation pass at their time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = pytest.mark.feature("ENG-02")


async def one_async(n: int) -> int:
    return n


async def many_async(n: int) -> AsyncIterator[int]:
    yield n


def many(n: int) -> Iterator[int]:
    yield n


async def copy(stream: AsyncIterator[int]) -> AsyncIterator[int]:
    async for n in stream:
        yield n


async def no_barrier() -> None:
    pass


class Silent:
    def touched(self, stage: Any) -> None:
        pass

    def ended(self, stage: Any, outcome: Any, error: Any) -> None:
        pass


def watched() -> ops.Operator:
    return ops.idle_timeout(ops.IdleClock(LoopClock(asyncio.get_running_loop()), 1e6))


# Each makes one operator that gives every element on, once.
OPERATORS: dict[str, Callable[[], Any]] = {
    "call": lambda: ops.call(lambda n: n),
    "call generator": lambda: ops.call(many),
    "call async": lambda: ops.call(one_async),
    "call async generator": lambda: ops.call(many_async),
    "call blocking": lambda: ops.call(lambda n: n, blocking=True),
    "call blocking generator": lambda: ops.call(many, blocking=True),
    "map": lambda: ops.map(lambda n: n),
    "flat_map": lambda: ops.flat_map(lambda n: [n]),
    "through": lambda: ops.through(copy),
    "valve": lambda: ops.valve(ops.Valve()),
    "status": lambda: ops.status(Silent()),
    "record": lambda: ops.record(lambda port, batch: None, no_barrier),
    "broadcast": lambda: ops.broadcast(),
    "idle_timeout": watched,
    "prefetch": lambda: ops.prefetch(4),
    "merge_parents": lambda: ops.merge_parents(prefetch=4),
}
OWN_EDGE = {"prefetch", "merge_parents"}


@pytest.fixture(params=OPERATORS)
def operator(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return OPERATORS[request.param]


@virtual_time
async def test_elements_and_the_end_pass_at_their_time(operator: Any, bench: Any) -> None:
    b = bench(operator(), demand=10)

    for n in range(3):
        await asyncio.sleep(1)
        await b.emit(n)
    await asyncio.sleep(1)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [
        ("next", 0, 1),
        ("next", 1, 2),
        ("next", 2, 3),
        ("completed", None, 4),
    ]


@virtual_time
async def test_an_error_passes_at_its_time(operator: Any, bench: Any) -> None:
    b = bench(operator(), demand=10)
    error = LookupError("source")

    await b.emit(1)
    await asyncio.sleep(2)
    b.source.fail(error)
    await b.seen.ended()

    assert b.timed == [("next", 1, 0), ("error", error, 2)]


@virtual_time
async def test_the_end_needs_no_demand(operator: Any, bench: Any) -> None:
    b = bench(operator())

    await asyncio.sleep(3)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("completed", None, 3)]


@virtual_time
async def test_a_cancellation_reaches_the_source_at_its_time(operator: Any, bench: Any) -> None:
    b = bench(operator(), demand=10)
    await b.emit(1, 2)
    await asyncio.sleep(5)

    b.seen.cancel()
    await asyncio.sleep(5)

    assert round(b.source.cancelled_at, 3) == 5
    assert b.timed == [("next", 1, 0), ("next", 2, 0)]
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("ticks", range(6))
@virtual_time
async def test_a_cancellation_at_any_early_moment_reaches_the_source(
    operator: Any, bench: Any, ticks: int
) -> None:
    b = bench(operator())

    for _ in range(ticks):
        await asyncio.sleep(0)
    b.seen.cancel()
    await asyncio.sleep(1)

    assert b.source.cancelled_at == 0
    assert b.seen.signals == []
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("ticks", range(6))
@virtual_time
async def test_an_end_at_any_early_moment_reaches_the_subscriber(
    operator: Any, bench: Any, ticks: int
) -> None:
    b = bench(operator())

    for _ in range(ticks):
        await asyncio.sleep(0)
    b.source.complete()
    await asyncio.sleep(1)

    assert b.timed == [("completed", None, 0)]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_the_source_is_asked_for_one_window_then_for_what_is_used(
    operator: Any, bench: Any
) -> None:
    b = bench(operator(), demand=1000)
    await b.source.pulled(1)
    first = b.pulls
    await asyncio.sleep(1)
    await b.emit(1, 2)
    two = b.pulls
    await asyncio.sleep(1)
    await b.emit(3)
    await asyncio.sleep(1)
    await b.emit(4, 5, 6)
    await asyncio.sleep(1)

    # A window of 4, handed back three at a time.
    assert first == two == [(4, 0)]
    assert b.pulls == [(4, 0), (3, 2), (3, 3)]
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_without_demand_the_source_is_asked_for_no_more_than_the_windows(
    operator: Any, bench: Any, request: pytest.FixtureRequest
) -> None:
    b = bench(operator())
    await b.source.pulled(1)

    while b.source.demand:
        b.source.emit(0)
        await asyncio.sleep(0.01)
    held = b.source.requested
    b.seen.request(1000)
    await asyncio.sleep(1)

    own = 4 if any(name in request.node.name for name in OWN_EDGE) else 0
    in_call = 1
    assert 64 <= held <= 4 + 64 + own + in_call
    assert b.source.requested > held
    assert len(b.seen.values) == held
    b.seen.cancel()
    await asyncio.sleep(1)


@virtual_time
async def test_demand_by_ones_gives_elements_by_ones(operator: Any, bench: Any) -> None:
    b = bench(operator())
    await b.emit(1, 2, 3)

    for _ in range(3):
        await asyncio.sleep(1)
        b.seen.request(1)
        await b.settle()
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [
        ("next", 1, 1),
        ("next", 2, 2),
        ("next", 3, 3),
        ("completed", None, 3),
    ]
