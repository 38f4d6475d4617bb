"""FAULT_INJECTOR: fails and waits on purpose."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.nodes.fault_injector import FaultInjectorConfig, fault_injector
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-03")


async def tried(bench, payload=1, *, attempt=1, **options):
    """What came out of one attempt, and the error if there was one."""
    bench.ctx.attempt = attempt
    out = []
    cfg = FaultInjectorConfig.model_validate(options)
    try:
        async for made in fault_injector(Message.of(payload), cfg, bench.ctx):
            out.append(made.payload)  # noqa: PERF401 - what came before the error counts
    except Exception as error:
        return out, error
    return out, None


async def test_without_options_messages_pass(bench) -> None:
    assert await tried(bench()) == ([1], None)


async def test_the_first_attempts_of_a_message_fail(bench) -> None:
    b = bench()

    ends = [await tried(b, attempt=n, failTimes=2) for n in (1, 2, 3)]

    assert [type(error) for _, error in ends] == [RuntimeError, RuntimeError, type(None)]
    assert [out for out, _ in ends] == [[], [], [1]]
    assert str(ends[1][1]) == "injected by FAULT_INJECTOR, attempt 2"


async def test_a_message_that_the_condition_holds_for_always_fails(bench) -> None:
    b = bench()
    options = {"failWhen": "payload == 2", "error": "ConnectionError"}

    assert await tried(b, 1, **options) == ([1], None)
    for attempt in (1, 5):
        out, error = await tried(b, 2, attempt=attempt, **options)
        assert out == []
        assert type(error) is ConnectionError


async def test_copies_can_leave_before_the_failure(bench) -> None:
    b = bench()

    out, error = await tried(b, failTimes=1, emitBeforeFailing=3)

    assert out == [1, 1, 1]
    assert isinstance(error, RuntimeError)
    assert await tried(b, attempt=2, failTimes=1, emitBeforeFailing=3) == ([1], None)


async def test_a_delay_comes_first_gives_signs_of_life_and_stands_still_in_a_pause(bench) -> None:
    b = bench()
    task = asyncio.ensure_future(tried(b, failTimes=1, delayMs=1000))
    await b.base.advance(0.5)
    beaten = b.ctx.last_beat

    b.clock.pause()
    await b.base.advance(3600)
    b.clock.resume()
    await b.base.advance(0.49)
    assert not task.done()
    await b.base.advance(0.02)

    assert isinstance(task.result()[1], RuntimeError)
    assert beaten == pytest.approx(100.5)


async def test_it_can_block_the_event_loop(bench) -> None:
    b = bench()
    others = []

    async def other() -> None:
        others.append(perf_counter())

    began = perf_counter()
    task = asyncio.ensure_future(other())
    out, _ = await tried(b, blockLoop=True, delayMs=30)
    ended = perf_counter()
    await task

    assert out == [1]
    assert ended - began >= 0.03
    assert others[0] >= ended, "nothing else ran meanwhile"


async def test_a_condition_that_does_not_fit_the_message_is_bad_input(bench) -> None:
    _, error = await tried(bench(), failWhen="payload.n > 1")

    assert isinstance(error, BadInputError)


@pytest.mark.parametrize(
    ("config", "option", "detail"),
    [
        ({"error": "NoSuchError"}, "error", "is no built-in exception"),
        ({"error": "RuntimError"}, "error", "did you mean `RuntimeError`?"),
        ({"error": "KeyboardInterrupt"}, "error", "is no built-in exception"),
        ({"error": "SystemExit"}, "error", "is no built-in exception"),
        ({"error": "StopIteration"}, "error", "is no built-in exception"),
        ({"error": "StopAsyncIteration"}, "error", "is no built-in exception"),
        ({"error": "UnicodeDecodeError"}, "error", "is no built-in exception"),
        ({"error": "ExceptionGroup"}, "error", "is no built-in exception"),
        ({"error": "print"}, "error", "is no built-in exception"),
        ({"failTimes": -1}, "failTimes", "greater than or equal to 0"),
        ({"failTimes": True}, "failTimes", "must be a whole number"),
        ({"failWhen": "n"}, "failWhen", "did you mean `payload.n`?"),
        ({"emitBeforeFailing": 10_001}, "emitBeforeFailing", "less than or equal to 10000"),
        ({"delayMs": "5"}, "delayMs", "must be a whole number"),
        ({"blockLoop": True}, None, "blockLoop needs a delayMs from 1 to 60000"),
        ({"blockLoop": True, "delayMs": 60_001}, None, "blockLoop needs a delayMs"),
    ],
)
def test_wrong_options_are_named(config, option, detail) -> None:
    (fault,) = check_config(spec_of(fault_injector), config)

    assert fault.option == option
    assert detail in fault.detail


def test_numbers_may_come_from_the_message() -> None:
    config = {"failTimes": "${payload.fails:int}", "error": "${payload.error=OSError}"}

    assert check_config(spec_of(fault_injector), config) == []
