"""Async nodes: one call at a time, exact pauses, cancellation, and the loop left in peace."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.model.policy import OnError
from yukta_rx.streams.aio import AsyncBody, Tasks
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("ENG-02")


def now() -> float:
    return asyncio.get_running_loop().time()


# -- coroutine functions


@virtual_time
async def test_a_suspended_call_does_not_delay_earlier_outputs() -> None:
    async def slow_from_the_third(n: int) -> int:
        if n >= 2:
            await asyncio.sleep(10)
        return n

    seen = TestSubscriber(10)
    from_iterable(range(4)).pipe(ops.call(slow_from_the_third)).subscribe(seen)
    await seen.ended()

    assert [(s.value, s.time) for s in seen.signals] == [
        (0, 0),
        (1, 0),
        (2, 10),
        (3, 20),
        (None, 20),
    ]


@virtual_time
async def test_one_call_at_a_time_in_order() -> None:
    inside = 0
    most = 0

    async def call(n: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(1 / (n + 1))
        inside -= 1
        return n

    out = [n async for n in from_iterable(range(20)).pipe(ops.call(call))]

    assert (out, most) == (list(range(20)), 1)


@virtual_time
async def test_one_task_serves_all_elements_of_a_node() -> None:
    tasks = set()

    async def call(n: int) -> int:
        tasks.add(asyncio.current_task())
        if n % 7 == 0:
            await asyncio.sleep(0)
        return n

    await from_iterable(range(500)).pipe(ops.call(call))

    assert len(tasks) == 1


@virtual_time
async def test_context_variables_set_by_a_call_stay_in_its_node() -> None:
    var = contextvars.ContextVar("var", default=0)
    seen: list[int] = []

    async def count(n: int) -> int:
        var.set(var.get() + 1)
        return n

    async def look(n: int) -> int:
        seen.append(var.get())
        return n

    await from_iterable(range(10)).pipe(ops.call(count), ops.call(look))

    assert seen == [0] * 10
    assert var.get() == 0


@virtual_time
async def test_a_pause_in_an_async_batch_is_exact(line: Any) -> None:
    handle = ops.Valve()
    entered: list[int] = []

    async def call(n: int) -> int:
        entered.append(n)
        if n == 5:
            await asyncio.sleep(1)
            handle.pause()
        return n

    ran = line(from_iterable(range(100)).pipe(ops.valve(handle), ops.call(call)))
    await asyncio.sleep(10)
    paused = list(entered), list(ran.out)
    handle.step(2)
    await asyncio.sleep(10)
    stepped = list(entered)
    handle.resume()
    await ran.finished()

    assert paused == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    assert stepped == [0, 1, 2, 3, 4, 5, 6, 7]
    assert ran.out == entered == list(range(100))


@virtual_time
async def test_a_pause_from_outside_while_a_call_is_suspended_is_exact(line: Any) -> None:
    handle = ops.Valve()
    entered: list[int] = []

    async def call(n: int) -> int:
        entered.append(n)
        await asyncio.sleep(1)
        return n

    ran = line(from_iterable(range(10)).pipe(ops.valve(handle), ops.call(call)))
    await asyncio.sleep(2.5)
    handle.pause()
    await asyncio.sleep(100)
    paused = list(entered), list(ran.out)
    handle.resume()
    await ran.finished()

    assert paused == ([0, 1, 2], [0, 1, 2])
    assert ran.out == list(range(10))


# -- cancellation


@virtual_time
async def test_a_cancellation_arrives_inside_the_call() -> None:
    happened: list[Any] = []

    async def call(n: int) -> int:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            happened.append(("cancelled", n, now()))
            raise
        return n

    seen = TestSubscriber(10)
    from_iterable(range(5)).pipe(ops.call(call)).subscribe(seen)
    await asyncio.sleep(3)
    seen.cancel()
    await asyncio.sleep(1)

    assert happened == [("cancelled", 0, 3)]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_what_was_in_a_cancelled_batch_is_counted(line: Any) -> None:
    async def call(n: int) -> int:
        if n == 3:
            await asyncio.Event().wait()
        return n

    source = from_iterable(range(200))
    ran = line(source.pipe(ops.call(call)))
    await asyncio.sleep(1)

    ran.circuit.stop(StopMode.CANCEL)
    await ran.finished()

    assert ran.out == [0, 1, 2]
    emitted = ran.circuit.stage_of(source).emitted
    assert ran.stage.received == 4
    assert ran.stage.discarded == emitted - 3


@virtual_time
async def test_a_call_that_swallows_its_cancellation_emits_nothing_more() -> None:
    entered: list[int] = []

    async def call(n: int) -> int:
        entered.append(n)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return n

    seen = TestSubscriber(10)
    from_iterable(range(5)).pipe(ops.call(call)).subscribe(seen)
    await asyncio.sleep(3)
    seen.cancel()
    await asyncio.sleep(500)

    assert (entered, seen.values) == ([0], [])
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_call_that_raises_a_cancellation_itself_fails_its_node(line: Any) -> None:
    async def call(n: int) -> int:
        if n == 2:
            raise asyncio.CancelledError("mine")
        return n

    ran = await line(from_iterable(range(5)).pipe(ops.call(call))).finished()

    assert (ran.out, ran.outcome) == ([0, 1], Outcome.FAILED)
    assert "cancelled from inside" in str(ran.error)
    assert "mine" in str(ran.error)
    assert ran.stage.culprit == 2


@virtual_time
async def test_awaiting_a_cancelled_task_of_ones_own_fails_the_node(line: Any) -> None:
    async def call(n: int) -> int:
        async with asyncio.TaskGroup() as group:
            child = group.create_task(asyncio.sleep(10))
            child.cancel()
        return await child

    ran = await line(from_iterable([1]).pipe(ops.call(call))).finished()

    assert ran.outcome is Outcome.FAILED
    assert "cancelled from inside" in str(ran.error)


# -- asyncio inside a plugin


@virtual_time
async def test_timeouts_work_inside_a_call(line: Any) -> None:
    async def call(n: int) -> str:
        try:
            async with asyncio.timeout(2):
                await asyncio.sleep(n)
        except TimeoutError:
            return "late"
        return "in time"

    ran = await line(from_iterable([1, 5, 1]).pipe(ops.call(call))).finished()

    assert ran.out == ["in time", "late", "in time"]
    assert now() == 4


@virtual_time
async def test_task_groups_work_inside_a_call(line: Any) -> None:
    async def call(n: int) -> int:
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(asyncio.sleep(1, part)) for part in range(n)]
        return sum(part.result() for part in parts)

    ran = await line(from_iterable([3, 4]).pipe(ops.call(call))).finished()

    assert (ran.out, now()) == ([3, 6], 2)


@virtual_time
async def test_a_failing_task_group_fails_the_node(line: Any) -> None:
    async def bad() -> None:
        await asyncio.sleep(1)
        raise LookupError("child")

    async def call(n: int) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(bad())
            group.create_task(asyncio.sleep(100))
        return n

    ran = await line(from_iterable([1]).pipe(ops.call(call))).finished()

    assert isinstance(ran.error, ExceptionGroup)
    assert now() == 1


@virtual_time
async def test_cancelling_reaches_the_tasks_of_a_group_in_a_call() -> None:
    cancelled: list[int] = []

    async def child(n: int) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise

    async def call(n: int) -> int:
        async with asyncio.TaskGroup() as group:
            for part in range(3):
                group.create_task(child(part))
        return n

    seen = TestSubscriber(1)
    from_iterable([1]).pipe(ops.call(call)).subscribe(seen)
    await asyncio.sleep(1)
    seen.cancel()
    await asyncio.sleep(1)

    assert sorted(cancelled) == [0, 1, 2]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_yielding_to_the_loop_is_no_stall(line: Any) -> None:
    async def call(n: int) -> int:
        for _ in range(n % 4):
            await asyncio.sleep(0)
        return n

    ran = await line(from_iterable(range(300)).pipe(ops.call(call)), prefetch=3).finished()

    assert ran.out == list(range(300))


# -- async generators


@virtual_time
async def test_a_cancelled_async_generator_is_closed() -> None:
    closed: list[float] = []

    async def outputs(n: int) -> AsyncIterator[int]:
        try:
            for i in range(1000):
                await asyncio.sleep(1)
                yield i
        finally:
            closed.append(now())

    seen = TestSubscriber(3)
    from_iterable([1]).pipe(ops.merge_parents(), ops.call(outputs)).subscribe(seen)
    await asyncio.sleep(2.5)
    seen.cancel()
    await asyncio.sleep(1)

    assert (seen.values, closed) == ([0, 1], [2.5])
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_an_async_generator_waits_while_children_have_no_demand(line: Any) -> None:
    drawn: list[int] = []

    async def outputs(n: int) -> AsyncIterator[int]:
        for i in range(100):
            drawn.append(i)
            yield i

    open_ = asyncio.Event()

    async def wait(n: int) -> None:
        await open_.wait()

    ran = line(from_iterable([1]).pipe(ops.call(outputs)), prefetch=4, sink=wait)
    await asyncio.sleep(1)
    held = len(drawn)
    open_.set()
    await ran.finished()

    # One is drawn and waits for its turn.
    assert held == 5
    assert len(drawn) == 100


@virtual_time
async def test_an_async_source_is_asked_only_for_what_there_is_demand(line: Any) -> None:
    asked: list[int] = []

    async def source() -> AsyncIterator[int]:
        for n in range(100):
            asked.append(n)
            yield n

    open_ = asyncio.Event()

    async def wait(n: int) -> None:
        await open_.wait()

    ran = line(from_async_iterable(source), prefetch=4, sink=wait)
    await asyncio.sleep(1)
    held = len(asked)
    open_.set()
    await ran.finished()

    assert (held, len(asked)) == (4, 100)


@virtual_time
async def test_an_async_source_that_is_cancelled_is_closed() -> None:
    closed: list[float] = []

    async def source() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(1)
                yield 1
        finally:
            closed.append(now())

    seen = TestSubscriber(10)
    from_async_iterable(source).subscribe(seen)
    await asyncio.sleep(2.5)
    seen.cancel()
    await asyncio.sleep(1)

    assert (seen.values, closed) == ([1, 1], [2.5])


@virtual_time
async def test_a_paused_async_source_holds_what_it_has_and_can_be_cancelled(watch: Any) -> None:
    handle = ops.Valve()
    closed: list[float] = []

    async def source() -> AsyncIterator[int]:
        try:
            for n in range(10):
                await asyncio.sleep(1)
                yield n
        finally:
            closed.append(now())

    body = from_async_iterable(source).plan.body
    flow: Flow[int] = Flow(NodePlan(name="source", body=body, gate=handle, observer=watch))
    seen = TestSubscriber(10)
    flow.subscribe(seen)
    await asyncio.sleep(1.5)
    handle.pause()
    await asyncio.sleep(10)
    paused = list(seen.values)
    handle.step()
    await asyncio.sleep(10)
    stepped = list(seen.values)
    seen.cancel()
    await asyncio.sleep(1)

    assert (paused, stepped) == ([0], [0, 1])
    assert closed == [21.5]
    assert watch.ends["source"][0] is Outcome.CANCELLED
    assert len(asyncio.all_tasks()) == 1


# -- tasks


@virtual_time
async def test_case_59_no_task_is_lost_to_the_garbage_collector(line: Any) -> None:
    async def call(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    async def outputs(n: int) -> AsyncIterator[int]:
        await asyncio.sleep(0.01)
        yield n

    async def copy(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        async for n in stream:
            yield n

    async def source() -> AsyncIterator[int]:
        for n in range(60):
            await asyncio.sleep(0.01)
            yield n

    ran = line(
        from_async_iterable(source).pipe(
            ops.call(call),
            ops.call(outputs),
            ops.through(copy),
            ops.call(lambda n: n, blocking=True),
        )
    )
    while not ran.circuit.done.done():
        gc.collect(0)
        await asyncio.sleep(0.01)

    assert ran.out == list(range(60))
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_subscription_that_nobody_holds_goes_on() -> None:
    out: list[int] = []

    async def call(n: int) -> int:
        await asyncio.sleep(1)
        return n

    from_iterable(range(5)).pipe(ops.call(call)).subscribe(out.append)
    for _ in range(10):
        gc.collect()
        await asyncio.sleep(1)

    assert out == [0, 1, 2, 3, 4]


@virtual_time
async def test_tasks_are_named_after_their_node() -> None:
    names: list[str] = []

    async def call(n: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())
        return n

    await from_iterable([1]).pipe(ops.merge_parents(name="classify"), ops.call(call))

    assert names == ["yukta node classify"]


@virtual_time
async def test_a_publisher_under_test_sees_demand_of_an_async_node() -> None:
    publisher = TestPublisher()

    async def call(n: int) -> int:
        await asyncio.sleep(1)
        return n

    seen = TestSubscriber(100)
    publisher.pipe(ops.merge_parents(prefetch=2), ops.call(call)).subscribe(seen)
    await publisher.pulled(2)
    publisher.emit(1, 2)
    await publisher.pulled(4)
    at = now()
    publisher.complete()
    await seen.ended()

    assert [(pull.n, pull.time) for pull in publisher.pulls] == [(2, 0), (2, at)]
    assert at == 2


@virtual_time
async def test_a_node_whose_parked_task_is_cancelled_fails(line: Any) -> None:
    """A call may have kept its task, and somebody may cancel that later."""
    tasks: list[Any] = []

    async def keeps(n: int) -> int:
        tasks.append(asyncio.current_task())
        return n

    publisher = TestPublisher()
    ran = line(publisher.pipe(ops.merge_parents(), ops.call(keeps)))
    await publisher.pulled(2)
    publisher.emit(1)
    await asyncio.sleep(1)
    tasks[0].cancel()
    publisher.emit(2)
    await ran.finished()

    assert ran.out == [1]
    assert isinstance(ran.error, RuntimeError)
    assert "cancelled from inside" in str(ran.error)


async def stops(n: int) -> int:
    STOPPING[-1].stop(StopMode.CANCEL)
    return n


async def stops_and_gives_nothing(n: int) -> AsyncIterator[int]:
    STOPPING[-1].stop(StopMode.CANCEL)
    return
    yield


async def stops_and_gives(n: int) -> AsyncIterator[int]:
    STOPPING[-1].stop(StopMode.CANCEL)
    yield n


async def stops_through(stream: AsyncIterator[int]) -> AsyncIterator[int]:
    async for n in stream:
        STOPPING[-1].stop(StopMode.CANCEL)
        yield n


async def stops_in_list(n: int) -> list[int]:
    STOPPING[-1].stop(StopMode.CANCEL)
    return [n]


def stops_at_once(n: int) -> int:
    STOPPING[-1].stop(StopMode.CANCEL)
    return n


STOPPING: list[Circuit] = []


@pytest.mark.parametrize(
    "call",
    [
        ops.call(stops),
        ops.call(stops_and_gives),
        ops.call(stops_and_gives_nothing),
        ops.call(ConcurrentBody(stops_in_list, 2)),
        ops.call(stops_at_once),
        ops.flat_map(lambda n: [stops_at_once(n)]),
        ops.through(stops_through),
    ],
    ids=["async", "generator", "empty", "concurrent", "sync", "flat_map", "through"],
)
@virtual_time
async def test_a_call_may_stop_its_own_circuit(call: Any, watch: Any) -> None:
    flow = from_iterable(range(3)).pipe(ops.merge_parents(name="node"), call, ops.status(watch))
    circuit = Circuit([flow])
    STOPPING[:] = [circuit]
    circuit.start()
    await circuit.done
    STOPPING.clear()

    assert watch.ends["node"][0] is Outcome.CANCELLED
    assert circuit.stage_of(flow).received <= 3
    assert len(asyncio.all_tasks()) == 1


class Plain:
    """An async iterator, but no generator: it has nothing to close."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __aiter__(self) -> Plain:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return self.left


