"""The definition store of each backend against the contract, and the contract against bad ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.definitions import DefinitionContract, record
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.durability.file._folder import Folder
from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
from yukta_rx.durability.memory import definitions as module
from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
from yukta_rx.durability.stores.definitions import retained

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from yukta_rx.durability.postgres.database import Database

pytestmark = pytest.mark.feature("DEF-01")


class Lost(dict[Any, Any]):
    """Memory that gives no answer."""

    def get(self, *args: Any) -> Any:
        raise OSError("no answer")


class TestMemory(DefinitionContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryWorkflowDefinitionStore:
        return MemoryWorkflowDefinitionStore()

    def lose(self, store: Any) -> None:
        store._sessions = Lost()


class TestFile(DefinitionContract):
    """In files."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[FileWorkflowDefinitionStore]:
        async with Folder(tmp_path / "session") as folder:
            store = FileWorkflowDefinitionStore(folder)
            await store.open()
            yield store

    def lose(self, store: Any) -> None:
        store.catalog.close()


@pytest.mark.durable
class TestPostgres(DefinitionContract):
    """In PostgreSQL."""

    @pytest.fixture
    async def store(self, postgres: Database) -> PostgresWorkflowDefinitionStore:
        store = PostgresWorkflowDefinitionStore(postgres)
        await store.open()
        return store

    def lose(self, store: Any) -> None:
        store.database._pool.terminate()


# --- the suite itself ----------------------------------------------------------------------------


class ShowsOldForm(MemoryWorkflowDefinitionStore):
    breaks = "D1"

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Any, Any] = {}

    async def get(self, session_id: str, workflow_id: str) -> Any:
        found = await super().get(session_id, workflow_id)
        # A cache that nobody drops as long as the first version is there.
        return self._seen.setdefault((session_id, workflow_id), found) if _line(found) else found


def _line(found: Any) -> bool:
    return found is not None and found.actor in ("ada 1", "ada 2")


class WritesOneByOne(MemoryWorkflowDefinitionStore):
    breaks = "D2"

    async def write(self, session_id: str, put: Any, remove: Any = ()) -> Any:
        made = list(await super().write(session_id, (), remove))
        for item in put:
            made += await super().write(session_id, (item,))
        return made


class ListsAsItCame(MemoryWorkflowDefinitionStore):
    breaks = "D3"

    async def list(self, session_id: str) -> Any:
        return [versions[-1] for versions in self._sessions.get(session_id, {}).values()]


class TakesSilenceForNothing(MemoryWorkflowDefinitionStore):
    breaks = "D4"

    async def get(self, session_id: str, workflow_id: str) -> Any:
        try:
            return await super().get(session_id, workflow_id)
        except OSError:
            return None


class CountsFromOneAgain(MemoryWorkflowDefinitionStore):
    breaks = "D5"

    def _remember(self, place: Any, version: int) -> None:
        """Forget the number of what was removed."""


class PrunesNotes(MemoryWorkflowDefinitionStore):
    breaks = "D6"

    async def versions(self, session_id: str, workflow_id: str) -> Any:
        return (await super().versions(session_id, workflow_id))[: self._keep]


class AddsTheSameAgain(MemoryWorkflowDefinitionStore):
    breaks = "D7"

    def _added(self, session_id: str, workflows: Any, put: Any, known: int) -> Any:
        before = workflows.get(put.workflow_id, ())
        if not (before and put.same_as(before[-1])):
            return super()._added(session_id, workflows, put, known)
        again = replace(put, version=before[-1].version + 1)
        workflows[put.workflow_id] = (*before, again)
        return again


class KeepsAnEmptyNote(MemoryWorkflowDefinitionStore):
    breaks = "D8"

    async def annotate(self, session_id: str, workflow_id: str, version: int, note: Any) -> Any:
        noted = await super().annotate(session_id, workflow_id, version, note)
        return noted if note or noted is None else replace(noted, note=note)


class RemembersTheRemoved(MemoryWorkflowDefinitionStore):
    breaks = "D9"

    async def write(self, session_id: str, put: Any, remove: Any = ()) -> Any:
        self._gone: dict[str, Any] = {}
        for name in remove:
            self._gone[name] = await super().versions(session_id, name)
        return await super().write(session_id, put, remove)

    async def versions(self, session_id: str, workflow_id: str) -> Any:
        found = await super().versions(session_id, workflow_id)
        return found or getattr(self, "_gone", {}).get(workflow_id, ())


class RoundsNumbers(MemoryWorkflowDefinitionStore):
    breaks = "D10"

    async def get(self, session_id: str, workflow_id: str) -> Any:
        found = await super().get(session_id, workflow_id)
        if found is None:
            return None
        written = found.document
        number = written["nodes"][0]["config"]["n"]
        if isinstance(number, float):
            written["nodes"][0]["config"]["n"] = int(number)
        return replace(found, definition=parse_definition(written))


BROKEN = (
    *(ShowsOldForm, WritesOneByOne, ListsAsItCame, TakesSilenceForNothing, CountsFromOneAgain),
    *(PrunesNotes, AddsTheSameAgain, KeepsAnEmptyNote, RemembersTheRemoved, RoundsNumbers),
)
RULES = [name for name in dir(DefinitionContract) if name.startswith("test_D")]


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.breaks)
async def test_suite_catches(kind: Any) -> None:
    failed = []
    for name in RULES:
        try:
            await getattr(TestMemory(), name)(kind())
        except (AssertionError, pytest.fail.Exception):
            failed.append(name.split("_")[1])

    assert failed == [kind.breaks]


def test_every_guarantee_has_a_test_and_a_store_that_breaks_it() -> None:
    rules = sorted(name.split("_")[1] for name in RULES)

    assert rules == sorted(kind.breaks for kind in BROKEN)
    assert len(rules) == 10


# --- the rule of retention, and numbers of what was removed --------------------------------------


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 25))
def test_retention_keeps_the_newest_and_the_noted_in_their_order(
    noted: list[bool], keep: int
) -> None:
    base = record("w")
    versions = [
        replace(base, version=number, note="x" if note else None)
        for number, note in enumerate(noted, 1)
    ]

    left = retained(versions, keep)

    assert left[-1] is versions[-1]
    assert left == [item for item in versions if item.note or item.version > len(noted) - keep]


async def test_numbers_grow_also_when_many_removed_workflows_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    store = MemoryWorkflowDefinitionStore()
    for number in range(5):
        await store.write("s", [record("first", number)])
    for name in ("first", "b", "c", "d"):
        await store.write("s", [record(name, 9)])
        await store.write("s", [], [name])

    [again] = await store.write("s", [record("first", 1)])

    assert again.version > 6
    assert len(store._last) == 2
