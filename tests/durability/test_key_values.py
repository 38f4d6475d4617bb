"""The store of values of each backend against the contract, and that against bad ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.catching import broken_guarantees
from tests.contract.key_values import KeyValueContract
from yukta_rx.durability.file.key_values import FILE, FileKeyValueStore
from yukta_rx.durability.memory.key_values import MemoryKeyValueStore
from yukta_rx.durability.postgres.key_values import PostgresKeyValueStore
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.key_values import Value
from yukta_rx.errors import BadInputError, KeyValueFullError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from yukta_rx.durability.postgres.database import Database

pytestmark = pytest.mark.feature("DUR-04")


class Lost(dict[Any, Any]):
    """Memory that gives no answer."""

    def get(self, *args: Any) -> Any:
        raise OSError("no answer")

    def pop(self, *args: Any) -> Any:
        raise OSError("no answer")


class TestMemory(KeyValueContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryKeyValueStore:
        return MemoryKeyValueStore()

    def lose(self, store: Any) -> None:
        store._sessions = Lost()


class TestFile(KeyValueContract):
    """In a file."""

    in_memory = True

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[FileKeyValueStore]:
        self.folder = tmp_path
        async with FileKeyValueStore(tmp_path) as store:
            yield store

    def lose(self, store: Any) -> None:
        (self.folder / FILE).unlink()


@pytest.mark.durable
class TestPostgres(KeyValueContract):
    """In PostgreSQL."""

    @pytest.fixture
    async def store(self, postgres: Database) -> AsyncIterator[PostgresKeyValueStore]:
        async with PostgresKeyValueStore(postgres) as store:
            yield store

    def lose(self, store: Any) -> None:
        store._database._pool.terminate()


# --- the suite itself ----------------------------------------------------------------------------


class MakesFloatsWhole(MemoryKeyValueStore):
    breaks = "K1"

    async def get(self, session_id: str, key: str) -> Value | None:
        found = await super().get(session_id, key)
        whole = found is not None and type(found.value) is float and abs(found.value) > 10**100
        return Value(int(found.value)) if whole and found is not None else found


class CountsInTwoSteps(MemoryKeyValueStore):
    breaks = "K2"

    async def incr(self, session_id: str, key: str, by: int, **how: Any) -> int:
        if how["effect"] is not None or by != 1 or key != "n" or session_id != "s":
            return await super().incr(session_id, key, by, **how)
        found = await self.get(session_id, key)
        await asyncio.sleep(0)
        new = (found.value if found else 0) + by
        await self.put(session_id, key, new, cap=how["cap"])
        return new

    def __init__(self) -> None:
        super().__init__()
        counted = self.incr

        async def incr(*args: Any, effect: Any = None, **how: Any) -> int:
            return await counted(*args, effect=effect, **how)

        self.incr = incr  # type: ignore[method-assign]


class CountsTruth(MemoryKeyValueStore):
    breaks = "K3"

    async def incr(self, session_id: str, key: str, by: int, **how: Any) -> int:
        try:
            return await super().incr(session_id, key, by, **how)
        except BadInputError:
            if key != "truth":
                raise
            await self.put(session_id, key, 2, cap=how["cap"])
            return 2


class CountsKeysFirst(MemoryKeyValueStore):
    breaks = "K4"

    async def put(self, session_id: str, key: str, value: Any, **how: Any) -> None:
        self._check_room(session_id, key, how["cap"])
        await asyncio.sleep(0)
        how["cap"] = 10**9
        await super().put(session_id, key, value, **how)


class JoinsSessionAndKey(MemoryKeyValueStore):
    breaks = "K5"

    async def put(self, session_id: str, key: str, value: Any, **how: Any) -> None:
        await super().put(session_id, key, value, **how)
        if session_id == "s.k":
            await super().put("s", key, value, cap=10**9)


class RepeatsAPut(MemoryKeyValueStore):
    breaks = "K6"

    async def put(self, session_id: str, key: str, value: Any, **how: Any) -> None:
        if how.get("effect") is not None:
            self._change(session_id, key, codec.encode(value), None, b"")
        await super().put(session_id, key, value, **how)


class ClearsEffectsToo(MemoryKeyValueStore):
    breaks = "K7"

    async def clear(self, session_id: str) -> None:
        await super().clear(session_id)
        await self.forget("line")
        await self.forget("line2")


class TakesSilenceForNothing(MemoryKeyValueStore):
    breaks = "K8"

    async def get(self, session_id: str, key: str) -> Value | None:
        try:
            return await super().get(session_id, key)
        except OSError:
            return None


BROKEN: Any = (
    *(MakesFloatsWhole, CountsInTwoSteps, CountsTruth, CountsKeysFirst),
    *(JoinsSessionAndKey, RepeatsAPut, ClearsEffectsToo, TakesSilenceForNothing),
)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.breaks)
def test_suite_catches(kind: Any) -> None:
    assert broken_guarantees(TestMemory, kind) == {kind.breaks}


def test_every_guarantee_has_a_test_and_a_store_that_breaks_it() -> None:
    rules = {name.split("_")[1] for name in dir(KeyValueContract) if name.startswith("test_K")}

    assert rules == {kind.breaks for kind in BROKEN}
    assert len(rules) == 8
    assert broken_guarantees(TestMemory, MemoryKeyValueStore) == set()


# --- in a file -----------------------------------------------------------------------------------


async def test_a_key_that_is_being_written_holds_its_room_and_no_more(tmp_path: Path) -> None:
    async with FileKeyValueStore(tmp_path) as store:
        for number in range(3):
            await store.put("s", str(number), 1, cap=5)
        last: list[Any] = []

        async def put_two(first: str, second: str) -> None:
            await store.put("s", first, 1, cap=5)
            try:
                await store.put("s", second, 1, cap=5)
            except KeyValueFullError as error:
                last.append(error)

        await asyncio.gather(put_two("a", "b"), put_two("c", "d"))

        assert store.kept == 5
        assert len(last) == 2
        await store.remove("s", "a")
        await put_two("a", "0")
        assert len(last) == 2


async def test_what_was_removed_once_is_given_again_after_a_restart(tmp_path: Path) -> None:
    effects = [EffectKey("l", "n", "m", name) for name in ("there", "absent")]
    async with FileKeyValueStore(tmp_path) as store:
        await store.put("s", "there", [1], cap=9)
        before = [await store.remove("s", one.name, effect=one) for one in effects]

    async with FileKeyValueStore(tmp_path) as store:
        await store.put("s", "absent", 2, cap=9)
        again = [await store.remove("s", one.name, effect=one) for one in effects]
        assert before == again == [Value([1]), None]
        assert await store.get("s", "absent") == Value(2)
