"""The door to plain Rx: overflow strategies, other threads, time, and what stays a Flow."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as rx
from reactivex.disposable import Disposable
from reactivex.internal.constants import UTC_ZERO
from reactivex.subject import Subject

from yukta_rx import operators as ops
from yukta_rx.errors import BackPressureOverflowError
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.rx import LoopScheduler, OverflowStrategy, from_rx, to_rx
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.feature("ENG-01")


class Held:
    """A node that holds its elements, so that the edge before it fills up, until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.out: list[Any] = []

    async def __call__(self, value: Any) -> None:
        await self.open.wait()
        self.out.append(value)


@pytest.fixture
def dropped() -> list[Any]:
    return []


async def settle() -> None:
    await asyncio.sleep(0.001)


# -- overflow


@virtual_time
async def test_error_fails_after_what_waits(line: Any, dropped: list[Any]) -> None:
    source: Subject[int] = Subject()
    held = Held()
    flow = from_rx(source, OverflowStrategy.ERROR, size=2, on_discard=dropped.append)
    ran = line(flow, prefetch=1, sink=held)
    await settle()

    for n in range(5):
        source.on_next(n)
        await settle()
    held.open.set()
    await ran.finished()

    # One in the call, two wait; the fourth is too much.
    assert held.out == [0, 1, 2]
    assert isinstance(ran.error, BackPressureOverflowError)
    assert dropped == [3]
    assert not source.observers


@virtual_time
async def test_drop_oldest_keeps_the_newest(line: Any, dropped: list[Any]) -> None:
    source: Subject[int] = Subject()
    held = Held()
    flow = from_rx(source, OverflowStrategy.DROP_OLDEST, size=2, on_discard=dropped.append)
    ran = line(flow, prefetch=1, sink=held)
    await settle()

    for n in range(6):
        source.on_next(n)
        await settle()
    source.on_completed()
    held.open.set()
    await ran.finished()

    assert (held.out, dropped) == ([0, 4, 5], [1, 2, 3])
    assert ran.stage.discarded == 3
    assert ran.outcome is Outcome.COMPLETED


@virtual_time
async def test_drop_newest_keeps_the_oldest(line: Any, dropped: list[Any]) -> None:
    source: Subject[int] = Subject()
    held = Held()
    flow = from_rx(source, OverflowStrategy.DROP_NEWEST, size=2, on_discard=dropped.append)
    ran = line(flow, prefetch=1, sink=held)
    await settle()

    for n in range(6):
        source.on_next(n)
        await settle()
    source.on_completed()
    held.open.set()
    await ran.finished()

    assert (held.out, dropped) == ([0, 1, 2], [3, 4, 5])
    assert ran.stage.received == 6


@pytest.mark.parametrize("strategy", list(OverflowStrategy))
@virtual_time
async def test_nothing_is_dropped_that_the_buffer_can_hold(
    line: Any, dropped: list[Any], strategy: OverflowStrategy
) -> None:
    flow = from_rx(
        reactivex.from_iterable(range(100)), strategy, size=100, on_discard=dropped.append
    )

    ran = await line(flow, prefetch=1).finished()

    assert (ran.out, dropped) == (list(range(100)), [])


@virtual_time
async def test_none_is_no_element_of_a_flow_and_counted(line: Any) -> None:
    flow = from_rx(reactivex.of(1, None, 2), OverflowStrategy.ERROR)

    ran = await line(flow).finished()

    assert (ran.out, ran.stage.filtered) == ([1, 2], 1)


@virtual_time
async def test_an_on_discard_that_raises_is_reported_and_hurts_nobody(
    line: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(value: Any) -> None:
        raise LookupError("listener")

    flow = from_rx(
        reactivex.from_iterable(range(5)), OverflowStrategy.DROP_NEWEST, size=2, on_discard=bad
    )

    ran = await line(flow).finished()

    assert ran.out == [0, 1]
    assert "listener" in caplog.text


@virtual_time
async def test_what_waits_at_a_cancellation_is_told(line: Any, dropped: list[Any]) -> None:
    source: Subject[int] = Subject()
    held = Held()
    flow = from_rx(source, OverflowStrategy.ERROR, size=10, on_discard=dropped.append)
    ran = line(flow, prefetch=1, sink=held)
    await settle()
    for n in range(5):
        source.on_next(n)
        await settle()

    ran.circuit.stop(StopMode.CANCEL)
    await ran.finished()

    assert dropped == [1, 2, 3, 4]
    assert not source.observers


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        from_rx(reactivex.never(), OverflowStrategy.ERROR, size=-1)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="KEEP"):
        from_rx(reactivex.never(), "KEEP")  # type: ignore[arg-type]