@virtual_time
async def test_an_async_iterator_needs_no_close(line: Any) -> None:
    ran = await line(from_async_iterable(lambda: Plain(3))).finished()

    assert ran.out == [2, 1, 0]


@virtual_time
async def test_an_async_source_that_holds_an_element_at_its_gate_notices_its_children_go(
    watch: Any,
) -> None:
    handle = ops.Valve()
    go = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        await go.wait()
        yield 1

    body = from_async_iterable(source).plan.body
    flow: Flow[int] = Flow(NodePlan(name="source", body=body, gate=handle, observer=watch))
    end = flow.pipe(ops.prefetch(4))
    circuit = Circuit([end])
    circuit.start()
    await asyncio.sleep(1)
    handle.pause()
    go.set()
    await asyncio.sleep(1)
    circuit.stage_of(end).end(Outcome.CANCELLED)
    await circuit.done

    assert watch.ends["source"][0] is Outcome.CANCELLED
    assert circuit.stage_of(flow).discarded == 1


@virtual_time
async def test_the_owner_of_tasks_knows_them_and_waits_for_them() -> None:
    idle: list[float] = []
    loop = asyncio.get_running_loop()
    owner = Tasks(loop, lambda: idle.append(loop.time()))
    tasks = [owner.spawn(asyncio.sleep(n), f"task {n}") for n in (1, 2)]
    foreign = asyncio.ensure_future(asyncio.sleep(1))
    known = [task in owner for task in (*tasks, foreign)], len(owner)
    await owner.ended()

    assert known == ([True, True, False], 2)
    assert (loop.time(), idle) == (2, [2])
    assert tasks[0] not in owner


