"""INTERVAL_TRIGGER: ticks that keep their pace."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from yukta_rx.nodes.interval_trigger import IntervalTriggerConfig, interval_trigger
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-01")


def ticking(bench, **options):
    return interval_trigger(IntervalTriggerConfig.model_validate(options), bench.ctx)


async def consume(bench, ticks, work=0.0):
    """Take every tick, busy for `work` seconds after each: (time, number) of all."""
    seen = []
    async for tick in ticks:
        seen.append((round(bench.base.now() - 100, 6), tick["tick"]))
        if work:
            await bench.clock.sleep(work)
    return seen


async def test_the_first_tick_comes_at_once_and_the_others_at_their_time(bench) -> None:
    b = bench()
    task = asyncio.ensure_future(consume(b, ticking(b, everyMs=100, count=4)))

    await b.base.advance(1)

    assert await task == [(0.0, 0), (0.1, 1), (0.2, 2), (0.3, 3)]
    assert b.counts == []


async def test_delays_do_not_add_up(bench) -> None:
    b = bench()
    task = asyncio.ensure_future(consume(b, ticking(b, everyMs=100, count=1_001), work=0.03))

    await b.base.advance(101)

    assert (await task)[-1] == (100.0, 1_000)
    assert b.counts == []


async def test_ticks_that_nobody_asked_for_are_skipped_and_counted(bench) -> None:
    b = bench()
    task = asyncio.ensure_future(consume(b, ticking(b, everyMs=100, count=4), work=0.25))

    await b.base.advance(2)

    assert await task == [(0.0, 0), (0.3, 3), (0.6, 6), (0.9, 9)]
    assert b.counts == [("skipped", 2)] * 3


async def test_a_tick_that_is_due_as_it_is_asked_for_is_not_missed(bench) -> None:
    b = bench()
    task = asyncio.ensure_future(consume(b, ticking(b, everyMs=100, count=4), work=0.1))

    await b.base.advance(2)

    assert await task == [(0.0, 0), (0.1, 1), (0.2, 2), (0.3, 3)]
    assert b.counts == []


async def test_a_pause_is_no_time_and_skips_nothing(bench) -> None:
    b = bench()
    task = asyncio.ensure_future(consume(b, ticking(b, everyMs=100, count=3)))
    await b.base.advance(0.15)

    b.clock.pause()
    await b.base.advance(60)
    b.clock.resume()
    await b.base.advance(1)

    assert await task == [(0.0, 0), (0.1, 1), (60.2, 2)]
    assert b.counts == []


async def test_a_tick_says_when_it_was_made(bench) -> None:
    b = bench()

    tick = await anext(ticking(b, everyMs=100))

    assert tick["time"].endswith("Z")
    assert tick["time"][10] == "T"


async def test_no_timer_stays_when_the_node_ends(bench) -> None:
    b = bench()
    ticks = ticking(b, everyMs=1000)
    await anext(ticks)
    waiting = asyncio.ensure_future(anext(ticks))
    await b.base.advance(0.5)

    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await ticks.aclose()

    assert b.base.waiting == 0


def test_it_cannot_be_replayed_and_has_no_idle_limit() -> None:
    spec = spec_of(interval_trigger)

    assert not spec.replayable
    assert spec.timeout(None) is None


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "everyMs"),
        ({"everyMs": 0}, "everyMs"),
        ({"everyMs": 1.5}, "everyMs"),
        ({"everyMs": True}, "everyMs"),
        ({"everyMs": 86_400_001}, "everyMs"),
        ({"everyMs": 1, "count": 0}, "count"),
        ({"everyMs": 1, "count": "3"}, "count"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    (fault,) = check_config(spec_of(interval_trigger), config)

    assert fault.option == option


@pytest.mark.feature("DUR-03")
async def test_a_run_that_goes_on_counts_on(bench) -> None:
    b = bench()
    # Three ticks, of which the last had number 4.
    b.ctx.emitted = lambda: (3, {"tick": 4})
    task = asyncio.ensure_future(consume(b, ticking(b, everyMs=100, count=5)))

    await b.base.advance(1)

    assert await task == [(0.0, 5), (0.1, 6)]
    b.ctx.emitted = lambda: (5, {"tick": 6})
    assert await consume(b, ticking(b, everyMs=100, count=5)) == []
