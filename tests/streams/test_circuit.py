"""A circuit: bounded stack, how it starts, stops and ends."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.sync import IterableBody
from yukta_rx.streams.threads import ThreadIterableBody
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("ENG-01")


@contextmanager
def stack_of(frames: int) -> Iterator[None]:
    """Allow only so many frames more than there are."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def line_of(nodes: int, source: Flow[Any]) -> Flow[Any]:
    flow = source
    for _ in range(nodes):
        flow = flow.pipe(ops.map(lambda n: n + 1))
    return flow


# -- start


@virtual_time
async def test_nothing_moves_before_the_loop_has_its_turn(line: Any) -> None:
    made: list[str] = []

    def source() -> Iterator[int]:
        made.append("source")
        yield 1

    ran = line(from_iterable(source))
    at_start = list(made), list(ran.out)
    await ran.finished()

    assert at_start == ([], [])
    assert (made, ran.out) == (["source"], [1])


@virtual_time
async def test_a_circuit_starts_once() -> None:
    circuit = Circuit([from_iterable([1])])
    circuit.start()

    with pytest.raises(RuntimeError, match="once"):
        circuit.start()
    await circuit.done


@virtual_time
async def test_a_circuit_of_nothing_is_done_at_once() -> None:
    circuit = Circuit([])
    circuit.start()

    assert circuit.done.done()


@virtual_time
async def test_a_node_with_neither_parents_nor_a_source_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="orphan"):
        Circuit([NodePlan(name="orphan")])


@virtual_time
async def test_a_flow_with_several_children_is_one_stage() -> None:
    calls: list[int] = []
    shared = from_iterable(range(10)).pipe(ops.map(calls.append))
    ends = [shared.pipe(ops.map(lambda n: n)) for _ in range(3)]

    circuit = Circuit(ends)
    circuit.start()
    await circuit.done

    assert calls == list(range(10))
    assert len(circuit.stages) == 5


# -- the stack


@virtual_time
async def test_case_10_a_line_of_500_nodes_needs_no_stack(line: Any) -> None:
    with stack_of(30):
        ran = await line(line_of(500, from_iterable([0]))).finished()

    assert ran.out == [500]


@virtual_time
async def test_case_10_100000_messages_through_one_node_need_no_stack(line: Any) -> None:
    with stack_of(30):
        ran = await line(line_of(1, from_iterable(range(100_000)))).finished()

    assert ran.out == list(range(1, 100_001))


@virtual_time
async def test_a_failure_at_the_far_end_of_500_nodes_needs_no_stack(line: Any) -> None:
    error = LookupError("first")

    def source() -> Iterator[int]:
        yield 1
        raise error

    with stack_of(30):
        ran = await line(line_of(500, from_iterable(source))).finished()

    assert (ran.out, ran.error) == ([501], error)


@virtual_time
async def test_cancelling_500_nodes_needs_no_stack() -> None:
    publisher = TestPublisher()
    seen = TestSubscriber(1)
    with stack_of(30):
        line_of(500, publisher).subscribe(seen)
        await publisher.pulled(1)
        seen.cancel()
        await asyncio.sleep(1)

    assert publisher.cancelled


@virtual_time
async def test_500_async_nodes_need_no_stack(line: Any) -> None:
    async def plus(n: int) -> int:
        return n + 1

    flow: Flow[int] = from_iterable(range(20))
    for _ in range(500):
        flow = flow.pipe(ops.call(plus))
    with stack_of(40):
        ran = await line(flow).finished()

    assert ran.out == list(range(500, 520))


# -- the end


