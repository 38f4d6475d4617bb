"""The session store of each backend against the contract, and the contract against bad ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.contract.sessions import SessionContract, Stores
from yukta_rx.durability.file._folder import Folder
from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
from yukta_rx.durability.file.sessions import FileSessionConfigStore
from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
from yukta_rx.durability.memory.sessions import MemorySessionConfigStore
from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
from yukta_rx.durability.postgres.sessions import PostgresSessionConfigStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from yukta_rx.durability.postgres.database import Database

pytestmark = pytest.mark.feature("DUR-05")


class Lost(dict[Any, Any]):
    """Memory that gives no answer."""

    def get(self, *args: Any) -> Any:
        raise OSError("no answer")

    def keys(self) -> Any:
        raise OSError("no answer")

    def items(self) -> Any:
        raise OSError("no answer")


class TestMemory(SessionContract):
    """In memory."""

    @pytest.fixture
    def stores(self) -> Stores:
        definitions = MemoryWorkflowDefinitionStore()
        return Stores(MemorySessionConfigStore(definitions), definitions)

    def lose(self, stores: Any) -> None:
        stores.sessions._sessions = Lost()
        stores.definitions._sessions = Lost()


class TestFile(SessionContract):
    """In files."""

    @pytest.fixture
    async def stores(self, tmp_path: Path) -> AsyncIterator[Stores]:
        async with Folder(tmp_path / "session") as folder:
            definitions = FileWorkflowDefinitionStore(folder)
            await definitions.open()
            yield Stores(FileSessionConfigStore(definitions), definitions)

    def lose(self, stores: Any) -> None:
        stores.definitions.catalog.close()


@pytest.mark.durable
class TestPostgres(SessionContract):
    """In PostgreSQL."""

    @pytest.fixture
    async def stores(self, postgres: Database) -> Stores:
        definitions = PostgresWorkflowDefinitionStore(postgres)
        await definitions.open()
        return Stores(PostgresSessionConfigStore(definitions), definitions)

    def lose(self, stores: Any) -> None:
        stores.definitions.database._pool.terminate()


# --- the suite itself ----------------------------------------------------------------------------


class ShowsOldForm(MemorySessionConfigStore):
    breaks = "S1"

    async def get(self, session_id: str) -> Any:
        found = await super().get(session_id)
        if found is None or found.config.name not in ("first", "second"):
            return found
        self._seen = getattr(self, "_seen", found)
        return self._seen


class ListsAsItCame(MemorySessionConfigStore):
    breaks = "S2"

    async def list(self) -> Any:
        return [record for _, record in self._sessions.items()]


class TakesSilenceForNothing(MemorySessionConfigStore):
    breaks = "S3"

    async def list(self) -> Any:
        try:
            return await super().list()
        except OSError:
            return []


class CommitsOneByOne(MemorySessionConfigStore):
    breaks = "S4"

    async def commit(self, changes: Any) -> Any:
        made: list[Any] = []
        for change in changes:
            made += await super().commit([change])
        return made


class ShortensNames(MemorySessionConfigStore):
    breaks = "S5"

    async def get(self, session_id: str) -> Any:
        found = await super().get(session_id)
        if found is None or found.config.name is None:
            return found
        name = found.config.name.encode("ascii", "ignore").decode()
        return replace(found, config=found.config.model_copy(update={"name": name}))


class KeepsTheEmptySession(MemorySessionConfigStore):
    breaks = "S6"

    async def commit(self, changes: Any) -> Any:
        return await super().commit([replace(change, gone=False) for change in changes])


class CountsOnItsOwn(MemorySessionConfigStore):
    breaks = "S7"

    async def commit(self, changes: Any) -> Any:
        made = await super().commit(changes)
        return [replace(item, version=1) for item in made]


BROKEN = (
    *(ShowsOldForm, ListsAsItCame, TakesSilenceForNothing, CommitsOneByOne),
    *(ShortensNames, KeepsTheEmptySession, CountsOnItsOwn),
)
RULES = [name for name in dir(SessionContract) if name.startswith("test_S")]


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.breaks)
async def test_suite_catches(kind: Any) -> None:
    failed = []
    for name in RULES:
        definitions = MemoryWorkflowDefinitionStore()
        try:
            await getattr(TestMemory(), name)(Stores(kind(definitions), definitions))
        except (AssertionError, pytest.fail.Exception):
            failed.append(name.split("_")[1])

    assert failed == [kind.breaks]


def test_every_guarantee_has_a_test_and_a_store_that_breaks_it() -> None:
    assert [name.split("_")[1] for name in RULES] == [kind.breaks for kind in BROKEN]
    assert len(RULES) == 7