@virtual_time
async def test_a_parked_task_that_is_cancelled_twice_fails_its_node_once(line: Any) -> None:
    tasks: list[Any] = []

    async def keeps(n: int) -> int:
        tasks.append(asyncio.current_task())
        return n

    publisher = TestPublisher()
    ran = line(publisher.pipe(ops.merge_parents(), ops.call(keeps)))
    await publisher.pulled(1)
    publisher.emit(1)
    await asyncio.sleep(1)
    tasks[0].cancel()
    tasks[0].cancel()
    await ran.finished()

    assert (ran.out, ran.outcome) == ([1], Outcome.FAILED)


@virtual_time
async def test_what_a_call_gives_is_converted_and_a_pause_stops_between_two(line: Any) -> None:
    handle = ops.Valve()

    async def call(n: int) -> int:
        if n == 1:
            handle.pause()
        return n * 10

    body = AsyncBody(call, lambda item, out, index: (item, out, index))
    ran = line(from_iterable(range(4)).pipe(ops.merge_parents(), ops.valve(handle), ops.call(body)))
    await asyncio.sleep(1)
    paused = list(ran.out)
    handle.resume()
    await ran.finished()

    assert paused == [(0, 0, 0), (1, 10, 0)]
    assert ran.out == [(n, n * 10, 0) for n in range(4)]


@pytest.mark.parametrize("action", [OnError.CONTINUE, OnError.ROUTE])
@virtual_time
async def test_what_a_batch_gave_before_its_call_stopped_the_circuit_is_counted_once(
    action: OnError,
) -> None:
    async def call(n: int) -> int:
        if n == 0:
            raise LookupError(n)
        if n == 2:
            STOPPING[-1].stop(StopMode.CANCEL)
        return n

    clock = LoopClock(asyncio.get_running_loop())
    flow = from_iterable(range(4)).pipe(
        ops.merge_parents(), ops.call(call), ops.on_error(ops.FailureLedger(action, None, clock))
    )
    circuit = Circuit([flow])
    STOPPING[:] = [circuit]
    circuit.start()
    await circuit.done
    STOPPING.clear()

    stage = circuit.stage_of(flow)
    assert (stage.failed, stage.discarded, stage.emitted) == (1, 3, 0)
    assert stage.received == 3