@virtual_time
async def test_done_comes_after_the_last_task(line: Any) -> None:
    async def slow(n: int) -> None:
        await asyncio.sleep(5)

    ran = line(from_iterable([1, 2]), sink=slow)
    await ran.circuit.done

    assert asyncio.get_running_loop().time() == pytest.approx(10)
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_failure_ends_downstream_and_cancels_upstream(watch: Any) -> None:
    publisher = TestPublisher()
    bad: Any = publisher.pipe(
        ops.merge_parents(name="bad"), ops.call(lambda n: 1 / n), ops.status(watch)
    )
    after = bad.pipe(ops.merge_parents(name="after"), ops.status(watch))
    circuit = Circuit([after])
    circuit.start()
    await publisher.pulled(1)

    publisher.emit(1, 0, 2)
    await circuit.done

    assert publisher.cancelled
    assert watch.ends["bad"][0] is watch.ends["after"][0] is Outcome.FAILED
    assert watch.ends["after"][1] is watch.ends["bad"][1]


@virtual_time
async def test_a_cancelled_branch_leaves_the_others_alone(watch: Any) -> None:
    publisher = TestPublisher()
    shared: Any = publisher.pipe(ops.merge_parents(name="shared"), ops.broadcast())
    gone, kept = TestSubscriber(), TestSubscriber(100)

    async def forever(n: int) -> None:
        await asyncio.Event().wait()

    out: list[int] = []
    stuck = shared.pipe(ops.merge_parents(name="stuck", prefetch=1), ops.call(forever))
    free = shared.pipe(ops.merge_parents(name="free"), ops.map(out.append))
    circuit = Circuit([stuck, free])
    circuit.start()
    await publisher.pulled(1)
    publisher.emit(*range(1))
    await asyncio.sleep(1)
    before = publisher.demand

    circuit.stage_of(stuck).end(Outcome.CANCELLED)
    for n in range(1, 200):
        await publisher.pulled(n + 1)
        publisher.emit(n)
    publisher.complete()
    await circuit.done

    assert before > 0
    assert out == list(range(200))
    assert gone.values == kept.values == []


@virtual_time
async def test_the_last_cancelled_branch_cancels_the_source() -> None:
    publisher = TestPublisher()
    shared: Any = publisher.pipe(ops.merge_parents(), ops.broadcast())
    ends = [shared.pipe(ops.map(lambda n: n)) for _ in range(3)]
    circuit = Circuit(ends)
    circuit.start()
    await publisher.pulled(1)

    cancelled = []
    for end in ends:
        circuit.stage_of(end).end(Outcome.CANCELLED)
        await asyncio.sleep(1)
        cancelled.append(publisher.cancelled)
    await circuit.done

    assert cancelled == [False, False, True]
    assert publisher.cancelled_at == pytest.approx(2.0)


# -- stop


@virtual_time
async def test_drain_ends_sources_and_lets_the_rest_finish(line: Any) -> None:
    async def slow(n: int) -> int:
        await asyncio.sleep(1)
        return n

    ran = line(from_iterable(itertools.count).pipe(ops.merge_parents(prefetch=8), ops.call(slow)))
    await asyncio.sleep(2.5)

    ran.circuit.stop(StopMode.DRAIN)
    await ran.finished()

    assert ran.outcome is Outcome.COMPLETED
    assert ran.out == list(range(8))


@virtual_time
async def test_drain_tells_the_source_that_it_was_stopped(watch: Any) -> None:
    source: Any = from_iterable(itertools.count).pipe(ops.status(watch))
    out: list[int] = []
    circuit = Circuit([source.pipe(ops.map(out.append))])
    circuit.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    circuit.stop(StopMode.DRAIN)
    await circuit.done

    assert watch.ends["source"] == (Outcome.STOPPED, None)
    assert out == list(range(len(out)))


@virtual_time
async def test_drain_closes_an_async_source(line: Any) -> None:
    closed: list[float] = []

    async def source() -> AsyncIterator[int]:
        try:
            for n in itertools.count():
                yield n
                await asyncio.sleep(1)
        finally:
            closed.append(asyncio.get_running_loop().time())

    ran = line(from_async_iterable(source))
    await asyncio.sleep(2.5)
    ran.circuit.stop(StopMode.DRAIN)
    await ran.finished()

    assert (ran.out, closed, ran.outcome) == ([0, 1, 2], [2.5], Outcome.COMPLETED)


