"""The guarantees of `QueuedStartStore`, one test each, for every backend."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from yukta_rx.durability.stores.queued_starts import QueuedStart

if TYPE_CHECKING:
    from yukta_rx.durability.stores.queued_starts import QueuedStartStore

NOON = datetime(2026, 3, 1, 12, 0, 0, 125_000, tzinfo=UTC)


def start(name: str, *, after: float = 0, **changes: Any) -> QueuedStart:
    """A start that came so many seconds after noon."""
    made = QueuedStart(
        execution_id=name,
        session_id="s",
        workflow_id="w",
        definition_version="v1",
        priority=0,
        queued_at=NOON + timedelta(seconds=after),
        request={"payload": {"a": [1, None, "Ünï"]}, "labels": {}, "stepMode": False},
    )
    return replace(made, **changes)


async def names(store: QueuedStartStore) -> list[str]:
    return [item.execution_id for item in await store.list()]


class QueuedStartContract:
    """Subclass it with a fixture `store`, and say how the backend loses its answer."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_Q1_list_shows_what_was_put_and_moved(self, store: QueuedStartStore) -> None:
        put = start("a", priority=2.5)
        await store.put(put)

        assert list(await store.list()) == [put]
        assert await store.set_priority("a", -3)
        assert list(await store.list()) == [replace(put, priority=-3)]

    async def test_Q2_the_earliest_comes_first(self, store: QueuedStartStore) -> None:
        came = [("late", 2.0), ("b", 1.0), ("a", 1.0), ("c", 1.0), ("early", 0.5)]
        for name, after in came:
            await store.put(start(name, after=after))
        await store.set_priority("late", 9)

        assert await names(store) == ["early", "b", "a", "c", "late"]

    async def test_Q3_one_of_all_takers_gets_it(self, store: QueuedStartStore) -> None:
        await store.put(start("a"))
        await store.put(start("b"))

        claims = await asyncio.gather(*(store.claim("a") for _ in range(5)))
        removals = await asyncio.gather(*(store.remove("b") for _ in range(5)))

        assert [found for found in claims if found is not None] == [start("a")]
        assert removals.count(True) == 1
        assert not await store.remove("a")
        assert await store.claim("b") is None
        assert await store.claim("never") is None
        assert await names(store) == []

    async def test_Q4_a_move_changes_the_priority_only(self, store: QueuedStartStore) -> None:
        await store.put(start("a", request={"payload": None}))
        await store.put(start("b", after=1))

        assert await store.set_priority("a", 7)
        assert not await store.set_priority("gone", 7)

        assert list(await store.list()) == [
            start("a", request={"payload": None}, priority=7),
            start("b", after=1),
        ]

    async def test_Q5_no_answer_is_never_an_empty_one(self, store: QueuedStartStore) -> None:
        await store.put(start("a"))
        self.lose(store)

        for ask in (
            lambda: store.list(),
            lambda: store.claim("a"),
            lambda: store.remove("a"),
            lambda: store.set_priority("a", 1),
            lambda: store.put(start("b")),
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await ask()

    async def test_Q6_the_request_comes_back_as_it_was_put(self, store: QueuedStartStore) -> None:
        put = start("a", request={"payload": {"text": "x" * 1000}, "labels": {"a": "b"}})
        await store.put(put)
        await store.put(start("b", after=1))
        await store.set_priority("a", 2)

        listed = await store.list()

        assert [await store.opened(one) for one in listed] == [
            replace(put, priority=2),
            start("b", after=1),
        ]
        assert [{**one.request, "payload": 0} for one in listed] == [
            {**put.request, "payload": 0},
            {**start("b").request, "payload": 0},
        ]
