"""on_backpressure_*: what becomes of elements that nobody asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from reactivex.subject import Subject

from yukta_rx import operators as ops
from yukta_rx.errors import BackPressureOverflowError
from yukta_rx.streams.rx import OverflowStrategy
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from yukta_rx.streams.flow import Flow

pytestmark = pytest.mark.feature("ENG-01")


class Pushed:
    """A Subject behind an operator, and a subscriber with a window of one element."""

    def __init__(self, operator: Any) -> None:
        self.dropped: list[int] = []
        self.source: Subject[int] = Subject()
        self.gate = asyncio.Semaphore(0)
        self.out: list[int] = []
        self.seen = TestSubscriber(1000)
        flow: Flow[Any] = operator(self.source)
        flow.pipe(ops.prefetch(1), ops.call(self._hold)).subscribe(self.seen)

    async def _hold(self, n: int) -> int:
        await self.gate.acquire()
        return n

    async def push(self, *values: int) -> None:
        for value in values:
            self.source.on_next(value)
            await asyncio.sleep(0.01)

    async def take(self, n: int = 1) -> None:
        for _ in range(n):
            self.gate.release()
            await asyncio.sleep(0.01)


async def pushed(make: Any) -> Pushed:
    dropped: list[int] = []
    made = Pushed(make(dropped.append))
    made.dropped = dropped
    await asyncio.sleep(0.01)
    return made


@virtual_time
async def test_buffer_keeps_what_it_can_and_drops_the_oldest() -> None:
    p = await pushed(
        lambda told: ops.on_backpressure_buffer(2, OverflowStrategy.DROP_OLDEST, on_discard=told)
    )
    await p.push(0, 1, 2, 3, 4)
    p.source.on_completed()
    await p.take(10)

    assert (p.seen.marble, p.dropped) == ("0 3 4 |", [1, 2])


@virtual_time
async def test_buffer_drops_the_newest() -> None:
    p = await pushed(
        lambda told: ops.on_backpressure_buffer(2, OverflowStrategy.DROP_NEWEST, on_discard=told)
    )
    await p.push(0, 1, 2, 3, 4)
    p.source.on_completed()
    await p.take(10)

    assert (p.seen.marble, p.dropped) == ("0 1 2 |", [3, 4])


@virtual_time
async def test_buffer_fails_after_what_waits() -> None:
    p = await pushed(
        lambda told: ops.on_backpressure_buffer(2, OverflowStrategy.ERROR, on_discard=told)
    )
    await p.push(0, 1, 2, 3)
    await p.take(10)

    assert p.seen.marble == "0 1 2 X"
    assert isinstance(p.seen.error, BackPressureOverflowError)
    assert p.dropped == [3]


@pytest.mark.parametrize("size", [0, -3])
def test_a_buffer_of_nothing_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        ops.on_backpressure_buffer(size, OverflowStrategy.ERROR)


@virtual_time
async def test_drop_drops_what_comes_while_nobody_asks() -> None:
    p = await pushed(lambda told: ops.on_backpressure_drop(on_discard=told))
    await p.push(0, 1, 2)
    await p.take()
    await p.push(3, 4)
    p.source.on_completed()
    await p.take(10)

    assert (p.seen.marble, p.dropped) == ("0 3 |", [1, 2, 4])


@virtual_time
async def test_latest_keeps_the_newest_only() -> None:
    p = await pushed(lambda told: ops.on_backpressure_latest(on_discard=told))
    await p.push(0, 1, 2, 3)
    await p.take()
    await p.push(4, 5)
    p.source.on_completed()
    await p.take(10)

    # 0 is in the call at once, 3 waited longest for its place, 5 replaced 4.
    assert (p.seen.marble, p.dropped) == ("0 3 5 |", [1, 2, 4])


@virtual_time
async def test_error_fails_as_soon_as_too_much_comes() -> None:
    p = await pushed(lambda told: ops.on_backpressure_error())
    await p.push(0)
    before = p.seen.marble
    await p.push(1)
    await p.take(10)

    assert before == ""
    assert p.seen.marble == "0 X"
    assert isinstance(p.seen.error, BackPressureOverflowError)


@pytest.mark.parametrize(
    "operator",
    [
        ops.on_backpressure_buffer(5, OverflowStrategy.ERROR),
        ops.on_backpressure_drop(),
        ops.on_backpressure_latest(),
        ops.on_backpressure_error(),
    ],
    ids=["buffer", "drop", "latest", "error"],
)
@virtual_time
async def test_a_cancellation_disposes_of_the_subscription(operator: Any) -> None:
    source: Subject[int] = Subject()
    seen = TestSubscriber(10)
    operator(source).subscribe(seen)
    await asyncio.sleep(1)
    source.on_next(1)
    await asyncio.sleep(1)
    subscribed = len(source.observers)

    seen.cancel()
    await asyncio.sleep(1)

    assert (subscribed, len(source.observers)) == (1, 0)
    assert seen.marble == "1"
