"""deadline: so long after its first activity a node has ended, or fails."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import DeadlineExceededError
from yukta_rx.model.policy import RetryPolicy
from yukta_rx.streams.clock import LoopClock, PausableClock
from yukta_rx.streams.flow import from_async_iterable
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("ENG-05")

LIMIT = 5.0


def due(clock: Any, limit: float | None = LIMIT) -> ops.Operator:
    return ops.deadline(ops.Deadline(clock, limit))


async def forever(n: int) -> None:
    await asyncio.Event().wait()


@virtual_time
async def test_the_time_runs_from_the_first_element(shape: Any, bench: Any, clock: Any) -> None:
    b = bench(shape.call(lambda n: n), due(clock()), demand=100, window=100)
    await asyncio.sleep(1000)
    await b.emit(0)
    for n in range(1, 7):
        await asyncio.sleep(0.8)
        await b.emit(n)
    await b.seen.ended()

    assert b.seen.values == [0, 1, 2, 3, 4, 5, 6]
    assert b.timed[-1][0] == "error"
    assert b.timed[-1][2] == pytest.approx(1000 + LIMIT, abs=1e-3)
    assert isinstance(b.seen.error, DeadlineExceededError)
    assert "not done 5 s after its first activity" in str(b.seen.error)
    assert b.source.cancelled


@virtual_time
async def test_the_call_that_is_out_is_cancelled(waiting: Any, bench: Any, clock: Any) -> None:
    cancelled: list[float] = []

    async def hangs(n: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(asyncio.get_running_loop().time())

    b = bench(waiting.call(hangs), due(clock()), demand=10)
    await b.emit(1)
    await b.seen.ended()
    await b.settle()

    assert cancelled == [LIMIT]
    assert b.stage.discarded == 1
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_node_that_ends_in_time_ends_as_it_does(shape: Any, bench: Any, clock: Any) -> None:
    base = PausableClock(clock())
    b = bench(shape.call(lambda n: n), due(base), demand=10)
    await b.emit(1)
    await asyncio.sleep(LIMIT - 0.001)
    b.source.complete()
    await b.seen.ended()
    await asyncio.sleep(100)

    assert b.seen.marble == "1 |"
    assert not base._timers


@virtual_time
async def test_a_node_without_any_element_has_no_deadline(
    shape: Any, bench: Any, clock: Any
) -> None:
    b = bench(shape.call(lambda n: n), due(clock()))
    await asyncio.sleep(1000)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("completed", None, 1000)]


@virtual_time
async def test_only_pauses_stop_the_clock(bench: Any, clock: Any) -> None:
    base = PausableClock(clock())
    handle = ops.Valve()
    b = bench(ops.valve(handle), ops.call(lambda n: n), due(base), demand=10)
    await b.emit(1)
    await asyncio.sleep(2)
    base.pause()
    handle.pause()
    await asyncio.sleep(100)
    base.resume()
    # The valve is closed still, and there is nothing to do: no excuse.
    await b.seen.ended()

    assert b.timed == [("next", 1, 0), ("error", b.seen.error, 100 + LIMIT)]


@virtual_time
async def test_backoff_counts(shape: Any, bench: Any, clock: Any) -> None:
    def fails(n: int) -> int:
        raise LookupError(n)

    policy = RetryPolicy(max_attempts=100, backoff_ms=900)
    b = bench(shape.call(fails), ops.retry(ops.Backoff(policy, clock())), due(clock()), demand=10)
    await b.emit(1)
    await b.seen.ended()

    assert b.timed == [("error", b.seen.error, LIMIT)]
    assert isinstance(b.seen.error, DeadlineExceededError)
    assert (b.stage.discarded, b.stage.failed) == (1, 0)
    assert b.stage.retried >= 1


@virtual_time
async def test_what_the_node_does_after_its_last_element_counts(
    shape: Any, bench: Any, clock: Any
) -> None:
    cancelled: list[float] = []

    async def barrier() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(asyncio.get_running_loop().time())

    b = bench(shape.call(lambda n: n), due(clock()), ops.record(barrier=barrier), demand=10)
    await b.emit(1)
    await asyncio.sleep(1)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("next", 1, 0), ("error", b.seen.error, LIMIT)]
    assert isinstance(b.seen.error, DeadlineExceededError)
    assert cancelled == [LIMIT]


@virtual_time
async def test_a_barrier_that_ends_in_time_ends_the_node(bench: Any, clock: Any) -> None:
    async def barrier() -> None:
        await asyncio.sleep(LIMIT - 0.5)

    b = bench(ops.call(lambda n: n), due(clock()), ops.record(barrier=barrier), demand=10)
    await b.emit(1)
    b.source.complete()
    await b.seen.ended()
    await asyncio.sleep(10)

    assert b.timed == [("next", 1, 0), ("completed", None, LIMIT - 0.5)]


@virtual_time
async def test_a_source_is_due_from_its_start_on() -> None:
    async def source() -> AsyncIterator[int]:
        n = 0
        while True:
            yield n
            n += 1
            await asyncio.sleep(2)

    clock = LoopClock(asyncio.get_running_loop())
    seen = TestSubscriber(100)
    from_async_iterable(source).pipe(due(clock)).subscribe(seen)
    await seen.ended()

    assert seen.values == [0, 1, 2]
    assert seen.signals[-1].time == LIMIT


@pytest.mark.parametrize(("known", "retimed"), [(None, 3.0), (LIMIT, 3.0), (LIMIT, 20.0)])
@virtual_time
async def test_another_limit_still_counts_from_the_first_activity(
    bench: Any, clock: Any, known: float | None, retimed: float
) -> None:
    watch = ops.Deadline(clock(), known)
    b = bench(ops.call(forever), ops.deadline(watch), demand=10)
    await b.emit(1)
    await asyncio.sleep(2)
    watch.retime(retimed)
    await b.seen.ended()

    assert b.timed[0][2] == retimed
    assert f"not done {retimed:g} s" in str(b.seen.error)


@virtual_time
async def test_a_limit_that_is_over_when_it_is_told_ends_the_node_at_once(
    bench: Any, clock: Any
) -> None:
    watch = ops.Deadline(clock(), None)
    b = bench(ops.call(forever), ops.deadline(watch), demand=10)
    await b.emit(1)
    await asyncio.sleep(7)
    watch.retime(3)
    await b.seen.ended()

    assert b.timed[0][2] == 7


@virtual_time
async def test_a_limit_told_before_the_first_activity_waits_for_it(bench: Any, clock: Any) -> None:
    watch = ops.Deadline(clock(), None)
    b = bench(ops.call(forever), ops.deadline(watch), demand=10)
    watch.retime(3)
    await asyncio.sleep(10)
    await b.emit(1)
    await b.seen.ended()

    assert b.timed[0][2] == 13


@virtual_time
async def test_a_limit_told_after_the_end_changes_nothing(bench: Any, clock: Any) -> None:
    base = PausableClock(clock())
    watch = ops.Deadline(base, LIMIT)
    b = bench(ops.call(lambda n: n), ops.deadline(watch), demand=10)
    await b.emit(1)
    b.source.complete()
    await b.seen.ended()
    watch.retime(1)

    assert not base._timers
    assert b.seen.marble == "1 |"


async def test_a_thread_is_left_behind(bench: Any, clock: Any) -> None:
    """In real time: virtual time waits for threads."""
    go = threading.Event()
    b = bench(ops.call(lambda _n: go.wait(10), blocking=True), due(clock(), 0.02), demand=10)
    await b.emit(1)
    await b.seen.ended()
    go.set()

    assert isinstance(b.seen.error, DeadlineExceededError)