@virtual_time
async def test_a_source_that_ignores_its_cancellation_emits_nothing_after_a_drain(
    line: Any,
) -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        yield 2

    flow = from_async_iterable(source)
    ran = line(flow)
    await asyncio.sleep(1)
    ran.circuit.stop(StopMode.DRAIN)
    await ran.finished()

    assert ran.out == [1]
    assert ran.stage.discarded == 1
    assert [edge.passed for edge in ran.circuit.edges] == [1]


@virtual_time
async def test_cancel_ends_everything_at_once(line: Any) -> None:
    cleaned: list[float] = []

    async def slow(n: int) -> int:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            cleaned.append(asyncio.get_running_loop().time())
        return n

    ran = line(from_iterable(range(10)).pipe(ops.call(slow)))
    await asyncio.sleep(3)

    ran.circuit.stop(StopMode.CANCEL)
    await ran.finished()

    assert (ran.out, ran.outcome, cleaned) == ([], Outcome.CANCELLED, [4.0])


@virtual_time
async def test_kill_waits_for_nobody(line: Any) -> None:
    async def stubborn(n: int) -> int:
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(50)
                return n

    ran = line(from_iterable(range(10)).pipe(ops.merge_parents(name="mule"), ops.call(stubborn)))
    await asyncio.sleep(1)
    names = ran.circuit.unfinished()

    ran.circuit.stop(StopMode.KILL)
    at_once = ran.circuit.done.done()
    await asyncio.sleep(60)

    assert names == ["yukta node mule"]
    assert at_once
    assert ran.out == []
    assert len(ran.circuit.tasks) == 0


@pytest.mark.parametrize("mode", list(StopMode))
@virtual_time
async def test_a_stopped_circuit_may_be_stopped_again(line: Any, mode: StopMode) -> None:
    ran = line(from_iterable(itertools.count))
    await asyncio.sleep(0)

    ran.circuit.stop(mode)
    ran.circuit.stop(mode)
    ran.circuit.stop(StopMode.KILL)
    await ran.circuit.done

    assert ran.out == list(range(len(ran.out)))


