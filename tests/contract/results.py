"""What every ResultStore guarantees; a backend subclasses it and gives a `store`."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from yukta_rx.durability.stores.results import ResultPart
from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.metrics import Meters
from yukta_rx.model.message import Message
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.status import TaskStatus

METERS = Meters()
"""Where a store counts."""

NOW = datetime(2026, 12, 1, 12, 0, 0, 123456, UTC)


def result(cursor: int, payload: Any = None, **headers: Any) -> ResultEvent:
    message = Message.of(payload, headers, id=f"m-{cursor}")
    return ResultEvent(
        cursor=cursor, type=ResultType.RESULT, time=NOW, node_id="out", message=message
    )


def last(cursor: int) -> ResultEvent:
    return ResultEvent(
        cursor=cursor,
        type=ResultType.EXECUTION_END,
        time=NOW,
        status=TaskStatus.SUCCESS,
        truncated=False,
        totals={"in": 1, "out": 1, "failed": 0, "dropped": 0},
    )


async def cursors(store: Any, execution_id: str, **options: Any) -> list[int]:
    part = await store.read(execution_id, **options)
    return [item.cursor for item in part.items]


class ResultContract:
    """One test or more per guarantee."""

    async def test_R1_results_are_read_in_order_and_once_in_pages_of_any_size(
        self, store: Any
    ) -> None:
        await store.append("a", [result(1), result(2), result(4)])
        await store.append("b", [result(1)])
        await store.append("a", [result(5), result(6)])

        pages = [await cursors(store, "a", after=after, limit=2) for after in (0, 2, 5, 6)]

        assert pages == [[1, 2], [4, 5], [6], []]
        assert await cursors(store, "b") == [1]

    async def test_R2_what_was_written_is_read_at_once(self, store: Any) -> None:
        await store.append("a", [result(1, {"n": 1})])
        before = await store.read("a")
        await store.end("a", [last(2)], NOW)
        after = await store.read("a")

        assert (len(before.items), before.ended) == (1, False)
        assert (len(after.items), after.ended) == (2, True)

    async def test_R3_a_write_can_be_repeated(self, store: Any) -> None:
        await store.append("a", [result(1, "first"), result(2)])
        await store.append("a", [result(1, "again"), result(2), result(3)])

        part = await store.read("a")
        assert [item.cursor for item in part.items] == [1, 2, 3]
        assert part.items[0].payload == "first"

    async def test_R4_a_closed_run_stays_as_it_is(self, store: Any) -> None:
        await store.append("a", [result(1)])
        await store.end("a", [result(2), last(3)], NOW)
        await store.append("a", [result(4)])
        await store.end("a", [last(5)], NOW + timedelta(hours=1))

        part = await store.read("a")
        assert [item.cursor for item in part.items] == [1, 2, 3]
        assert part.ended

    async def test_R5_only_ended_runs_go_and_the_newest_of_them_stay(self, store: Any) -> None:
        await store.append("live", [result(1)])
        for hour, execution_id in enumerate(("a", "b", "c", "d")):
            await store.end(execution_id, [last(1)], NOW + timedelta(hours=hour))

        many = await store.trim(3)
        old = await store.trim(3, NOW + timedelta(hours=2))
        none = await store.trim(0)

        assert (list(many), list(old), sorted(none)) == (["a"], ["b"], ["c", "d"])
        assert await store.read("live") is not None

    async def test_R5_children_go_with_their_root_and_no_root_goes_for_them(
        self, store: Any
    ) -> None:
        await store.append("live", [result(1)])
        days = map(timedelta, itertools.count())
        for child, parent in (("x1", "live"), ("x2", "live"), ("a2", "a1"), ("a1", "a")):
            await store.end(child, [last(1)], NOW + next(days), parent)
        await store.end("a", [last(1)], NOW + next(days))
        await store.end("b1", [last(1)], NOW + next(days), "b")
        await store.end("b", [last(1)], NOW + next(days))

        nothing = await store.trim(2, children=5)
        before = METERS.counter("yukta.store.children.dropped", store="results").value
        crowded = await store.trim(2, children=4)
        counted = METERS.counter("yukta.store.children.dropped", store="results").value - before
        family = await store.trim(1, children=4)
        rest = await store.trim(0, children=4)

        assert list(nothing) == []
        assert (list(crowded), counted) == (["x1"], 1)
        assert sorted(family) == ["a", "a1", "a2"]
        assert sorted(rest) == ["b", "b1"]
        assert [await store.last(name) for name in ("x2", "a2", "b1")] == [1, None, None]

    async def test_R6_nothing_kept_is_not_the_same_as_nothing_more(self, store: Any) -> None:
        await store.append("a", [result(1)])
        more = await store.read("a", after=1)
        await store.end("b", [], NOW)
        empty = await store.read("b")

        assert await store.read("nobody") is None
        assert [await store.last(name) for name in ("a", "b", "nobody")] == [1, 0, None]
        assert (more.items, more.ended) == ((), False)
        assert (empty.items, empty.ended) == ((), True)

    async def test_R7_values_come_back_as_they_were(self, store: Any) -> None:
        payload = {"big": 2**70, "money": Decimal("1.10"), "raw": b"\x00", "nan": [float("inf")]}
        given = [result(1, payload, when=NOW), last(2)]
        await store.append("a", given)

        part = await store.read("a")
        assert [item.as_dict() for item in part.items] == [item.as_dict() for item in given]
        assert [type(value) for value in part.items[0].payload.values()] == [
            *(int, Decimal, bytes, list)
        ]
        assert part.items[0].time == NOW

    async def test_R8_a_write_that_is_refused_leaves_nothing(self, store: Any) -> None:
        with pytest.raises(UnserialisablePayloadError) as refused:
            await store.append("a", [result(1), result(2, {"a": object()})])
        with pytest.raises(UnserialisablePayloadError):
            await store.end("b", [result(1, object())], NOW)

        assert refused.value.members["pointer"] == "/payload/a"
        assert await store.read("a") is None
        assert await store.read("b") is None

    async def test_R9_a_cut_takes_no_result_behind_it_and_none_of_others(self, store: Any) -> None:
        for execution_id in ("a", "b"):
            await store.append(execution_id, [result(n) for n in range(1, 6)])
            await store.append(execution_id, [result(n) for n in range(6, 11)])

        gone = await store.cut("a", 7)
        again = await store.cut("a", 3)
        most = await store.cut("a", 100)
        left = await cursors(store, "a")

        assert 0 <= gone <= 7
        assert again == gone
        assert gone <= most <= 9
        assert left == list(range(most + 1, 11))
        assert await cursors(store, "a", after=most - 1) == left
        assert await cursors(store, "b") == list(range(1, 11))
        assert [await store.last(name) for name in ("a", "b")] == [10, 10]
        assert await store.cut("nobody", 5) == 0

    async def test_R9_a_run_that_was_cut_goes_on_and_ends(self, store: Any) -> None:
        await store.append("a", [result(n) for n in range(1, 6)])
        gone = await store.cut("a", 4)
        await store.append("a", [result(6)])
        await store.end("a", [last(7)], NOW)

        part = await store.read("a")
        assert [item.cursor for item in part.items] == list(range(gone + 1, 8))
        assert part.ended
        assert list(await store.trim(0)) == ["a"]
        assert await store.read("a") is None

    async def test_R10_parts_of_several_runs_are_written_in_one_go(self, store: Any) -> None:
        parts = [
            ResultPart("a", [result(1), result(2)], None, None),
            ResultPart("b", [result(1), result(2), last(3)], NOW, "a"),
            ResultPart("c", [last(1)], NOW, None),
        ]
        await store.write(parts)
        await store.write([ResultPart("a", [result(2), last(3)], NOW, None), *parts[1:]])
        await store.write([])

        read = {name: await store.read(name) for name in ("a", "b", "c")}
        assert {name: [item.cursor for item in part.items] for name, part in read.items()} == {
            "a": [1, 2, 3],
            "b": [1, 2, 3],
            "c": [1],
        }
        assert all(part.ended for part in read.values())
        assert sorted(await store.trim(1)) in (["a", "b"], ["c"])

    async def test_R10_what_is_refused_is_told(self, store: Any) -> None:
        bad = ResultPart("b", [result(1), result(2, object())], None, None)

        with pytest.raises(UnserialisablePayloadError) as refused:
            await store.write([ResultPart("a", [result(1)], None, None), bad])

        assert refused.value.members["pointer"] == "/payload"
        assert await store.last("a") in (None, 1)
