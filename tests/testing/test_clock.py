"""Virtual time: hours in microseconds, always the same, and a deadlock is told."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing import clock as clock_module
from yukta_rx.testing.clock import (
    EPOCH,
    DeadlockError,
    VirtualClock,
    VirtualLoop,
    run_virtual,
    virtual_time,
)

pytestmark = pytest.mark.feature("EXT-01")


@virtual_time
async def test_sleeping_takes_no_real_time() -> None:
    start = time.perf_counter()

    await asyncio.sleep(365 * 24 * 3600)

    assert asyncio.get_running_loop().time() == pytest.approx(365 * 24 * 3600)
    assert time.perf_counter() - start < 1


@virtual_time
async def test_timers_fire_in_the_order_of_their_time() -> None:
    fired: list[tuple[str, float]] = []
    loop = asyncio.get_running_loop()
    for name, delay in [("c", 3.0), ("a", 1.0), ("b", 2.0), ("a2", 1.0)]:
        loop.call_later(delay, lambda name=name: fired.append((name, loop.time())))

    await asyncio.sleep(5)

    assert fired == [("a", 1), ("a2", 1), ("b", 2), ("c", 3)]


@virtual_time
async def test_the_clock_knows_time_and_day() -> None:
    clock = VirtualClock()
    await clock.advance(60)
    await clock.settle()

    assert clock.now() == pytest.approx(60, abs=1e-3)
    assert (clock.wall() - EPOCH).total_seconds() == pytest.approx(60, abs=1e-3)
    assert datetime(2026, 1, 1, tzinfo=UTC) == EPOCH


async def test_a_virtual_clock_needs_a_virtual_loop() -> None:
    with pytest.raises(TypeError, match="run_virtual"):
        VirtualClock()


def test_a_deadlock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "PATIENCE", 0.01)

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run_virtual(main())


@virtual_time
async def test_time_stands_still_while_a_call_is_out_in_a_thread() -> None:
    pool = BlockingPool(1)
    go = threading.Event()
    loop = asyncio.get_running_loop()
    fired: list[float] = []
    timer = loop.call_later(1000, lambda: fired.append(loop.time()))

    def work() -> str:
        # The timer must not come first, although the loop has nothing else to do.
        assert not go.wait(0.05)
        return "done"

    result = await pool.call(work)

    assert (result, loop.time(), fired) == ("done", 0, [])
    timer.cancel()
    pool.close()


def test_run_virtual_gives_the_result_and_raises_the_error() -> None:
    async def good() -> int:
        await asyncio.sleep(1)
        return 7

    async def bad() -> None:
        raise LookupError("mine")

    assert run_virtual(good()) == 7
    with pytest.raises(LookupError, match="mine"):
        run_virtual(bad())


def test_a_decorated_test_keeps_its_name_and_arguments() -> None:
    @virtual_time
    async def example(first: int, second: str = "x") -> Any:
        """Do it."""
        loop = asyncio.get_running_loop()
        return first, second, type(loop)

    assert example.__name__ == "example"
    assert list(inspect.signature(example).parameters) == ["first", "second"]
    assert not inspect.iscoroutinefunction(example)
    assert example(1) == (1, "x", VirtualLoop)


def test_each_run_begins_at_zero() -> None:
    async def main() -> float:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(10)
        return before

    assert [run_virtual(main()), run_virtual(main())] == [0, 0]


# -- rest


@virtual_time
async def test_quiet_comes_when_nothing_is_left_that_needs_no_time() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    done: list[int] = []

    async def work() -> None:
        for n in range(100):
            await asyncio.sleep(0)
            done.append(n)
        await asyncio.sleep(1)
        done.append(-1)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await loop.quiet()

        assert (len(done), loop.time()) == (100, 0)
    assert loop.time() == 1


@virtual_time
async def test_moved_comes_after_all_that_follows_from_the_next_timer() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    done: list[float] = []

    async def work() -> None:
        for _ in range(2):
            await asyncio.sleep(1)
            await asyncio.sleep(0)
            done.append(loop.time())

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        for seconds in (1, 2):
            await loop.moved()

            assert (done[-1], loop.time()) == (seconds, seconds)


@virtual_time
async def test_moved_comes_after_word_from_a_thread_too() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    done: list[str] = []
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(done.append, "word"))
    loop.call_soon(thread.start)

    await loop.moved()

    assert (done, loop.time()) == (["word"], 0)


@virtual_time
async def test_quiet_waits_for_calls_that_are_out_in_threads() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    pool = BlockingPool(1)
    release = threading.Event()
    done: list[str] = []

    async def work() -> None:
        await pool.call(release.wait)
        done.append("back")

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await asyncio.sleep(0)
        loop.call_soon(release.set)
        await loop.quiet()

        assert done == ["back"]
    pool.close()


@virtual_time
async def test_who_waits_for_quiet_may_be_cancelled() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.gather(loop.moved(), asyncio.Event().wait())
    await loop.quiet()

    assert loop.time() == 1
