"""The store of waiting starts of each backend against the contract, and the contract itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.queued_starts import QueuedStartContract
from yukta_rx.durability.file._journaled import Journaled
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.queued_starts import FileQueuedStartStore
from yukta_rx.durability.memory.queued_starts import MemoryQueuedStartStore

pytestmark = pytest.mark.feature("ADM-01", "DUR-05")


class Lost(dict[Any, Any]):
    """Memory that gives no answer."""

    def get(self, *args: Any) -> Any:
        raise OSError("no answer")

    def pop(self, *args: Any) -> Any:
        raise OSError("no answer")

    def values(self) -> Any:
        raise OSError("no answer")

    def __setitem__(self, *args: Any) -> None:
        raise OSError("no answer")


class TestMemory(QueuedStartContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryQueuedStartStore:
        return MemoryQueuedStartStore()

    def lose(self, store: Any) -> None:
        store._starts = Lost()


class TestFile(QueuedStartContract):
    """In a file."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> Any:
        async with FileQueuedStartStore(tmp_path) as store:
            journal = store._journal
            yield store
            store._journal = journal

    def lose(self, store: Any) -> None:
        store._journal = Journaled(Path("gone"), "gone", store._state)


class TestFileAndBlobs(TestFile):
    """In a file, with what is large kept apart."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> Any:
        blobs = FileBlobStore(tmp_path / "blobs", asyncio.to_thread)
        async with FileQueuedStartStore(tmp_path, blobs=blobs, claim_bytes=500) as store:
            journal = store._journal
            yield store
            store._journal = journal


# --- the suite itself ----------------------------------------------------------------------------


class ShowsOldPriority(MemoryQueuedStartStore):
    breaks = "Q1"

    async def list(self) -> Any:
        found = await super().list()
        # What was moved once is shown as it was put.
        return [replace(item, priority=2.5) if item.priority == -3 else item for item in found]


class ListsByPriority(MemoryQueuedStartStore):
    breaks = "Q2"

    async def list(self) -> Any:
        return sorted(await super().list(), key=lambda item: -item.priority)


class LetsSeveralClaim(MemoryQueuedStartStore):
    breaks = "Q3"

    async def claim(self, execution_id: str) -> Any:
        found = self._starts.get(execution_id)
        await asyncio.sleep(0)
        self._starts.pop(execution_id, None)
        return found


class AltersTheRequest(MemoryQueuedStartStore):
    breaks = "Q4"

    async def set_priority(self, execution_id: str, priority: float) -> bool:
        start = self._starts.get(execution_id)
        if start is not None and start.request == {"payload": None}:
            self._starts[execution_id] = replace(start, request={})
        return await super().set_priority(execution_id, priority)


class TakesSilenceForNothing(MemoryQueuedStartStore):
    breaks = "Q5"

    async def list(self) -> Any:
        try:
            return await super().list()
        except OSError:
            return []


class ShortensThePayload(MemoryQueuedStartStore):
    breaks = "Q6"

    async def opened(self, start: Any) -> Any:
        text = start.request["payload"].get("text")
        return start if text is None else replace(start, request={"payload": text[:500]})


BROKEN = (
    *(ShowsOldPriority, ListsByPriority, LetsSeveralClaim, AltersTheRequest),
    *(TakesSilenceForNothing, ShortensThePayload),
)
RULES = [name for name in dir(QueuedStartContract) if name.startswith("test_Q")]


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
    assert [name.split("_")[1] for name in RULES] == [kind.breaks for kind in BROKEN]
    assert len(RULES) == 6
