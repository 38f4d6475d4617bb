"""Runs that are put aside at the first moment at which they can be, and taken up as they were."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.suspended import (
    LONG,
    PLUGINS,
    EveryConfig,
    World,
    asking,
    asleep,
    both,
    engine_of,
    line,
)
from tests.control.test_suspension import graph
from yukta_rx.control.bus import NodeAddress, Statistics
from yukta_rx.control.commands.step import SetStepMode
from yukta_rx.control.handles import Execution
from yukta_rx.control.start_request import StartRequest
from yukta_rx.engine.suspendable import SuspendableRun
from yukta_rx.model.message import Routed
from yukta_rx.plugins.contract import processor
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("CTL-05")


@processor("OPENS", config=EveryConfig, open=lambda cfg, ctx: None)
async def opens(msg, cfg, ctx):
    """Send on what came."""
    return {**msg.payload, "opened": ctx.node_id}


@processor("THREAD", config=EveryConfig)
def thread(msg, cfg, ctx):
    """Send on what came, from a thread."""
    ctx.heartbeat()
    return {**msg.payload, "beats": ctx.node_id}


@processor("MANY", config=EveryConfig, blocking=False)
def many(msg, cfg, ctx):
    """Send on some for each."""
    for k in range(cfg.every):
        yield {**msg.payload, "m": k}


@processor("PORTS", ports=("odd", "even"), blocking=False)
def ports(msg, cfg, ctx):
    """Send on by number."""
    ctx.heartbeat()
    return Routed("odd" if msg.payload["n"] % 2 else "even", msg)


MORE = (*PLUGINS, opens, thread, many, ports)


async def eager(world: World, tries: list[bool]) -> None:
    """Put the run aside whenever that can be done."""
    live = world.engine._starter.live
    while True:
        for _ in range(20):
            run = live.peek(world.run.execution_id)
            if isinstance(run, SuspendableRun):
                tries.append(world.engine._starter.suspensions.suspend(run))
            await asyncio.sleep(0)
        # In between for all that is timed here.
        await asyncio.sleep(0.0037)


@pytest.mark.parametrize("seed", [*range(6), 48, 56])
def test_any_moment_at_which_a_run_can_be_put_aside_is_a_good_one(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    document, nodes = graph(rng)
    for node in document["nodes"]:
        if node["type"] in ("KEEP", "TWICE") and rng.random() < 0.5:
            node["type"] = rng.choice(["OPENS", "THREAD", "MANY"])
    steps = [
        (rng.choice(nodes), rng.choice(["yes", "yes", "reject"]), rng.choice([0, 0.002, 0.05, 3]))
        for _ in range(20)
    ]
    tries: list[bool] = []
    folders = iter([tmp_path / "plain", tmp_path / "suspended"])

    async def script(world: World) -> None:
        tries.clear()
        # Whoever wants to suspend does nothing else.
        putting = asyncio.ensure_future(eager(world, tries)) if world.suspends else None
        await asyncio.sleep(1)
        for node, word, seconds in steps:
            await world.told(world.run.node(node).signal("go", word))
            await asyncio.sleep(seconds)
        await asyncio.sleep(1)
        world.look()
        if putting is not None:
            putting.cancel()

    def settings() -> dict[str, Any]:
        folder = next(folders)
        return {"profile": "file", "data.dir": str(folder)} if seed % 2 else {}

    both(document, script, sleeps=False, plugins=MORE, settings_of=settings)
    assert {True, False} == set(tries)


# --- what is seldom ------------------------------------------------------------------------------


@virtual_time
async def test_a_run_that_steps_no_more_is_put_aside() -> None:
    async with engine_of() as engine:
        run = await engine.start("s", asking(2), step_mode=True)
        await asyncio.sleep(1)
        await run.send(SetStepMode(execution_id=run.execution_id, enabled=False))
        for _ in range(2):
            await asyncio.sleep(LONG)
            assert asleep(engine) == 1
            await run.node("ask").signal("go")
            assert not run.detail["stepMode"]
        assert await run.wait(10) == "SUCCESS"


@virtual_time
async def test_breakpoints_that_a_run_began_with_and_has_no_more_do_not_come_back() -> None:
    async with engine_of() as engine:
        await engine._save("s", asking(2))
        points = ({"nodeId": "out"},)
        request = StartRequest(session_id="s", workflow_id="w", payload={}, breakpoints=points)
        run = Execution(engine, (await engine.gateway.start(request, None)).execution_id)
        await asyncio.sleep(LONG)
        assert (asleep(engine), len(run.detail["breakpoints"])) == (0, 1)
        await run.node("out").clear_breakpoint()
        for _ in range(2):
            await asyncio.sleep(LONG)
            assert asleep(engine) == 1
            await run.node("ask").signal("go")
            assert run.detail["breakpoints"] == []
        assert await run.wait(10) == "SUCCESS"


def routed(*more: dict[str, Any]) -> dict[str, Any]:
    """Numbers that are sorted before and behind a node that asks."""
    kinds = {
        "in": ("SEQUENCE_TRIGGER", {"count": 6, "intervalMs": 7}),
        "first": ("PORTS", {}),
        "ask": ("WAIT_FOR_SIGNAL", {"signal": "go", "maxWaiting": 2}),
        "second": ("PORTS", {}),
        "out": ("COLLECT_TERMINAL", {}),
    }
    return {
        "workflowId": "w",
        "nodes": [{"nodeId": a, "type": b, "config": c} for a, (b, c) in kinds.items()],
        "edges": [
            {"source": "in", "target": "first"},
            {"source": "first", "target": "ask", "sourcePort": "odd"},
            {"source": "ask", "target": "second"},
            {"source": "second", "target": "out", "sourcePort": "odd"},
            *more,
        ],
    }


@pytest.mark.parametrize("nobody", [False, True], ids=["all have a way", "some have none"])
def test_ports_and_signs_of_life_are_those_of_a_run_that_was_not_put_aside(nobody: bool) -> None:
    others = [
        {"source": "first", "target": "out", "sourcePort": "even"},
        {"source": "second", "target": "out", "sourcePort": "even"},
    ]

    async def script(world: World) -> None:
        for _ in range(4):
            await world.sleep(LONG)
            world.look()
            await world.losses()
            if world.engine.tracker.state(world.run.execution_id).ended:
                break
            for node in ("first", "second"):
                address = NodeAddress("s", world.run.execution_id, node)
                world.seen.append(world.engine.bus.send(address, Statistics()))
            await world.told(world.run.node("ask").signal("go"))

    assert both(routed(*([] if nobody else others)), script, plugins=MORE).slept


@virtual_time
async def test_a_limit_that_the_first_message_told_stays() -> None:
    @processor("STUCK")
    async def stuck(msg, cfg, ctx):
        """Do not come back from the last one."""
        await asyncio.sleep(0 if msg.payload["n"] < 102 else 100_000)
        return msg

    document = line(
        ("in", "SEQUENCE_TRIGGER", {"count": 3, "start": 100, "intervalMs": 7}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go"}),
        ("stuck", "STUCK", {}),
        ("out", "COLLECT_TERMINAL", {}),
    )
    document["nodes"][2]["timeoutSeconds"] = "${payload.n:int}"
    async with engine_of(plugins=[stuck]) as engine:
        run = await engine.start("s", document)
        for _ in range(3):
            await asyncio.sleep(LONG)
            assert asleep(engine) == 1
            await run.node("ask").signal("go")
        assert await run.wait(200) == "FAILURE"
        assert "no sign of life for 100 s" in run.detail["error"]["detail"]


def test_a_run_that_begins_in_the_middle_of_another_is_put_aside_too() -> None:
    async def script(world: World) -> None:
        await asyncio.sleep(1)
        await world.told(world.run.node("ask").signal("go", "yes"))
        await world.told(world.run.stop(StopMode.KILL))
        await world.told(world.run.wait(5))
        world.run = await world.run.node("ask").restart()
        for _ in range(3):
            await world.sleep(LONG)
            world.look()
            await world.told(world.run.node("ask").signal("go"))

    assert both(asking(2), script).slept
