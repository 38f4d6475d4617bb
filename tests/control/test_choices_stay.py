"""What DEDUPLICATE let through before a crash stays its choice, whichever comes first now."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.control.commands import Recover
from yukta_rx.control.handles import Execution
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.durable, pytest.mark.feature("DUR-03", "ENG-02")]

KEYS, EACH = 20, 30

CHANCE = random.Random(0)

WORKED: list[tuple[int, str]] = []
"""Key and branch of each message that the node behind worked on."""

HANGS: set[str] = set()
"""Branches that do not come to an end."""


@trigger("THINGS", blocking=False, replayable=True)
async def things(cfg, ctx):
    """The same keys several times, each with much beside it."""
    for n in range(EACH):
        yield {"n": n, "key": n % KEYS, "text": "x" * 3000}


@processor("DRIFT")
async def drift(msg, cfg, ctx):
    """Take a while, each time another."""
    await asyncio.sleep(CHANCE.random() / 10)
    while msg.payload["n"] >= EACH - 4 and ctx.node_id in HANGS:
        await asyncio.sleep(1)
    return {**msg.payload, "branch": ctx.node_id}


@processor("COUNT", blocking=False)
async def count(msg, cfg, ctx):
    """Work on it."""
    WORKED.append((msg.payload["key"], msg.payload["branch"]))
    return msg.payload


SEVERAL = {"concurrency": {"max": 5, "ordered": False}}

FLOW = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "THINGS"},
        {"nodeId": "left", "type": "DRIFT", "config": {"engine": SEVERAL}},
        {"nodeId": "right", "type": "DRIFT", "config": {"engine": SEVERAL}},
        {"nodeId": "once", "type": "DEDUPLICATE", "config": {"key": "${payload.key:json}"}},
        {"nodeId": "count", "type": "COUNT"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [
        {"source": a, "target": b}
        for a, b in (
            *(("in", "left"), ("in", "right"), ("left", "once"), ("right", "once")),
            *(("once", "count"), ("count", "out")),
        )
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["in lines", "apart"])
@pytest.mark.parametrize("seed", range(3))
@virtual_time
async def test_no_key_is_worked_on_twice(tmp_path: Path, seed: int, apart: bool) -> None:
    CHANCE.seed(seed)
    WORKED.clear()
    HANGS.clear()
    HANGS.update(("left", "right"))
    registry = PluginRegistry.load(None, extra=[things, drift, count])
    settings: dict[str, Any] = {"payload.claim-check-bytes": 1000} if apart else {}
    async with doomed(engine_on(tmp_path / "data", registry, **settings)) as engine:
        cut = await engine.start("s", FLOW)
        for _ in range(60):
            await asyncio.sleep(0.05)
        after = await image(tmp_path / "data", "after")
        worked = WORKED.copy()
    assert {branch for _, branch in worked} == {"left", "right"}
    HANGS.clear()
    WORKED[:] = worked

    async with engine_on(after, registry, **settings) as engine:
        result = await engine.gateway.command(Recover(cut.execution_id), actor="a", via="REST")
        again = Execution(engine, result.started.execution_id)
        assert await engine.tracker.wait(again.execution_id, 1000)
        results = [item.payload async for item in again.results() if item.type == "RESULT"]
    assert sorted(key for key, _ in WORKED) == list(range(KEYS))
    assert sorted(item["key"] for item in results) == list(range(KEYS))
    # The first ones are those that were worked on before.
    assert {(item["key"], item["branch"]) for item in results} >= set(worked)
