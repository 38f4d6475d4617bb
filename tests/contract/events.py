"""What every EventStore guarantees; a backend subclasses it and gives a `store`.

A store that removes its oldest in larger parts is made so that 200 events are several of them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from yukta_rx.durability.stores.events import StoredEvent
from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.events import ExecutionEvent

NOW = datetime(2026, 12, 1, 12, 0, 0, 123456, UTC)


def event(seq: int, *, node: str | None = "n", hours: int = 0, **data: Any) -> StoredEvent:
    return StoredEvent(
        seq,
        ExecutionEvent(
            type="node.status",
            time=NOW + timedelta(hours=hours),
            session_id="s",
            workflow_id="w",
            execution_id="r",
            node_id=node,
            data=data or {"n": seq},
        ),
    )


async def numbers(store: Any, after: int = 0, limit: int = 1000) -> list[int]:
    return [seq for seq, _ in await store.read(after, limit)]


class EventContract:
    """One test or more per guarantee."""

    async def test_E1_events_are_read_in_order_and_once_in_pages_of_any_size(
        self, store: Any
    ) -> None:
        await store.begin("x")
        await store.append([event(1), event(2), event(4)])
        await store.begin("y")
        await store.append([event(5), event(9)])

        pages = [await numbers(store, after, 2) for after in (0, 2, 3, 5, 8, 9, 12)]

        assert pages == [[1, 2], [4, 5], [4, 5], [9], [9], [], []]
        assert await numbers(store) == [1, 2, 4, 5, 9]

    async def test_E1_pages_of_many_events_fit_together(self, store: Any) -> None:
        await store.begin("x")
        for first in range(1, 200, 5):
            await store.append([event(seq) for seq in range(first, first + 5)])

        assert await numbers(store) == list(range(1, 201))
        for after in (0, 1, 62, 63, 64, 65, 127, 128, 129, 198, 199):
            for limit in (1, 63, 64, 65, 150):
                wanted = list(range(after + 1, min(201, after + 1 + limit)))
                assert await numbers(store, after, limit) == wanted

    async def test_E2_what_was_written_is_read_at_once(self, store: Any) -> None:
        await store.begin("x")
        await store.append([event(1)])
        before = await store.span()
        await store.append([event(2), event(3)])
        after = await store.span()

        assert (before.oldest, before.newest) == (1, 1)
        assert (after.oldest, after.newest) == (1, 3)
        assert await numbers(store, 1) == [2, 3]

    async def test_E3_a_write_can_be_repeated(self, store: Any) -> None:
        await store.begin("x")
        await store.append([event(1, what="first"), event(2)])
        await store.append([event(1, what="again"), event(2), event(3)])

        found = await store.read(0)
        assert [seq for seq, _ in found] == [1, 2, 3]
        assert found[0].event.data == {"what": "first"}
        assert (await store.span()).newest == 3

    async def test_E4_epochs_are_known_with_the_place_that_they_begin_behind(
        self, store: Any
    ) -> None:
        first = await store.begin("x")
        await store.append([event(1), event(2)])
        await store.begin("y")
        third = await store.begin("z")
        await store.append([event(3)])

        assert (first.oldest, first.newest, first.epochs) == (1, 0, (("x", 0),))
        assert third.epochs == (("x", 0), ("y", 2), ("z", 2))
        assert (await store.span()).epochs == third.epochs
        for known in ("x", "z"):
            with pytest.raises(ValueError, match=known):
                await store.begin(known)
        assert (await store.span()).epochs == third.epochs

    async def test_E4_an_epoch_stays_as_long_as_one_can_go_on_behind_its_last_event(
        self, store: Any
    ) -> None:
        await store.begin("gone")
        await store.append([event(1)])
        await store.begin("x")
        for seq in range(2, 201):
            await store.append([event(seq)])
        await store.begin("y")
        oldest = await store.trim(1)

        names = [epoch.name for epoch in (await store.span()).epochs]
        assert names == (["x", "y"] if oldest <= 201 else ["y"])

    async def test_E5_only_the_oldest_go_and_the_newest_stay(self, store: Any) -> None:
        await store.begin("x")
        for seq in range(1, 201):
            await store.append([event(seq)])

        same = await store.trim(200)
        all_of_them = await numbers(store)
        oldest = await store.trim(30)
        left = await numbers(store)

        assert same == 1
        assert all_of_them == list(range(1, 201))
        assert left == list(range(oldest, 201))
        assert 1 < oldest <= 171
        assert (await store.span()).oldest == oldest
        assert (await store.span()).newest == 200

    async def test_E5_what_is_too_old_goes_and_no_number_comes_again(self, store: Any) -> None:
        await store.begin("x")
        for seq in range(1, 201):
            await store.append([event(seq, hours=seq)])

        oldest = await store.trim(1000, NOW + timedelta(hours=100))
        left = await numbers(store)
        await store.trim(1000, NOW + timedelta(hours=1000))
        span = await store.begin("y")

        assert 1 < oldest <= 100
        assert left == list(range(oldest, 201))
        assert span.newest == 200
        assert span.epochs[-1] == ("y", 200)

    async def test_E6_nothing_there_is_an_empty_part(self, store: Any) -> None:
        assert list(await store.read(0)) == []
        assert await store.span() == (1, 0, ())
        await store.begin("x")
        assert list(await store.read(0)) == []
        assert await store.trim(1) == 1

    async def test_E7_values_come_back_as_they_were(self, store: Any) -> None:
        await store.begin("x")
        data = {"big": 2**70, "money": Decimal("1.10"), "raw": b"\x00", "nan": [float("inf")]}
        given = [event(1, **data), event(2, node=None)]
        await store.append(given)

        assert list(await store.read(0)) == given
        kept = (await store.read(0))[0].event.data
        assert [type(value) for value in kept.values()] == [int, Decimal, bytes, list]

    async def test_E8_a_write_that_is_refused_leaves_nothing(self, store: Any) -> None:
        await store.begin("x")
        with pytest.raises(UnserialisablePayloadError) as refused:
            await store.append([event(1), event(2, a=object())])

        assert refused.value.members["pointer"] == "/data/a"
        assert await numbers(store) == []
        assert (await store.span()).newest == 0
        await store.append([event(1)])
        assert await numbers(store) == [1]