# -- signals


@virtual_time
async def test_an_error_comes_after_the_elements_that_wait(line: Any) -> None:
    error = LookupError("rx")
    pushed = reactivex.concat(reactivex.of(1, 2, 3), reactivex.throw(error))

    ran = await line(from_rx(pushed, OverflowStrategy.ERROR), prefetch=1).finished()

    assert (ran.out, ran.error) == ([1, 2, 3], error)


@virtual_time
async def test_a_subscribe_function_that_raises_fails_the_flow(line: Any) -> None:
    def subscribe(observer: Any, scheduler: Any) -> Any:
        raise LookupError("no subscription")

    ran = await line(from_rx(reactivex.create(subscribe), OverflowStrategy.ERROR)).finished()

    assert ran.outcome is Outcome.FAILED
    assert "no subscription" in str(ran.error)


@virtual_time
async def test_the_observable_is_subscribed_once_per_circuit_and_disposed_of() -> None:
    happened: list[str] = []

    def subscribe(observer: Any, scheduler: Any) -> Any:
        happened.append("subscribed")
        return Disposable(lambda: happened.append("disposed"))

    flow = from_rx(reactivex.create(subscribe), OverflowStrategy.ERROR)
    seen = TestSubscriber(5)
    assert happened == []
    flow.subscribe(seen)
    await settle()
    at_start = list(happened)
    seen.cancel()
    await settle()

    assert at_start == ["subscribed"]
    assert happened == ["subscribed", "disposed"]


@virtual_time
async def test_timed_observables_run_on_the_loops_time() -> None:
    loop = asyncio.get_running_loop()
    ticks = from_rx(reactivex.interval(10.0), OverflowStrategy.DROP_OLDEST)
    seen = TestSubscriber(3)
    ticks.subscribe(seen)
    await seen.until(lambda me: len(me.values) == 3)
    seen.cancel()

    assert [signal.time for signal in seen.signals] == pytest.approx([10, 20, 30])
    assert loop.time() == pytest.approx(30)


@virtual_time
async def test_the_schedulers_now_is_the_loops_time() -> None:
    loop = asyncio.get_running_loop()
    scheduler = LoopScheduler(loop)
    fired: list[float] = []
    await asyncio.sleep(1000)

    scheduler.schedule_absolute(
        scheduler.now + timedelta(seconds=5), lambda *_: fired.append(loop.time())
    )
    await asyncio.sleep(10)

    assert scheduler.now == UTC_ZERO + timedelta(seconds=1010)
    assert fired == pytest.approx([1005])


# -- other threads


def in_thread(work: Callable[[], None]) -> None:
    """Do `work` in a thread while the loop does nothing at all."""
    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        pass


