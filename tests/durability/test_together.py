"""What several ask for at the same time is done together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from yukta_rx.durability.postgres._together import Together
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.feature("DUR-04")


class Doubling:
    """Takes a second for a batch; refuses those with a 13 in it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    async def __call__(self, asked: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(asked))
        await asyncio.sleep(1)
        if 13 in asked:
            raise ValueError("thirteen")
        return [2 * one for one in asked]


@virtual_time
async def test_what_comes_meanwhile_is_done_next_and_all_of_it_at_once() -> None:
    work = Doubling()
    double = Together(work, most=3)

    async def later(n: int) -> int:
        await asyncio.sleep(n / 10)
        return await double(n)

    assert await asyncio.gather(*map(later, range(6))) == [0, 2, 4, 6, 8, 10]
    assert work.batches == [[0], [1, 2, 3], [4, 5]]


@virtual_time
async def test_one_after_the_other_each_is_a_batch_and_none_is_forgotten() -> None:
    work = Doubling()
    double = Together(work)

    assert [await double(n) for n in range(5)] == [0, 2, 4, 6, 8]
    assert work.batches == [[0], [1], [2], [3], [4]]
    await double.ended()


@virtual_time
async def test_what_fails_fails_for_all_of_its_batch_and_no_other() -> None:
    double = Together(Doubling())

    answers = await asyncio.gather(*map(double, (1, 13, 2)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError] * 3
    assert await double(3) == 6


@virtual_time
async def test_who_is_cancelled_takes_nothing_from_the_others() -> None:
    work = Doubling()
    double = Together(work)
    first, second = (asyncio.ensure_future(double(n)) for n in (1, 2))
    await asyncio.sleep(0.5)
    first.cancel()
    third = asyncio.ensure_future(double(3))

    assert await asyncio.gather(second, third) == [4, 6]
    assert first.cancelled()
    assert work.batches == [[1, 2], [3]]
    await double.ended()
