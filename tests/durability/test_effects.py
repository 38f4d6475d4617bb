"""The store of effects of each backend against the contract, and that against bad ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.catching import broken_guarantees
from tests.contract.effects import EffectContract, effect
from yukta_rx.durability.file.effects import FILE, FileEffectStore
from yukta_rx.durability.memory.effects import EffectTable, MemoryEffectStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02")


class Lost(EffectTable):
    """Memory that gives no answer."""

    def __getattribute__(self, name: str) -> Any:
        raise OSError("no answer")


class TestMemory(EffectContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryEffectStore:
        return MemoryEffectStore()

    def lose(self, store: Any) -> None:
        store._table = Lost()


class TestFile(EffectContract):
    """In a file."""

    in_memory = True

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[FileEffectStore]:
        self.folder = tmp_path
        async with FileEffectStore(tmp_path) as store:
            yield store

    def lose(self, store: Any) -> None:
        (self.folder / FILE).unlink()


# --- the suite itself ----------------------------------------------------------------------------


class Tidies(MemoryEffectStore):
    breaks = "E1"

    async def record(self, key: Any, result: bytes) -> bytes:
        return await super().record(key, result.replace(b"[ ]", b"[]"))


class LetsTheLastStand(MemoryEffectStore):
    breaks = "E2"

    async def record(self, key: Any, result: bytes) -> bytes:
        await asyncio.sleep(0)
        known = key.lineage in self._table._lineages
        if known and key[1:] in self._table._lineages[key.lineage].results:
            self._table._lineages[key.lineage].results[key[1:]] = result
        await super().record(key, result)
        return result


class JoinsTheParts(MemoryEffectStore):
    breaks = "E3"

    async def record(self, key: Any, result: bytes) -> bytes:
        joined = key._replace(node_id="\0".join(key[1:]), message_id="", name="")
        return await super().record(joined, result)

    async def find(self, key: Any) -> bytes | None:
        joined = key._replace(node_id="\0".join(key[1:]), message_id="", name="")
        return await super().find(joined)


class ForgetsAll(MemoryEffectStore):
    breaks = "E4"

    async def forget(self, lineage: str) -> None:
        if self._table.knows(lineage):
            self._table = EffectTable()


class TakesSilenceForNothing(MemoryEffectStore):
    breaks = "E5"

    async def find(self, key: Any) -> bytes | None:
        try:
            return await super().find(key)
        except OSError:
            return None


BROKEN: Any = (Tidies, LetsTheLastStand, JoinsTheParts, ForgetsAll, TakesSilenceForNothing)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.breaks)
def test_suite_catches(kind: Any) -> None:
    assert broken_guarantees(TestMemory, kind) == {kind.breaks}


def test_every_guarantee_has_a_test_and_a_store_that_breaks_it() -> None:
    rules = {name.split("_")[1] for name in dir(EffectContract) if name.startswith("test_E")}

    assert rules == {kind.breaks for kind in BROKEN}
    assert len(rules) == 5
    assert broken_guarantees(TestMemory, MemoryEffectStore) == set()


# --- bounds --------------------------------------------------------------------------------------


def test_a_full_table_forgets_the_oldest_of_the_lineage_that_has_most() -> None:
    table = EffectTable(kept=100)
    for number in range(10):
        table.put(effect(str(number), lineage="small"), b"1")
    for number in range(500):
        table.put(effect(str(number), lineage="large"), b"1")

    kept = [key.name for key, _ in table.items() if key.lineage == "large"]
    assert all(table.find(effect(str(number), lineage="small")) for number in range(10))
    assert kept == [str(number) for number in range(500 - len(kept), 500)]
    assert 80 <= len(kept) <= 90
    assert len(table) == 10 + len(kept)
    assert table.dropped == 510 - len(table)


def test_a_table_is_bounded_by_bytes_too() -> None:
    table = EffectTable(kept_bytes=100_000)
    for number in range(100):
        table.put(effect(str(number)), b"x" * 10_000)

    assert [key.name for key, _ in table.items()] == [str(number) for number in range(91, 100)]
    table.put(effect("huge", lineage="other"), b"x" * 200_000)
    assert [key.name for key, _ in table.items()] == ["huge"]
    table.put(effect("next"), b"x")
    assert [key.name for key, _ in table.items()] == ["next"]
    assert table.dropped == 101


def test_nothing_is_left_of_what_is_forgotten() -> None:
    table = EffectTable()
    for number in range(20):
        table.put(effect(str(number)), b"x")

    table.forget("line")

    assert not table.knows("line")
    assert (len(table), table._bytes, table._lineages) == (0, 0, {})
