"""A restart that waits for a slot keeps nobody from commanding the run that it takes up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.control.commands import (
    PauseWorkflow,
    Recover,
    RestartFromNode,
    ResumeWorkflow,
    StopWorkflow,
)
from yukta_rx.errors import ConflictError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-01", "CTL-04")

HELD: set[str] = set()
"""Nodes that do not come to an end with their messages."""

ONE = {"execution.max-concurrent": 1}


@processor("WORK", blocking=False)
async def work(msg, cfg, ctx):
    """Pass on, or hang."""
    while ctx.node_id in HELD:
        await asyncio.sleep(1)
    return msg.payload


@pytest.fixture(autouse=True)
def held():
    HELD.clear()
    HELD.add("work")


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


async def moments(n: int = 30) -> None:
    """Let what is under way be written."""
    for _ in range(n):
        await asyncio.sleep(0.01)


def given(engine: Any, command: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(engine.gateway.command(command, actor="a", via="REST"))


@virtual_time
async def test_a_run_that_has_the_only_slot_is_steered_while_its_restart_waits_for_that(
    tmp_path, registry
) -> None:
    async with engine_on(tmp_path / "data", registry, **ONE) as engine:
        run = await engine.start("s", LINE, {"n": 1})
        await moments()
        waits = given(engine, RestartFromNode(run.execution_id, "work"))
        await moments()
        async with asyncio.timeout(60):
            assert (await given(engine, PauseWorkflow(run.execution_id))).state["paused"]
            assert not (await given(engine, ResumeWorkflow(run.execution_id))).state["paused"]
            assert not waits.done()
            await given(engine, StopWorkflow(run.execution_id, mode="CANCEL"))
            HELD.clear()
            result = await waits
        assert result.outcome == "APPLIED"
        again = result.started.execution_id
        await moments()
        assert engine.gateway.detail(run.execution_id)["status"] == "CANCELLED"
        assert engine.gateway.detail(again)["status"] == "SUCCESS"
        assert engine.gateway.detail(again)["restartedFrom"] == run.execution_id


@virtual_time
@pytest.mark.feature("DUR-03")
async def test_who_comes_second_is_refused_at_once_while_the_first_resume_waits(
    tmp_path, registry
) -> None:
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        cut = await engine.start("s", LINE, {"n": 1})
        await moments()
        after = await image(tmp_path / "data", "after")

    async with engine_on(after, registry, **ONE) as engine:
        other = await engine.start("s", "w", {"n": 2})
        waits = given(engine, Recover(cut.execution_id))
        await moments()
        async with asyncio.timeout(60):
            with pytest.raises(ConflictError) as refused:
                await given(engine, Recover(cut.execution_id))
        assert not waits.done()
        HELD.clear()
        assert await other.wait() is TaskStatus.SUCCESS
        resumed = (await waits).started.execution_id
        assert refused.value.members["resumedBy"] == resumed
        await moments()
        assert engine.gateway.detail(resumed)["status"] == "SUCCESS"
