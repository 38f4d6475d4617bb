"""A source that others push into: to all its subscribers, or to one that iterates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from reactivex import operators as rx

from yukta_rx.streams.hot import HotSource
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("CTL-07")


async def three() -> AsyncIterator[int]:
    for number in (1, 2, 3):
        yield number


@virtual_time
async def test_every_subscriber_is_pushed_every_element_and_the_end() -> None:
    source, seen, doubled, ended = HotSource(three()), [], [], []
    source.subscribe(seen.append, on_completed=lambda: ended.append("one"))
    source.pipe(rx.map(lambda n: n * 2)).subscribe(
        doubled.append, on_completed=lambda: ended.append("two")
    )

    await source.push_all()

    assert (seen, doubled, ended) == ([1, 2, 3], [2, 4, 6], ["one", "two"])


@virtual_time
async def test_whoever_iterates_takes_the_elements_from_their_origin() -> None:
    source = HotSource(three())

    assert [number async for number in source] == [1, 2, 3]
