"""idle_timeout: silence while there is work ends a node; waiting for others does not."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any

import pytest
from reactivex.subject import Subject

from yukta_rx import operators as ops
from yukta_rx.errors import IdleTimeoutError
from yukta_rx.model.policy import RetryPolicy
from yukta_rx.streams.clock import LoopClock, PausableClock
from yukta_rx.streams.flow import Flow, from_async_iterable
from yukta_rx.streams.plan import NodePlan, Slot
from yukta_rx.streams.rx import OverflowStrategy, from_rx
from yukta_rx.streams.threads import ThreadIterableBody
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("ENG-05")

LIMIT = 8.0


def clock() -> LoopClock:
    return LoopClock(asyncio.get_running_loop())


async def sleepy(n: float) -> float:
    await asyncio.sleep(n)
    return n


@virtual_time
async def test_a_silent_call_ends_within_the_limit_and_a_quarter(bench: Any) -> None:
    b = bench(ops.call(sleepy), ops.idle_timeout(ops.IdleClock(clock(), LIMIT)), demand=10)
    await asyncio.sleep(100.3)
    await b.emit(1000)
    await b.seen.ended()

    [(kind, error, time)] = b.timed
    assert kind == "error"
    assert isinstance(error, IdleTimeoutError)
    assert LIMIT <= time - 100.3 <= 1.25 * LIMIT + 1e-3
    assert b.source.cancelled


@virtual_time
async def test_the_call_of_the_silent_node_is_cancelled(bench: Any) -> None:
    cancelled: list[float] = []

    async def hangs(n: int) -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    b = bench(ops.call(hangs), ops.idle_timeout(ops.IdleClock(clock(), LIMIT)), demand=10)
    await b.emit(5)
    await b.seen.ended()
    await asyncio.sleep(1)

    assert cancelled == [5]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_calls_that_return_in_time_restart_the_clock(bench: Any) -> None:
    b = bench(ops.call(sleepy), ops.idle_timeout(ops.IdleClock(clock(), LIMIT)), demand=100)
    for _ in range(10):
        await b.emit(LIMIT - 0.5)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.completed
    assert len(b.seen.values) == 10


@virtual_time
async def test_waiting_for_parents_demand_or_a_valve_is_no_silence(bench: Any) -> None:
    handle = ops.Valve()
    b = bench(ops.valve(handle), ops.call(sleepy), ops.idle_timeout(ops.IdleClock(clock(), LIMIT)))
    await asyncio.sleep(100 * LIMIT)
    handle.pause()
    await b.emit(1)
    await asyncio.sleep(100 * LIMIT)
    handle.resume()
    await asyncio.sleep(100 * LIMIT)
    b.source.complete()
    await asyncio.sleep(100 * LIMIT)
    b.seen.request(1)
    await b.seen.ended()

    assert b.seen.marble == "1 |"


@virtual_time
async def test_heartbeats_restart_the_clock(bench: Any) -> None:
    base = clock()
    beat = 0.0

    async def beating(n: int) -> int:
        nonlocal beat
        for _ in range(20):
            await asyncio.sleep(LIMIT - 0.5)
            beat = base.now()
        return n

    b = bench(
        ops.call(beating), ops.idle_timeout(ops.IdleClock(base, LIMIT, lambda: beat)), demand=10
    )
    await b.emit(1)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.marble == "1 |"


@virtual_time
async def test_a_paused_clock_stands_still(bench: Any) -> None:
    base = clock()
    paused = PausableClock(base)
    b = bench(ops.call(sleepy), ops.idle_timeout(ops.IdleClock(paused, LIMIT)), demand=10)
    await b.emit(1000)
    await asyncio.sleep(1)
    paused.pause()
    await asyncio.sleep(500)
    still = b.timed
    paused.resume()
    await b.seen.ended()

    assert still == []
    assert 500 + LIMIT <= b.timed[0][2] <= 500 + 1.25 * LIMIT + 1e-3


@virtual_time
async def test_a_silent_source_with_unmet_demand_ends(bench: Any) -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(1000)

    seen = TestSubscriber(10)
    from_async_iterable(source).pipe(ops.idle_timeout(ops.IdleClock(clock(), LIMIT))).subscribe(
        seen
    )
    await seen.ended()

    assert seen.values == [1]
    assert isinstance(seen.error, IdleTimeoutError)


@virtual_time
async def test_a_function_on_the_loop_has_no_idle_clock(bench: Any) -> None:
    b = bench(ops.call(lambda n: n), ops.idle_timeout(ops.IdleClock(clock(), 0.001)), demand=10)
    await asyncio.sleep(100)
    await b.emit(1)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.marble == "1 |"


@virtual_time
async def test_an_infinite_limit_waits_for_retime(bench: Any) -> None:
    watch = ops.IdleClock(clock(), math.inf)
    b = bench(ops.call(sleepy), ops.idle_timeout(watch), demand=10)
    await b.emit(10_000)
    await asyncio.sleep(1000)
    before = b.timed
    watch.retime(LIMIT)
    await b.seen.ended()

    assert before == []
    assert 1000 + LIMIT <= b.timed[0][2] <= 1000 + 1.5 * LIMIT


@virtual_time
async def test_retime_to_none_stops_the_clock(bench: Any) -> None:
    watch = ops.IdleClock(clock(), LIMIT)
    b = bench(ops.call(sleepy), ops.idle_timeout(watch), demand=10)
    await b.emit(1000)
    await asyncio.sleep(1)
    watch.retime(None)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.marble == "1000 |"


@virtual_time
async def test_the_clock_stops_with_the_node(bench: Any) -> None:
    base = PausableClock(clock())
    b = bench(ops.call(sleepy), ops.idle_timeout(ops.IdleClock(base, LIMIT)), demand=10)
    await b.emit(1)
    b.source.complete()
    await b.seen.ended()

    assert not base._timers


async def test_a_silent_thread_is_given_up(bench: Any) -> None:
    """In real time: virtual time waits for threads."""
    go = threading.Event()

    def hangs(n: int) -> int:
        go.wait(10)
        return n

    b = bench(
        ops.call(hangs, blocking=True),
        ops.idle_timeout(ops.IdleClock(clock(), 0.02)),
        demand=10,
    )
    await b.emit(1)
    await b.seen.ended()
    go.set()

    assert isinstance(b.seen.error, IdleTimeoutError)


@virtual_time
async def test_a_silent_stream_function_ends_but_not_while_it_waits_for_its_parents(
    bench: Any,
) -> None:
    async def slow(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        async for n in stream:
            await asyncio.sleep(n)
            yield n

    b = bench(ops.through(slow), ops.idle_timeout(ops.IdleClock(clock(), LIMIT)), demand=10)
    await asyncio.sleep(100 * LIMIT)
    await b.emit(1)
    await asyncio.sleep(100 * LIMIT)
    await b.emit(1000)
    await b.seen.ended()

    assert b.seen.values == [1]
    assert isinstance(b.seen.error, IdleTimeoutError)


@virtual_time
async def test_a_silent_observable_or_thread_with_unmet_demand_ends() -> None:
    pushed: Subject[int] = Subject()
    seen = TestSubscriber(10)
    from_rx(pushed, OverflowStrategy.ERROR).pipe(
        ops.idle_timeout(ops.IdleClock(clock(), LIMIT))
    ).subscribe(seen)
    await asyncio.sleep(LIMIT / 2)
    pushed.on_next(1)
    await seen.ended()

    assert seen.values == [1]
    assert isinstance(seen.error, IdleTimeoutError)


async def test_a_silent_source_in_a_thread_ends() -> None:
    """In real time: virtual time waits for threads."""
    go = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        go.wait(10)

    body = ThreadIterableBody(source)
    flow: Flow[int] = Flow(NodePlan(name="source", body=body, last=Slot.CALL))
    seen = TestSubscriber(10)
    flow.pipe(ops.idle_timeout(ops.IdleClock(clock(), 0.05))).subscribe(seen)
    await seen.ended()
    go.set()

    assert isinstance(seen.error, IdleTimeoutError)


@virtual_time
async def test_a_silent_barrier_of_a_plain_function_ends(bench: Any) -> None:
    async def barrier() -> None:
        await asyncio.Event().wait()

    b = bench(
        ops.call(lambda n: n),
        ops.idle_timeout(ops.IdleClock(clock(), LIMIT)),
        ops.record(barrier=barrier),
        demand=10,
    )
    await asyncio.sleep(100 * LIMIT)
    await b.emit(1)
    await asyncio.sleep(100 * LIMIT)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.values == [1]
    assert isinstance(b.seen.error, IdleTimeoutError)
    assert LIMIT <= b.timed[-1][2] - 200 * LIMIT <= 1.25 * LIMIT + 1e-3


@virtual_time
async def test_backoff_counts_as_silence_and_a_retry_as_a_sign_of_life(
    waiting: Any, bench: Any
) -> None:
    def fails(n: int) -> int:
        raise LookupError(n)

    for backoff_ms, attempts in ((5000, 30), (20_000, 2)):
        policy = RetryPolicy(
            max_attempts=attempts, backoff_ms=backoff_ms, max_backoff_ms=backoff_ms
        )
        b = bench(
            waiting.call(fails),
            ops.retry(ops.Backoff(policy, clock(), jitter=lambda: 1.0)),
            ops.idle_timeout(ops.IdleClock(clock(), LIMIT)),
            demand=10,
        )
        await b.emit(1)
        await b.seen.ended()

        expected = LookupError if backoff_ms < LIMIT * 1000 else IdleTimeoutError
        assert isinstance(b.seen.error, expected)
