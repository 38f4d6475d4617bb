"""WriteBehind: in order, each once, in batches; what fails is tried again until it is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from yukta_rx.errors import StaleLeaderError
from yukta_rx.metrics import Meters
from yukta_rx.observe.write_behind import CLOSING, WriteBehind
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("OBS-01", "OBS-03")


class Slow:
    """A store that takes a second for a batch, and fails as often as it is told to."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails
        self.batches: list[list[int]] = []
        self.attempts: list[float] = []

    async def write(self, batch: list[int]) -> None:
        self.attempts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        if self.fails:
            self.fails -= 1
            raise OSError("no room")
        self.batches.append(batch)


def behind(store: Slow, limit: int = 1000, meters: Meters | None = None) -> WriteBehind[int]:
    clock = LoopClock(asyncio.get_running_loop())
    return WriteBehind("results", store.write, clock, meters or Meters(), limit)


@virtual_time
async def test_what_comes_during_a_write_is_written_together_with_the_next() -> None:
    store = Slow()
    async with behind(store) as queue:
        queue.put(1, 1)
        await asyncio.sleep(0.5)
        for number in range(2, 6):
            queue.put(number, 1)
        await queue.written()
        assert queue.weight == 0
        assert not queue.waiting
        await queue.written()

    assert store.batches == [[1], [2, 3, 4, 5]]


@virtual_time
async def test_a_batch_is_bounded_and_a_large_item_goes_alone() -> None:
    store = Slow()
    async with behind(store, limit=1 << 30) as queue:
        for number, weight in enumerate((1 << 19, 1 << 19, 1 << 21, 5, 5)):
            queue.put(number, weight)
        for number in range(5, 2005):
            queue.put(number, 1)
        await queue.written()

    assert [len(batch) for batch in store.batches] == [2, 1, 1000, 1000, 2]
    assert [one for batch in store.batches for one in batch] == list(range(2005))


@virtual_time
async def test_what_fails_is_tried_again_in_order_with_pauses_that_grow(caplog: Any) -> None:
    store, meters = Slow(fails=8), Meters()
    async with behind(store, meters=meters) as queue:
        queue.put(1, 1)
        await queue.written()
        # While writes fail nobody waits for them.
        assert queue.failing
        assert str(queue.fault())
        assert "no room" in str(queue.fault())
        queue.put(2, 1)
        await queue.written()
        await asyncio.sleep(60)

        assert queue.fault() is None
        assert not queue.failing

    assert store.batches == [[1, 2]]
    pauses = [round(b - a - 1, 3) for a, b in zip(store.attempts, store.attempts[1:], strict=False)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert meters.counter("yukta.store.write.failed", type="results").value == 8
    # Said once, and that it is over.
    assert caplog.text.count("are not written, it is tried again") == 1
    assert caplog.text.count("are written again") == 1


@virtual_time
async def test_it_is_full_until_half_of_it_is_gone() -> None:
    store = Slow()
    async with behind(store, limit=1 << 21) as queue:
        room: list[tuple[float, int]] = []
        queue.on_room = lambda: room.append((asyncio.get_running_loop().time(), queue.weight))
        for number in range(4):
            queue.put(number, 1 << 19)
            assert not queue.full
        queue.put(4, 1 << 19)
        assert queue.full
        await queue.written()
        assert not queue.full

    assert room == [(2.0, 1 << 19)]


@virtual_time
async def test_the_end_writes_what_waits_but_does_not_wait_for_ever(caplog: Any) -> None:
    store = Slow()
    async with behind(store) as queue:
        queue.put(1, 1)
    broken = Slow(fails=1000)
    started = asyncio.get_running_loop().time()
    async with behind(broken) as queue:
        queue.put(1, 1)
        queue.put(2, 1)
        waiting = asyncio.ensure_future(queue.written())
    await waiting

    assert store.batches == [[1]]
    assert asyncio.get_running_loop().time() - started <= CLOSING + 1
    assert "2 results were not written and are lost" in caplog.text


@virtual_time
async def test_it_waits_for_more_unless_somebody_waits_or_there_is_a_batch() -> None:
    store, clock = Slow(), LoopClock(asyncio.get_running_loop())
    async with WriteBehind("results", store.write, clock, Meters(), 1 << 30, linger=0.5) as queue:
        for number in (1, 2, 3):
            queue.put(number, 1)
            await asyncio.sleep(0.2)
        await asyncio.sleep(2)
        queue.put(4, 1)
        await queue.written()
        queue.put(5, 1)
        await asyncio.sleep(0.1)
        queue.put(6, 1 << 21)
        await asyncio.sleep(3)
        queue.put(7, 1)

    assert store.batches == [[1, 2, 3], [4], [5], [6], [7]]
    assert store.attempts == pytest.approx([0.5, 2.6, 3.7, 4.7, 6.7])


@pytest.mark.feature("DUR-04")
@virtual_time
async def test_once_another_server_leads_nothing_waits_any_more(caplog: Any) -> None:
    refused: list[list[int]] = []

    async def write(batch: list[int]) -> None:
        refused.append(batch)
        raise StaleLeaderError("epoch 1 is over")

    clock, room = LoopClock(asyncio.get_running_loop()), asyncio.Event()
    queue: WriteBehind[int] = WriteBehind("results", write, clock, Meters(), limit=2)
    queue.on_room = room.set
    async with queue:
        for number in (1, 2, 3):
            queue.put(number, 1)
        assert queue.full
        await room.wait()
        queue.put(4, 1)
        await queue.written()
        assert (queue.full, queue.fault(), list(queue.waiting)) == (False, None, [])

    assert refused == [[1, 2, 3]]
    assert "3 results are not written: epoch 1 is over" in caplog.text
