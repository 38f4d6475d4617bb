"""The store of conversations of each backend against the contract, and that against bad ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.catching import broken_guarantees
from tests.contract.histories import HistoryContract
from yukta_rx.durability.file.histories import FILE, FileHistoryStore
from yukta_rx.durability.memory.histories import MemoryHistoryStore
from yukta_rx.durability.postgres.histories import PostgresHistoryStore

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

    def items(self) -> Any:
        raise OSError("no answer")

    def __iter__(self) -> Any:
        raise OSError("no answer")


class TestMemory(HistoryContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryHistoryStore:
        return MemoryHistoryStore()

    def lose(self, store: Any) -> None:
        store._histories = Lost()


class TestFile(HistoryContract):
    """In a file."""

    in_memory = True

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[FileHistoryStore]:
        self.folder = tmp_path
        async with FileHistoryStore(tmp_path) as store:
            yield store

    def lose(self, store: Any) -> None:
        (self.folder / FILE).unlink()


@pytest.mark.durable
class TestPostgres(HistoryContract):
    """In PostgreSQL."""

    @pytest.fixture
    async def store(self, postgres: Database) -> AsyncIterator[PostgresHistoryStore]:
        async with PostgresHistoryStore(postgres) as store:
            yield store

    def lose(self, store: Any) -> None:
        store._database._pool.terminate()


# --- the suite itself ----------------------------------------------------------------------------


class StripsText(MemoryHistoryStore):
    breaks = "H1"

    async def append(self, key: Any, turn: Any, *args: Any, **how: Any) -> None:
        turn = type(turn)(turn.role, turn.text.rstrip(), turn.at)
        await super().append(key, turn, *args, **how)


class GivesTheOldest(MemoryHistoryStore):
    breaks = "H2"

    async def load(self, key: Any, most: int, since: Any = None) -> Any:
        return list(await super().load(key, 10**9, since))[:most]


class KeepsAll(MemoryHistoryStore):
    breaks = "H3"

    async def append(self, key: Any, turn: Any, most: int, *args: Any, **how: Any) -> None:
        await super().append(key, turn, 10**9, *args, **how)


class HoldsTheTimeAgainstTheTurn(MemoryHistoryStore):
    breaks = "H4"

    async def append(
        self, key: Any, turn: Any, most: int, since: Any = None, effect: Any = None
    ) -> None:
        await super().append(key, turn, most, None, effect)


class SweepsByTheFirstTurn(MemoryHistoryStore):
    breaks = "H5"

    def _overdue(self, until: Any) -> Any:
        return [key for key, turns in self._histories.items() if turns[0].at <= until]


class AppendsAgain(MemoryHistoryStore):
    breaks = "H6"

    async def append(self, key: Any, turn: Any, *args: Any, **how: Any) -> None:
        how.pop("effect", None)
        await super().append(key, turn, *args, **how)


class DropsAll(MemoryHistoryStore):
    breaks = "H7"

    async def drop(self, session_id: str) -> None:
        await super().drop(session_id)
        if session_id == "t":
            self._histories.clear()


class TakesSilenceForNothing(MemoryHistoryStore):
    breaks = "H8"

    async def load(self, key: Any, most: int, since: Any = None) -> Any:
        try:
            return await super().load(key, most, since)
        except OSError:
            return []


BROKEN: Any = (
    *(StripsText, GivesTheOldest, KeepsAll, HoldsTheTimeAgainstTheTurn),
    *(SweepsByTheFirstTurn, AppendsAgain, DropsAll, TakesSilenceForNothing),
)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.breaks)
def test_suite_catches(kind: Any) -> None:
    assert broken_guarantees(TestMemory, kind) == {kind.breaks}


def test_every_guarantee_has_a_test_and_a_store_that_breaks_it() -> None:
    rules = {name.split("_")[1] for name in dir(HistoryContract) if name.startswith("test_H")}

    assert rules == {kind.breaks for kind in BROKEN}
    assert len(rules) == 8
    assert broken_guarantees(TestMemory, MemoryHistoryStore) == set()
