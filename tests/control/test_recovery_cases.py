"""What other engines got wrong when they start again: starts, resumes and slots at that moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.control.crash import doomed, engine_on, image
from tests.control.test_recovery import (
    CALLS,
    HELD,
    LINE,
    aborted,
    listed,
    moments,
    numbers,
    resumes_of,
    work,
)
from yukta_rx.control.commands import Recover
from yukta_rx.errors import ConflictError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("DUR-03")


@pytest.fixture(autouse=True)
def fresh():
    CALLS.clear()
    HELD.clear()


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry.load(None, extra=[numbers, work])


async def killed(
    tmp_path: Any, registry: Any, count: int, **settings: Any
) -> tuple[Any, list[str]]:
    """The files of a server that was killed while so many runs hung; and their ids."""
    HELD.add(0)
    async with doomed(engine_on(tmp_path / "data", registry, **settings)) as engine:
        started = [await engine.start("s", LINE, {"count": 2}, patience=0) for _ in range(count)]
        await moments()
        after = await image(tmp_path / "data", "after")
    HELD.clear()
    CALLS.clear()
    return after, [run.execution_id for run in started]


def gauges(engine: Any) -> dict[str, float]:
    families = {family.name: family for family in engine.meters.collect()}
    return {
        name: families[f"yukta_executions_{name}"].samples[0].value
        for name in ("running", "queued")
    }


async def types_of(engine: Any, execution_id: str) -> list[str]:
    return [row["type"] for row in (await engine.gateway.history(execution_id, 100)).items]


@virtual_time
async def test_case_42_a_run_that_starts_while_others_are_resumed_is_left_alone(
    tmp_path, registry
) -> None:
    after, old = await killed(tmp_path, registry, 12)
    async with engine_on(after, registry, **{"restart.auto-resume": True}) as engine:
        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(engine.start("s", "w", {"count": 2})) for _ in range(12)]
        new = [start.result() for start in starts]
        for run in new:
            assert await run.wait(100) is TaskStatus.SUCCESS
        while len(engine.gateway.resumes._newest) < len(old):
            await asyncio.sleep(0.01)
        for name in tuple(engine.gateway.resumes._newest.values()):
            await engine.tracker.wait(name, 100)

        for run in new:
            types = await types_of(engine, run.execution_id)
            assert not {"RUN_ABORTED", "RUN_RESUMED"} & set(types)
        for name in old:
            assert [attempt for _, attempt in await resumes_of(engine, name)] == [1]
        # Each message of each run once: the resumed ones had not finished any.
        assert set(CALLS.values()) == {24}


@virtual_time
async def test_case_43_one_of_many_that_resume_a_run_at_once_does_it(tmp_path, registry) -> None:
    after, old = await aborted(tmp_path, registry)
    HELD.clear()
    async with engine_on(after, registry, **{"restart.auto-resume": True}) as engine:
        asked = [
            engine.gateway.command(Recover(old), actor=actor, via="REST")
            for actor in ("ada", "bob", "eve")
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await moments()
        [(new, attempt)] = await resumes_of(engine, old)
        await engine.tracker.wait(new, 100)

        refused = [answer for answer in answers if isinstance(answer, ConflictError)]
        done = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(refused) + len(done) == 3
        assert len(done) <= 1
        assert {error.members["reason"] for error in refused} == {"already_resumed"}
        assert {answer.started.execution_id for answer in done} <= {new}
        assert attempt == 1
        assert sorted(listed(engine).values()) == ["ABORTED", "SUCCESS"]


@pytest.mark.feature("ADM-01")
@virtual_time
async def test_case_49_the_slot_of_a_run_that_was_killed_is_free(tmp_path, registry) -> None:
    settings = {"execution.max-concurrent": 1}
    after, (first, second) = await killed(tmp_path, registry, 2, **settings)
    async with engine_on(after, registry, **settings) as engine:
        # The start that waited for it has it.
        assert gauges(engine) == {"running": 1, "queued": 0}
        assert await engine.tracker.wait(second, 100)
        resumed = await engine.gateway.command(Recover(first), actor="ada", via="REST")
        assert await engine.tracker.wait(resumed.started.execution_id, 100)
        third = await engine.start("s", "w", {"count": 1})
        assert await third.wait(100) is TaskStatus.SUCCESS
        await engine._starter.ended(third.execution_id)
        assert listed(engine) == {
            first: "ABORTED",
            second: "SUCCESS",
            resumed.started.execution_id: "SUCCESS",
            third.execution_id: "SUCCESS",
        }
        assert gauges(engine) == {"running": 0, "queued": 0}
