"""RATE_LIMIT: a token bucket in the node's own time."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.model.message import Message
from yukta_rx.model.status import TaskStatus
from yukta_rx.nodes.rate_limit import rate_limit
from yukta_rx.plugins.contract import check_config, spec_of
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-05")

SPEC = spec_of(rate_limit)


SINK = ("COLLECT_TERMINAL", {})


@virtual_time
async def test_messages_leave_at_the_pace_in_order_and_unchanged(line) -> None:
    run = line.run(("RATE_LIMIT", {"perSecond": 4}), SINK, payloads=[{"n": n} for n in range(5)])

    await run.execute()

    assert line.times == pytest.approx([0, 0.25, 0.5, 0.75, 1.0])
    assert line.payloads == [{"n": n} for n in range(5)]
    assert len({result.message_id for _, result in line.results}) == 5


@virtual_time
async def test_a_pace_below_one_a_second_outlasts_the_idle_timeout(line) -> None:
    run = line.run(("RATE_LIMIT", {"perSecond": 0.01}), SINK, payloads=[1, 2, 3])

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert line.times == pytest.approx([0, 100, 200])


@virtual_time
async def test_a_burst_passes_at_once_and_the_rest_at_the_pace(line) -> None:
    run = line.run(("RATE_LIMIT", {"perSecond": 2, "burst": 3}), SINK, payloads=list(range(6)))

    await run.execute()

    assert line.times == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5])


@virtual_time
async def test_in_the_long_run_no_time_adds_up(line) -> None:
    run = line.run(("RATE_LIMIT", {"perSecond": 3}), SINK, payloads=list(range(3001)))

    await run.execute()

    assert line.times[-1] == pytest.approx(1000, abs=1e-5)


@virtual_time
async def test_each_message_takes_the_time_that_its_own_expression_gives(line) -> None:
    config = {"perSecond": "${payload:number}"}
    run = line.run(("RATE_LIMIT", config), SINK, payloads=[1, 2, 10, 1])

    await run.execute()

    # The first finds a full bucket; the bucket has to be full again for the next one.
    assert line.times == pytest.approx([0, 1.0, 1.5, 1.6])


@virtual_time
async def test_calls_that_wait_at_the_same_time_keep_order_and_pace(line) -> None:
    config = {"perSecond": 2, "engine": {"concurrency": {"max": 4, "ordered": False}}}
    run = line.run(("RATE_LIMIT", config), SINK, payloads=list(range(6)))

    await run.execute()

    assert line.times == pytest.approx([0, 0.5, 1.0, 1.5, 2.0, 2.5])
    assert line.payloads == list(range(6))


@virtual_time
async def test_a_wait_stands_still_while_the_run_is_paused(line) -> None:
    run = line.run(("RATE_LIMIT", {"perSecond": 1}), SINK, payloads=[1, 2, 3])
    async with asyncio.TaskGroup() as group:
        group.create_task(run.execute())
        await asyncio.sleep(1.5)
        run.pause()
        await asyncio.sleep(1000)
        run.resume()

    assert line.times == pytest.approx([0, 1, 1002])


async def test_a_quiet_time_fills_the_bucket_up_to_the_burst_and_no_more(bench) -> None:
    b = bench()
    SPEC.open(None, b.ctx)
    cfg = SPEC.config(per_second=1, burst=2)
    await b.base.advance(1000)

    tasks = [asyncio.create_task(rate_limit(Message.of(n), cfg, b.ctx)) for n in range(4)]

    await b.base.advance(0.5)
    assert [task.done() for task in tasks] == [True, True, False, False]
    await b.base.advance(1)
    assert [task.done() for task in tasks] == [True, True, True, False]
    await b.base.advance(1)
    assert tasks[3].done()


async def test_a_message_that_is_cancelled_while_it_waits_takes_nothing(bench) -> None:
    b = bench()
    SPEC.open(None, b.ctx)
    cfg = SPEC.config(per_second=1)
    await rate_limit(Message.of(0), cfg, b.ctx)
    given_up = asyncio.create_task(rate_limit(Message.of(1), cfg, b.ctx))
    await b.base.advance(0.5)

    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    after = asyncio.create_task(rate_limit(Message.of(2), cfg, b.ctx))
    await b.base.advance(0.51)

    assert after.done()
    assert b.base.waiting == 0


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "perSecond"),
        ({"perSecond": 0}, "perSecond"),
        ({"perSecond": -1}, "perSecond"),
        ({"perSecond": True}, "perSecond"),
        ({"perSecond": "10"}, "perSecond"),
        ({"perSecond": float("nan")}, "perSecond"),
        ({"perSecond": float("inf")}, "perSecond"),
        ({"perSecond": 1, "burst": 0}, "burst"),
        ({"perSecond": 1, "burst": 1.5}, "burst"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    (fault,) = check_config(SPEC, config)

    assert fault.option == option
