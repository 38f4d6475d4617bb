"""valve: exact pauses and steps, for every kind of node behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("CTL-02")


async def one_async(n: int) -> int:
    return n


async def many_async(n: int) -> AsyncIterator[int]:
    yield n


def many(n: int) -> Iterator[int]:
    yield n


async def copy(stream: AsyncIterator[int]) -> AsyncIterator[int]:
    async for n in stream:
        yield n


CALLS: dict[str, Any] = {
    "none": [],
    "sync": [ops.call(lambda n: n)],
    "generator": [ops.call(many)],
    "async": [ops.call(one_async)],
    "async generator": [ops.call(many_async)],
    "thread": [ops.call(lambda n: n, blocking=True)],
    "through": [ops.through(copy)],
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Any:
    return CALLS[request.param]


@virtual_time
async def test_pause_step_and_resume_are_exact(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    b = bench(ops.valve(handle), *call, demand=100, window=20)
    await b.emit(0, 1)
    handle.pause()
    await b.emit(2, 3, 4, 5, 6, 7, 8)
    await asyncio.sleep(10)
    paused = list(b.seen.values)
    handle.step()
    await asyncio.sleep(10)
    one = list(b.seen.values)
    handle.step(3)
    await asyncio.sleep(10)
    four = list(b.seen.values)
    handle.resume()
    await b.settle()

    assert paused == [0, 1]
    assert one == [0, 1, 2]
    assert four == [0, 1, 2, 3, 4, 5]
    assert b.seen.values == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    b.source.complete()
    await b.seen.ended()


@virtual_time
async def test_a_closed_valve_stops_the_parents_at_the_window(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call, demand=100)
    await b.source.pulled(1)
    while b.source.demand:
        b.source.emit(0)
        await asyncio.sleep(0.01)
    await asyncio.sleep(100)

    assert b.pulls == [(4, 0)]
    handle.resume()
    await b.settle()
    # All at once, or three quarters of the window.
    assert b.source.requested in (4 + 3, 4 + 4)
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_a_closed_valve_holds_the_completion_back(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call, demand=100)
    await b.emit(1)
    b.source.complete()
    await asyncio.sleep(10)
    held = b.timed
    handle.resume()
    await b.seen.ended()

    assert held == []
    assert b.timed == [("next", 1, 10), ("completed", None, 10)]


@virtual_time
async def test_a_closed_valve_with_nothing_before_it_holds_the_completion_back(
    call: Any, bench: Any
) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call)
    await b.source.pulled(1)
    b.source.complete()
    await asyncio.sleep(10)
    held = b.timed
    handle.resume()
    await b.seen.ended()

    assert (held, b.timed) == ([], [("completed", None, 10)])


@virtual_time
async def test_a_parents_failure_passes_a_closed_valve_when_nothing_waits(
    call: Any, bench: Any
) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call)
    await b.source.pulled(1)
    error = LookupError("source")
    await asyncio.sleep(1)
    b.source.fail(error)
    await b.seen.ended()

    assert b.timed == [("error", error, 1)]


@virtual_time
async def test_a_cancellation_passes_a_closed_valve(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call)
    await b.emit(1)
    await asyncio.sleep(3)
    b.seen.cancel()
    await asyncio.sleep(1)

    assert round(b.source.cancelled_at, 3) == 3
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_steps_add_up_and_a_pause_voids_them(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call, demand=100, window=20)
    handle.step(2)
    handle.step(2)
    await b.emit(0)
    await asyncio.sleep(1)
    first = list(b.seen.values)
    handle.pause()
    await b.emit(1, 2, 3)
    await asyncio.sleep(1)
    voided = list(b.seen.values)
    handle.step(2)
    await asyncio.sleep(1)

    assert (first, voided, b.seen.values) == ([0], [0], [0, 1, 2])
    assert handle.paused
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_steps_given_before_elements_come_are_kept(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    b = bench(ops.valve(handle), *call, demand=100, window=20)
    await b.source.pulled(1)
    handle.step(2)
    await asyncio.sleep(5)
    await b.emit(0, 1, 2, 3)
    await asyncio.sleep(5)

    assert b.seen.values == [0, 1]
    b.seen.cancel()
    await b.settle()


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="not 0"):
        ops.Valve().step(0)


def test_a_valve_says_whether_it_is_paused() -> None:
    handle = ops.Valve()
    states = [handle.paused]
    handle.pause()
    states.append(handle.paused)
    handle.resume()
    states.append(handle.paused)
    handle.step(1)
    states.append(handle.paused)

    assert states == [False, True, False, True]
