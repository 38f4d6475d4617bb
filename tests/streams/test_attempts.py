"""What one attempt gives: held back until it has ended, within a bound, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import BadInputError, HeldOutputError
from yukta_rx.model.policy import RetryPolicy
from yukta_rx.streams.aio import AsyncManyBody
from yukta_rx.streams.attempts import Hold, collect, collect_async
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.sync import ManyBody
from yukta_rx.streams.threads import ThreadBody
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

pytestmark = pytest.mark.feature("ENG-04")


class Notes:
    """A bound of `limit` where an output weighs what it is; remembers what was discarded."""

    def __init__(self, limit: int) -> None:
        self.discarded: list[tuple[Any, int]] = []
        self.hold = Hold(lambda output: output, limit, lambda *facts: self.discarded.append(facts))


async def later(outputs: Iterable[Any]) -> AsyncIterator[Any]:
    for output in outputs:
        await asyncio.sleep(0)
        yield output


async def collected(item: Any, outputs: Iterable[Any], hold: Hold | None, how: str) -> list[Any]:
    if how == "sync":
        return collect(item, outputs, hold)
    return await collect_async(item, later(outputs), hold)


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
@virtual_time
async def test_all_outputs_come_in_order(how: str) -> None:
    assert await collected("item", range(5), None, how) == [0, 1, 2, 3, 4]
    assert await collected("item", [], None, how) == []


@both
@pytest.mark.parametrize(("outputs", "fits"), [([10], True), ([4, 6], True), ([4, 7], False)])
@virtual_time
async def test_an_attempt_may_hold_back_as_much_as_the_bound_and_no_more(
    how: str, outputs: list[int], fits: bool
) -> None:
    notes = Notes(10)
    if fits:
        assert await collected("item", outputs, notes.hold, how) == outputs
        assert notes.discarded == []
        return

    with pytest.raises(
        HeldOutputError, match=r"more than 10 bytes \(2 messages so far\)"
    ) as caught:
        await collected("item", outputs, notes.hold, how)

    assert notes.discarded == [("item", 2)]
    assert caught.value.members == {"limitBytes": 10}


@both
@virtual_time
async def test_the_bound_is_that_of_one_attempt(how: str) -> None:
    notes = Notes(10)

    for _ in range(3):
        await collected("item", [9], notes.hold, how)

    assert notes.discarded == []


@both
@pytest.mark.parametrize("held", [True, False])
@virtual_time
async def test_what_came_before_a_failure_is_discarded_and_told(how: str, held: bool) -> None:
    def outputs() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("after two")

    notes = Notes(10)
    with pytest.raises(LookupError):
        await collected("item", outputs(), notes.hold if held else None, how)

    assert notes.discarded == ([("item", 2)] if held else [])


@both
@virtual_time
async def test_a_failure_before_any_output_discards_nothing(how: str) -> None:
    def outputs() -> Iterator[int]:
        raise LookupError("at once")
        yield

    notes = Notes(10)
    with pytest.raises(LookupError):
        await collected("item", outputs(), notes.hold, how)

    assert notes.discarded == []


@both
@virtual_time
async def test_a_generator_that_gives_too_much_is_closed_at_once(how: str) -> None:
    closed: list[int] = []

    def outputs() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.append(1)

    async def outputs_async() -> AsyncIterator[int]:
        try:
            for n in range(1000):
                yield n
        finally:
            closed.append(1)

    async def attempt() -> None:
        if how == "sync":
            collect("item", outputs(), Notes(10).hold)
        else:
            await collect_async("item", outputs_async(), Notes(10).hold)

    with pytest.raises(HeldOutputError):
        await attempt()

    assert closed == [1]


def test_what_is_no_iterable_is_refused() -> None:
    with pytest.raises(TypeError):
        collect("item", 5, None)  # type: ignore[arg-type]


@virtual_time
async def test_an_async_iterator_without_a_close_needs_none() -> None:
    class Plain:
        def __init__(self) -> None:
            self.left = 3

        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    assert await collect_async("item", Plain(), None) == [2, 1, 0]


BODIES: dict[str, Any] = {
    "generator": lambda fn, hold: ManyBody(fn, hold),
    "async generator": lambda fn, hold: AsyncManyBody(lambda n: later(fn(n)), None, hold),
    "thread generator": lambda fn, hold: ThreadBody(fn, True, hold),
}


@pytest.mark.parametrize("body", BODIES)
@virtual_time
async def test_holding_back_too_much_is_bad_input_and_never_tried_again(
    body: str, line: Any
) -> None:
    notes = Notes(10)
    clock = LoopClock(asyncio.get_running_loop())
    policy = RetryPolicy(max_attempts=5)
    flow = from_iterable([3, 4]).pipe(
        ops.merge_parents(),
        ops.call(BODIES[body](lambda n: [n] * n, notes.hold)),
        ops.retry(ops.Backoff(policy, clock)),
    )
    ran = await line(flow).finished()

    assert ran.out == [3, 3, 3]
    assert isinstance(ran.error, HeldOutputError)
    assert isinstance(ran.error, BadInputError)
    assert (ran.stage.retried, ran.stage.failed, ran.stage.culprit) == (0, 1, 4)
    assert notes.discarded == [(4, 3)]


@pytest.mark.parametrize("body", BODIES)
@virtual_time
async def test_without_a_policy_nothing_is_held_back(body: str, line: Any) -> None:
    notes = Notes(10)
    flow = from_iterable([100]).pipe(
        ops.merge_parents(), ops.call(BODIES[body](lambda n: [n] * n, None))
    )
    ran = await line(flow, prefetch=1).finished()

    assert ran.out == [100] * 100
    assert notes.discarded == []


@virtual_time
async def test_converted_outputs_are_what_weighs(line: Any) -> None:
    async def three(n: int) -> AsyncIterator[int]:
        for _ in range(3):
            yield n

    notes = Notes(100)
    clock = LoopClock(asyncio.get_running_loop())
    body = AsyncManyBody(three, lambda item, out, index: item * 10 + out + index, notes.hold)
    flow = from_iterable([1, 4]).pipe(
        ops.merge_parents(),
        ops.call(body),
        ops.retry(ops.Backoff(RetryPolicy(max_attempts=1), clock)),
    )
    ran = await line(flow).finished()

    assert ran.out == [11, 12, 13]
    assert isinstance(ran.error, HeldOutputError)
    assert notes.discarded == [(4, 3)]
