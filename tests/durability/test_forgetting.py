"""Runs that are not kept any more are forgotten together, soon, and at the latest at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.archive import run
from tests.contract.checkpoints import mark
from tests.contract.results import last, result
from yukta_rx.config.settings import Settings
from yukta_rx.durability.archive import FORGET_AFTER, ExecutionArchive
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
from yukta_rx.durability.file.results import FileResultStore
from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore
from yukta_rx.durability.memory.checkpoints import MemoryNodeCheckpointStore
from yukta_rx.durability.stores.checkpoints import CheckpointRow
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.metrics import Meters
from yukta_rx.model.claim import Claim
from yukta_rx.model.message import Message, trigger_message
from yukta_rx.model.status import TaskStatus
from yukta_rx.observe.result_recorder import ResultRecorder
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.results import ResultPart

pytestmark = pytest.mark.feature("DUR-02")

ROW = CheckpointRow.of([(None, trigger_message("lineage", "in", 0, 1))])


class Costly(MemoryNodeCheckpointStore):
    """Says that it is durable, and remembers what it was told to forget at a time."""

    durable = True

    def __init__(self, settings: Any, offload: Callable[..., Any]) -> None:
        super().__init__(settings, offload)
        self.cleared: list[tuple[str, ...]] = []

    async def clear(self, *execution_ids: str) -> None:
        self.cleared.append(execution_ids)
        await super().clear(*execution_ids)


class Scene:
    """An archive that keeps one run, and what it forgets."""

    def __init__(self, kind: type[MemoryNodeCheckpointStore] = Costly) -> None:
        settings = Settings(restart={"retained_executions": 1})
        self.checkpoints = kind(settings.restart, asyncio.to_thread)
        self.lineages: list[tuple[str, ...]] = []
        self.archive = ExecutionArchive(
            MemoryExecutionArchiveStore(), self.checkpoints, settings, Meters(), self._forget
        )

    async def _forget(self, *lineages: str) -> None:
        self.lineages.append(lineages)

    async def end(self, *names: str) -> None:
        for name in names:
            self.checkpoints.append(name, "in", ROW)
            self.archive.begin(run(name, lineage=name))
            await self.archive.end(name, TaskStatus.SUCCESS, {"in": TaskStatus.SUCCESS}, None)


@virtual_time
async def test_runs_that_go_within_a_moment_are_forgotten_in_one_write() -> None:
    scene = Scene()
    async with scene.archive:
        await scene.end("a", "b", "c")

        assert scene.checkpoints.cleared == []
        await asyncio.sleep(FORGET_AFTER * 1.5)

        assert scene.checkpoints.cleared == [("a", "b")]
        assert scene.lineages == [("a", "b")]
        assert await scene.checkpoints.runs() == ("c",)


@virtual_time
async def test_what_waits_to_be_forgotten_is_forgotten_when_the_archive_closes() -> None:
    scene = Scene()
    async with scene.archive:
        await scene.end("a", "b")

    assert scene.checkpoints.cleared[0] == ("a",)
    assert scene.lineages == [("a",)]


@virtual_time
async def test_a_run_that_is_pinned_meanwhile_stays_until_it_is_not() -> None:
    scene = Scene()
    async with scene.archive:
        await scene.end("a", "b")
        scene.archive.pin("a")
        await asyncio.sleep(FORGET_AFTER * 1.5)

        assert scene.checkpoints.cleared == []
        await scene.archive.unpin("a")

        assert scene.checkpoints.cleared == [("a",)]


@virtual_time
async def test_in_memory_it_costs_nothing_and_is_done_at_once() -> None:
    scene = Scene(MemoryNodeCheckpointStore)
    async with scene.archive:
        await scene.end("a", "b")

        assert await scene.checkpoints.runs() == ("b",)
        assert scene.lineages == [("a",)]


class Away(FileResultStore):
    """Gives no answer, for as long as it is away."""

    away = True

    async def write(self, parts: Sequence[ResultPart]) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        await super().write(parts)


@pytest.mark.parametrize("whose", ["a", "what began with it"])
@virtual_time
async def test_a_run_stays_until_results_are_written_that_refer_to_its_payloads(
    tmp_path: Path, whose: str
) -> None:
    pool = BlockingPool(2)
    settings = Settings(restart={"retained_executions": 1})
    blobs = FileBlobStore(tmp_path / "blobs", pool.call)
    apart: dict[str, Any] = {"blobs": blobs, "claim_bytes": 1000}
    checkpoints = FileNodeCheckpointStore(tmp_path / "outputs", pool.call, **apart)
    memory = MemoryExecutionArchiveStore()
    archive = ExecutionArchive(memory, checkpoints, settings, Meters())
    clock = LoopClock(asyncio.get_running_loop())
    async with (
        Away(tmp_path / "results", pool.call, **apart) as store,
        ResultRecorder(store, clock, settings, Meters()) as recorder,
        archive,
    ):
        archive.referring = recorder.runs
        claim = Claim.of({"text": "x" * 1000}, checkpoints.payload)
        for name in "ab":
            message = Message.of(claim, id="m") if name == "a" else Message.of("small", id="m")
            checkpoints.append(name, "in", CheckpointRow.of([(None, message)]))
            await mark(checkpoints, name, "in")
            archive.begin(run(name))
            await archive.end(name, TaskStatus.SUCCESS, {"in": TaskStatus.SUCCESS}, None)
        recorder.add(whose, result(1, claim), 100, None)
        recorder.add(whose, last(2), 100, None)
        await asyncio.sleep(FORGET_AFTER * 10)
        #         assert set(await checkpoints.runs()) == {"a", "b"}
        store.away = False
        await asyncio.sleep(10)

        assert set(await checkpoints.runs()) == {"b"}
        found = await store.read(whose)
        assert found is not None
        assert found.items[0].payload == {"text": "x" * 1000}
    pool.close()
