"""Values and conversations over runs and servers, and counts that a crash counts once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.control.commands import Recover, RestartFromNode
from yukta_rx.control.handles import Execution
from yukta_rx.durability.stores.histories import HistoryKey
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.app import Engine

pytestmark = pytest.mark.feature("DUR-04")

HELD: set[int] = set()
"""Messages that hang after they were counted."""

CHAT = HistoryKey("s", "chat")


@processor("COUNTS", stateful=True)
async def counts(msg, cfg, ctx):
    """Count a message and say so, and hang after that if it is wanted."""
    n = msg.payload["n"]
    total = await ctx.kv.incr("total", once="count")
    said = await ctx.histories.append("chat", "user", str(n), once="say")
    while n in HELD:
        await asyncio.sleep(1)
    return {"n": n, "total": total, "said": len(said)}


def line(kind: str, **config: Any) -> dict[str, Any]:
    """Five numbers through one node, one a second."""
    trigger = {"count": 5, "intervalMs": 1000}
    return {
        "workflowId": kind.lower(),
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": trigger},
            {"nodeId": "do", "type": kind, "config": config},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "do"}, {"source": "do", "target": "out"}],
    }


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load(None, extra=[counts])


@pytest.fixture(autouse=True)
def fresh() -> None:
    HELD.clear()


async def kept(engine: Engine) -> tuple[Any, list[str]]:
    """The total, and what was said."""
    found = await engine.keeping.key_values.get("s", "total")
    turns = await engine.keeping.histories.load(CHAT, 100)
    return None if found is None else found.value, [turn.text for turn in turns]


async def payloads(engine: Engine, execution_id: str) -> list[Any]:
    items = Execution(engine, execution_id).results()
    return [item.payload async for item in items if item.type == "RESULT"]


@virtual_time
async def test_what_a_crash_cuts_off_is_counted_and_said_once(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    HELD.add(2)
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        run = await engine.start("s", line("COUNTS"))
        await asyncio.sleep(10)
        assert await kept(engine) == (3, ["0", "1", "2"])
        after = await image(tmp_path / "data", "after")
    HELD.clear()

    async with engine_on(after, registry) as engine:
        assert await kept(engine) == (3, ["0", "1", "2"])
        result = await engine.gateway.command(Recover(run.execution_id), actor="ada", via="REST")
        new = result.started.execution_id
        assert await engine.tracker.wait(new, 100)

        assert await kept(engine) == (5, list("01234"))
        assert [one["total"] for one in await payloads(engine, new)] == [1, 2, 3, 4, 5]


@virtual_time
async def test_another_run_goes_on_and_a_repeated_one_does_not(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    flow = line("KV_STORE", op="incr", key="total")
    async with engine_on(tmp_path / "data", registry) as engine:
        first = await engine.start("s", flow)
        await first.wait()
        again = await engine.gateway.command(
            RestartFromNode(first.execution_id, "do"), actor="ada", via="REST"
        )
        await engine.tracker.wait(again.started.execution_id, 100)
        sums = [one["value"] for one in await payloads(engine, again.started.execution_id)]
        assert sums == [1, 2, 3, 4, 5]

    async with engine_on(tmp_path / "data", registry) as engine:
        assert await kept(engine) == (5, [])
        second = await engine.start("s", flow)
        await second.wait()
        assert await kept(engine) == (10, [])
        other = await engine.start("t", flow)
        await other.wait()
        assert await kept(engine) == (10, [])


@virtual_time
async def test_what_is_kept_goes_with_its_session(tmp_path: Path, registry: PluginRegistry) -> None:
    async with engine_on(tmp_path / "data", registry) as engine:
        for session_id in ("s", "t"):
            run = await engine.start(session_id, line("COUNTS"))
            await run.wait()
        await asyncio.sleep(1)

        await engine.definitions.delete_session("t")
        assert await kept(engine) == (5, list("01234"))
        await engine.definitions.delete_session("s")
        assert await kept(engine) == (None, [])
        assert engine.keeping.key_values.kept == 0


@virtual_time
async def test_a_session_whose_values_cannot_be_removed_stays(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    async with engine_on(tmp_path / "data", registry) as engine:
        run = await engine.start("s", line("KV_STORE", op="incr", key="total"))
        await run.wait()
        await asyncio.sleep(1)
        # In a thread that virtual time waits for.
        pool = BlockingPool(1)
        await pool.call((tmp_path / "data" / "kv" / "key-values.jsonl").unlink)
        pool.close()

        with pytest.raises(StoreUnavailableError, match="removed while it was in use"):
            await engine.definitions.delete_session("s")

        assert (await engine.definitions.get_session("s")).workflows
        assert await kept(engine) == (5, [])


@virtual_time
async def test_what_is_kept_is_measured(tmp_path: Path, registry: PluginRegistry) -> None:
    async with engine_on(tmp_path / "data", registry) as engine:
        run = await engine.start("s", line("COUNTS"))
        await run.wait()

        page = {
            sample.name: sample.value
            for metric in engine.meters.registry.collect()
            for sample in metric.samples
        }

    assert page["yukta_kv_entries"] == 1
    assert page["yukta_histories"] == 1
    assert page["yukta_histories_unsaved"] == 0
    assert page["yukta_effects_kept"] == 0
    assert page["yukta_effects_dropped_total"] == 0
