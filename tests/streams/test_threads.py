"""Blocking calls: bounded batches, bounded threads, and nobody waits for a hung one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.model.policy import OnError
from yukta_rx.streams import threads as threads_module
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.flow import Flow, from_iterable
from yukta_rx.streams.plan import NodePlan, Outcome, Slot
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.streams.pump import Pump
from yukta_rx.streams.threads import THREAD_BATCH, ThreadIterableBody
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.feature("ENG-02")


def blocking(fn: Any) -> ops.Operator:
    return ops.call(fn, blocking=True)


def threaded(make: Any) -> Flow[Any]:
    return Flow(NodePlan(name="source", body=ThreadIterableBody(make), last=Slot.CALL))


class Hold:
    """A blocking function that a test keeps inside and lets go; fails rather than hang for ever."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.calls: list[int] = []

    def __call__(self, n: int) -> int:
        self.calls.append(n)
        self.inside.release()
        assert self.go.acquire(timeout=10)
        return n

    async def entered(self) -> None:
        """Wait in real time until a call is inside."""
        while not self.inside.acquire(blocking=False):
            await asyncio.sleep(0)


# -- where calls run


@virtual_time
async def test_calls_leave_the_loop_and_results_come_back_to_it() -> None:
    loop_thread = threading.get_ident()
    called: set[int] = set()
    received: set[int] = set()

    def call(n: int) -> int:
        called.add(threading.get_ident())
        return n

    seen = TestSubscriber(500, on_next=lambda _: received.add(threading.get_ident()))
    from_iterable(range(300)).pipe(blocking(call)).subscribe(seen)
    await seen.ended()

    assert seen.values == list(range(300))
    assert loop_thread not in called
    assert received == {loop_thread}


@virtual_time
async def test_calls_see_the_context_of_the_subscriber() -> None:
    var = contextvars.ContextVar("var", default="none")
    var.set("mine")

    out = [n async for n in from_iterable([1]).pipe(blocking(lambda _: var.get()))]

    assert out == ["mine"]


