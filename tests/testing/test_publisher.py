"""TestPublisher and TestSubscriber: the two ends of a Flow in a test's hands."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.flow import from_iterable
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import Pull, TestPublisher
from yukta_rx.testing.subscriber import Signal, TestSubscriber

pytestmark = pytest.mark.feature("EXT-01")


@virtual_time
async def test_a_publisher_remembers_demand_with_its_times() -> None:
    publisher = TestPublisher()
    seen = TestSubscriber(100)
    await asyncio.sleep(1)
    publisher.pipe(ops.prefetch(4)).subscribe(seen)
    await publisher.pulled(4)
    await asyncio.sleep(1)
    publisher.emit(1, 2, 3)
    await asyncio.sleep(1)

    assert publisher.subscribed_at == 1
    assert publisher.pulls == [Pull(4, 1), Pull(3, 2)]
    assert (publisher.requested, publisher.demand) == (7, 4)
    assert (publisher.cancelled, publisher.ended_at) == (False, None)
    seen.cancel()
    await asyncio.sleep(1)
    assert publisher.cancelled_at == publisher.ended_at == 3
    assert publisher.demand == 0


@virtual_time
async def test_a_publisher_refuses_to_emit_beyond_demand() -> None:
    publisher = TestPublisher()
    with pytest.raises(AssertionError, match="not subscribed"):
        publisher.emit(1)
    seen = TestSubscriber()
    publisher.pipe(ops.prefetch(2)).subscribe(seen)
    await publisher.pulled(2)

    with pytest.raises(AssertionError, match="3 elements for a demand of 2"):
        publisher.emit(1, 2, 3)
    seen.cancel()
    await asyncio.sleep(1)


@virtual_time
async def test_a_publisher_asks_for_the_least_of_several_windows() -> None:
    publisher = TestPublisher()
    seen = TestSubscriber()
    joined = ops.merge(publisher.pipe(ops.prefetch(2)), publisher.pipe(ops.prefetch(5)), prefetch=9)
    joined.subscribe(seen)
    await publisher.pulled(2)

    assert publisher.demand == 2
    seen.cancel()
    await asyncio.sleep(1)
    assert publisher.cancelled


@virtual_time
async def test_a_publisher_completes_and_fails() -> None:
    good, bad = TestPublisher(), TestPublisher()
    first, second = TestSubscriber(), TestSubscriber()
    good.subscribe(first)
    bad.subscribe(second)
    await asyncio.sleep(1)
    error = LookupError("mine")
    good.complete()
    bad.fail(error)
    await first.ended()
    await second.ended()

    assert first.completed
    assert second.error is error
    assert (good.ended_at, good.cancelled) == (1, False)


@virtual_time
async def test_a_publisher_serves_one_circuit() -> None:
    publisher = TestPublisher()
    publisher.subscribe(TestSubscriber())

    with pytest.raises(AssertionError, match="one circuit"):
        publisher.subscribe(TestSubscriber())


@virtual_time
async def test_a_subscriber_records_signals_with_their_times() -> None:
    publisher = TestPublisher()
    seen = TestSubscriber(5)
    publisher.subscribe(seen)
    await publisher.pulled(1)
    publisher.emit("a")
    await asyncio.sleep(2)
    publisher.complete()
    await seen.ended()

    assert seen.signals == [Signal("next", "a", 0), Signal("completed", None, 2)]
    assert (seen.values, seen.marble, seen.completed, seen.error) == (["a"], "a |", True, None)


@virtual_time
async def test_a_subscriber_asks_for_what_it_is_told() -> None:
    seen = TestSubscriber(2, refill=1)
    from_iterable(range(10)).subscribe(seen)
    await seen.ended()

    assert seen.values == list(range(10))
    assert seen.requested == 2 + 10


@virtual_time
async def test_a_subscriber_waits_for_what_a_test_expects() -> None:
    seen = TestSubscriber(10)
    from_iterable(range(10)).subscribe(seen)

    await seen.until(lambda me: len(me.values) >= 5)

    assert len(seen.values) >= 5
    await seen.ended()


def test_a_subscriber_without_subscription_cannot_ask() -> None:
    async def main() -> None:
        with pytest.raises(AssertionError, match="not subscribed"):
            TestSubscriber().request(1)

    asyncio.run(main())
