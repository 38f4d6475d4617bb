"""A run that starts many others pushes no other run out of what is kept, wherever that is."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import Recover
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-01", "OBS-01", "OBS-03", "ENG-07")

ROOTS, CHILDREN, MANY = 4, 3, 110

ROOM = {
    "execution-log.retained-runs": ROOTS,
    "execution-log.compact-after": 1,
    "results.stored-runs": ROOTS,
    "tracker.max-executions": ROOTS,
    "results.max-executions": ROOTS,
}
"""Room for so many runs; the many that one of them starts have room of their own."""

LITTLE = {"execution-log.retained-children": CHILDREN, "results.stored-children": CHILDREN}

HELD: set[str] = set()


@processor("WORK", blocking=False)
async def work(msg, cfg, ctx):
    """Pass on, or hang."""
    while ctx.node_id in HELD:
        await asyncio.sleep(1)
    return msg.payload


@pytest.fixture(autouse=True)
def held():
    HELD.clear()


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry.load(None, extra=[work])


def line(name: str, *middle: dict[str, Any]) -> dict[str, Any]:
    ids = ["in", *(node["nodeId"] for node in middle), "out"]
    return {
        "workflowId": name,
        "nodes": [
            {"nodeId": "in", "type": "API_TRIGGER"},
            *middle,
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": a, "target": b} for a, b in itertools.pairwise(ids)],
    }


SMALL = line("small", {"nodeId": "work", "type": "WORK"})
CALLS = line("calls", {"nodeId": "call", "type": "SUB_WORKFLOW", "config": {"workflowId": "small"}})
CALLS["nodes"][0] = {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": MANY}}


@pytest.fixture(params=["memory", "file"])
def engine(request, tmp_path, registry) -> Callable[..., Engine]:
    """An engine that keeps everything in one of two ways."""

    def made(**settings: Any) -> Engine:
        if request.param == "file":
            return engine_on(tmp_path / "data", registry, **settings)
        overrides = {f"yukta.{name}": value for name, value in settings.items()}
        return Engine(load_settings(overrides=overrides, environ={}), registry=registry)

    return made


async def of_many(engine: Engine) -> tuple[str, list[str]]:
    """A run that has started many others, and those, the oldest first."""
    await (await engine.start("s", SMALL)).wait()
    parent = await engine.start("s", CALLS)
    assert await parent.wait() is TaskStatus.SUCCESS
    await engine.history.settled()
    if (recorder := engine.results.recorder) is not None:
        await recorder.written()
    return parent.execution_id, started(engine)


def started(engine: Engine) -> list[str]:
    """Runs that another one started, the oldest first, as far as they are known."""
    runs = (run.execution_id for run in engine.tracker.runs() if run.depth)
    return sorted(runs)


async def children(engine: Engine) -> list[str]:
    runs = await engine.stores.execution_log.runs()
    return [run.started.execution_id for run in runs if run.started.depth]


async def places(engine: Engine, execution_id: str) -> list[str]:
    """Where a run is known."""
    found = {
        "log": await engine.stores.execution_log.read(execution_id),
        "state": engine.tracker.state(execution_id),
        "results": await engine.results.open(execution_id),
        "lines": engine.logs.get(execution_id),
    }
    return [name for name, value in found.items() if value]


@virtual_time
async def test_a_run_that_starts_many_pushes_no_other_run_out(engine) -> None:
    async with engine(**ROOM) as made:
        others = [await made.start("s", SMALL, {"n": n}) for n in range(ROOTS - 2)]
        for other in others:
            await other.wait()
        parent, _ = await of_many(made)

        for execution_id in (*(other.execution_id for other in others), parent):
            assert await places(made, execution_id) == ["log", "state", "results", "lines"]


@virtual_time
async def test_children_have_a_bound_of_their_own_and_what_goes_for_it_is_counted(engine) -> None:
    async with engine(**ROOM, **LITTLE) as made:
        _, shown = await of_many(made)

        assert len(shown) == ROOTS
        logged = await children(made)
        assert len(logged) == CHILDREN
        gone = {
            store: made.meters.counter("yukta.store.children.dropped", store=store).value
            for store in ("execution-log", "tracker", "results")
        }
        assert gone["execution-log"] == MANY - CHILDREN
        assert gone["tracker"] == MANY - ROOTS
        # These are looked through now and then.
        assert bool(gone["results"]) == made.stores.results.durable


@virtual_time
async def test_children_go_when_their_root_does(engine) -> None:
    async with engine(**ROOM, **LITTLE) as made:
        parent, _ = await of_many(made)
        for n in range(ROOTS):
            await (await made.start("s", SMALL, {"n": n})).wait()
        await made.history.settled()

        assert await places(made, parent) in ([], ["results"])
        assert await children(made) == []
        assert started(made) == []


@virtual_time
async def test_an_aborted_run_can_still_be_resumed_when_many_others_ran(
    tmp_path: Path, registry: Any
) -> None:
    HELD.add("work")
    async with doomed(engine_on(tmp_path / "data", registry)) as before:
        cut = await before.start("s", SMALL, {"n": 1})
        for _ in range(30):
            await asyncio.sleep(0.01)
        after = await image(tmp_path / "data", "after")
    HELD.clear()
    async with engine_on(after, registry, **ROOM) as made:
        await of_many(made)
    async with engine_on(after, registry, **ROOM) as made:
        result = await made.gateway.command(Recover(cut.execution_id), actor="a", via="REST")
        assert await made.tracker.wait(result.started.execution_id, 100)
        assert made.gateway.detail(result.started.execution_id)["status"] == "SUCCESS"
