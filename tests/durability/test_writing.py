"""What is on its way to be written tells those who wait, each for itself."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.durability.stores.writing import Writing
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.aio import Tasks
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("DUR-02")

LOST = StoreUnavailableError("the disk is full")


async def waits(writing: Writing) -> None:
    await writing


@virtual_time
async def test_all_who_wait_are_told_and_who_comes_later_at_once() -> None:
    writing = Writing()
    told: list[BaseException | None] = []
    writing.tell(told.append)
    waiting = [asyncio.ensure_future(waits(writing)) for _ in range(2)]
    await asyncio.sleep(0)
    over = writing.over()
    assert not over.done()

    writing.settle(None)
    writing.settle(LOST)
    writing.tell(told.append)
    assert told == [None, None]
    await asyncio.gather(*waiting)
    await over
    await writing
    assert writing.settled


@virtual_time
async def test_a_failure_is_raised_where_somebody_awaits_it_and_only_there() -> None:
    writing = Writing()
    told: list[BaseException | None] = []
    waiting = asyncio.ensure_future(waits(writing))
    await asyncio.sleep(0)
    writing.tell(told.append)
    over = writing.over()

    writing.settle(LOST)
    # Whoever settles it does not have to cope with what they make of it.
    assert told == []
    await over
    assert told == [LOST]
    for one in (waiting, waits(writing)):
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            await one


@virtual_time
async def test_who_gives_up_waiting_leaves_it_as_it_is() -> None:
    writing = Writing()
    waiting = asyncio.ensure_future(waits(writing))
    await asyncio.sleep(0)
    over = writing.over()
    waiting.cancel()
    over.cancel()
    await asyncio.sleep(0)
    assert waiting.cancelled()
    assert not writing.settled

    writing.settle(None)
    await writing


@virtual_time
async def test_what_a_task_does_is_settled_by_it_however_it_ends() -> None:
    tasks = Tasks(asyncio.get_running_loop())

    async def work(error: BaseException | None) -> None:
        await asyncio.sleep(1)
        if error is not None:
            raise error

    await Writing.by(work(None), tasks, "well")
    with pytest.raises(StoreUnavailableError):
        await Writing.by(work(LOST), tasks, "ill")
    cut = Writing.by(work(None), tasks, "cut off")
    await asyncio.sleep(0)
    tasks.cancel()
    with pytest.raises(RuntimeError, match="cancelled"):
        await cut
    await tasks.ended()
    assert len(tasks) == 0
