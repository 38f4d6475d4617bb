"""Where a reference stands for a payload: nobody gets another's, and whoever looks sees his own."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from tests.control.test_large_payloads import moments
from tests.control.test_payload_references import (
    GATE,
    KIB,
    LIMIT,
    SPILL,
    flow,
    gated,
    many,
    payloads_of,
    stamp,
    text_of,
    until,
)
from yukta_rx.control.commands import Recover
from yukta_rx.control.handles import Execution
from yukta_rx.model.claim import Claim
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from yukta_rx.app import Engine

pytestmark = pytest.mark.feature("DUR-02", "CTL-02", "CTL-05", "EXT-02")

SEEN: list[Any] = []


@trigger("MIX", blocking=False, pure=True, replayable=True)
async def mix(cfg, ctx):
    """Large payloads without an amount, then small ones with one."""
    for n in range(20):
        yield {"n": n, "text": text_of(n, 8 * KIB)}
    await asyncio.sleep(10)
    for n in range(50):
        yield {"n": 1000 + n, "amount": n + 1, "text": "small"}


@processor("LOOK", pure=True)
async def look(msg, cfg, ctx):
    """Pass on, and remember."""
    SEEN.append(msg.payload)
    return msg


@processor("TWICE", blocking=False, pure=True)
def twice(msg, cfg, ctx):
    """Two for each, one after the other."""
    yield {**msg.payload, "k": 0}
    yield {**msg.payload, "k": 1}


@processor("BURST", blocking=False, pure=True)
def burst(msg, cfg, ctx):
    """As many payloads of a size as it says, all at once."""
    for n in range(msg.payload["count"]):
        yield {"n": n, "text": text_of(n, msg.payload["size"])}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load(None, extra=[many, gated, stamp, mix, look, twice, burst])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    GATE.clear()
    SEEN.clear()
    yield
    GATE.clear()


def live_node(engine: Engine, run: Any, node_id: str) -> Any:
    return engine._starter.live[run.execution_id].nodes[node_id]


# --- whose payload -------------------------------------------------------------------------------


@virtual_time
async def test_a_message_never_gets_the_payload_of_one_whose_options_could_not_be_read(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    ask = {
        "signal": "go",
        "timeoutSeconds": "${payload.amount:int}",
        "onTimeout": "CONTINUE",
        "engine": {"onError": "CONTINUE"},
    }
    wait = ("ask", "WAIT_FOR_SIGNAL", {"config": ask})
    line = flow(("in", "MIX"), wait, ("look", "LOOK"), ("out", "COLLECT_TERMINAL"))
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {})
        assert await run.wait() is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert [one["n"] for one in made] == [1000 + n for n in range(50)]
    assert [one["n"] for one in SEEN] == [1000 + n for n in range(50)]


@virtual_time
async def test_an_approval_of_a_run_that_was_put_aside_holds_a_reference_again(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    size, count = 1 << 20, 10
    ask = ("ask", "WAIT_FOR_SIGNAL", {"config": {"signal": "go", "prompt": "${payload.n}?"}})
    line = flow(("in", "MANY"), ask, ("out", "COLLECT_TERMINAL"))
    settings = {"execution.suspend-after": "60s", **LIMIT}
    async with doomed(engine_on(tmp_path / "data", registry, **settings)) as engine:
        run = await engine.start("s", line, {"count": count, "size": size})
        await until(lambda: len(engine.approvals.page(lambda _: True, 100)[0]) == count)
        await asyncio.sleep(200)
        assert len(engine._starter.live.suspended) == 1
        tracemalloc.start()
        try:
            await run.node("ask").signal("go")
            await asyncio.sleep(5)
            assert len(engine._starter.live.suspended) == 0
            waiting, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        asked = engine.approvals.page(lambda _: True, 100)[0]

    assert len(asked) == count - 1
    assert waiting < 3 * size


# --- held messages -------------------------------------------------------------------------------


@virtual_time
async def test_an_embedding_program_reads_held_messages_also_behind_a_file(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    line = flow(
        ("in", "MANY"),
        ("keep", "FILTER", {"config": {"when": "payload.n >= 0"}}),
        ("gate", "LOOK", {"config": {"engine": SPILL}}),
        ("out", "COLLECT_TERMINAL"),
    )
    shown = []
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {"count": 12, "size": 8 * KIB})
        gate = run.node("gate")
        await gate.set_breakpoint()
        live = live_node(engine, run, "gate")
        for _ in range(12):
            await until(lambda: live.valve.holds)
            held = await gate.fetch_held()
            assert held.keys() == {"id", "payload", "headers", "since"}
            assert held["id"] == gate.held["id"]
            assert type(gate.held["payload"]) is Claim
            shown.append(held["payload"])
            await gate.release_held()
            await asyncio.sleep(0.1)
        assert await run.wait() is TaskStatus.SUCCESS

    assert shown == SEEN
    assert [one["n"] for one in shown] == [*range(12)]
    assert all(len(one["text"]) == 8 * KIB for one in shown)


@virtual_time
async def test_a_held_payload_that_is_no_reference_is_shown_as_well(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    line = flow(("in", "MANY"), ("gate", "LOOK"), ("out", "COLLECT_TERMINAL"))
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {"count": 1, "size": 8}, step_mode=True)
        gate = run.node("gate")
        await gate.set_breakpoint()
        await run.resume()
        await until(lambda: live_node(engine, run, "gate").valve.holds)
        assert await gate.fetch_held() == gate.held
        await gate.edit_held({"n": 7, "text": text_of(7, 8 * KIB)})
        assert (await gate.fetch_held())["payload"]["n"] == 7
        await gate.release_held()
        assert await run.wait() is TaskStatus.SUCCESS
        assert [one["n"] for one in await payloads_of(run)] == [7]


# --- breakpoints ---------------------------------------------------------------------------------


async def test_a_breakpoint_behind_two_parents_looks_into_the_payloads_of_both(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    # Not in virtual time, which stands still in a loop that spins.
    line = flow(("in", "MANY"), ("a", "LOOK"), ("b", "LOOK"), ("see", "STAMP"))
    line["nodes"].append({"nodeId": "out", "type": "COLLECT_TERMINAL"})
    pairs = ("in", "a"), ("in", "b"), ("a", "see"), ("b", "see"), ("see", "out")
    line["edges"] = [{"source": source, "target": target} for source, target in pairs]
    async with doomed(engine_on(tmp_path / "data", registry, **LIMIT)) as engine:
        run = await engine.start("s", line, {"count": 6, "size": 8 * KIB}, step_mode=True)
        see, live = run.node("see"), live_node(engine, run, "see")
        await see.set_breakpoint(when="payload.n == 3")
        seen = []
        async with asyncio.timeout(30):
            await run.resume()
            for _ in range(2):
                await until(lambda: live.valve.holds)
                seen.append(await see.fetch_held())
                hits = see.breakpoints[0]["hits"]
                await see.release_held()
            assert await run.wait() is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert [one["payload"]["n"] for one in seen] == [3, 3]
    assert seen[0]["id"] != seen[1]["id"]
    assert (hits, len(made)) == (2, 12)


@virtual_time
async def test_a_breakpoint_of_a_terminal_that_takes_nothing_looks_into_payloads(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    line = flow(("in", "MANY"), ("gate", "GATED"), ("out", "NULL_TERMINAL"))
    async with doomed(engine_on(tmp_path / "data", registry, **LIMIT)) as engine:
        run = await engine.start("s", line, {"count": 6, "size": 8 * KIB})
        out = run.node("out")
        await out.set_breakpoint(when="payload.n == 4")
        GATE.add("open")
        async with asyncio.timeout(60):
            await until(lambda: live_node(engine, run, "out").valve.holds)
        assert (await out.fetch_held())["payload"]["n"] == 4
        await out.release_held()
        assert await run.wait(60) is TaskStatus.SUCCESS


# --- log lines -----------------------------------------------------------------------------------


def echoed(engine: Engine, run: Any, node_id: str) -> list[str]:
    log = engine.logs.get(run.execution_id)
    assert log is not None
    return [item["line"] for item in log.read(limit=1000).items if item["nodeId"] == node_id]


@virtual_time
async def test_echoed_lines_show_the_beginning_of_payloads(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    line = flow(
        ("in", "MANY"),
        ("keep", "FILTER", {"config": {"when": "payload.n >= 0"}}),
        ("gate", "GATED"),
        ("two", "TWICE"),
        ("out", "COLLECT_TERMINAL"),
    )
    settings = {"logs.echo-output": True, **LIMIT}
    asked = {"count": 2, "size": 8 * KIB}
    async with doomed(engine_on(tmp_path / "data", registry, **settings)) as engine:
        run = await engine.start("s", line, asked)
        for node_id in ("in", "keep"):
            await until(lambda: len(echoed(engine, run, node_id)) == 2)  # noqa: B023  (at once)
            for n, shown in enumerate(echoed(engine, run, node_id)):
                assert shown.startswith(f'{{"n":{n},"limit":500,"text":"0000000{n}0000')
                assert (len(shown), shown[-1]) == (2048, "…")
        await moments()
        after = await image(tmp_path / "data", "after")

    GATE.add("open")
    async with engine_on(after, registry, **settings) as engine:
        result = await engine.gateway.command(Recover(run.execution_id), actor="ada", via="REST")
        again = Execution(engine, result.started.execution_id)
        assert await again.wait() is TaskStatus.SUCCESS
        for node_id, count in (("gate", 2), ("two", 4), ("out", 4)):
            lines = echoed(engine, again, node_id)
            assert len(lines) == count
            assert all('"text":"0000000' in one for one in lines)


# --- files that messages wait in -----------------------------------------------------------------


@virtual_time
async def test_what_was_in_a_file_waits_without_its_payload_too(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    size, count = 1 << 20, 60
    spill = {"edgeBuffer": {"size": 20, "overflow": "SPILL"}}
    line = flow(
        ("in", "API_TRIGGER"),
        ("burst", "BURST"),
        ("slow", "DELAY", {"config": {"ms": 10_000, "engine": spill}}),
        ("out", "COLLECT_TERMINAL"),
    )
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        tracemalloc.start()
        try:
            run = await engine.start("s", line, {"count": count, "size": size})
            # By now those that did not come through a file are through.
            await until(lambda: live_node(engine, run, "slow").counters["out"] == 30)
            await asyncio.sleep(5)
            waiting, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert await run.wait() is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert waiting < 4 * size
    assert made == [{"n": n, "text": text_of(n, size)} for n in range(count)]
