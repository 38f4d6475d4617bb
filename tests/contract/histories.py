"""The guarantees of `HistoryStore`, one test each, for every backend."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.histories import HistoryKey, Turn

if TYPE_CHECKING:
    from yukta_rx.durability.stores.histories import HistoryStore

NOON = datetime(2026, 3, 1, 12, 0, 0, 125_000, tzinfo=UTC)
CHAT = HistoryKey("s", "chat")
MANY = 1000


def later(seconds: float) -> datetime:
    """So long after noon."""
    return NOON + timedelta(seconds=seconds)


def turn(text: str, seconds: float = 0, role: str = "user") -> Turn:
    """What somebody said so long after noon."""
    return Turn(role, text, later(seconds))


def effect(name: str, lineage: str = "line") -> EffectKey:
    """Something that is done for message `m` of node `n`."""
    return EffectKey(lineage, "n", "m", name)


async def texts(
    store: HistoryStore, key: HistoryKey = CHAT, most: int = MANY, since: datetime | None = None
) -> list[str]:
    """What was said."""
    return [one.text for one in await store.load(key, most, since)]


class HistoryContract:
    """Subclass it with a fixture `store`, and say how the backend loses its answer."""

    in_memory = False
    """Whether reads go on when the backend is lost, because all of it is in memory."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_H1_a_turn_is_there_as_it_was(self, store: HistoryStore) -> None:
        said = [
            turn("hello", 0, "system"),
            turn("ä€😀\0\n", 1, "rôle"),
            turn("", 2),
            turn("x" * 9000, 2),
        ]
        assert list(await store.load(CHAT, MANY)) == []
        for number, one in enumerate(said, 1):
            await store.append(CHAT, one, MANY)
            assert list(await store.load(CHAT, MANY)) == said[:number]

        many = [store.append(CHAT, turn(str(number)), MANY) for number in range(20)]
        await asyncio.gather(*many)
        assert sorted(map(int, (await texts(store))[4:])) == list(range(20))

    async def test_H2_the_newest_are_given_the_oldest_of_them_first(
        self, store: HistoryStore
    ) -> None:
        for number in range(6):
            await store.append(CHAT, turn(str(number), number), MANY)

        assert await texts(store, most=3) == ["3", "4", "5"]
        assert await texts(store, most=6) == list("012345")
        assert await texts(store, most=1) == ["5"]

    async def test_H3_the_newest_stay(self, store: HistoryStore) -> None:
        for number in range(6):
            await store.append(CHAT, turn(str(number), number), 4)
        assert await texts(store) == list("2345")

        await store.append(CHAT, turn("6", 6), 2)
        assert await texts(store) == list("56")

        await store.append(CHAT, turn("7", 7), 3)
        assert await texts(store) == list("567")

    async def test_H4_what_was_not_used_for_long_is_gone(self, store: HistoryStore) -> None:
        await store.append(CHAT, turn("old", 0), MANY)
        await store.append(CHAT, turn("newer", 10), MANY)

        assert await texts(store, since=later(5)) == ["old", "newer"]
        assert await texts(store, since=later(10)) == []

        await store.append(CHAT, turn("next", 20), MANY, later(9.999_999))
        assert await texts(store) == ["old", "newer", "next"]
        await store.append(CHAT, turn("anew", 40), MANY, later(20))
        assert await texts(store) == ["anew"]

    async def test_H5_sweeping_takes_what_is_too_old(self, store: HistoryStore) -> None:
        for number in range(4):
            key = HistoryKey("s", str(number))
            await store.append(key, turn("first", 0), MANY)
            await store.append(key, turn("last", number), MANY)

        assert await store.sweep(later(1)) == 2
        assert await store.sweep(later(1)) == 0

        left = [await texts(store, HistoryKey("s", str(number))) for number in range(4)]
        assert left == [[], [], ["first", "last"], ["first", "last"]]
        assert store.kept == 2

    async def test_the_number_of_histories_is_right_when_many_change_at_once(
        self, store: HistoryStore
    ) -> None:
        keys = [HistoryKey("s", str(number)) for number in range(10)]
        await asyncio.gather(*(store.append(key, turn("one"), MANY) for key in keys))
        assert store.kept == 10
        await asyncio.gather(*(store.clear(key) for key in keys[:4]))
        assert store.kept == 6

    async def test_H6_an_effect_that_is_known_changes_nothing(self, store: HistoryStore) -> None:
        for _ in range(2):
            await store.append(CHAT, turn("once"), MANY, effect=effect("a"))
        await store.append(CHAT, turn("other"), MANY, effect=effect("a", "line2"))
        assert await texts(store) == ["once", "other"]

        await store.clear(CHAT, effect("b"))
        await store.append(CHAT, turn("anew"), MANY)
        await store.clear(CHAT, effect("b"))
        assert await texts(store) == ["anew"]

        await store.forget("line")
        await store.append(CHAT, turn("again"), MANY, effect=effect("a"))
        await store.append(CHAT, turn("never"), MANY, effect=effect("a", "line2"))
        assert await texts(store) == ["anew", "again"]

    async def test_H7_clearing_and_dropping_take_what_they_are_for(
        self, store: HistoryStore
    ) -> None:
        keys = [HistoryKey(session_id, key) for session_id in ("s", "t") for key in ("a", "b")]
        for key in keys:
            await store.append(key, turn("x"), MANY)

        await store.clear(HistoryKey("s", "a"))
        await store.clear(HistoryKey("s", "never was"))
        assert [await texts(store, key) for key in keys] == [[], ["x"], ["x"], ["x"]]

        await store.drop("t")
        await store.drop("never was")
        assert [await texts(store, key) for key in keys] == [[], ["x"], [], []]

    async def test_H8_no_answer_is_never_an_empty_one(self, store: HistoryStore) -> None:
        await store.append(CHAT, turn("x"), MANY)
        self.lose(store)
        if not self.in_memory:
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await store.load(CHAT, MANY)

        for change in (
            lambda: store.append(CHAT, turn("y"), MANY),
            lambda: store.append(CHAT, turn("y"), MANY, effect=effect("a")),
            lambda: store.clear(CHAT),
            lambda: store.sweep(later(1)),
            lambda: store.drop("s"),
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await change()
        if self.in_memory:
            assert await texts(store) == ["x"]
