"""DELAY: holds a message in the node's own time."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.model.message import Message
from yukta_rx.nodes.delay import DelayConfig, delay
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-05")


async def test_a_message_leaves_unchanged_when_its_time_is_up(bench) -> None:
    b = bench()
    msg = Message.of({"a": 1})
    task = asyncio.create_task(delay(msg, DelayConfig(ms=700), b.ctx))

    await b.base.advance(0.69)
    assert not task.done()
    await b.base.advance(0.02)

    assert task.result() is msg


async def test_a_pause_stops_the_wait(bench) -> None:
    b = bench()
    task = asyncio.create_task(delay(Message.of(1), DelayConfig(ms=500), b.ctx))
    await b.base.advance(0.4)

    b.clock.pause()
    await b.base.advance(3600)
    b.clock.resume()
    await b.base.advance(0.09)
    assert not task.done()
    await b.base.advance(0.02)

    assert task.done()


async def test_a_long_wait_gives_signs_of_life(bench) -> None:
    b = bench()
    task = asyncio.create_task(delay(Message.of(1), DelayConfig(ms=60_000), b.ctx))

    await b.base.advance(45)
    beaten = b.ctx.last_beat
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert beaten == pytest.approx(b.clock.now(), abs=0.3)
    assert b.base.waiting == 0


async def test_a_delay_of_zero_does_not_wait(bench) -> None:
    b = bench()
    msg = Message.of(1)

    assert await delay(msg, DelayConfig(ms=0), b.ctx) is msg


@pytest.mark.parametrize("ms", [None, -1, "5", True, 1.5, 86_400_001])
def test_wrong_times_are_refused(ms) -> None:
    (fault,) = check_config(spec_of(delay), {"ms": ms})

    assert fault.option == "ms"


def test_the_time_may_come_from_the_message() -> None:
    assert check_config(spec_of(delay), {"ms": "${payload.wait:int}"}) == []
