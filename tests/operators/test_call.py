"""call, map and flat_map: a function as a node."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.aio import AsyncBody, AsyncManyBody
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.sync import ManyBody, MapBody
from yukta_rx.streams.threads import ThreadBody
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("ENG-02")


def plain(n: int) -> int:
    return n * 2


async def coroutine(n: int) -> int:
    return n * 2


def generator(n: int) -> Iterator[int]:
    yield n * 2


async def async_generator(n: int) -> AsyncIterator[int]:
    yield n * 2


class Sync:
    def __call__(self, n: int) -> int:
        return n * 2


class Async:
    async def __call__(self, n: int) -> int:
        return n * 2


class AsyncMany:
    async def __call__(self, n: int) -> AsyncIterator[int]:
        yield n * 2


class Owner:
    async def method(self, n: int) -> int:
        return n * 2


@pytest.mark.parametrize(
    ("fn", "body"),
    [
        (plain, MapBody),
        (coroutine, AsyncBody),
        (generator, ManyBody),
        (async_generator, AsyncManyBody),
        (functools.partial(plain), MapBody),
        (functools.partial(coroutine), AsyncBody),
        (Sync(), MapBody),
        (Async(), AsyncBody),
        (AsyncMany(), AsyncManyBody),
        (Owner().method, AsyncBody),
        (abs, MapBody),
        (str, MapBody),
    ],
)
@virtual_time
async def test_the_kind_of_the_function_decides_how_it_is_called(fn: Any, body: type) -> None:
    flow = from_iterable([1, 2]).pipe(ops.call(fn))

    assert type(flow.plan.body) is body
    assert [str(n) for n in [n async for n in flow]] in (["2", "4"], ["1", "2"])


@virtual_time
async def test_a_prepared_body_is_used_as_it_is() -> None:
    body = MapBody(lambda n: None, exact=True)

    flow = from_iterable([1, 2]).pipe(ops.call(body))

    assert flow.plan.body is body
    assert [n async for n in flow] == [None, None]


@pytest.mark.parametrize("fn", [coroutine, async_generator, Async()])
def test_blocking_is_refused_for_what_is_async_already(fn: Any) -> None:
    with pytest.raises(ValueError, match="async already"):
        ops.call(fn, blocking=True)


@pytest.mark.parametrize("fn", [plain, generator])
def test_blocking_functions_go_to_a_thread(fn: Any) -> None:
    assert type(from_iterable([1]).pipe(ops.call(fn, blocking=True)).plan.body) is ThreadBody


@virtual_time
async def test_a_function_is_not_called_without_demand(bench: Any) -> None:
    called: list[int] = []

    async def call(n: int) -> int:
        called.append(n)
        return n

    b = bench(ops.call(call), ops.prefetch(1))
    await b.emit(*range(64 + 1 + 2))

    # 64 wait for the subscriber, 1 on the edge behind the call, 1 is used and not demanded anew.
    assert 64 <= len(called) <= 66
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_a_generator_is_drawn_as_demand_comes() -> None:
    drawn: list[int] = []

    def endless(n: int) -> Iterator[int]:
        while True:
            drawn.append(n)
            yield n

    seen = TestSubscriber()
    from_iterable([7]).pipe(ops.call(endless)).subscribe(seen)
    await asyncio.sleep(1)
    at_first = len(drawn)
    for _ in range(5):
        seen.request(20)
        await asyncio.sleep(1)

    assert at_first == 64
    assert seen.values == [7] * 100
    assert len(drawn) <= 64 + 100
    seen.cancel()
    await asyncio.sleep(1)


@pytest.mark.parametrize("shape", ["generator", "async generator"])
@virtual_time
async def test_a_cancelled_generator_is_closed(shape: str) -> None:
    closed: list[float] = []

    def sync(n: int) -> Iterator[int]:
        try:
            while True:
                yield n
        finally:
            closed.append(asyncio.get_running_loop().time())

    async def asynchronous(n: int) -> AsyncIterator[int]:
        try:
            while True:
                yield n
        finally:
            closed.append(asyncio.get_running_loop().time())

    seen = TestSubscriber(3)
    fn: Any = sync if shape == "generator" else asynchronous
    from_iterable([7]).pipe(ops.call(fn)).subscribe(seen)
    await asyncio.sleep(2)
    seen.cancel()
    await asyncio.sleep(1)

    assert (seen.values, closed) == ([7, 7, 7], [2])


@virtual_time
async def test_map_takes_none_for_an_element() -> None:
    flow = from_iterable([1, 2]).pipe(ops.map(lambda n: None))

    assert [n async for n in flow] == [None, None]


@virtual_time
async def test_flat_map_keeps_the_order() -> None:
    flow = from_iterable([3, 0, 1, 2]).pipe(ops.flat_map(lambda n: [n] * n))

    assert [n async for n in flow] == [3, 3, 3, 1, 2, 2]


@virtual_time
async def test_flat_map_of_what_is_no_iterable_fails() -> None:
    seen = TestSubscriber(5)
    from_iterable([1]).pipe(ops.flat_map(lambda n: n)).subscribe(seen)  # type: ignore[arg-type,return-value]
    await seen.ended()

    assert isinstance(seen.error, TypeError)


@virtual_time
async def test_one_flow_may_be_used_in_several_pipes() -> None:
    shared = from_iterable(range(4)).pipe(ops.map(lambda n: n + 1))

    doubled = shared.pipe(ops.map(lambda n: n * 2))
    squared = shared.pipe(ops.map(lambda n: n * n))

    assert [n async for n in doubled] == [2, 4, 6, 8]
    assert [n async for n in squared] == [1, 4, 9, 16]