@virtual_time
async def test_one_batch_is_out_at_a_time_and_it_is_bounded(line: Any) -> None:
    inside = 0
    most = 0

    def call(n: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        inside -= 1
        return n

    sizes: list[int] = []
    flow = from_iterable(range(2000)).pipe(
        ops.merge_parents(prefetch=500),
        blocking(call),
        ops.record(lambda _, b: sizes.append(len(b))),
    )
    ran = await line(flow, prefetch=500).finished()

    assert ran.out == list(range(2000))
    assert max(sizes) <= THREAD_BATCH
    assert most == 1


@virtual_time
async def test_demand_bounds_what_is_out_in_a_thread() -> None:
    hold = Hold()
    seen = TestSubscriber()
    flow: Any = from_iterable(range(100)).pipe(
        ops.merge_parents(prefetch=3), blocking(hold), ops.merge_parents(prefetch=2)
    )
    flow.subscribe(seen)
    for _ in range(100):
        hold.go.release()
    await asyncio.sleep(1)

    # Two wait on the edge behind the call, 64 for the subscriber.
    assert len(hold.calls) == 2 + 64
    seen.cancel()
    await asyncio.sleep(1)


@virtual_time
async def test_the_loop_goes_on_while_a_call_blocks() -> None:
    hold = Hold()
    seen, other = TestSubscriber(10), TestSubscriber(100)
    from_iterable([1]).pipe(blocking(hold)).subscribe(seen)
    await hold.entered()

    from_iterable(range(50)).subscribe(other)
    while not other.completed:
        await asyncio.sleep(0)
    hold.go.release()
    await seen.ended()

    assert (len(other.values), seen.values) == (50, [1])


# -- cancellation


@virtual_time
async def test_a_result_that_comes_after_the_cancellation_is_dropped_and_counted(
    line: Any,
) -> None:
    hold = Hold()
    source = from_iterable(range(20))
    ran = line(source.pipe(blocking(hold)))
    await hold.entered()

    ran.circuit.stop(StopMode.CANCEL)
    await ran.finished()
    hold.go.release()
    while ran.circuit.pump.outside:
        await asyncio.sleep(0)

    assert (ran.out, ran.outcome) == ([], Outcome.CANCELLED)
    assert ran.stage.emitted == 0
    assert ran.stage.received + ran.stage.discarded == ran.circuit.stage_of(source).emitted


@virtual_time
async def test_a_cancellation_stops_a_batch_between_two_calls(line: Any) -> None:
    hold = Hold()
    ran = line(from_iterable(range(200)).pipe(ops.merge_parents(prefetch=64), blocking(hold)))
    for _ in range(20):
        hold.go.release()
    while len(hold.calls) < 21:
        await asyncio.sleep(0)

    ran.circuit.stop(StopMode.CANCEL)
    await ran.finished()
    hold.go.release()
    while ran.circuit.pump.outside:
        await asyncio.sleep(0)

    assert len(hold.calls) == 21


@virtual_time
async def test_a_pause_stops_a_batch_between_two_calls(line: Any) -> None:
    handle = ops.Valve()
    hold = Hold()
    ran = line(from_iterable(range(50)).pipe(ops.valve(handle), blocking(hold)))
    for _ in range(20):
        hold.go.release()
    while len(hold.calls) < 21:
        await asyncio.sleep(0)

    handle.pause()
    for _ in range(50):
        hold.go.release()
    while ran.circuit.pump.outside:
        await asyncio.sleep(0)
    await asyncio.sleep(100)
    paused = list(hold.calls), list(ran.out)
    handle.resume()
    await ran.finished()

    assert paused == (list(range(21)), list(range(21)))
    assert ran.out == hold.calls == list(range(50))


@virtual_time
async def test_a_blocking_source_is_closed_after_a_cancellation_during_its_trip() -> None:
    closed = threading.Event()
    inside = threading.Event()
    go = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield 1
            inside.set()
            assert go.wait(10)
            yield 2
        finally:
            closed.set()

    seen = TestSubscriber(10)
    threaded(source).pipe(ops.prefetch(64)).subscribe(seen)
    while not inside.is_set():
        await asyncio.sleep(0)
    seen.cancel()
    await asyncio.sleep(0)
    go.set()

    assert await asyncio.to_thread(closed.wait, 10)
    assert seen.terminal is None


@virtual_time
async def test_a_blocking_source_that_is_cancelled_between_trips_is_closed() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.set()

    seen = TestSubscriber(3)
    threaded(source).subscribe(seen)
    await asyncio.sleep(1)
    seen.cancel()

    assert await asyncio.to_thread(closed.wait, 10)
    assert seen.values == [0, 1, 2]


@virtual_time
async def test_a_blocking_source_is_drawn_as_far_as_there_is_demand(line: Any) -> None:
    drawn: list[int] = []

    def source() -> Iterator[int]:
        for n in range(500):
            drawn.append(n)
            yield n

    open_ = asyncio.Event()

    async def wait(n: int) -> None:
        await open_.wait()

    ran = line(threaded(source), prefetch=5, sink=wait)
    await asyncio.sleep(1)
    held = len(drawn)
    open_.set()
    await ran.finished()

    assert (held, len(drawn)) == (5, 500)


# -- the pool


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    made = BlockingPool(3)
    yield made
    made.close()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "yukta-blocking"]


@virtual_time
async def test_a_pool_has_no_more_threads_than_it_may(pool: BlockingPool) -> None:
    hold = Hold()
    calls = [asyncio.ensure_future(pool.call(hold, n)) for n in range(10)]
    for _ in range(3):
        await hold.entered()
    inside = len(hold.calls)

    for _ in range(10):
        hold.go.release()
    results = await asyncio.gather(*calls)

    assert inside == 3
    assert results == list(range(10))


@virtual_time
async def test_a_pool_uses_an_idle_thread_again(pool: BlockingPool) -> None:
    idents = [await pool.call(threading.get_ident) for _ in range(50)]

    assert len(set(idents)) <= 3


@virtual_time
async def test_an_abandoned_call_makes_room_for_another(pool: BlockingPool) -> None:
    hold = Hold()
    stuck = [asyncio.ensure_future(pool.call(hold, n)) for n in range(3)]
    for _ in range(3):
        await hold.entered()

    pool.abandon()
    free = await pool.call(lambda: "free")

    assert free == "free"
    for _ in stuck:
        hold.go.release()
    assert await asyncio.gather(*stuck) == [0, 1, 2]


@virtual_time
async def test_a_closed_pool_takes_no_calls_and_its_threads_end() -> None:
    pool = BlockingPool(2)
    before = set(threads())
    await pool.call(lambda: None)
    [mine] = set(threads()) - before

    pool.close()
    await asyncio.to_thread(mine.join, 10)

    assert not mine.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        await pool.call(lambda: None)


@virtual_time
async def test_an_error_of_a_call_reaches_its_caller(pool: BlockingPool) -> None:
    def bad(error: BaseException) -> None:
        raise error

    with pytest.raises(LookupError, match="mine"):
        await pool.call(bad, LookupError("mine"))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.call(bad, StopIteration())


