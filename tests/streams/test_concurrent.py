"""Several calls of one node at once: how many, in which order, under which demand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import IdleTimeoutError
from yukta_rx.model.message import to_port
from yukta_rx.model.policy import OnError, RetryPolicy
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import Flow, from_iterable
from yukta_rx.streams.plan import Outcome
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.feature("ENG-02")


def concurrent(fn: Any, most: int = 3, *, ordered: bool = True) -> ops.Operator:
    return ops.call(ConcurrentBody(fn, most, ordered))


class Sleepy:
    """Sleeps as long as it is told and gives what it got; knows how many calls are out."""

    def __init__(self, times: dict[Any, float] | None = None) -> None:
        self.times = times
        self.inside = 0
        self.peak = 0
        self.cancelled: list[Any] = []

    async def __call__(self, n: Any) -> list[Any]:
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            await asyncio.sleep(n if self.times is None else self.times.get(n, 0))
        except asyncio.CancelledError:
            self.cancelled.append(n)
            raise
        finally:
            self.inside -= 1
        return [n]


def clock() -> LoopClock:
    return LoopClock(asyncio.get_running_loop())


def subscribed(flow: Flow[Any], demand: int = 1000) -> TestSubscriber:
    seen = TestSubscriber(demand)
    flow.subscribe(seen)
    return seen


def timed(seen: TestSubscriber) -> list[tuple[str, Any, float]]:
    return [(s.kind, s.value, round(s.time, 3)) for s in seen.signals]


both = pytest.mark.parametrize("ordered", [True, False])


# -- how many, in which order


@pytest.mark.parametrize("most", [1, 2, 3, 10, 1000])
@both
@virtual_time
async def test_as_many_calls_are_out_as_there_may_be(most: int, ordered: bool, line: Any) -> None:
    fn = Sleepy(dict.fromkeys(range(200), 1.0))
    flow = from_iterable(range(200)).pipe(
        ops.merge_parents(), concurrent(fn, most, ordered=ordered)
    )
    ran = await line(flow).finished()

    assert fn.peak == min(most, 64)
    assert (ran.out if ordered else sorted(ran.out)) == list(range(200))
    assert round(asyncio.get_running_loop().time(), 3) == -(-200 // fn.peak)
    assert (ran.stage.received, ran.stage.emitted, ran.stage.discarded) == (200, 200, 0)


@virtual_time
async def test_outputs_keep_the_order_of_their_inputs() -> None:
    seen = subscribed(from_iterable([5, 1, 3, 2]).pipe(ops.merge_parents(), concurrent(Sleepy())))
    await seen.ended()

    # 2 begins when 5 has left, at 5.
    assert timed(seen) == [
        ("next", 5, 5),
        ("next", 1, 5),
        ("next", 3, 5),
        ("next", 2, 7),
        ("completed", None, 7),
    ]


@virtual_time
async def test_without_order_outputs_come_as_they_are_ready() -> None:
    seen = subscribed(
        from_iterable([5, 1, 3, 2]).pipe(ops.merge_parents(), concurrent(Sleepy(), ordered=False))
    )
    await seen.ended()

    assert timed(seen) == [
        ("next", 1, 1),
        ("next", 3, 3),
        ("next", 2, 3),
        ("next", 5, 5),
        ("completed", None, 5),
    ]


@both
@virtual_time
async def test_several_parents_take_turns_and_all_is_accounted_for(ordered: bool) -> None:
    sources = [from_iterable([(place, n) for n in range(50)]) for place in range(3)]
    fn = Sleepy({(place, n): n % 4 for place in range(3) for n in range(50)})
    flow = ops.merge(*sources, prefetch=5).pipe(concurrent(fn, 7, ordered=ordered))
    seen = subscribed(flow)
    await seen.ended()

    assert sorted(seen.values) == [(place, n) for place in range(3) for n in range(50)]
    if ordered:
        for place in range(3):
            mine = [n for which, n in seen.values if which == place]
            assert mine == list(range(50))
    assert fn.peak == 7


@both
@virtual_time
async def test_nothing_routed_and_many_outputs(ordered: bool, line: Any) -> None:
    async def fn(n: int) -> list[Any]:
        await asyncio.sleep(0)
        return [[], [None], [n] * 10, [to_port("nobody", n)]][n % 4]

    flow = from_iterable(range(40)).pipe(ops.merge_parents(), concurrent(fn, 3, ordered=ordered))
    ran = await line(flow, prefetch=2).finished()

    assert ran.out == [n for n in range(2, 40, 4) for _ in range(10)]
    stage = ran.stage
    assert (stage.received, stage.filtered, stage.unrouted, stage.emitted) == (40, 10, 10, 110)


# -- demand


@both
@virtual_time
async def test_without_demand_no_more_is_taken_than_calls_there_are(ordered: bool) -> None:
    source = TestPublisher()
    fn = Sleepy({})
    flow = source.pipe(
        ops.merge_parents(prefetch=100), concurrent(fn, 5, ordered=ordered), ops.prefetch(2)
    )
    seen = TestSubscriber(0)
    flow.subscribe(seen)
    await source.pulled(1)
    source.emit(*range(100))
    await asyncio.sleep(10)
    [stage] = [
        stage
        for stage in source._stage.circuit.stages.values()
        if type(stage).__name__ == "ConcurrentStage"
    ]
    received = stage.received
    # 64 at the subscriber, 2 in the window before that.
    assert stage.emitted == 66
    assert received <= 66 + 5
    assert not stage.working()
    seen.request(1000)
    source.complete()
    await seen.ended()

    assert seen.values == list(range(100))


@virtual_time
async def test_credit_comes_back_when_outputs_have_left() -> None:
    source = TestPublisher()
    seen = TestSubscriber(1000)
    source.pipe(ops.merge_parents(prefetch=4), concurrent(Sleepy(), 3)).subscribe(seen)
    await source.pulled(4)
    source.emit(4, 1, 1, 1)
    await asyncio.sleep(20)

    # 4, 1, 1 leave at 4, three quarters of the window; the last at 5.
    assert [(pull.n, round(pull.time, 3)) for pull in source.pulls] == [(4, 0), (3, 4)]
    seen.cancel()
    await asyncio.sleep(1)


@both
@virtual_time
async def test_waiting_for_demand_or_for_its_turn_is_no_silence(ordered: bool) -> None:
    source = TestPublisher()
    watch = ops.IdleClock(clock(), 8.0)
    flow = source.pipe(
        ops.merge_parents(prefetch=100),
        concurrent(Sleepy({}), 3, ordered=ordered),
        ops.idle_timeout(watch),
        ops.prefetch(1),
    )
    seen = TestSubscriber(0)
    flow.subscribe(seen)
    await source.pulled(1)
    source.emit(*range(80))
    await asyncio.sleep(1000)
    before = seen.terminal
    seen.request(1000)
    source.complete()
    await seen.ended()

    assert before is None
    assert seen.values == list(range(80))


@both
@virtual_time
async def test_silent_calls_end_the_node(ordered: bool) -> None:
    fn = Sleepy({1: 1000.0, 2: 1000.0})
    seen = subscribed(
        from_iterable([0, 1, 2]).pipe(
            ops.merge_parents(),
            concurrent(fn, ordered=ordered),
            ops.idle_timeout(ops.IdleClock(clock(), 8.0)),
        )
    )
    await seen.ended()
    await asyncio.sleep(1)

    assert seen.values == [0]
    assert isinstance(seen.error, IdleTimeoutError)
    assert fn.cancelled == [1, 2]


@both
@virtual_time
async def test_calls_that_end_one_by_one_are_signs_of_life(ordered: bool) -> None:
    times = {n: 5.0 * (n + 1) for n in range(10)}
    times[0] = 100.0
    seen = subscribed(
        from_iterable(range(10)).pipe(
            ops.merge_parents(),
            concurrent(Sleepy(times), 10, ordered=ordered),
            ops.idle_timeout(ops.IdleClock(clock(), 60.0)),
        )
    )
    await seen.ended()

    assert seen.completed
    assert seen.signals[-1].time == 100


# -- failures


def failing(bad: Iterable[Any], times: dict[Any, float] | None = None) -> tuple[Any, Sleepy]:
    sleepy = Sleepy(times or {})
    wrong = set(bad)

    async def fn(n: Any) -> list[Any]:
        given = await sleepy(n)
        if n in wrong:
            raise LookupError(n)
        return given

    return fn, sleepy


@virtual_time
async def test_what_came_before_the_failing_element_is_delivered_first(line: Any) -> None:
    fn, sleepy = failing([3], {1: 5.0, 4: 100.0, 5: 100.0})
    flow = from_iterable(range(20)).pipe(ops.merge_parents(), concurrent(fn, 5))
    ran = await line(flow).finished()

    assert ran.out == [0, 1, 2]
    assert (ran.stage.culprit, ran.outcome) == (3, Outcome.FAILED)
    assert round(asyncio.get_running_loop().time(), 3) == 5
    assert sleepy.cancelled == [4]
    # No element is taken after a failure is known.
    assert ran.stage.received == 5
    assert ran.stage.discarded == 20 - 3 - 1


@virtual_time
async def test_without_order_a_failure_ends_the_node_at_once(line: Any) -> None:
    fn, sleepy = failing([3], {0: 5.0, 1: 5.0})
    flow = from_iterable(range(20)).pipe(ops.merge_parents(), concurrent(fn, 5, ordered=False))
    ran = await line(flow).finished()

    assert ran.out == [2]
    assert asyncio.get_running_loop().time() == 0
    assert set(sleepy.cancelled) >= {0, 1}
    assert ran.stage.discarded == 20 - 1 - 1


@both
@virtual_time
async def test_of_several_failures_the_first_in_turn_counts(ordered: bool, line: Any) -> None:
    fn, _sleepy = failing([1, 2], {1: 2.0, 2: 1.0})
    flow = from_iterable(range(3)).pipe(ops.merge_parents(), concurrent(fn, 3, ordered=ordered))
    ran = await line(flow).finished()

    assert ran.stage.culprit == (1 if ordered else 2)
    assert ran.out == [0]
    assert ran.stage.discarded == 1


@both
@virtual_time
async def test_a_call_that_raises_a_cancellation_itself_fails_its_node(
    ordered: bool, line: Any
) -> None:
    async def fn(n: int) -> list[int]:
        raise asyncio.CancelledError

    flow = from_iterable([1]).pipe(ops.merge_parents(), concurrent(fn, ordered=ordered))
    ran = await line(flow).finished()

    assert isinstance(ran.error, RuntimeError)
    assert "cancelled from inside" in str(ran.error)


@both
@virtual_time
async def test_each_element_is_tried_again_for_itself(ordered: bool) -> None:
    left = {1: 2, 2: 1}

    async def fn(n: int) -> list[int]:
        if left.get(n, 0):
            left[n] -= 1
            raise LookupError(n)
        return [n]

    policy = RetryPolicy(max_attempts=3, backoff_ms=1000)
    seen = subscribed(
        from_iterable(range(5)).pipe(
            ops.merge_parents(),
            concurrent(fn, 3, ordered=ordered),
            ops.retry(ops.Backoff(policy, clock(), jitter=lambda: 1.0)),
        )
    )
    await seen.ended()

    times = {value: round(signal.time, 3) for signal in seen.signals if (value := signal.value)}
    if ordered:
        assert seen.values == [0, 1, 2, 3, 4]
        assert times == {1: 3, 2: 3, 3: 3, 4: 3}
    else:
        assert times == {1: 3, 2: 1, 3: 0, 4: 0}


@both
@pytest.mark.parametrize("action", [OnError.CONTINUE, OnError.ROUTE])
@virtual_time
async def test_what_is_given_up_keeps_its_turn(ordered: bool, action: OnError, line: Any) -> None:
    fn, _sleepy = failing(range(1, 20, 2), {n: (n * 7) % 5 for n in range(20)})
    flow = from_iterable(range(20)).pipe(
        ops.merge_parents(),
        concurrent(fn, 4, ordered=ordered),
        ops.on_error(ops.FailureLedger(action, None, clock())),
    )
    ran = await line(flow).finished()

    assert sorted(ran.out) == list(range(0, 20, 2))
    if ordered:
        assert ran.out == list(range(0, 20, 2))
    stage = ran.stage
    letters = 10 if action is OnError.ROUTE else 0
    assert (stage.failed, stage.dead_lettered, stage.unrouted) == (10, letters, letters)
    assert (stage.emitted, stage.discarded, stage.filtered) == (10, 0, 0)


# -- ends


@both
@virtual_time
async def test_a_cancellation_reaches_every_call(ordered: bool) -> None:
    fn = Sleepy(dict.fromkeys(range(10), 100.0))
    flow = from_iterable(range(10)).pipe(ops.merge_parents(), concurrent(fn, 4, ordered=ordered))
    circuit = Circuit([flow])
    circuit.start()
    await asyncio.sleep(1)
    circuit.stop(StopMode.CANCEL)
    await circuit.done

    assert fn.cancelled == [0, 1, 2, 3]
    assert circuit.stage_of(flow).discarded == 10
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_cancellation_before_a_call_began() -> None:
    fn = Sleepy()
    flow = from_iterable([1]).pipe(ops.merge_parents(), concurrent(fn))
    circuit = Circuit([flow])
    circuit.start()
    stage = circuit.stage_of(flow)
    while not stage.received:
        await asyncio.sleep(0)
    circuit.stop(StopMode.CANCEL)
    await circuit.done

    assert stage.discarded == 1


@both
@virtual_time
async def test_a_call_that_swallows_its_cancellation_emits_nothing_more(ordered: bool) -> None:
    async def stubborn(n: int) -> list[int]:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return [n]

    source = TestPublisher()
    seen = TestSubscriber(10)
    source.pipe(ops.merge_parents(), concurrent(stubborn, ordered=ordered)).subscribe(seen)
    await source.pulled(1)
    source.emit(1, 2)
    await asyncio.sleep(5)
    seen.cancel()
    await asyncio.sleep(10)

    assert source.cancelled
    assert seen.signals == []
    assert len(asyncio.all_tasks()) == 1


@both
@pytest.mark.parametrize("action", [None, OnError.CONTINUE, OnError.ROUTE])
@virtual_time
async def test_a_cancellation_counts_what_ended_and_never_left_once(
    ordered: bool, action: OnError | None
) -> None:
    """The first call is slow, so what ends behind it waits for its turn."""
    fn, _sleepy = failing([2, 3], {0: 100.0})
    flow = from_iterable(range(10)).pipe(ops.merge_parents(), concurrent(fn, 6, ordered=ordered))
    if action is not None:
        flow = flow.pipe(ops.on_error(ops.FailureLedger(action, None, clock())))
    circuit = Circuit([flow])
    circuit.start()
    await asyncio.sleep(1)
    stage = circuit.stage_of(flow)
    circuit.stop(StopMode.CANCEL)
    await circuit.done

    [edge] = [edge for edge in circuit.edges if edge.dst is stage]
    culprit = int(not ordered and action is None)
    assert edge.passed == stage.emitted + stage.failed + stage.discarded + culprit
    assert stage.failed == (0 if action is None else 2)


@both
@virtual_time
async def test_the_end_of_the_source_waits_for_the_calls(ordered: bool) -> None:
    source = TestPublisher()
    seen = TestSubscriber(10)
    source.pipe(ops.merge_parents(), concurrent(Sleepy(), ordered=ordered)).subscribe(seen)
    await source.pulled(1)
    source.emit(3, 2)
    source.complete()
    await seen.ended()

    assert seen.completed
    assert sorted(seen.values) == [2, 3]
    assert round(seen.signals[-1].time, 3) == 3


@both
@virtual_time
async def test_an_error_of_the_source_waits_for_the_calls(ordered: bool) -> None:
    source = TestPublisher()
    seen = TestSubscriber(10)
    source.pipe(ops.merge_parents(), concurrent(Sleepy(), ordered=ordered)).subscribe(seen)
    await source.pulled(1)
    source.emit(3, 2)
    error = LookupError("source")
    source.fail(error)
    await seen.ended()

    assert (sorted(seen.values), seen.error) == ([2, 3], error)


@both
@virtual_time
async def test_a_failed_parent_cancels_the_calls_where_the_rule_says_so(ordered: bool) -> None:
    sources = [TestPublisher(), TestPublisher()]
    fn = Sleepy()
    seen = TestSubscriber(10)
    ops.merge(*sources, join=ops.AllSuccess()).pipe(concurrent(fn, ordered=ordered)).subscribe(seen)
    await sources[0].pulled(1)
    sources[0].emit(30, 20)
    await asyncio.sleep(1)
    sources[1].fail(LookupError("source"))
    await seen.ended()
    await asyncio.sleep(1)

    assert [(kind, time) for kind, _value, time in timed(seen)] == [("error", 1)]
    assert fn.cancelled == [30, 20]


@both
@virtual_time
async def test_a_parent_that_fails_while_its_outputs_wait_ends_the_node(ordered: bool) -> None:
    """The last output of the failed parent leaves, and the error comes right behind it."""
    source = TestPublisher()

    async def fn(n: int) -> list[int]:
        await asyncio.sleep(1)
        return [n] * 5

    seen = TestSubscriber(1)
    source.pipe(ops.merge_parents(), concurrent(fn, ordered=ordered), ops.prefetch(1)).subscribe(
        seen
    )
    await source.pulled(1)
    source.emit(1, 2)
    error = LookupError("source")
    source.fail(error)
    await asyncio.sleep(10)
    seen.request(100)
    await seen.ended()

    assert (seen.values, seen.error) == ([1] * 5 + [2] * 5, error)


@both
@virtual_time
async def test_a_pause_is_exact_and_lets_the_calls_end(ordered: bool) -> None:
    handle = ops.Valve()
    source = TestPublisher()
    seen = TestSubscriber(100)
    source.pipe(
        ops.merge_parents(), ops.valve(handle), concurrent(Sleepy(), 2, ordered=ordered)
    ).subscribe(seen)
    await source.pulled(1)
    source.emit(*[1] * 6)
    await asyncio.sleep(1.5)
    handle.pause()
    await asyncio.sleep(100)
    paused = len(seen.values)
    handle.step(2)
    await asyncio.sleep(100)
    stepped = len(seen.values)
    source.complete()
    await asyncio.sleep(100)
    held = seen.terminal
    handle.resume()
    await seen.ended()

    assert (paused, stepped, held) == (4, 6, None)
    assert seen.completed


@both
@virtual_time
async def test_cancelled_children_end_the_node_also_with_calls_out(ordered: bool) -> None:
    fn = Sleepy(dict.fromkeys(range(10), 100.0))
    shared = from_iterable(range(10)).pipe(
        ops.merge_parents(), concurrent(fn, ordered=ordered), ops.broadcast()
    )
    ends = [shared.pipe(ops.map(lambda n: n)) for _ in range(2)]
    circuit = Circuit(ends)
    circuit.start()
    await asyncio.sleep(1)
    circuit.stage_of(ends[0]).end(Outcome.CANCELLED)
    await asyncio.sleep(1)
    one_left = circuit.stage_of(shared).ended
    circuit.stage_of(ends[1]).end(Outcome.CANCELLED)
    await circuit.done

    assert not one_left
    assert fn.cancelled == [0, 1, 2]


@virtual_time
async def test_skipping_waits_for_the_calls_that_are_out() -> None:
    handle = ops.Valve()
    source = TestPublisher()
    seen = TestSubscriber(100)
    source.pipe(ops.merge_parents(), ops.valve(handle), concurrent(Sleepy(), 3)).subscribe(seen)
    await source.pulled(1)
    source.emit(5, 3)
    await asyncio.sleep(1)
    handle.skip(True)
    source.emit(100, 200)
    await asyncio.sleep(1)
    handle.skip(False)
    source.emit(1)
    source.complete()
    await seen.ended()

    # Skipped is what goes in while it is on: nothing here, as the calls were out all the time.
    assert seen.values[:2] == [5, 3]
    assert sorted(seen.values) == [1, 3, 5, 100, 200]


@pytest.mark.parametrize(("holds", "peak"), [(False, 4), (True, 10)])
@virtual_time
async def test_calls_that_hold_their_elements_have_room_for_them_beside_the_edge(
    holds: bool, peak: int
) -> None:
    sleepy = Sleepy(dict.fromkeys(range(30), 1.0))
    body = ConcurrentBody(sleepy, 10, True, holds=holds)
    source = ops.merge(from_iterable(range(30)), name="in", prefetch=4)
    seen = subscribed(source.pipe(ops.call(body)))

    await asyncio.sleep(20)

    assert sleepy.peak == peak
    assert seen.values == list(range(30))