@virtual_time
async def test_drain_passes_a_paused_source(line: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    source: Flow[int] = Flow(NodePlan(name="s", body=IterableBody(lambda: [1]), gate=handle))
    ran = line(source)
    await asyncio.sleep(1)

    ran.circuit.stop(StopMode.DRAIN)
    await ran.finished()

    assert (ran.out, ran.outcome) == ([], Outcome.COMPLETED)


# -- the barrier


class Barrier:
    """Holds a completion back until it is opened."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.open = asyncio.Event()
        self.error = error
        self.entered = 0
        self.cancelled = 0

    async def __call__(self) -> None:
        self.entered += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error


@virtual_time
async def test_a_barrier_holds_the_completion_back_but_no_elements(line: Any) -> None:
    barrier = Barrier()
    ran = line(from_iterable([1, 2, 3]).pipe(ops.record(barrier=barrier)))
    await asyncio.sleep(1)
    before = list(ran.out), dict(ran.watch.ends), ran.circuit.done.done()

    barrier.open.set()
    await ran.finished()

    assert before == ([1, 2, 3], {}, False)
    assert ran.outcome is Outcome.COMPLETED
    assert barrier.entered == 1


@virtual_time
async def test_a_barrier_that_raises_fails_the_node(
    line: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error = OSError("disk full")
    barrier = Barrier(error)
    barrier.open.set()

    ran = await line(from_iterable([1]).pipe(ops.record(barrier=barrier))).finished()

    assert (ran.out, ran.error) == ([1], error)
    assert "disk full" in caplog.text


@virtual_time
async def test_a_failing_node_skips_its_barrier(line: Any) -> None:
    barrier = Barrier()
    flow: Any = from_iterable([0]).pipe(ops.call(lambda n: 1 / n), ops.record(barrier=barrier))

    ran = await line(flow).finished()

    assert isinstance(ran.error, ZeroDivisionError)
    assert barrier.entered == 0


@pytest.mark.parametrize("wait", [0.0, 1.0])
@pytest.mark.parametrize("call", ["source", "sync", "async", "thread"])
@virtual_time
async def test_cancelling_the_children_cancels_a_barrier_under_way(
    watch: Any, wait: float, call: str
) -> None:
    async def plain(n: int) -> int:
        return n

    barrier = Barrier()
    publisher = TestPublisher("node")
    steps: dict[str, list[Any]] = {
        "source": [],
        "sync": [ops.merge_parents(name="node"), ops.call(lambda n: n)],
        "async": [ops.merge_parents(name="node"), ops.call(plain)],
        "thread": [ops.merge_parents(name="node"), ops.call(lambda n: n, blocking=True)],
    }
    flow = publisher.pipe(*steps[call], ops.status(watch), ops.record(barrier=barrier))
    seen = TestSubscriber(5)
    flow.subscribe(seen)
    await publisher.pulled(1)
    publisher.emit(1)
    publisher.complete()
    await asyncio.sleep(wait)

    seen.cancel()
    await asyncio.sleep(1)

    assert watch.ends["node"][0] is Outcome.CANCELLED
    assert barrier.entered == barrier.cancelled
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_stopping_a_circuit_cancels_the_barrier_of_a_leaf() -> None:
    barrier = Barrier()
    circuit = Circuit([from_iterable([1]).pipe(ops.record(barrier=barrier))])
    circuit.start()
    await asyncio.sleep(1)

    circuit.stop(StopMode.CANCEL)
    await circuit.done

    assert (barrier.entered, barrier.cancelled) == (1, 1)


# -- observers


@virtual_time
async def test_an_observer_hears_of_the_first_element_and_the_end_once(watch: Any) -> None:
    publisher = TestPublisher()
    node: Any = publisher.pipe(ops.merge_parents(name="node"), ops.status(watch))
    circuit = Circuit([node])
    circuit.start()
    await publisher.pulled(1)
    idle = list(watch.touches)
    for n in range(3):
        publisher.emit(n)
        await asyncio.sleep(1)
    publisher.complete()
    await circuit.done

    assert idle == []
    assert watch.touches == ["node"]
    assert watch.ends == {"node": (Outcome.COMPLETED, None)}


@virtual_time
async def test_an_observer_that_raises_does_not_hold_up_the_end(
    line: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad:
        def touched(self, stage: Any) -> None:
            pass

        def ended(self, stage: Any, outcome: Any, error: Any) -> None:
            raise LookupError("observer")

    ran = await line(from_iterable([1]).pipe(ops.status(Bad()))).finished()

    assert (ran.out, ran.outcome) == ([1], Outcome.COMPLETED)
    assert "observer" in caplog.text


@pytest.mark.parametrize("call", ["sync", "async", "thread", "source thread"])
@virtual_time
async def test_a_tap_that_raises_fails_its_node(
    line: Any, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def plain(n: int) -> int:
        return n

    def tap(port: str | None, batch: Any) -> None:
        raise LookupError("tap")

    source = from_iterable([1, 2, 3])
    flows: dict[str, Flow[Any]] = {
        "sync": source.pipe(ops.call(lambda n: n)),
        "async": source.pipe(ops.call(plain)),
        "thread": source.pipe(ops.call(lambda n: n, blocking=True)),
        "source thread": Flow(NodePlan(name="t", body=ThreadIterableBody(lambda: [1, 2]))),
    }

    ran = await line(flows[call].pipe(ops.record(tap))).finished()

    assert (ran.out, ran.outcome) == ([], Outcome.FAILED)
    assert "tap" in str(ran.error)


# -- from other threads


@virtual_time
async def test_post_runs_on_the_loop(line: Any) -> None:
    ran = line(from_iterable([1]))
    threads: list[int] = []

    await asyncio.to_thread(ran.circuit.post, lambda: threads.append(threading.get_ident()))
    await ran.finished()
    await asyncio.sleep(1)

    assert threads == [threading.get_ident()]


# -- draining one node


async def wait_a_second(n: int) -> int:
    await asyncio.sleep(1)
    return n


def at_once(n: int) -> list[int]:
    return [n]


async def copy(stream: AsyncIterator[int]) -> AsyncIterator[int]:
    async for n in stream:
        yield n


DRAINED: dict[str, list[Any]] = {
    "plain": [],
    "sync": [ops.call(lambda n: n)],
    "many": [ops.flat_map(at_once)],
    "async": [ops.call(wait_a_second)],
    "thread": [ops.call(lambda n: n, blocking=True)],
    "through": [ops.through(copy)],
}


@pytest.mark.feature("CTL-03")
@pytest.mark.parametrize("call", DRAINED)
@virtual_time
async def test_a_drained_node_works_off_what_waits_and_takes_no_more(
    line: Any, watch: Any, call: str
) -> None:
    handle = ops.Valve()
    handle.pause()
    publisher = TestPublisher()
    flow = publisher.pipe(
        ops.merge_parents(name="node", prefetch=8),
        ops.valve(handle),
        *DRAINED[call],
        ops.status(watch),
    )
    ran = line(flow)
    await publisher.pulled(8)
    publisher.emit(1, 2, 3)
    await asyncio.sleep(1)

    ran.circuit.stage_of(flow).drain()
    await asyncio.sleep(1)
    cancelled = publisher.cancelled
    handle.resume()
    await ran.finished()

    assert cancelled
    assert ran.out == [1, 2, 3]
    assert watch.ends["node"] == (Outcome.STOPPED, None)
    assert ran.outcome is Outcome.COMPLETED


@virtual_time
async def test_an_edge_knows_how_long_its_producer_waited_for_it() -> None:
    publisher = TestPublisher()
    node: Any = publisher.pipe(ops.merge_parents(prefetch=4), ops.map(lambda n: n))
    slow: Any = node.pipe(ops.merge_parents(name="slow", prefetch=1), ops.call(wait_a_second))
    circuit = Circuit([slow])
    circuit.start()
    await publisher.pulled(4)
    publisher.emit(1, 2, 3)
    publisher.complete()
    await circuit.done

    [edge] = [edge for edge in circuit.edges if edge.dst is circuit.stage_of(slow)]
    # The second and the third waited a second each for the call before them.
    assert edge.blocked_seconds() == pytest.approx(2, abs=0.01)


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_node_can_be_drained_after_its_parents_have_ended(watch: Any, line: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    flow = from_iterable([1, 2]).pipe(
        ops.merge_parents(name="node"), ops.valve(handle), ops.status(watch)
    )
    ran = line(flow)
    await asyncio.sleep(1)
    ran.circuit.stage_of(flow).drain()
    handle.resume()
    await ran.finished()

    assert ran.out == [1, 2]
    assert watch.ends["node"] == (Outcome.STOPPED, None)


@virtual_time
async def test_an_input_that_ends_takes_no_turn_from_the_others() -> None:
    """Whose turn it is stays so when an input before it in the row goes."""
    publishers = [TestPublisher(f"source{n}") for n in range(3)]
    handle = ops.Valve()
    seen = TestSubscriber(100)
    ops.merge(*publishers, prefetch=4).pipe(ops.valve(handle)).subscribe(seen)
    await asyncio.sleep(1)
    publishers[0].emit("a")
    await asyncio.sleep(1)
    handle.pause()
    publishers[1].emit("b")
    publishers[2].emit("c")
    publishers[0].complete()
    await asyncio.sleep(1)
    handle.step()
    await asyncio.sleep(1)
    first = list(seen.values)
    handle.resume()
    for publisher in publishers[1:]:
        publisher.complete()
    await seen.ended()

    assert first == ["a", "b"]
    assert seen.values == ["a", "b", "c"]


@virtual_time
async def test_an_edge_tells_the_wait_that_is_under_way() -> None:
    publisher = TestPublisher()
    slow: Any = publisher.pipe(ops.merge_parents(), ops.map(lambda n: n)).pipe(
        ops.merge_parents(prefetch=1), ops.call(wait_a_second)
    )
    circuit = Circuit([slow])
    circuit.start()
    await publisher.pulled(2)
    publisher.emit(1, 2)
    await asyncio.sleep(0.25)
    [edge] = [edge for edge in circuit.edges if edge.dst is circuit.stage_of(slow)]

    assert edge.blocked_seconds() == pytest.approx(0.25, abs=0.01)
    assert edge.blocked == 0
    publisher.complete()
    await circuit.done


@virtual_time
async def test_a_stall_that_nobody_asks_about_is_nothing() -> None:
    flow = from_iterable([1]).pipe(ops.map(lambda n: n))
    circuit = Circuit([flow])

    circuit.stalled(circuit.stage_of(flow), 1.0)
    circuit.start()
    await circuit.done

    assert circuit.stage_of(flow).emitted == 1


GATED: dict[str, Any] = {
    "iterable": lambda make: IterableBody(make),
    "async": lambda make: from_async_iterable(lambda: later(make())).plan.body,
    "thread": lambda make: ThreadIterableBody(make),
}


async def later(elements: Any) -> AsyncIterator[int]:
    for n in elements:
        yield n


@pytest.mark.feature("CTL-02")
@pytest.mark.parametrize("kind", GATED)
@virtual_time
async def test_a_source_steps_exactly_and_fails_behind_its_gate(kind: str) -> None:
    def elements() -> Iterator[int]:
        yield from range(5)
        raise LookupError("after five")

    handle = ops.Valve()
    handle.step(2)
    seen = TestSubscriber(100)
    plan = NodePlan(name="source", body=GATED[kind](elements), gate=handle)
    Flow(plan).subscribe(seen)
    await asyncio.sleep(1)
    first = list(seen.values)
    handle.step(1)
    await asyncio.sleep(1)
    second = list(seen.values)
    handle.resume()
    await seen.ended()

    assert (first, second) == ([0, 1], [0, 1, 2])
    assert seen.values == [0, 1, 2, 3, 4]
    assert isinstance(seen.error, LookupError)


@pytest.mark.parametrize("makes_of_it", ["passes", "returns", "raises"])
@virtual_time
async def test_a_watch_that_ends_a_barrier_is_heard_whatever_that_makes_of_it(
    line: Any, watch: Any, makes_of_it: str
) -> None:
    error = LookupError("watch")

    async def barrier() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if makes_of_it == "passes":
                raise
            if makes_of_it == "raises":
                raise OSError("barrier") from None

    flow = from_iterable([1]).pipe(
        ops.merge_parents(name="node"), ops.status(watch), ops.record(barrier=barrier)
    )
    ran = line(flow)
    await asyncio.sleep(1)
    stage = ran.circuit.stage_of(flow)
    sealing = stage.sealing is not None
    stage.fail(error)
    await ran.finished()

    assert sealing
    assert watch.ends["node"] == (Outcome.FAILED, error)
    assert ran.error is error
    assert ran.out == [1]


@virtual_time
async def test_a_barrier_that_passes_although_it_was_cancelled_has_passed(
    line: Any, watch: Any
) -> None:
    async def barrier() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(1)

    flow = from_iterable([1]).pipe(
        ops.merge_parents(name="node"), ops.status(watch), ops.record(barrier=barrier)
    )
    ran = line(flow)
    await asyncio.sleep(1)
    ran.circuit.stop(StopMode.CANCEL)
    await ran.finished()

    assert watch.ends["node"] == (Outcome.COMPLETED, None)
