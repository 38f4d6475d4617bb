"""Ring, Shelf and SessionBook: what goes, and in which order."""

from __future__ import annotations

import sys
import time
import weakref
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.weight import weigh
from yukta_rx.observe.ring import Ring
from yukta_rx.observe.sessions import SessionBook
from yukta_rx.observe.shelf import Shelf
from yukta_rx.testing.clock import VirtualClock, virtual_time

if TYPE_CHECKING:
    from yukta_rx.streams.clock import LoopClock


class Item:
    """Something that one can see going."""


def test_empty_rings_share_nothing_that_shows() -> None:
    one: Ring[str] = Ring()
    other: Ring[str] = Ring(7)
    one.append("first", 1)

    assert (len(one), len(other), other.after(0, 5), other.get(1)) == (1, 0, [], None)
    assert (other.append("eighth", 1), other.oldest(), one.oldest()) == (8, "eighth", "first")


@given(st.lists(st.integers(0, 100)), st.integers(1, 10), st.integers(-1, 130), st.integers(1, 9))
def test_a_ring_keeps_the_newest_by_their_numbers(
    weights: list[int], size: int, after: int, limit: int
) -> None:
    ring: Ring[int] = Ring()
    for number, weight in enumerate(weights, 1):
        assert ring.append(number, weight) == number
        while len(ring) > size:
            ring.pop()

    kept = list(range(max(1, len(weights) - size + 1), len(weights) + 1))
    assert (ring.first, ring.last) == (kept[0] if kept else 1, len(weights))
    assert ring.weight == sum(weights[number - 1] for number in kept)
    assert ring.after(after, limit) == [number for number in kept if number > after][:limit]
    assert [ring.get(number) for number in kept] == kept
    assert ring.get(len(weights) + 1) is None
    assert ring.get(ring.first - 1) is None


@given(st.lists(st.integers(0, 100)), st.integers(1, 10), st.integers(0, 300))
def test_a_ring_is_trimmed_to_a_number_and_a_weight_but_keeps_its_newest_item(
    weights: list[int], most: int, weight: int
) -> None:
    ring: Ring[int] = Ring()
    for number, one in enumerate(weights, 1):
        ring.append(number, one)
        ring.trim(most, weight)

    kept = list(range(1, len(weights) + 1))[-most:]
    while len(kept) > 1 and sum(weights[number - 1] for number in kept) > weight:
        del kept[0]
    assert ring.after(0, 999) == kept
    assert ring.weight == sum(weights[number - 1] for number in kept)

    ring.clear()

    assert (len(ring), ring.weight, ring.after(0, 9)) == (0, 0, [])
    assert ring.first == ring.last + 1 == len(weights) + 1
    assert (ring.append(7, 3), ring.oldest(), ring.weight) == (len(weights) + 1, 7, 3)


def test_a_ring_through_which_many_items_go_holds_only_those_that_are_kept() -> None:
    ring: Ring[list[int]] = Ring()
    held: weakref.WeakSet[Item] = weakref.WeakSet()
    items: Ring[Item] = Ring()
    for number in range(1, 2001):
        ring.append([number], number)
        items.append(item := Item(), 1)
        held.add(item)
        while len(ring) > 10:
            assert ring.pop() == ([number - 10], number - 10)
            items.pop()
        del item
        assert len(held) == len(items) == min(number, 10)

    assert ring.after(0, 99) == [[number] for number in range(1991, 2001)]
    assert (ring.first, ring.get(1990), ring.get(1991), ring.oldest()) == (
        1991,
        None,
        [1991],
        [1991],
    )


@given(st.lists(st.booleans(), max_size=20), st.integers(0, 20), st.integers(1, 5))
def test_finding_says_how_far_it_looked(flags: list[bool], after: int, limit: int) -> None:
    ring: Ring[int] = Ring()
    for number in range(1, len(flags) + 1):
        ring.append(number, 0)

    found, looked = ring.find(after, lambda number: flags[number - 1], limit)

    wanted = [number for number, flag in enumerate(flags, 1) if flag and number > after]
    assert found == wanted[:limit]
    assert looked == (found[-1] if len(found) == limit else len(flags))


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        b"x" * 100_000,
        {"choices": [{"message": {"content": "x" * 100_000}}]},
        ["x" * 100] * 1000,
        [[n] * 50 for n in range(300)],
        {str(n): {"a": [n] * 10} for n in range(1000)},
    ],
)
def test_a_weight_is_about_what_a_value_occupies(value: object) -> None:
    assert 50_000 < weigh(value) < 2_000_000