@virtual_time
async def test_a_cancelled_caller_gets_no_result(pool: BlockingPool) -> None:
    hold = Hold()
    call = asyncio.ensure_future(pool.call(hold, 1))
    await hold.entered()

    call.cancel()
    hold.go.release()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert await pool.call(lambda: "next") == "next"


def test_a_pool_of_no_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BlockingPool(0)


@virtual_time
async def test_a_circuit_uses_the_pool_that_it_is_given_and_leaves_it_open(
    pool: BlockingPool,
) -> None:
    circuit = Circuit([from_iterable([1]).pipe(blocking(lambda n: n))], pool=pool)
    circuit.start()
    await circuit.done

    assert circuit.pool is pool
    assert await pool.call(lambda: "open") == "open"


@virtual_time
async def test_the_threads_of_a_circuits_own_pool_end_with_it(line: Any) -> None:
    before = set(threads())
    ran = await line(from_iterable(range(50)).pipe(blocking(lambda n: n))).finished()
    mine = set(threads()) - before

    for thread in mine:
        await asyncio.to_thread(thread.join, 10)

    assert ran.out == list(range(50))
    assert not any(thread.is_alive() for thread in mine)


@virtual_time
async def test_an_idle_thread_keeps_nothing_of_its_last_call_alive(pool: BlockingPool) -> None:
    class Thing:
        pass

    thing = Thing()
    seen = weakref.ref(thing)
    await pool.call(lambda it: None, thing)
    del thing
    # The thread may still be on its way out of the call.
    await pool.call(lambda: None)
    while seen() is not None and threads():
        gc.collect()
        await asyncio.sleep(0)

    assert seen() is None


