"""SEQUENCE_TRIGGER: numbered messages, at once or paced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from yukta_rx.nodes.sequence_trigger import SequenceTriggerConfig, sequence_trigger
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-01")


def started(bench: Any, **options: Any) -> Any:
    return sequence_trigger(SequenceTriggerConfig.model_validate(options), bench.ctx)


def test_numbers_run_from_start_as_a_plain_iterator(bench) -> None:
    numbers = started(bench(), count=3, start=5)

    assert isinstance(numbers, Iterator)
    assert list(numbers) == [{"n": 5}, {"n": 6}, {"n": 7}]


def test_a_count_of_zero_has_no_end_and_numbers_have_no_limit(bench) -> None:
    numbers = started(bench(), count=0, start=2**64 - 1)

    assert list(islice(numbers, 2)) == [{"n": 2**64 - 1}, {"n": 2**64}]


def test_each_message_has_a_payload_of_its_own(bench) -> None:
    first, second = started(bench(), count=2)

    first["n"] = "changed"

    assert second == {"n": 1}


async def test_an_interval_lies_between_two_messages_and_not_before_the_first(bench) -> None:
    b = bench()
    numbers = started(b, count=3, intervalMs=200)
    assert isinstance(numbers, AsyncIterator)

    async def consume() -> list[tuple[float, int]]:
        return [(round(b.base.now() - 100, 6), value["n"]) async for value in numbers]

    task = asyncio.create_task(consume())
    await b.base.advance(10)

    assert await task == [(0.0, 0), (0.2, 1), (0.4, 2)]


@pytest.mark.feature("DUR-03")
async def test_what_was_emitted_before_a_crash_is_not_waited_for_again(bench) -> None:
    b = bench()
    b.ctx.emitted = lambda: (3, {"n": 2})
    numbers = started(b, count=5, intervalMs=200)

    async def consume() -> list[tuple[float, int]]:
        return [(round(b.base.now() - 100, 6), value["n"]) async for value in numbers]

    task = asyncio.create_task(consume())
    await b.base.advance(10)

    assert await task == [(0.0, 0), (0.0, 1), (0.0, 2), (0.2, 3), (0.4, 4)]


async def test_the_interval_stands_still_during_a_pause(bench) -> None:
    b = bench()
    numbers = started(b, count=2, intervalMs=200)
    await anext(numbers)
    second = asyncio.ensure_future(anext(numbers))
    await b.base.advance(0.1)

    b.clock.pause()
    await b.base.advance(60)
    assert not second.done()
    b.clock.resume()
    await b.base.advance(0.09)
    assert not second.done()
    await b.base.advance(0.02)

    assert second.result() == {"n": 1}
    await numbers.aclose()


async def test_no_timer_stays_when_the_node_ends_during_an_interval(bench) -> None:
    b = bench()
    numbers = started(b, count=0, intervalMs=1000)
    await anext(numbers)
    waiting = asyncio.ensure_future(anext(numbers))
    await b.base.advance(0.5)

    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await numbers.aclose()

    assert b.base.waiting == 0


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "count"),
        ({"count": -1}, "count"),
        ({"count": True}, "count"),
        ({"count": "5"}, "count"),
        ({"count": 1.5}, "count"),
        ({"count": 1, "intervalMs": -1}, "intervalMs"),
        ({"count": 1, "intervalMs": 10**9}, "intervalMs"),
        ({"count": 1, "start": None}, "start"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    (fault,) = check_config(spec_of(sequence_trigger), config)

    assert fault.option == option