@virtual_time
async def test_a_burst_from_a_thread_wakes_the_loop_once(
    line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    source: Subject[int] = Subject()
    ran = line(from_rx(source, OverflowStrategy.ERROR, size=5000))
    await settle()
    wakes: list[Any] = []
    call = loop.call_soon_threadsafe

    def counting(callback: Any, *args: Any, **options: Any) -> Any:
        wakes.append(callback)
        return call(callback, *args, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)

    def burst() -> None:
        for n in range(2000):
            source.on_next(n)

    in_thread(burst)
    first = len(wakes)
    await settle()
    in_thread(burst)
    in_thread(source.on_completed)
    await ran.finished()

    assert (first, len(wakes)) == (1, 2)
    assert ran.out == [*range(2000), *range(2000)]


@pytest.mark.parametrize(
    ("strategy", "kept", "lost"),
    [
        (OverflowStrategy.ERROR, [0, 1, 2], [3, 4, 5, 6, 7, 8, 9]),
        (OverflowStrategy.DROP_OLDEST, [7, 8, 9], [0, 1, 2, 3, 4, 5, 6]),
        (OverflowStrategy.DROP_NEWEST, [0, 1, 2], [3, 4, 5, 6, 7, 8, 9]),
    ],
)
@virtual_time
async def test_strategies_hold_for_bursts_from_threads(
    line: Any,
    dropped: list[Any],
    strategy: OverflowStrategy,
    kept: list[int],
    lost: list[int],
) -> None:
    source: Subject[int] = Subject()
    told_on: set[int] = set()

    def discard(value: int) -> None:
        dropped.append(value)
        told_on.add(threading.get_ident())

    ran = line(from_rx(source, strategy, size=3, on_discard=discard))
    await settle()

    def burst() -> None:
        for n in range(10):
            source.on_next(n)
        source.on_completed()

    in_thread(burst)
    await ran.finished()

    assert (ran.out, dropped) == (kept, lost)
    assert told_on == {threading.get_ident()}
    failed = strategy is OverflowStrategy.ERROR
    assert ran.outcome is (Outcome.FAILED if failed else Outcome.COMPLETED)


@virtual_time
async def test_elements_under_way_from_a_thread_at_a_cancellation_are_told(
    dropped: list[Any],
) -> None:
    source: Subject[int] = Subject()
    seen = TestSubscriber(10)
    flow = from_rx(source, OverflowStrategy.ERROR, on_discard=dropped.append)
    flow.pipe(ops.prefetch(8)).subscribe(seen)
    await settle()

    in_thread(lambda: source.on_next(1))
    seen.cancel()
    await settle()

    assert (seen.values, dropped) == ([], [1])


@virtual_time
async def test_several_threads_lose_nothing(line: Any) -> None:
    source: Subject[int] = Subject()
    ran = line(from_rx(source, OverflowStrategy.ERROR, size=10_000), prefetch=16)
    await settle()

    def burst(base: int) -> None:
        for n in range(500):
            source.on_next(base + n)

    await asyncio.gather(*(asyncio.to_thread(burst, base) for base in (0, 1000, 2000)))
    source.on_completed()
    await ran.finished()

    assert sorted(ran.out) == [base + n for base in (0, 1000, 2000) for n in range(500)]
    for base in (0, 1000, 2000):
        mine = [n for n in ran.out if base <= n < base + 1000]
        assert mine == sorted(mine)


# -- out again


@virtual_time
async def test_a_plain_observer_gets_everything_without_asking() -> None:
    out: list[Any] = []
    done = asyncio.Event()

    from_iterable(range(500)).subscribe(out.append, out.append, done.set)
    at_once = list(out)
    await done.wait()

    assert at_once == []
    assert out == list(range(500))


@virtual_time
async def test_disposing_of_a_plain_subscription_cancels() -> None:
    out: list[int] = []
    publisher_closed: list[bool] = []

    async def source() -> Any:
        try:
            while True:
                await asyncio.sleep(1)
                yield 1
        finally:
            publisher_closed.append(True)

    subscription = from_async_iterable(source).subscribe(out.append)
    await asyncio.sleep(2.5)
    subscription.dispose()
    await asyncio.sleep(5)

    assert (out, publisher_closed) == ([1, 1], [True])


@virtual_time
async def test_rx_operators_work_on_a_flow() -> None:
    flow = from_iterable(range(10))

    total = await flow.pipe(rx.filter(lambda n: n % 2 == 0), rx.map(lambda n: n * n), rx.sum())
    taken = await flow.take(3).pipe(rx.to_list())

    assert (total, taken) == (120, [0, 1, 2])


@virtual_time
async def test_taking_some_cancels_the_rest() -> None:
    drawn: list[int] = []

    def source() -> Any:
        for n in range(100_000):
            drawn.append(n)
            yield n

    await from_iterable(source).take(3)

    assert len(drawn) < 1000


@virtual_time
async def test_to_rx_is_a_plain_observable_of_the_same_elements() -> None:
    plain = to_rx(from_iterable(range(4)))

    assert type(plain) is Observable
    assert await plain.pipe(rx.to_list()) == [0, 1, 2, 3]


@virtual_time
async def test_a_flow_in_and_out_again_stays_whole() -> None:
    there = to_rx(from_iterable(range(300)))
    back = from_rx(there, OverflowStrategy.ERROR, size=300)

    assert [n async for n in back] == list(range(300))


@virtual_time
async def test_awaiting_a_flow_gives_its_last_element() -> None:
    assert await from_iterable(range(5)) == 4


@virtual_time
async def test_awaiting_an_empty_flow_raises_as_rx_does() -> None:
    with pytest.raises(reactivex.internal.exceptions.SequenceContainsNoElementsError):
        await from_iterable([])


@virtual_time
async def test_awaiting_a_failing_flow_raises_its_error() -> None:
    def source() -> Any:
        yield 1
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await from_iterable(source)


@virtual_time
async def test_run_is_refused() -> None:
    with pytest.raises(RuntimeError, match="block the event loop"):
        from_iterable([1]).run()


# -- what stays a Flow

OTHER = reactivex.of(1)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "buffer": (OTHER,),
    "buffer_toggle": (OTHER, lambda _: OTHER),
    "buffer_when": (lambda: OTHER,),
    "buffer_with_count": (2,),
    "buffer_with_time": (1.0,),
    "buffer_with_time_or_count": (1.0, 2),
    "all": (bool,),
    "catch": (OTHER,),
    "concat_map": (lambda _: OTHER,),
    "contains": (1,),
    "debounce": (1.0,),
    "delay": (1.0,),
    "delay_subscription": (1.0,),
    "delay_with_mapper": (lambda _: OTHER,),
    "do": (reactivex.Observer(),),
    "do_while": (lambda _: False,),
    "element_at": (0,),
    "element_at_or_default": (0,),
    "expand": (lambda _: reactivex.empty(),),
    "filter": (bool,),
    "filter_indexed": (lambda *_: True,),
    "finally_action": (lambda: None,),
    "find": (lambda *_: True,),
    "find_index": (lambda *_: True,),
    "flat_map": (lambda _: OTHER,),
    "flat_map_indexed": (lambda *_: OTHER,),
    "flat_map_latest": (lambda _: OTHER,),
    "group_by": (lambda n: n,),
    "group_by_until": (lambda n: n, None, lambda _: OTHER),
    "group_join": (OTHER, lambda _: OTHER, lambda _: OTHER),
    "join": (OTHER, lambda _: OTHER, lambda _: OTHER),
    "map": (lambda n: n,),
    "map_indexed": (lambda n, _: n,),
    "max_by": (lambda n: n,),
    "merge": (OTHER,),
    "min_by": (lambda n: n,),
    "multicast": (Subject(),),
    "observe_on": (reactivex.scheduler.ImmediateScheduler(),),
    "on_error_resume_next": (OTHER,),
    "partition": (bool,),
    "partition_indexed": (lambda *_: True,),
    "pluck": ("x",),
    "pluck_attr": ("x",),
    "publish_value": (1,),
    "reduce": (lambda a, _: a,),
    "sample": (1.0,),
    "scan": (lambda a, _: a,),
    "sequence_equal": (OTHER,),
    "skip": (1,),
    "skip_last": (1,),
    "skip_last_with_time": (1.0,),
    "skip_until": (OTHER,),
    "skip_until_with_time": (1.0,),
    "skip_while": (bool,),
    "skip_while_indexed": (lambda *_: True,),
    "skip_with_time": (1.0,),
    "starmap": (lambda *a: a,),
    "starmap_indexed": (lambda *a: a,),
    "start_with": (1,),
    "subscribe_on": (reactivex.scheduler.ImmediateScheduler(),),
    "switch_map": (lambda _: OTHER,),
    "switch_map_indexed": (lambda *_: OTHER,),
    "take": (1,),
    "take_last": (1,),
    "take_last_buffer": (1,),
    "take_last_with_time": (1.0,),
    "take_until": (OTHER,),
    "take_until_with_time": (1.0,),
    "take_while": (bool,),
    "take_while_indexed": (lambda *_: True,),
    "take_with_time": (1.0,),
    "throttle_first": (1.0,),
    "throttle_with_mapper": (lambda _: OTHER,),
    "throttle_with_timeout": (1.0,),
    "timeout": (1.0,),
    "timeout_with_mapper": (OTHER, lambda _: OTHER),
    "to_dict": (lambda n: n,),
    "while_do": (lambda _: False,),
    "window": (OTHER,),
    "window_toggle": (OTHER, lambda _: OTHER),
    "window_when": (lambda: OTHER,),
    "window_with_count": (2,),
    "window_with_time": (1.0,),
    "window_with_time_or_count": (1.0, 2),
    "with_latest_from": (OTHER,),
    "zip_with_iterable": ([1],),
    "zip_with_list": ([1],),
    "zip": (OTHER,),
    "combine_latest": (OTHER,),
    "fork_join": (OTHER,),
    "amb": (OTHER,),
    "concat": (OTHER,),
    "zip_latest": (OTHER,),
    "exclusive": (),
}
NOT_OPERATORS = {
    "pipe": "gives what its last operator gives",
    "run": "refused",
    "subscribe": "gives a subscription",
    "to_future": "gives a future",
    "ref_count": "for connectable observables only",
}
OF_FLOW = {"aiter", "outlet", "plan", "port", "write"}
FLUENT = sorted(name for name in dir(Observable) if not name.startswith("_"))
OPERATORS = sorted({name for name in rx.__all__ if not name.startswith("_")})


