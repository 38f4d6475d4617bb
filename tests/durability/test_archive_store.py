"""The archive store of each backend against the contract, and the contract against bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.archive import ArchiveContract
from tests.contract.catching import broken_guarantees
from yukta_rx.durability.file._journaled import Journaled
from yukta_rx.durability.file.archive import FileExecutionArchiveStore
from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore

pytestmark = pytest.mark.feature("CTL-04")


class Lost(dict[Any, Any]):
    """Memory that gives no answer."""

    def _gone(self, *args: Any) -> Any:
        raise OSError("no answer")

    get = pop = __setitem__ = __iter__ = _gone


class TestMemory(ArchiveContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryExecutionArchiveStore:
        return MemoryExecutionArchiveStore()

    def lose(self, store: Any) -> None:
        store._runs = Lost()


class TestFile(ArchiveContract):
    """In a file."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> Any:
        async with FileExecutionArchiveStore(tmp_path) as store:
            journal = store._journal
            yield store
            store._journal = journal

    def lose(self, store: Any) -> None:
        store._journal = Journaled(Path("gone"), "gone", store._state)


# --- the suite itself ----------------------------------------------------------------------------


class ForgetsHowNodesEnded(MemoryExecutionArchiveStore):
    breaks = "A1"

    async def get(self, execution_id: str) -> Any:
        found = await super().get(execution_id)
        return replace(found, nodes={}) if found and execution_id == "a" else found


class KeepsOneTooMany(MemoryExecutionArchiveStore):
    breaks = "A2"

    async def put(self, run: Any, retain: int) -> Any:
        return await super().put(run, retain + (run.execution_id == "d"))


class KeepsThePlace(MemoryExecutionArchiveStore):
    breaks = "A3"

    async def put(self, run: Any, retain: int) -> Any:
        if run.execution_id in self._runs:
            self._runs[run.execution_id] = run
            return []
        return await super().put(run, retain)


class ListsByName(MemoryExecutionArchiveStore):
    breaks = "A4"

    async def ids(self) -> Any:
        return sorted(await super().ids())


class ForgetsByFoldedName(MemoryExecutionArchiveStore):
    breaks = "A5"

    async def remove(self, execution_id: str) -> None:
        for name in [name for name in self._runs if name.lower() == execution_id.lower()]:
            del self._runs[name]


class TakesSilenceForNothing(MemoryExecutionArchiveStore):
    breaks = "A6"

    async def get(self, execution_id: str) -> Any:
        try:
            return await super().get(execution_id)
        except OSError:
            return None


WRONG = [
    ForgetsHowNodesEnded,
    KeepsOneTooMany,
    KeepsThePlace,
    ListsByName,
    ForgetsByFoldedName,
    TakesSilenceForNothing,
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.breaks)
def test_the_suite_notices_a_store_that_breaks_one_guarantee(wrong: Any) -> None:
    class Suite(TestMemory):
        pass

    assert broken_guarantees(Suite, wrong) == {wrong.breaks}


def test_the_suite_has_a_bad_store_for_each_guarantee() -> None:
    numbers = {name.split("_")[1] for name in dir(ArchiveContract) if name.startswith("test_")}

    assert {wrong.breaks for wrong in WRONG} == numbers
