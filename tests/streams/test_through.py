"""Functions of the whole stream: they take what they ask for, and see how it ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.plan import Outcome
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("ENG-02")


async def pairs(stream: AsyncIterator[int]) -> AsyncIterator[tuple[int, ...]]:
    kept: list[int] = []
    async for n in stream:
        kept.append(n)
        if len(kept) == 2:
            yield tuple(kept)
            kept = []
    if kept:
        yield tuple(kept)


@virtual_time
async def test_outputs_need_not_match_inputs(line: Any) -> None:
    ran = await line(from_iterable(range(5)).pipe(ops.through(pairs)), prefetch=1).finished()

    assert ran.out == [(0, 1), (2, 3), (4,)]


@virtual_time
async def test_nothing_is_taken_that_is_not_asked_for() -> None:
    publisher = TestPublisher()
    seen = TestSubscriber()

    async def one(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        yield await anext(stream)
        await asyncio.sleep(1000)

    publisher.pipe(ops.merge_parents(prefetch=3), ops.through(one)).subscribe(seen)
    await publisher.pulled(3)
    publisher.emit(1, 2, 3)
    await asyncio.sleep(10)

    assert publisher.requested == 3
    seen.cancel()
    await asyncio.sleep(1)
    assert publisher.cancelled


@virtual_time
async def test_a_failing_source_does_not_look_like_a_finished_one(line: Any) -> None:
    happened: list[str] = []
    publisher = TestPublisher()

    async def total(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        sum_ = 0
        try:
            async for n in stream:
                sum_ += n
            happened.append("finished")
        except asyncio.CancelledError:
            happened.append("cancelled")
            raise
        yield sum_

    error = LookupError("source")
    ran = line(publisher.pipe(ops.merge_parents(), ops.through(total)))
    await publisher.pulled(1)
    publisher.emit(1, 2)
    await asyncio.sleep(1)
    publisher.fail(error)
    await ran.finished()

    assert happened == ["cancelled"]
    assert (ran.out, ran.error) == ([], error)


@virtual_time
async def test_a_source_that_fails_before_it_is_asked_is_a_failure_too(line: Any) -> None:
    happened: list[str] = []

    def source() -> Any:
        yield 1
        raise LookupError("source")

    async def late(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        await asyncio.sleep(10)
        async for n in stream:
            yield n
        happened.append("finished")

    ran = await line(from_iterable(source).pipe(ops.through(late))).finished()

    assert ran.outcome is Outcome.FAILED
    assert happened == []


@virtual_time
async def test_ending_early_cancels_the_source(line: Any) -> None:
    publisher = TestPublisher()

    async def first(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        yield await anext(stream)

    ran = line(publisher.pipe(ops.merge_parents(), ops.through(first)))
    await publisher.pulled(1)
    publisher.emit(1, 2, 3)
    await ran.finished()

    assert (ran.out, ran.outcome, publisher.cancelled) == ([1], Outcome.COMPLETED, True)
    assert ran.circuit.stage_of(ran.flow).discarded == 2


@virtual_time
async def test_a_function_that_takes_nothing_completes(line: Any) -> None:
    async def own(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        yield 7

    ran = await line(from_iterable(range(100)).pipe(ops.through(own))).finished()

    assert (ran.out, ran.outcome) == ([7], Outcome.COMPLETED)


@virtual_time
async def test_outputs_may_go_on_after_the_last_input(line: Any) -> None:
    async def echo(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        kept = [n async for n in stream]
        for n in kept:
            await asyncio.sleep(1)
            yield n

    ran = await line(from_iterable(range(3)).pipe(ops.through(echo)), prefetch=1).finished()

    assert ran.out == [0, 1, 2]


@virtual_time
async def test_a_timeout_around_the_next_element_loses_none(line: Any) -> None:
    publisher = TestPublisher()

    async def ticking(stream: AsyncIterator[int]) -> AsyncIterator[Any]:
        while True:
            try:
                async with asyncio.timeout(1):
                    yield await anext(stream)
            except TimeoutError:
                yield "tick"
            except StopAsyncIteration:
                return

    ran = line(publisher.pipe(ops.merge_parents(), ops.through(ticking)))
    await publisher.pulled(1)
    await asyncio.sleep(2.5)
    publisher.emit(1)
    await asyncio.sleep(0.2)
    publisher.emit(2)
    publisher.complete()
    await ran.finished()

    assert ran.out == ["tick", "tick", 1, 2]


@virtual_time
async def test_a_paused_valve_holds_the_input_back_and_the_end(line: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    ran = line(from_iterable(range(4)).pipe(ops.valve(handle), ops.through(pairs)))
    await asyncio.sleep(1)
    handle.step(3)
    await asyncio.sleep(1)
    stepped = list(ran.out), ran.circuit.done.done()
    handle.resume()
    await ran.finished()

    assert stepped == ([(0, 1)], False)
    assert ran.out == [(0, 1), (2, 3)]


@virtual_time
async def test_cancelling_closes_the_function(line: Any) -> None:
    closed: list[str] = []

    async def copy(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        try:
            async for n in stream:
                yield n
        finally:
            closed.append("closed")

    publisher = TestPublisher()
    seen = TestSubscriber(10)
    publisher.pipe(ops.merge_parents(), ops.through(copy)).subscribe(seen)
    await publisher.pulled(1)
    publisher.emit(1)
    await asyncio.sleep(1)
    seen.cancel()
    await asyncio.sleep(1)

    assert (seen.values, closed, publisher.cancelled) == ([1], ["closed"], True)
    assert len(asyncio.all_tasks()) == 1