def test_a_flow_adds_few_names_to_those_of_an_observable() -> None:
    mine = {name for name in dir(from_iterable([])) if not name.startswith("_")}

    assert mine - set(FLUENT) - {"lock"} == OF_FLOW


@pytest.mark.parametrize("name", [name for name in FLUENT if name not in NOT_OPERATORS])
@virtual_time
async def test_inherited_methods_leave_the_paced_world(name: str) -> None:
    result = getattr(from_iterable([1]), name)(*ARGUMENTS.get(name, ()))

    results = result if isinstance(result, list | tuple) else [result]
    assert all(isinstance(each, Observable) for each in results)
    assert not any(isinstance(each, Flow) for each in results)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in NOT_OPERATORS])
@virtual_time
async def test_plain_operators_leave_the_paced_world(name: str) -> None:
    operator = getattr(rx, name)(*ARGUMENTS.get(name, ()))

    result = from_iterable([1]).pipe(operator)

    results = result if isinstance(result, list | tuple) else [result]
    assert all(isinstance(each, Observable) for each in results)
    assert not any(isinstance(each, Flow) for each in results)


@pytest.mark.parametrize(
    "result",
    [
        lambda flow: flow + reactivex.of(1),
        lambda flow: flow[1:3],
        lambda flow: flow[0],
    ],
    ids=["+", "slice", "index"],
)
def test_python_operators_leave_the_paced_world(result: Callable[[Flow[int]], Any]) -> None:
    made = result(from_iterable([1, 2, 3]))

    assert isinstance(made, Observable)
    assert not isinstance(made, Flow)


