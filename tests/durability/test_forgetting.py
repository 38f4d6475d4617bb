"""Runs that are not kept any more are forgotten together, soon, and at the latest at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.archive import run
from yukta_rx.config.settings import Settings
from yukta_rx.durability.archive import FORGET_AFTER, ExecutionArchive
from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore
from yukta_rx.durability.memory.checkpoints import MemoryNodeCheckpointStore
from yukta_rx.durability.stores.checkpoints import CheckpointRow
from yukta_rx.metrics import Meters
from yukta_rx.model.message import trigger_message
from yukta_rx.model.status import TaskStatus
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

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
