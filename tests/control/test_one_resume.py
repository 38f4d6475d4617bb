"""One run goes on with an aborted one, whatever becomes of those who asked for it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.control.commands import Recover, RestartFromNode
from yukta_rx.errors import ConflictError
from yukta_rx.model.execution_log import RunFinished
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("DUR-03")

HELD: set[str] = set()
"""Nodes that do not come to an end with their messages."""


@processor("WORK", blocking=False)
async def work(msg, cfg, ctx):
    """Pass on, or hang."""
    while ctx.node_id in HELD:
        await asyncio.sleep(1)
    return msg.payload


@pytest.fixture(autouse=True)
def fresh():
    HELD.clear()


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry.load(None, extra=[work])


LINE = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "work", "type": "WORK"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "work"}, {"source": "work", "target": "out"}],
}
ONE = {"execution.max-concurrent": 1}


async def moments(n: int = 30) -> None:
    """Let what is under way be written."""
    for _ in range(n):
        await asyncio.sleep(0.01)


def resumes(engine: Any, execution_id: str) -> list[str]:
    """The runs that go on with another one."""
    shown = (engine.gateway.detail(run.execution_id) for run in engine.tracker.runs())
    return [run["executionId"] for run in shown if run.get("resumedFrom") == execution_id]


def recovered(engine: Any, execution_id: str) -> asyncio.Task[Any]:
    asked = engine.gateway.command(Recover(execution_id), actor="a", via="REST")
    return asyncio.ensure_future(asked)


async def cut_off(folder: Any, registry: Any) -> tuple[str, Any]:
    """A run that was under way when its server died, and what that left."""
    HELD.add("work")
    async with doomed(engine_on(folder, registry)) as engine:
        cut = await engine.start("s", LINE, {"n": 1})
        await moments()
        return cut.execution_id, await image(folder, "after")


@virtual_time
async def test_who_asked_may_leave_while_it_waits_and_nobody_resumes_it_again(
    tmp_path, registry
) -> None:
    cut, after = await cut_off(tmp_path / "data", registry)
    async with doomed(engine_on(after, registry, **ONE)) as engine:
        other = await engine.start("s", "w", {"n": 2})
        left = recovered(engine, cut)
        await moments()
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        with pytest.raises(ConflictError) as refused:
            await recovered(engine, cut)
        assert refused.value.members["reason"] == "already_resumed"
        HELD.clear()
        assert await other.wait() is TaskStatus.SUCCESS
        await moments()
        [resumed] = resumes(engine, cut)
        assert engine.gateway.detail(resumed)["status"] == "SUCCESS"
        rows = (await engine.gateway.history(cut, 100)).items
        said = [row["newExecutionId"] for row in rows if row["type"] == "RUN_RESUMED"]
        assert said == [resumed]


@virtual_time
async def test_a_resume_that_cannot_go_on_waiting_leaves_the_run_to_be_resumed(
    tmp_path, registry
) -> None:
    cut, after = await cut_off(tmp_path / "data", registry)
    async with doomed(engine_on(after, registry, **ONE)) as engine:
        await engine.start("s", "w", {"n": 2})
        waits = recovered(engine, cut)
        await moments()
        [resumed] = resumes(engine, cut)
        again = await image(after, "again")
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)

    # A server that does not have the plugin cannot even plan it.
    async with engine_on(again, PluginRegistry.load(None)) as engine:
        await moments()
        rows = (await engine.gateway.history(resumed, 10)).items
        assert [row["type"] for row in rows] == ["RUN_STARTED", "RUN_FINISHED"]
        assert engine.gateway.detail(cut)["resumable"] == {"ok": True}


@virtual_time
@pytest.mark.feature("ADM-02")
async def test_a_start_that_is_given_up_while_it_is_written_has_an_end_and_its_key_is_free(
    tmp_path, registry
) -> None:
    async with engine_on(tmp_path / "data", registry) as engine:
        await (await engine.start("s", LINE, {"n": 0})).wait()
        given_up = 0
        for turns in range(40):
            key = f"k{turns}"
            asked = asyncio.ensure_future(engine.start("s", "w", {"n": turns}, idempotency_key=key))
            for _ in range(turns):
                await asyncio.sleep(0)
            given_up += asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            run = await engine.start("s", "w", {"n": turns}, idempotency_key=key)
            assert await run.wait() is TaskStatus.SUCCESS
        assert given_up
        await moments()
        after = await image(tmp_path / "data", "after")

    async with engine_on(after, registry) as engine:
        assert {str(run.status) for run in engine.tracker.runs()} <= {"SUCCESS", "CANCELLED"}


@virtual_time
async def test_a_clock_that_stepped_back_allows_no_second_resume(tmp_path, registry) -> None:
    cut, after = await cut_off(tmp_path / "data", registry)
    failed = "ffffffff-ffff-7fff-bfff-ffffffffffff"
    async with doomed(engine_on(after, registry)) as engine:
        log, now = engine.stores.execution_log, engine.started_at
        start = await log.start_of(cut)
        assert start is not None
        # As a server wrote it whose clock was far ahead.
        await log.append_start(
            msgspec.structs.replace(start, execution_id=failed, time=now, resumed_from=cut)
        )
        end = RunFinished(execution_id=failed, time=now, status=TaskStatus.FAILURE)
        await log.append([end])
        ahead = await image(after, "ahead")

    async with doomed(engine_on(ahead, registry)) as engine:
        again = await recovered(engine, cut)
        assert again.started.execution_id < failed
        with pytest.raises(ConflictError) as refused:
            await recovered(engine, cut)
        assert refused.value.members["resumedBy"] == again.started.execution_id
        await moments()
        last = await image(ahead, "last")

    async with engine_on(last, registry) as engine:
        # Neither the order of ids nor that of the log says which one counts.
        with pytest.raises(ConflictError) as refused:
            await recovered(engine, cut)
        assert refused.value.members["resumedBy"] == again.started.execution_id


@virtual_time
@pytest.mark.feature("CTL-04")
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_a_waiting_start_takes_up_is_not_forgotten_although_nobody_waits_for_it(
    tmp_path, registry, restarted
) -> None:
    few = {**ONE, "restart.retained-executions": 1, "execution.queue-capacity": 10}
    async with doomed(engine_on(tmp_path / "data", registry, **few)) as engine:
        old = await engine.start("s", LINE, {"n": 1})
        assert await old.wait() is TaskStatus.SUCCESS
        HELD.add("work")
        first = await engine.start("s", "w", {"n": 2})
        between = asyncio.ensure_future(engine.start("s", "w", {"n": 3}))
        await moments()
        behind = RestartFromNode(old.execution_id, "out")
        asked = asyncio.ensure_future(engine.gateway.command(behind, actor="a", via="REST"))
        await moments()
        after = await image(tmp_path / "data", "after")
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        [waits] = [run.execution_id for run in engine.tracker.runs() if restarts(engine, run)]
        if not restarted:
            HELD.clear()
            assert await first.wait() is TaskStatus.SUCCESS
            await moments(100)
            assert engine.gateway.detail(waits)["status"] == "SUCCESS"
        between.cancel()
        await asyncio.gather(between, return_exceptions=True)

    if restarted:
        HELD.clear()
        async with engine_on(after, registry, **few) as engine:
            await moments(100)
            assert engine.gateway.detail(waits)["status"] == "SUCCESS"


def restarts(engine: Any, run: Any) -> bool:
    return engine.gateway.detail(run.execution_id).get("restartedFrom") is not None
