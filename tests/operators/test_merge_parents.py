"""merge and merge_parents: several parents, each with an edge of its own, under a join rule."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import UpstreamFailedError
from yukta_rx.streams.flow import from_iterable
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

pytestmark = pytest.mark.feature("ENG-03")


async def two(**options: Any) -> tuple[TestPublisher, TestPublisher, TestSubscriber]:
    a, b = TestPublisher("a"), TestPublisher("b")
    seen = TestSubscriber(100)
    ops.merge(a, b, **options).subscribe(seen)
    await a.pulled(1)
    await b.pulled(1)
    return a, b, seen


@virtual_time
async def test_elements_come_as_the_parents_give_them() -> None:
    a, b, seen = await two()
    for n, parent in enumerate([a, b, b, a]):
        parent.emit(n)
        await asyncio.sleep(1)
    a.complete()
    await asyncio.sleep(1)
    half = seen.completed
    b.complete()
    await seen.ended()

    assert [(s.kind, s.value, round(s.time)) for s in seen.signals] == [
        ("next", 0, 0),
        ("next", 1, 1),
        ("next", 2, 2),
        ("next", 3, 3),
        ("completed", None, 5),
    ]
    assert not half


@virtual_time
async def test_parents_with_elements_waiting_take_turns() -> None:
    flow = ops.merge(from_iterable(["a"] * 300), from_iterable(["b"] * 300), prefetch=3)

    out = [x async for x in flow]

    assert sorted(out) == ["a"] * 300 + ["b"] * 300
    # Batches hold at most a window, so neither runs far ahead.
    for n in range(0, 500, 10):
        assert abs(out[:n].count("a") - out[:n].count("b")) <= 12


@virtual_time
async def test_each_parent_is_paced_by_its_own_edge() -> None:
    a, b = TestPublisher("a"), TestPublisher("b")
    seen = TestSubscriber()
    ops.merge(a, b, prefetch=2).pipe(ops.prefetch(1)).subscribe(seen)
    await a.pulled(2)
    await b.pulled(2)

    while a.demand:
        a.emit("a")
        await asyncio.sleep(0.01)

    assert b.demand == 2
    assert 64 + 1 <= a.requested <= 64 + 1 + 2 + 1
    seen.cancel()
    await asyncio.sleep(1)
    assert a.cancelled
    assert b.cancelled


@virtual_time
async def test_without_a_rule_an_error_waits_for_that_parents_elements_only() -> None:
    a, b, seen = await two(prefetch=8)
    error = LookupError("a")
    a.emit(1, 2)
    b.emit(3)
    a.fail(error)
    await seen.ended()
    await asyncio.sleep(1)

    assert [value for value in seen.values if value != 3] == [1, 2]
    assert seen.error is error
    assert b.cancelled


@virtual_time
async def test_all_success_fails_at_once_naming_the_parent() -> None:
    a, b, seen = await two(join=ops.AllSuccess())
    a.emit(1)
    error = LookupError("a")
    a.fail(error)
    await seen.ended()
    await asyncio.sleep(1)

    assert isinstance(seen.error, UpstreamFailedError)
    assert (seen.error.parent, seen.error.__cause__) == ("a", error)
    assert b.cancelled


@virtual_time
async def test_all_success_completes_when_all_have() -> None:
    a, b, seen = await two(join=ops.AllSuccess())
    a.emit(1)
    a.complete()
    b.emit(2)
    b.complete()
    await seen.ended()

    assert sorted(seen.values) == [1, 2]
    assert seen.completed


class Lenient:
    """A rule of its own: parents may fail, and the node completes with the last."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, str]] = []
        self.ended: list[tuple[str, str | None]] = []

    def parent_failed(self, parent: str, error: BaseException) -> BaseException | None:
        self.failed.append((parent, str(error)))
        return None

    def parent_ended(self, parent: str, error: BaseException | None) -> BaseException | None:
        self.ended.append((parent, None if error is None else str(error)))
        return None


@virtual_time
async def test_a_rule_decides_what_a_failed_parent_means() -> None:
    rule = Lenient()
    a, b, seen = await two(join=rule)
    a.emit(1)
    a.fail(LookupError("no"))
    await asyncio.sleep(1)
    b.emit(2)
    b.complete()
    await seen.ended()

    assert (seen.values, seen.completed) == ([1, 2], True)
    assert set(rule.failed) == {("a", "no")}
    assert rule.ended == [("a", "no"), ("b", None)]


@virtual_time
async def test_a_flow_may_be_merged_with_itself() -> None:
    shared = from_iterable([1, 2]).pipe(ops.broadcast())

    out = [n async for n in ops.merge(shared, shared)]

    assert sorted(out) == [1, 1, 2, 2]


@virtual_time
async def test_merge_parents_puts_the_source_first() -> None:
    out = [
        x async for x in from_iterable(["first"]).pipe(ops.merge_parents(from_iterable(["second"])))
    ]

    assert sorted(out) == ["first", "second"]


def test_merging_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="one flow or more"):
        ops.merge()


@virtual_time
async def test_at_least_n_carries_on_with_the_parents_that_work() -> None:
    a, b, seen = await two(join=ops.AtLeast(1, {"a", "b"}))
    a.emit(1)
    a.fail(OSError("gone"))
    await asyncio.sleep(1)
    b.emit(2)
    b.complete()
    await seen.ended()

    assert seen.values == [1, 2]
    assert seen.completed


@virtual_time
async def test_at_least_n_fails_once_too_few_are_left_and_loses_nothing_of_them() -> None:
    a, b, seen = await two(join=ops.AtLeast(1, {"a", "b"}))
    a.emit(1)
    a.fail(OSError("gone"))
    b.emit(2)
    b.fail(OSError("gone too"))
    await seen.ended()

    assert sorted(seen.values) == [1, 2]
    assert isinstance(seen.error, UpstreamFailedError)


@virtual_time
async def test_a_parent_that_does_not_count_may_fail() -> None:
    a, b, seen = await two(join=ops.AllSuccess(optional={"a"}))
    a.emit(1)
    a.fail(OSError("gone"))
    await asyncio.sleep(1)
    b.emit(2)
    b.complete()
    await seen.ended()

    assert seen.values == [1, 2]
    assert seen.completed
