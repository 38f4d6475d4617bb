"""Leaves: subscribers, iterators, and what they may do in which signal and on which thread."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.flow import from_async_iterable, from_iterable
from yukta_rx.streams.leaves import Iteration
from yukta_rx.streams.protocol import UNBOUNDED, FlowSubscription
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("ENG-01")


def depth() -> int:
    count, frame = 0, sys._getframe()
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count


# -- demand


@virtual_time
async def test_requests_inside_on_next_keep_the_stack_flat() -> None:
    depths: list[int] = []
    seen = TestSubscriber(1, refill=1, on_next=lambda _: depths.append(depth()))

    from_iterable(range(2000)).subscribe(seen)
    await seen.ended()

    assert seen.values == list(range(2000))
    assert len(set(depths)) == 1


@virtual_time
async def test_no_demand_no_elements_but_the_end_of_an_empty_flow() -> None:
    some, none = TestSubscriber(), TestSubscriber()
    from_iterable([1]).subscribe(some)
    from_iterable([]).subscribe(none)
    await asyncio.sleep(10)

    assert (some.marble, none.marble) == ("", "|")


@virtual_time
async def test_demand_reaches_the_source_through_a_line_of_windows() -> None:
    publisher = TestPublisher()
    seen = TestSubscriber()
    publisher.pipe(ops.prefetch(4), ops.prefetch(4)).subscribe(seen)
    await publisher.pulled(4)

    n = 0
    while publisher.demand or n == 0:
        publisher.emit(n)
        n += 1
        await asyncio.sleep(0.01)
    held = n
    seen.request(1)
    await asyncio.sleep(1)
    unchanged = publisher.demand
    seen.request(10_000)
    await asyncio.sleep(1)

    # 64 for the subscriber and 4 on each of two edges, less what is used and not demanded anew.
    assert 64 < held <= 64 + 4 + 4
    assert unchanged == 0
    assert 1 <= publisher.demand <= 4
    assert seen.values == list(range(held))
    seen.cancel()
    await asyncio.sleep(1)


@pytest.mark.parametrize("n", [0, -5])
@virtual_time
async def test_a_wrong_request_inside_on_next_ends_after_that_element(n: int) -> None:
    publisher = TestPublisher()
    seen = TestSubscriber(10)
    seen._on_next = lambda value: seen.request(n) if value == 2 else None
    publisher.pipe(ops.prefetch(8)).subscribe(seen)
    await publisher.pulled(1)
    publisher.emit(1, 2, 3, 4)

    await seen.ended()
    await asyncio.sleep(1)

    assert seen.values == [1, 2]
    assert isinstance(seen.error, ValueError)
    assert "3.9" in str(seen.error)
    assert publisher.cancelled


@virtual_time
async def test_a_wrong_request_inside_on_subscribe_ends_the_subscription() -> None:
    class Wrong(TestSubscriber):
        def on_subscribe(self, subscription: FlowSubscription) -> None:
            super().on_subscribe(subscription)
            subscription.request(0)
            assert self.signals == []

    seen = Wrong(5)
    from_iterable([1]).subscribe(seen)
    await seen.ended()

    assert (seen.values, type(seen.error)) == ([], ValueError)


@virtual_time
async def test_unbounded_demand_stays_unbounded() -> None:
    seen = TestSubscriber(UNBOUNDED)
    from_iterable(range(5000)).subscribe(seen)
    await seen.ended()

    assert len(seen.values) == 5000


# -- subscribers that misbehave


@virtual_time
async def test_on_next_that_raises_cancels_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publisher = TestPublisher()

    def bad(value: int) -> None:
        if value == 2:
            raise LookupError("subscriber")

    seen = TestSubscriber(10, on_next=bad)
    publisher.pipe(ops.prefetch(8)).subscribe(seen)
    await publisher.pulled(1)
    publisher.emit(1, 2, 3)
    await asyncio.sleep(1)

    assert (seen.values, seen.terminal) == ([1, 2], None)
    assert publisher.cancelled
    assert "subscriber" in caplog.text


@virtual_time
async def test_on_subscribe_that_raises_cancels_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Bad(TestSubscriber):
        def on_subscribe(self, subscription: FlowSubscription) -> None:
            super().on_subscribe(subscription)
            raise LookupError("subscriber")

    publisher = TestPublisher()
    seen = Bad(5)
    publisher.subscribe(seen)
    await asyncio.sleep(1)

    assert seen.signals == []
    assert publisher.cancelled
    assert "subscriber" in caplog.text


@pytest.mark.parametrize("failing", [False, True])
@virtual_time
async def test_a_terminal_signal_that_raises_is_reported(
    failing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(TestSubscriber):
        def on_error(self, error: Exception) -> None:
            raise LookupError("on_error")

        def on_completed(self) -> None:
            raise LookupError("on_completed")

    def source() -> Iterator[int]:
        yield 1
        if failing:
            raise ValueError

    seen = Bad(5)
    from_iterable(source).subscribe(seen)
    await asyncio.sleep(1)

    assert seen.values == [1]
    assert ("on_error" if failing else "on_completed") in caplog.text


@virtual_time
async def test_a_failure_that_is_no_exception_arrives_as_one() -> None:
    class Strange(BaseException):
        pass

    def source() -> Iterator[int]:
        yield 1
        raise Strange("very")

    seen = TestSubscriber(5)
    from_iterable(source).subscribe(seen)
    await seen.ended()

    assert isinstance(seen.error, RuntimeError)
    assert "very" in str(seen.error)


# -- dispose


@virtual_time
async def test_dispose_inside_on_subscribe_starts_nothing() -> None:
    drawn: list[int] = []

    class Gone(TestSubscriber):
        def on_subscribe(self, subscription: FlowSubscription) -> None:
            super().on_subscribe(subscription)
            subscription.dispose()

    def source() -> Iterator[int]:
        drawn.append(1)
        yield 1

    seen = Gone(5)
    from_iterable(source).subscribe(seen)
    await asyncio.sleep(1)

    assert (seen.signals, drawn) == ([], [])


@virtual_time
async def test_dispose_inside_on_next_stops_at_once() -> None:
    seen = TestSubscriber(100)
    seen._on_next = lambda value: seen.cancel() if value == 3 else None

    from_iterable(range(100)).subscribe(seen)
    await asyncio.sleep(1)

    assert seen.marble == "0 1 2 3"


@virtual_time
async def test_dispose_from_another_thread_cancels() -> None:
    publisher = TestPublisher()
    seen = TestSubscriber(100)
    publisher.subscribe(seen)
    await publisher.pulled(1)
    publisher.emit(1)
    await asyncio.sleep(1)

    await asyncio.to_thread(seen.cancel)
    await asyncio.to_thread(seen.cancel)
    await asyncio.sleep(1)

    assert (seen.marble, publisher.cancelled) == ("1", True)


def test_dispose_after_the_loop_is_gone_does_nothing() -> None:
    kept: list[TestSubscriber] = []

    async def main() -> None:
        seen = TestSubscriber()
        from_iterable([1]).subscribe(seen)
        kept.append(seen)
        await asyncio.sleep(0)

    asyncio.run(main())
    thread = threading.Thread(target=kept[0].cancel)
    thread.start()
    thread.join()
    kept[0].cancel()

    assert kept[0].signals == []


@virtual_time
async def test_the_subscription_is_what_subscribe_returns() -> None:
    seen = TestSubscriber(1)

    returned = from_iterable([1]).subscribe(seen)

    assert returned is seen.subscription
    await seen.ended()


# -- iteration


@virtual_time
async def test_iterating_gives_all_elements_then_ends() -> None:
    assert [n async for n in from_iterable(range(200)).aiter(3)] == list(range(200))


@virtual_time
async def test_iterating_holds_no_more_than_its_window() -> None:
    publisher = TestPublisher()
    iteration = publisher.pipe(ops.prefetch(1)).aiter(4)
    n = 0
    await publisher.pulled(1)
    while publisher.demand:
        publisher.emit(n)
        n += 1
        await asyncio.sleep(0.01)

    # 4 in the iteration, 64 on the edge to it (some used, not demanded anew), 1 on the edge before.
    assert 4 + 64 - 4 + 1 <= n <= 4 + 64 + 1
    await iteration.aclose()
    await asyncio.sleep(1)
    assert publisher.cancelled


@virtual_time
async def test_iterating_raises_the_error_after_the_elements() -> None:
    error = LookupError("source")
    out: list[int] = []

    def source() -> Iterator[int]:
        yield from range(10)
        raise error

    async def take() -> None:
        async for n in from_iterable(source):
            out.append(n)  # noqa: PERF401 - what came before the error must be kept

    with pytest.raises(LookupError) as caught:
        await take()

    assert (out, caught.value) == (list(range(10)), error)


@virtual_time
async def test_after_its_error_an_iteration_is_over() -> None:
    def source() -> Iterator[int]:
        raise LookupError
        yield

    iteration = from_iterable(source).aiter()
    with pytest.raises(LookupError):
        await anext(iteration)

    with pytest.raises(StopAsyncIteration):
        await anext(iteration)


@virtual_time
async def test_leaving_an_iteration_early_cancels() -> None:
    publisher = TestPublisher()

    async def first() -> int:
        async with contextlib.aclosing(publisher.pipe(ops.prefetch(4)).aiter()) as iteration:
            async for n in iteration:
                return n
        raise AssertionError("no element")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(first())
        await publisher.pulled(1)
        publisher.emit(7, 8)
    await asyncio.sleep(1)

    assert (task.result(), publisher.cancelled) == (7, True)


@virtual_time
async def test_cancelling_an_iterating_task_cancels() -> None:
    publisher = TestPublisher()
    got: list[int] = []

    async def take() -> None:
        async with contextlib.aclosing(publisher.aiter()) as iteration:
            async for n in iteration:
                got.append(n)  # noqa: PERF401 - what came before the cancellation must be kept

    async with asyncio.TaskGroup() as group:
        task = group.create_task(take())
        await publisher.pulled(1)
        publisher.emit(1)
        await asyncio.sleep(5)
        task.cancel()
    await asyncio.sleep(1)

    assert got == [1]
    assert publisher.cancelled_at == pytest.approx(5)


@virtual_time
async def test_a_timeout_around_the_next_element_loses_none() -> None:
    publisher = TestPublisher()
    iteration = publisher.aiter()
    await publisher.pulled(1)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await anext(iteration)
    publisher.emit(1, 2)

    assert [await anext(iteration), await anext(iteration)] == [1, 2]
    await iteration.aclose()


@virtual_time
async def test_a_closed_iteration_is_over_and_may_be_closed_again() -> None:
    iteration = from_iterable(range(5)).aiter()
    await anext(iteration)

    await iteration.aclose()
    await iteration.aclose()

    with pytest.raises(StopAsyncIteration):
        await anext(iteration)


@virtual_time
async def test_closing_wakes_a_task_that_waits() -> None:
    iteration = TestPublisher().aiter()

    async def take() -> list[int]:
        return [n async for n in iteration]

    async with asyncio.TaskGroup() as group:
        task = group.create_task(take())
        await asyncio.sleep(1)
        await iteration.aclose()

    assert task.result() == []


@virtual_time
async def test_a_window_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        Iteration(0)


@virtual_time
async def test_awaiting_closes_its_iteration_when_cancelled() -> None:
    closed: list[float] = []

    async def source() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(1)
                yield 1
        finally:
            closed.append(asyncio.get_running_loop().time())

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3.5):
            await from_async_iterable(source)
    await asyncio.sleep(1)

    assert closed == [3.5]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_an_iteration_that_was_never_subscribed_can_be_closed() -> None:
    iteration = Iteration(1)
    await iteration.aclose()

    with pytest.raises(StopAsyncIteration):
        await anext(iteration)