def test_our_operators_stay_in_the_paced_world() -> None:
    flow: Any = from_iterable([1])

    assert isinstance(flow.pipe(ops.map(lambda n: n), ops.broadcast()), Flow)
    assert isinstance(flow.pipe(rx.map(lambda n: n), ops.on_backpressure_latest()), Flow)


@virtual_time
async def test_an_observable_whose_subscribe_stops_the_circuit_is_disposed_of() -> None:
    disposed: list[int] = []
    circuits: list[Circuit] = []

    def subscribe(observer: Any, scheduler: Any) -> Disposable:
        circuits[0].stop(StopMode.KILL)
        return Disposable(lambda: disposed.append(1))

    flow = from_rx(reactivex.create(subscribe), OverflowStrategy.ERROR)
    circuits.append(Circuit([flow]))
    circuits[0].start()
    await circuits[0].done
    await asyncio.sleep(1)

    assert disposed == [1]


@virtual_time
async def test_an_observable_has_a_gate_like_any_source() -> None:
    handle = ops.Valve()
    handle.pause()
    source = from_rx(reactivex.from_iterable(range(9)), OverflowStrategy.ERROR, size=10)
    seen = TestSubscriber(100)
    Flow(NodePlan(name="source", body=source.plan.body, gate=handle)).subscribe(seen)
    await asyncio.sleep(1)
    paused = list(seen.values)
    handle.step(2)
    await asyncio.sleep(1)
    stepped = list(seen.values)
    handle.resume()
    await seen.ended()

    assert (paused, stepped) == ([], [0, 1])
    assert seen.values == list(range(9))


def test_what_another_thread_pushes_after_the_loop_has_gone_is_dropped() -> None:
    subject: Subject[int] = Subject()
    seen = TestSubscriber(10)

    async def main() -> None:
        from_rx(subject, OverflowStrategy.ERROR).subscribe(seen)
        await asyncio.sleep(0.001)

    asyncio.run(main())
    thread = threading.Thread(target=subject.on_next, args=(2,))
    thread.start()
    thread.join(10)

    assert seen.values == []
