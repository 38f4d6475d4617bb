"""Time as a parameter: a clock that can stand still, and its timers with it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from yukta_rx.streams.clock import LoopClock, PausableClock
from yukta_rx.testing.clock import EPOCH, virtual_time

pytestmark = pytest.mark.feature("ENG-05")


def clocks() -> tuple[LoopClock, PausableClock]:
    base = LoopClock(asyncio.get_running_loop())
    return base, PausableClock(base)


@virtual_time
async def test_a_loop_clock_tells_the_loops_time_and_the_time_of_day() -> None:
    clock, _ = clocks()
    await clock.sleep(90)

    assert clock.now() == 90
    assert clock.wall() == EPOCH + timedelta(seconds=90)


@virtual_time
async def test_a_pausable_clock_shows_active_time() -> None:
    base, clock = clocks()
    await base.sleep(10)
    clock.pause()
    await base.sleep(100)
    paused = clock.now()
    clock.resume()
    await base.sleep(5)

    assert paused == 10
    assert clock.now() == 15


@virtual_time
async def test_pauses_nest() -> None:
    base, clock = clocks()
    clock.pause()
    await base.sleep(1)
    clock.pause()
    await base.sleep(1)
    clock.resume()
    await base.sleep(1)
    still = clock.paused, clock.now()
    clock.resume()
    await base.sleep(1)

    assert still == (True, 0)
    assert (clock.paused, clock.now()) == (False, 1)


@virtual_time
async def test_resuming_what_is_not_paused_is_an_error() -> None:
    _, clock = clocks()

    with pytest.raises(RuntimeError, match="without pause"):
        clock.resume()


@virtual_time
async def test_a_timer_keeps_what_it_has_left_through_pauses() -> None:
    base, clock = clocks()
    fired: list[float] = []
    clock.call_at(10, lambda: fired.append(base.now()))
    for _ in range(3):
        await base.sleep(2)
        clock.pause()
        await base.sleep(100)
        clock.resume()
    await base.sleep(100)

    assert fired == [310]


@virtual_time
async def test_a_timer_set_during_a_pause_counts_from_there() -> None:
    base, clock = clocks()
    fired: list[float] = []
    clock.pause()
    clock.call_at(clock.now() + 5, lambda: fired.append(base.now()))
    await base.sleep(50)
    clock.resume()
    await base.sleep(50)

    assert fired == [55]


@virtual_time
async def test_timers_fire_in_order_and_once() -> None:
    base, clock = clocks()
    fired: list[str] = []
    clock.call_at(3, lambda: fired.append("c"))
    clock.call_at(1, lambda: fired.append("a"))
    clock.call_at(2, lambda: fired.append("b"))
    await base.sleep(1.5)
    clock.pause()
    clock.resume()
    await base.sleep(10)

    assert fired == ["a", "b", "c"]


@pytest.mark.parametrize("paused", [False, True])
@virtual_time
async def test_a_cancelled_timer_does_not_fire(paused: bool) -> None:
    base, clock = clocks()
    fired: list[int] = []
    timer = clock.call_at(5, lambda: fired.append(1))
    if paused:
        clock.pause()
    timer.cancel()
    timer.cancel()
    if paused:
        clock.resume()
    await base.sleep(100)

    assert fired == []


@virtual_time
async def test_a_timer_that_is_due_fires_soon() -> None:
    base, clock = clocks()
    fired: list[float] = []
    await base.sleep(10)
    clock.call_at(3, lambda: fired.append(base.now()))
    before = list(fired)
    await base.sleep(1)

    assert (before, fired) == ([], [10])


@virtual_time
async def test_a_timer_may_set_another_and_pause_its_clock() -> None:
    base, clock = clocks()
    fired: list[float] = []

    def first() -> None:
        clock.pause()
        clock.call_at(clock.now() + 1, lambda: fired.append(base.now()))

    clock.call_at(1, first)
    await base.sleep(10)
    clock.resume()
    await base.sleep(10)

    assert fired == [11]


@virtual_time
async def test_sleep_takes_active_seconds() -> None:
    base, clock = clocks()

    async def steer() -> None:
        await base.sleep(2)
        clock.pause()
        await base.sleep(100)
        clock.resume()

    async with asyncio.TaskGroup() as group:
        group.create_task(steer())
        await clock.sleep(5)

    assert (base.now(), clock.now()) == (105, 5)


@virtual_time
async def test_a_cancelled_sleep_leaves_no_timer() -> None:
    base, clock = clocks()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await clock.sleep(5)

    assert not clock._timers
    assert base.now() == 1


@pytest.mark.parametrize("seconds", [0, -1])
@virtual_time
async def test_sleeping_for_nothing_returns_soon(seconds: float) -> None:
    base, clock = clocks()
    await clock.sleep(seconds)

    assert base.now() == 0


@virtual_time
async def test_a_sleep_that_is_cancelled_as_its_time_is_over_is_cancelled() -> None:
    _, clock = clocks()
    sleeping = asyncio.ensure_future(clock.sleep(1))
    await asyncio.sleep(0)
    # Earlier by less than the loop's resolution: both are due in the same turn.
    asyncio.get_running_loop().call_at(1 - 1e-10, sleeping.cancel)

    with pytest.raises(asyncio.CancelledError):
        await sleeping

    assert not clock._timers


@virtual_time
async def test_a_timer_can_be_cancelled_while_the_clock_stands_still() -> None:
    _, clock = clocks()
    fired: list[float] = []
    timer = clock.call_at(1, lambda: fired.append(clock.now()))
    clock.pause()
    timer.cancel()
    timer.cancel()
    clock.resume()
    await asyncio.sleep(10)

    assert fired == []
