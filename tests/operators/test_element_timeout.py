"""element_timeout: a limit on one attempt, whatever the call makes of being cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import BadInputError, ElementTimeoutError
from yukta_rx.model.policy import OnError, RetryPolicy
from yukta_rx.streams.aio import AsyncBody
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.clock import PausableClock
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import VirtualClock, run_virtual, virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from yukta_rx.streams.clock import Clock

pytestmark = pytest.mark.feature("ENG-05")

LIMIT = 2.0


def limited(clock: Clock, limit: Any = LIMIT) -> ops.Operator:
    return ops.element_timeout(ops.ElementTimeout(clock, limit))


def going_on(clock: Clock) -> ops.Operator:
    return ops.on_error(ops.FailureLedger(OnError.CONTINUE, None, clock))


async def forever() -> None:
    await asyncio.Event().wait()


def slow(n: float) -> Any:
    """Takes `n` seconds."""

    async def call() -> float:
        await asyncio.sleep(n)
        return n

    return call()


# -- times


@virtual_time
async def test_an_attempt_that_takes_too_long_fails_at_the_limit(
    waiting: Any, bench: Any, clock: Any
) -> None:
    b = bench(waiting.call(slow), limited(clock()), demand=10)
    await asyncio.sleep(7)
    await b.emit(1, 1000, 1)
    await b.seen.ended()

    [(first, second)] = [(b.timed[0], b.timed[1])]
    assert first == ("next", 1, 8)
    assert second[0] == "error"
    assert second[2] == (9 if waiting.name == "concurrent" else 10)
    assert isinstance(b.seen.error, ElementTimeoutError)
    assert str(b.seen.error) == "one attempt took longer than elementTimeoutMs 2000"
    assert (b.stage.failed, b.unaccounted) == (1, 0)
    assert b.source.cancelled


@virtual_time
async def test_attempts_that_end_in_time_may_take_the_limit_each(
    waiting: Any, bench: Any, clock: Any
) -> None:
    b = bench(waiting.call(slow), limited(clock()), demand=10, refill=1)
    for _ in range(10):
        await b.emit(LIMIT - 0.001)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.completed
    assert len(b.seen.values) == 10


@virtual_time
async def test_the_call_is_cancelled_and_nothing_of_it_is_left(
    waiting: Any, bench: Any, clock: Any
) -> None:
    cancelled: list[float] = []

    async def hangs(n: int) -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.append(round(asyncio.get_running_loop().time(), 3))
            raise

    base = PausableClock(clock())
    b = bench(waiting.call(hangs), limited(base), demand=10)
    await b.emit(1)
    await b.seen.ended()
    await b.settle()

    assert cancelled == [2]
    assert len(asyncio.all_tasks()) == 1
    assert not base._timers


@virtual_time
async def test_the_timer_goes_with_the_node(waiting: Any, bench: Any, clock: Any) -> None:
    base = PausableClock(clock())
    b = bench(waiting.call(slow), limited(base, 3600.0), demand=10)
    await b.emit(1)
    await asyncio.sleep(5)
    armed = len(base._timers)
    b.source.complete()
    await b.seen.ended()

    assert (armed, len(base._timers)) == (1, 0)


@virtual_time
async def test_the_limit_may_depend_on_the_element(waiting: Any, bench: Any, clock: Any) -> None:
    b = bench(
        waiting.call(lambda _n: forever()),
        limited(clock(), lambda n: float(n)),
        going_on(clock()),
        demand=10,
        window=10,
    )
    await b.emit(5, 1, 3)
    b.source.complete()
    await b.seen.ended()

    # At once, or one after the other.
    assert b.timed == [("completed", None, 5 if waiting.name == "concurrent" else 9)]
    assert b.stage.failed == 3


@virtual_time
async def test_a_limit_that_cannot_be_told_is_a_failure_of_the_element(
    shape: Any, bench: Any, clock: Any
) -> None:
    def limit(n: int) -> float:
        if n == 1:
            raise BadInputError("no limit")
        return 1.0

    b = bench(shape.call(lambda n: n), limited(clock(), limit), going_on(clock()), demand=10)
    await b.emit(0, 1, 2)
    b.source.complete()
    await b.seen.ended()

    assert (b.seen.marble, b.stage.failed) == ("0 2 |", 1)


@virtual_time
async def test_a_paused_clock_stops_the_limit(waiting: Any, bench: Any, clock: Any) -> None:
    paused = PausableClock(clock())
    b = bench(waiting.call(lambda _n: forever()), limited(paused), demand=10)
    await b.emit(1)
    await asyncio.sleep(1.5)
    paused.pause()
    await asyncio.sleep(100)
    still = b.timed
    paused.resume()
    await b.seen.ended()

    assert still == []
    assert b.timed[0][2] == 102


@pytest.mark.parametrize("lag", [0.1 + 0.2, 1 / 3, 0.7, 1e5 / 7, 1e9 / 3])
@pytest.mark.parametrize("start", [0.1, 1 / 7, 2e5 / 3])
def test_rounding_of_a_clock_that_was_paused_holds_nothing_up(
    bench: Any, start: float, lag: float
) -> None:
    async def main() -> float:
        paused = PausableClock(VirtualClock())
        await asyncio.sleep(start)
        paused.pause()
        await asyncio.sleep(lag)
        paused.resume()
        b = bench(_hanging(), limited(paused, 0.3), demand=10)
        await b.emit(1)
        await b.seen.ended()
        return float(b.seen.terminal.time) - start - lag

    assert run_virtual(main()) == pytest.approx(0.3, abs=1e-3)


def _hanging() -> ops.Operator:
    async def call(n: int) -> None:
        await forever()

    return ops.call(call)


@virtual_time
async def test_each_attempt_has_the_whole_limit(waiting: Any, bench: Any, clock: Any) -> None:
    times: list[float] = []

    def call(n: int) -> Any:
        times.append(asyncio.get_running_loop().time())
        return forever()

    policy = RetryPolicy(max_attempts=3, backoff_ms=1000)
    b = bench(
        waiting.call(call),
        limited(clock()),
        ops.retry(ops.Backoff(policy, clock(), jitter=lambda: 1.0)),
        demand=10,
    )
    await b.emit(1)
    await b.seen.ended()

    assert [round(time, 3) for time in times] == [0, 3, 7]
    assert b.timed[0][2] == 9
    assert isinstance(b.seen.error, ElementTimeoutError)
    assert (b.stage.retried, b.stage.failed) == (2, 1)


@virtual_time
async def test_waiting_for_demand_does_not_count(many: Any, bench: Any, clock: Any) -> None:
    b = bench(many.call(lambda n: [n] * 10), limited(clock()), ops.prefetch(1), demand=1)
    await b.emit(1, 2)
    b.source.complete()
    await asyncio.sleep(100)
    first = list(b.seen.values)
    b.seen.request(100)
    await b.seen.ended()

    assert first == [1]
    assert b.seen.values == [1] * 10 + [2] * 10
    assert b.seen.completed


@virtual_time
async def test_what_an_attempt_gave_before_its_limit_is_dropped(bench: Any, clock: Any) -> None:
    async def some(n: int) -> AsyncIterator[int]:
        yield n
        yield n
        if n == 1:
            await forever()

    b = bench(ops.call(some), limited(clock()), going_on(clock()), demand=10)
    await b.emit(0, 1, 2)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [
        *(("next", 0, 0),) * 2,
        *(("next", 2, 2),) * 2,
        ("completed", None, 2),
    ]


# -- what a call may make of its cancellation


async def returns_anyway(n: int) -> int:
    try:
        await forever()
    except asyncio.CancelledError:
        return n
    return n


async def fails_instead(n: int) -> int:
    try:
        await forever()
    finally:
        raise LookupError("instead")


async def cleans_up(n: int) -> int:
    try:
        await forever()
    finally:
        await asyncio.sleep(0.5)
    return n


async def goes_on(n: int) -> int:
    try:
        await forever()
    except asyncio.CancelledError:
        await asyncio.sleep(50)
    return n


async def uncancels(n: int) -> int:
    try:
        await forever()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
    return n


SWALLOWING = {
    returns_anyway: 2,
    fails_instead: 2,
    cleans_up: 2.5,
    goes_on: 52,
    uncancels: 2,
}


@pytest.mark.parametrize("call", SWALLOWING)
@virtual_time
async def test_an_attempt_that_took_too_long_has_failed_whatever_it_makes_of_that(
    waiting: Any, bench: Any, clock: Any, call: Any
) -> None:
    b = bench(waiting.call(lambda n: call(n) if n else n), limited(clock()), demand=10)
    await b.emit(0, 1)
    await b.seen.ended()

    [first, (kind, error, time)] = b.timed
    assert (first, kind, time) == (("next", 0, 0), "error", SWALLOWING[call])
    assert isinstance(error, ElementTimeoutError)


@pytest.mark.parametrize("call", SWALLOWING)
@virtual_time
async def test_the_next_call_finds_a_task_that_nobody_cancelled(
    waiting: Any, bench: Any, clock: Any, call: Any
) -> None:
    async def checks(n: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        async with asyncio.timeout(1):
            await asyncio.sleep(0.5)
        return n

    b = bench(
        waiting.call(lambda n: checks(n) if n % 2 else call(n)),
        limited(clock()),
        going_on(clock()),
        demand=10,
        window=10,
    )
    await b.emit(0, 1, 2, 3)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.marble == "1 3 |"
    assert b.stage.failed == 2


@virtual_time
async def test_a_shorter_timeout_inside_the_call_is_its_own(
    waiting: Any, bench: Any, clock: Any
) -> None:
    async def call(n: int) -> int:
        try:
            async with asyncio.timeout(1):
                await forever()
        except TimeoutError:
            return -n
        return n

    b = bench(waiting.call(call), limited(clock()), demand=10)
    await b.emit(1)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("next", -1, 1), ("completed", None, 1)]


@pytest.mark.parametrize("inner", [2.0, 3.0])
@virtual_time
async def test_a_timeout_inside_that_is_as_long_or_longer_takes_nothing_away(
    waiting: Any, bench: Any, clock: Any, inner: float
) -> None:
    async def call(n: int) -> int:
        if n % 2 == 0:
            return n
        async with asyncio.timeout(inner):
            await forever()
        return n

    b = bench(waiting.call(call), limited(clock()), going_on(clock()), demand=10, window=10)
    await b.emit(1, 2, 3, 4)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.marble == "2 4 |"
    assert b.stage.failed == 2


@virtual_time
async def test_a_task_group_inside_the_call_is_cancelled_with_it(
    waiting: Any, bench: Any, clock: Any
) -> None:
    ended: list[float] = []

    async def child() -> None:
        try:
            await forever()
        finally:
            ended.append(round(asyncio.get_running_loop().time(), 3))

    async def call(n: int) -> int:
        if n:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                group.create_task(child())
        return n

    b = bench(waiting.call(call), limited(clock()), going_on(clock()), demand=10, window=10)
    await b.emit(1, 0)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("next", 0, 2), ("completed", None, 2)]
    assert ended == [2, 2]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_group_whose_child_fails_as_the_time_is_over_is_over_too(
    waiting: Any, bench: Any, clock: Any
) -> None:
    async def child() -> None:
        await asyncio.sleep(LIMIT)
        raise LookupError("child")

    async def call(n: int) -> int:
        if n:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
        return n

    b = bench(waiting.call(call), limited(clock()), going_on(clock()), demand=10)
    await b.emit(1, 0)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.marble == "0 |"
    assert b.stage.failed == 1


@virtual_time
async def test_a_cancellation_at_the_moment_of_the_limit_is_a_cancellation(
    waiting: Any, clock: Any
) -> None:
    flow = from_iterable([1]).pipe(
        ops.merge_parents(), waiting.call(lambda _n: forever()), limited(clock()), ops.broadcast()
    )
    circuit = Circuit([flow])
    circuit.start()
    loop = asyncio.get_running_loop()
    # Set after the call's own timer, so it comes after it, and before the task has its turn.
    await asyncio.sleep(1)
    loop.call_at(LIMIT, circuit.stop, StopMode.CANCEL)
    await circuit.done

    stage = circuit.stage_of(flow)
    assert loop.time() == LIMIT
    assert (stage.failed, stage.discarded, stage.retried) == (0, 1, 0)
    assert len(asyncio.all_tasks()) == 1


# -- several at once


@virtual_time
async def test_each_of_several_calls_has_a_limit_of_its_own(bench: Any, clock: Any) -> None:
    async def call(n: float) -> float:
        await asyncio.sleep(n)
        return n

    base = PausableClock(clock())
    timers: list[int] = []
    b = bench(
        ops.call(ConcurrentBody(AsyncBody(call).attempt, 4)),
        limited(base, lambda n: 2.5 if n == 3 else 2.0),
        going_on(clock()),
        demand=10,
        window=10,
    )
    await b.emit(1, 3, 1.5, 9, 1, 1.9)
    for _ in range(40):
        timers.append(len(base._timers))
        await asyncio.sleep(0.1)
    b.source.complete()
    await b.seen.ended()

    # The last one waits for a place: 9 is over at 2 and 3 at 2.5, and what ended waits for them.
    assert b.timed == [
        ("next", 1, 1),
        ("next", 1.5, 2.5),
        ("next", 1, 2.5),
        ("next", 1.9, 4.4),
        ("completed", None, 4.4),
    ]
    assert b.stage.failed == 2
    assert max(timers) == 1


# -- threads


async def test_a_plain_function_is_left_behind_in_its_thread(bench: Any, clock: Any) -> None:
    """In real time: virtual time waits for threads."""
    go = threading.Event()
    calls: list[int] = []

    def value(n: int) -> int:
        calls.append(n)
        if n == 1:
            go.wait(10)
        return n

    def values(n: int) -> Iterator[int]:
        yield value(n)

    for call in (
        ops.call(value),
        ops.map(value),
        ops.call(value, blocking=True),
        ops.call(values),
        ops.call(values, blocking=True),
    ):
        go.clear()
        calls.clear()
        # Only the one that hangs has little time: others may be slow to get a thread.
        limit = limited(clock(), lambda n: 0.02 if n == 1 else 30.0)
        b = bench(call, limit, going_on(clock()), demand=10)
        await b.emit(0, 1, 2)
        b.source.complete()
        await b.seen.ended()
        go.set()

        assert b.seen.marble == "0 2 |"
        assert calls == [0, 1, 2]
        assert (b.stage.failed, b.unaccounted) == (1, 0)


async def test_threads_left_behind_take_none_from_others(clock: Any) -> None:
    """In real time: virtual time waits for threads."""
    go = threading.Event()
    out: list[int] = []

    def fn(n: int) -> int:
        if n < 3:
            go.wait(10)
        return n

    pool = BlockingPool(1)
    flow = from_iterable(range(5)).pipe(
        ops.merge_parents(),
        ops.call(fn),
        limited(clock(), lambda n: 0.02 if n < 3 else 30.0),
        going_on(clock()),
    )
    circuit = Circuit([flow.pipe(ops.map(out.append))], pool=pool)
    circuit.start()
    await circuit.done
    grown = pool._size
    go.set()
    while pool._size > 1:
        await asyncio.sleep(0)
    pool.close()

    assert out == [3, 4]
    assert grown == 4


@virtual_time
async def test_a_plain_function_in_time_runs_in_a_thread_one_at_a_time(
    run: Any, clock: Any
) -> None:
    main = threading.get_ident()
    inside: list[int] = []

    def fn(n: int) -> int:
        assert threading.get_ident() != main
        inside.append(n)
        assert len(inside) == 1
        inside.pop()
        return n

    def each(n: int) -> Iterator[int]:
        yield fn(n)

    for call in (
        ops.call(fn),
        ops.map(fn),
        ops.call(fn, blocking=True),
        ops.call(each),
        ops.call(each, blocking=True),
    ):
        ran = await run(range(70), call, limited(clock()))

        assert ran.out == list(range(70))
