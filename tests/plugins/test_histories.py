"""Histories: what cannot be saved waits and is tried again, and the conversation goes on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from yukta_rx.durability.memory.histories import MemoryHistoryStore
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.histories import HistoryKey
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.plugins.histories import LONGEST_WAIT, Histories
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing import virtual_time

pytestmark = pytest.mark.feature("DUR-04")

CHAT = HistoryKey("s", "chat")
OTHER = HistoryKey("s", "other")


class Leaving(MemoryHistoryStore):
    """A store that may be away, for writes or for all; says when it was asked to write."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.silent = False
        self.tries: list[float] = []

    def _ask(self) -> None:
        self.tries.append(asyncio.get_running_loop().time())
        if self.away:
            raise StoreUnavailableError("no answer")

    async def load(self, *args: Any) -> Any:
        if self.silent:
            raise StoreUnavailableError("no answer")
        return await super().load(*args)

    async def append(self, *args: Any, **how: Any) -> None:
        self._ask()
        await super().append(*args, **how)

    async def clear(self, *args: Any, **how: Any) -> None:
        self._ask()
        await super().clear(*args, **how)

    async def sweep(self, until: Any) -> int:
        self._ask()
        return await super().sweep(until)


def histories(store: MemoryHistoryStore, ttl: float | None = None, **how: Any) -> Histories:
    limit = None if ttl is None else timedelta(seconds=ttl)
    return Histories(store, LoopClock(asyncio.get_running_loop()), limit, **how)


async def texts(room: Histories, key: HistoryKey = CHAT, most: int = 50) -> list[str]:
    return [turn.text for turn in await room.load(key, most)]


@virtual_time
async def test_a_conversation_goes_on_while_its_store_cannot_be_written() -> None:
    store = Leaving()
    room = histories(store)
    await room.append(CHAT, "user", "1", 3, None)
    store.away = True

    for text in "234":
        await room.append(CHAT, "user", text, 3, None)
        assert (await texts(room, most=3))[-1] == text
    assert await texts(room, most=3) == ["2", "3", "4"]
    assert room.unsaved == 3
    assert [turn.text for turn in await store.load(CHAT, 50)] == ["1"]

    store.away = False
    await asyncio.sleep(LONGEST_WAIT)
    assert room.unsaved == 0
    assert [turn.text for turn in await store.load(CHAT, 50)] == ["2", "3", "4"]
    assert await texts(room) == ["2", "3", "4"]
    await room.close()


@virtual_time
async def test_it_is_tried_again_with_longer_and_longer_breaks_and_in_order() -> None:
    store = Leaving()
    room = histories(store)
    store.away = True
    await room.append(CHAT, "user", "1", 50, None)
    await room.append(OTHER, "user", "2", 50, None)
    await room.clear(CHAT, None)
    await room.append(CHAT, "user", "3", 50, None)
    began = store.tries[0]

    await asyncio.sleep(100)
    assert [round(at - began) for at in store.tries[2:]] == [1, 3, 7, 15, 31, 61, 91]

    store.away = False
    await asyncio.sleep(30)
    assert await texts(room) == ["3"]
    assert await texts(room, OTHER) == ["2"]
    await room.close()


@virtual_time
async def test_a_store_that_gives_no_answer_is_no_empty_conversation() -> None:
    store = Leaving()
    room = histories(store)
    await room.append(CHAT, "user", "1", 50, None)
    assert await texts(room) == ["1"]
    store.away = store.silent = True

    await room.append(CHAT, "user", "2", 50, None)

    assert await texts(room) == ["1", "2"]
    with pytest.raises(StoreUnavailableError):
        await room.load(OTHER, 50)
    await room.append(OTHER, "user", "3", 50, None)
    with pytest.raises(StoreUnavailableError):
        await room.load(OTHER, 50)

    store.away = store.silent = False
    await asyncio.sleep(LONGEST_WAIT)
    assert await texts(room, OTHER) == ["3"]
    await room.close()


@virtual_time
async def test_what_comes_again_while_it_waits_is_said_once() -> None:
    store = Leaving()
    room = histories(store)
    store.away = True
    effect = EffectKey("line", "n", "m", "append")
    for _ in range(3):
        await room.append(CHAT, "user", "1", 50, effect)
    assert await texts(room) == ["1"]

    store.away = False
    await room.append(CHAT, "user", "1", 50, effect)
    await asyncio.sleep(LONGEST_WAIT)
    await room.append(CHAT, "user", "1", 50, effect)

    assert await texts(room) == ["1"]
    await room.close()


@virtual_time
async def test_only_so_much_waits(caplog) -> None:
    store = Leaving()
    room = histories(store, unsaved=3)
    store.away = True
    for text in "123":
        await room.append(CHAT, "user", text, 50, None)

    for key in (CHAT, OTHER):
        with pytest.raises(StoreUnavailableError):
            await room.append(key, "user", "4", 50, None)
    assert await texts(room) == ["1", "2", "3"]

    await room.close()
    assert "3 turns of 1 histories could not be saved and are lost" in caplog.text


@virtual_time
async def test_closing_saves_what_waits_without_a_break() -> None:
    store = Leaving()
    room = histories(store)
    store.away = True
    for text in "12":
        await room.append(CHAT, "user", text, 50, None)
    store.away = False
    began = asyncio.get_running_loop().time()

    await room.close()

    assert asyncio.get_running_loop().time() == began
    assert [turn.text for turn in await store.load(CHAT, 50)] == ["1", "2"]


@virtual_time
async def test_what_is_too_old_is_gone_at_once_and_removed_soon() -> None:
    store = Leaving()
    room = histories(store, ttl=100)
    room.start()
    await room.append(CHAT, "user", "old", 50, None)
    await asyncio.sleep(50)
    await room.append(OTHER, "user", "new", 50, None)
    await asyncio.sleep(49)
    assert await texts(room) == ["old"]
    await asyncio.sleep(1)
    assert await texts(room) == []
    await room.append(CHAT, "user", "anew", 50, None)
    assert await texts(room) == ["anew"]

    await asyncio.sleep(61)
    assert store.kept == 1
    await asyncio.sleep(100)
    assert store.kept == 0
    await room.close()
    await asyncio.sleep(1000)
    assert store.tries[-1] < asyncio.get_running_loop().time() - 900


@virtual_time
async def test_a_sweep_that_fails_is_told_and_made_later(caplog) -> None:
    store = Leaving()
    room = histories(store, ttl=100)
    room.start()
    await room.append(CHAT, "user", "old", 50, None)
    store.away = True
    await asyncio.sleep(200)
    assert store.kept == 1
    assert "stay for now: no answer" in caplog.text

    store.away = False
    await asyncio.sleep(11)
    assert store.kept == 0
    await room.close()


@virtual_time
async def test_without_a_time_nothing_is_swept() -> None:
    store = Leaving()
    room = histories(store)
    room.start()
    await room.append(CHAT, "user", "old", 50, None)
    await asyncio.sleep(10**7)

    assert await texts(room) == ["old"]
    assert len(store.tries) == 1
    await room.close()