@pytest.mark.slow
def test_a_hung_call_does_not_keep_the_process_from_exiting() -> None:
    program = """
import asyncio, threading
from yukta_rx import operators as ops
from yukta_rx.streams import from_iterable
from yukta_rx.testing.subscriber import TestSubscriber

entered = threading.Event()

def hang(n):
    entered.set()
    threading.Event().wait()

async def main():
    seen = TestSubscriber(1)
    from_iterable([1]).pipe(ops.call(hang, blocking=True)).subscribe(seen)
    while not entered.is_set():
        await asyncio.sleep(0.001)
    seen.cancel()

asyncio.run(main())
print("over")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )

    assert (ended.stdout, ended.returncode) == ("over\n", 0), ended.stderr


@virtual_time
async def test_a_job_that_waits_gets_a_thread_as_soon_as_a_stuck_call_is_abandoned() -> None:
    pool = BlockingPool(1)
    hold = Hold()
    stuck = asyncio.ensure_future(pool.call(hold, 1))
    await hold.entered()
    waiting = asyncio.ensure_future(pool.call(lambda: "free"))
    await asyncio.sleep(0)

    pool.abandon()

    assert await waiting == "free"
    hold.go.release()
    assert await stuck == 1
    pool.close()


@virtual_time
async def test_a_cancelled_stage_leaves_its_thread_behind_and_others_keep_theirs() -> None:
    pool = BlockingPool(1)
    hold = Hold()
    flow = from_iterable(range(3)).pipe(ops.call(hold, blocking=True))
    circuit = Circuit([flow], pool=pool)
    circuit.start()
    await hold.entered()

    circuit.stop(StopMode.CANCEL)
    await circuit.done

    assert await pool.call(lambda: "free") == "free"
    hold.go.release()
    pool.close()


async def test_a_slow_blocking_source_hands_over_what_it_has_and_does_not_wait_for_a_full_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Any time at all counts as slow.
    monkeypatch.setattr(threads_module, "TRIP_SLOW", 0.0)
    hold = Hold()

    def slow() -> Iterator[int]:
        yield 0
        hold(1)
        yield 1

    iteration = threaded(slow).aiter()

    first = await anext(iteration)
    hold.go.release()
    rest = [item async for item in iteration]

    assert (first, rest) == (0, [1]), "the first came while the second was being made"


@virtual_time
async def test_a_thread_that_took_the_place_of_a_stuck_one_goes_when_that_is_back() -> None:
    pool = BlockingPool(1)
    stuck = Hold()
    caller = asyncio.ensure_future(pool.call(stuck, 1))
    await stuck.entered()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    await pool.call(lambda: None)
    at_most = pool._started
    stuck.go.release()
    while pool._size > 1:
        await asyncio.sleep(0)
    for _ in range(10):
        await pool.call(lambda: None)
        if pool._started == 1:
            break
    started = pool._started
    pool.close()

    assert (at_most, started) == (2, 1)


@virtual_time
async def test_a_caller_that_is_cancelled_as_its_result_comes_has_no_thread_to_leave_behind(
    pool: BlockingPool,
) -> None:
    hold = Hold()
    loop = asyncio.get_running_loop()
    caller = asyncio.ensure_future(pool.call(hold, 1))
    await hold.entered()
    real = loop.call_soon_threadsafe

    def with_cancel(callback: Any, *args: Any, **options: Any) -> Any:
        def both(*given: Any) -> None:
            callback(*given)
            caller.cancel()

        return real(both, *args, **options)

    loop.call_soon_threadsafe = with_cancel  # type: ignore[method-assign]
    hold.go.release()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert pool._size == 3
    assert Pump.of(loop).outside == 0


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, StopIteration])
@virtual_time
async def test_what_a_thread_raises_stops_nothing_but_its_call(
    pool: BlockingPool, raised: type[BaseException]
) -> None:
    def fails() -> None:
        raise raised

    with pytest.raises(RuntimeError, match=raised.__name__):
        await pool.call(fails)


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
@virtual_time
async def test_an_exit_in_a_blocking_call_fails_its_node(line: Any, raised: Any) -> None:
    def fails(n: int) -> None:
        raise raised

    ran = await line(from_iterable([1]).pipe(ops.merge_parents(), blocking(fails))).finished()

    assert isinstance(ran.error, RuntimeError)


async def test_a_result_for_a_loop_that_is_gone_is_dropped() -> None:
    """In a loop of its own, which ends before the call does."""
    go, back = threading.Event(), threading.Event()

    def call() -> None:
        assert go.wait(10)

    async def leave() -> None:
        pool = BlockingPool(1)
        caller = asyncio.ensure_future(pool.call(call))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        pool.submit(back.set)
        pool.close()

    await asyncio.to_thread(asyncio.run, leave())
    go.set()

    assert await asyncio.to_thread(back.wait, 10)


@virtual_time
async def test_demand_that_comes_during_a_trip_waits_for_it() -> None:
    inside, go = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield from range(4)
        inside.set()
        assert go.wait(10)
        yield from range(4, 40)

    open_ = asyncio.Event()

    async def wait(n: int) -> int:
        await open_.wait()
        return n

    # Four come with the first trip; while the second is out for a fifth, they are worked off.
    seen = TestSubscriber(100)
    threaded(source).pipe(ops.merge_parents(prefetch=5), ops.call(wait)).subscribe(seen)
    while not inside.is_set():
        await asyncio.sleep(0)
    open_.set()
    while len(seen.values) < 4:
        await asyncio.sleep(0)
    go.set()
    await seen.ended()

    assert seen.values == list(range(40))


@pytest.mark.parametrize("action", [None, OnError.CONTINUE, OnError.ROUTE])
@virtual_time
async def test_a_failure_whose_turn_never_comes_is_counted(action: OnError | None) -> None:
    """The outputs of the element before it still wait for demand when the node is cancelled."""

    def fails(n: int) -> Iterator[int]:
        yield from [n] * 10
        if n == 4:
            raise LookupError(n)

    flow = from_iterable([3, 4, 5]).pipe(ops.merge_parents(), blocking(fails))
    if action is not None:
        clock = LoopClock(asyncio.get_running_loop())
        flow = flow.pipe(ops.on_error(ops.FailureLedger(action, None, clock)))
    end = flow.pipe(ops.broadcast(), ops.merge_parents(prefetch=5), ops.call(forever))
    circuit = Circuit([end])
    [stage] = [stage for stage in circuit.stages.values() if hasattr(stage, "taken")]
    stage.quantum = 3
    circuit.start()
    await asyncio.sleep(1)
    pending = len(stage.pending)
    circuit.stop(StopMode.CANCEL)
    await circuit.done

    # Without a policy what 4 gave before it failed comes out as well.
    assert stage.emitted == 5
    assert pending == (15 if action is None else 5)
    # With 4 itself, and 5 behind it.
    assert stage.discarded == pending + 2


async def forever(n: int) -> None:
    await asyncio.Event().wait()


@virtual_time
async def test_slow_trips_are_made_smaller(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "TRIP_SLOW", -1.0)
    ran = line(from_iterable(range(40)).pipe(ops.merge_parents(), blocking(lambda n: n)))
    ran.stage.quantum = 8
    await ran.finished()

    assert ran.out == list(range(40))
    assert ran.stage.quantum == 1