@pytest.mark.parametrize("value", [None, 1, 2.5, True, "x", {"n": 1, "text": "abc"}, [], {}])
def test_a_small_value_weighs_little(value: object) -> None:
    assert weigh(value) < 1000


def test_weighing_a_huge_value_takes_no_time() -> None:
    value = [[[0] * 100] * 1000] * 1000
    deep: list[object] = []
    for _ in range(sys.getrecursionlimit() * 2):
        deep = [deep]

    began = time.perf_counter()
    assert weigh(value) > 1_000_000
    assert weigh(deep) > 0
    assert time.perf_counter() - began < 0.05


class Thing:
    def __init__(self, name: str) -> None:
        self.name = name
        self.in_use = False


def shelf_of(clock: LoopClock, *, ttl: float = 60, capacity: int = 100, renew: bool = False):
    gone: list[str] = []
    shelf: Shelf[Thing] = Shelf(
        clock, ttl=ttl, capacity=capacity, gone=lambda thing: gone.append(thing.name), renew=renew
    )
    return shelf, gone


@virtual_time
async def test_what_ended_goes_after_its_time_and_what_is_live_stays() -> None:
    clock = VirtualClock()
    shelf, gone = shelf_of(clock)
    for name in "abc":
        shelf.put(name, Thing(name))
    shelf.retire("a")
    await clock.advance(30)
    shelf.retire("b")
    await clock.advance(30)
    assert gone == ["a"]
    await clock.advance(1000)

    assert gone == ["a", "b"]
    assert shelf.get("c") is not None
    assert len(shelf) == 1


@virtual_time
async def test_a_use_begins_the_time_anew_if_asked_for() -> None:
    clock = VirtualClock()
    shelf, gone = shelf_of(clock, renew=True)
    for name in "ab":
        shelf.put(name, Thing(name))
        shelf.retire(name)
    await clock.advance(59)
    shelf.get("a")
    await clock.advance(59)

    assert gone == ["b"]
    await clock.advance(2)
    assert gone == ["b", "a"]


@virtual_time
async def test_what_is_in_use_stays_a_little_longer() -> None:
    clock = VirtualClock()
    shelf, gone = shelf_of(clock, capacity=1)
    a, b = Thing("a"), Thing("b")
    a.in_use = True
    for thing in (a, b):
        shelf.put(thing.name, thing)
        shelf.retire(thing.name)
    assert gone == ["b"]
    await clock.advance(200)
    assert gone == ["b"]
    a.in_use = False
    await clock.advance(60)

    assert gone == ["b", "a"]


@virtual_time
async def test_beyond_the_capacity_the_oldest_that_ended_goes() -> None:
    shelf, gone = shelf_of(VirtualClock(), capacity=2)
    for name in "abcd":
        shelf.put(name, Thing(name))
        if name != "a":
            shelf.retire(name)

    assert gone == ["b", "c"]
    assert "a" in shelf


@pytest.mark.feature("OBS-01")
def test_the_session_without_a_live_run_that_was_active_longest_ago_goes_first() -> None:
    book = SessionBook(2)
    for run, session in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "c"), ("5", "d")):
        book.began(session, run)
    assert book.excess() == []

    book.ended("b")
    book.ended("a")
    assert book.excess() == ["2"]
    book.ended("a")
    assert sorted(book.excess()) == ["1", "3"]
    assert len(book) == 2


def test_sessions_are_not_counted_without_a_limit() -> None:
    book = SessionBook(0)
    for number in range(100):
        book.began(str(number), str(number))
        book.ended(str(number))

    assert book.excess() == []


def test_a_session_whose_runs_are_gone_is_gone() -> None:
    book = SessionBook(1)
    book.began("a", "1")
    book.ended("a")
    book.gone("a", "1")
    book.gone("a", "1")

    assert len(book) == 0
