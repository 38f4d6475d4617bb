"""Large payloads in an engine: what waits holds references, and whoever looks sees payloads."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from tests.control.test_large_payloads import moments, names_in
from yukta_rx.control.commands import Recover, RestartFromNode, SetBreakpoint
from yukta_rx.control.handles import Execution
from yukta_rx.durability.stores.blobs import blob_of
from yukta_rx.model import codec
from yukta_rx.model.claim import Claim
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import PluginConfig, processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02", "CTL-02", "CTL-05", "OBS-01")

KIB = 1024
LIMIT = {"payload.claim-check-bytes": "4KiB"}
GATE: set[str] = set()
"""What GATED waits for is in it."""

GIVEN: list[Any] = []

SPILL = {"edgeBuffer": {"size": 4, "overflow": "SPILL"}}


def text_of(n: int, size: int) -> str:
    return f"{n:08}" * (size // 8)


@trigger("MANY", blocking=False, pure=True, replayable=True)
async def many(cfg, ctx):
    """As many payloads of a size as the start payload says."""
    for n in range(ctx.payload["count"]):
        yield {"n": n, "limit": 500, "text": text_of(n, ctx.payload["size"])}


@processor("GATED", pure=True)
async def gated(msg, cfg, ctx):
    """Pass on, once that is allowed."""
    while not GATE:
        await asyncio.sleep(0.1)
    return msg


@processor("LENGTH", pure=True)
def length(msg, cfg, ctx):
    """In a thread: how long the text is."""
    return {"n": msg.payload["n"], "length": len(msg.payload["text"])}


class StampConfig(PluginConfig):
    """An option that reads the payload."""

    label: str = ""


@processor("STAMP", config=StampConfig, blocking=False)
def stamp(msg, cfg, ctx):
    """What the options say, and how long the text is."""
    GIVEN.append(type(msg.payload))
    return {"label": cfg.label, "length": len(msg.payload["text"])}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load(None, extra=[many, gated, length, stamp])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    GATE.clear()
    GIVEN.clear()
    yield
    GATE.clear()


def flow(*nodes: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A line of nodes."""
    made = []
    for node_id, kind, *more in nodes:
        made.append({"nodeId": node_id, "type": kind, **(more[0] if more else {})})
    pairs = itertools.pairwise(made)
    return {
        "workflowId": "w",
        "nodes": made,
        "edges": [{"source": a["nodeId"], "target": b["nodeId"]} for a, b in pairs],
    }


async def payloads_of(run: Any) -> list[Any]:
    return [item.payload async for item in run.results() if item.type == "RESULT"]


async def until(true: Any) -> None:
    while not true():
        await asyncio.sleep(0.01)


# --- memory --------------------------------------------------------------------------------------


@virtual_time
async def test_what_waits_in_a_run_holds_references_and_no_payloads(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    size, count = 1 << 20, 50
    line = flow(
        ("in", "MANY"),
        ("keep", "FILTER", {"config": {"when": "payload.n >= 0"}}),
        ("gate", "GATED", {"config": {"engine": SPILL}}),
        ("more", "DELAY", {"config": {"ms": 1}}),
        ("out", "COLLECT_TERMINAL"),
    )
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        tracemalloc.start()
        try:
            run = await engine.start("s", line, {"count": count, "size": size})
            live = engine._starter.live[run.execution_id]
            await until(lambda: live.nodes["keep"].counters["out"] == count)
            # Payloads that are open go when nobody asks for them.
            await asyncio.sleep(5)
            waiting, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        GATE.add("open")
        assert await run.wait() is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert waiting < 3 * size
    assert [(one["n"], len(one["text"])) for one in made] == [(n, size) for n in range(count)]
    assert len(await names_in(tmp_path / "data" / "restart" / "blobs" / "objects")) == count


@virtual_time
async def test_a_payload_of_50_mb_is_written_once_on_its_way(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    size = 50 << 20
    line = flow(
        ("in", "MANY"),
        ("keep", "FILTER", {"config": {"when": "payload.n >= 0"}}),
        ("gate", "GATED"),
        ("out", "COLLECT_TERMINAL"),
    )
    async with engine_on(tmp_path / "data", registry) as engine:
        tracemalloc.start()
        try:
            run = await engine.start("s", line, {"count": 3, "size": size})
            live = engine._starter.live[run.execution_id]
            await until(lambda: live.nodes["keep"].counters["out"] == 3)
            await asyncio.sleep(5)
            waiting, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        GATE.add("open")
        assert await run.wait() is TaskStatus.SUCCESS

    # One is in the call that waits.
    assert waiting < 1.5 * size
    assert len(await names_in(tmp_path / "data" / "restart" / "blobs" / "objects")) == 3


@virtual_time
async def test_of_recorded_outputs_only_the_payloads_that_are_shown_are_read(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    size, count = 1 << 18, 200
    line = flow(
        ("in", "MANY"),
        ("keep", "FILTER", {"config": {"when": "payload.n >= 0"}}),
        ("out", "COLLECT_TERMINAL"),
    )
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {"count": count, "size": size})
        assert await run.wait() is TaskStatus.SUCCESS
        await asyncio.sleep(5)
        tracemalloc.start()
        try:
            page = await engine.gateway.outputs(run.execution_id, "keep", 2, count - 3)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        last = await engine.gateway.outputs(run.execution_id, "keep", 2, int(page["nextCursor"]))

    # To show one takes a multiple of it.
    assert most < count * size / 4
    shown = [item["payload"] for item in page["items"] + last["items"]]
    texts = [(n, text_of(n, size)) for n in range(count - 3, count)]
    assert [(one["n"], one["text"]) for one in shown] == texts
    assert (page["complete"], last["complete"], last["nextCursor"]) == (True, True, None)


@virtual_time
async def test_an_approval_holds_a_reference_and_shows_the_beginning_of_the_payload(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    options = {"signal": "go", "prompt": "Number ${payload.n}?"}
    ask = ("ask", "WAIT_FOR_SIGNAL", {"config": options})
    line = flow(("in", "MANY"), ask, ("out", "COLLECT_TERMINAL"))
    size, count = 1 << 20, 20
    async with doomed(engine_on(tmp_path / "data", registry, **LIMIT)) as engine:
        tracemalloc.start()
        try:
            await engine.start("s", line, {"count": count, "size": size})
            await until(lambda: len(engine.approvals.page(lambda _: True, 100)[0]) == count)
            await asyncio.sleep(5)
            waiting, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        asked = engine.approvals.page(lambda _: True, 100)[0]

    assert waiting < 3 * size
    assert {one["prompt"] for one in asked} == {f"Number {n}?" for n in range(count)}
    assert all('"text":"0000' in one["payloadPreview"] for one in asked)


# --- who looks -----------------------------------------------------------------------------------


@virtual_time
async def test_options_and_limits_read_the_payload_that_a_reference_stands_for(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    policy = {"elementTimeoutMs": "${payload.limit:int}", "retry": {"maxAttempts": 2}}
    about = {"config": {"label": "number ${payload.n}", "engine": policy}}
    line = flow(("in", "MANY"), ("stamp", "STAMP", about), ("out", "COLLECT_TERMINAL"))
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {"count": 3, "size": 8 * KIB})
        assert await run.wait() is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert made == [{"label": f"number {n}", "length": 8 * KIB} for n in range(3)]
    assert [dict] * 3 == GIVEN


@virtual_time
async def test_the_only_thread_of_an_engine_can_wait_for_a_payload(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    line = flow(("in", "MANY"), ("length", "LENGTH"), ("out", "COLLECT_TERMINAL"))
    settings = {"execution.blocking-threads": 1, **LIMIT}
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        run = await engine.start("s", line, {"count": 5, "size": 8 * KIB})
        assert await run.wait(60) is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert made == [{"n": n, "length": 8 * KIB} for n in range(5)]


@virtual_time
async def test_a_breakpoint_looks_into_the_payload_and_the_held_message_shows_it(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    line = flow(("in", "MANY"), ("gate", "GATED"), ("see", "STAMP"), ("out", "COLLECT_TERMINAL"))
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {"count": 6, "size": 8 * KIB})
        for when in ("payload.n == 2", "payload.n == 4"):
            await engine.gateway.command(
                SetBreakpoint(run.execution_id, "see", when=when), actor="ada", via="REST"
            )
        GATE.add("open")
        see = run.node("see")
        live = engine._starter.live[run.execution_id].nodes["see"]
        await until(lambda: live.valve.holds)
        held = see.held["payload"]
        assert isinstance(held, Claim)
        assert (await held.open())["n"] == 2
        assert len(GIVEN) == 2
        await see.edit_held({"text": "another"})
        await see.release_held()
        await until(lambda: live.valve.holds)
        assert (await see.held["payload"].open())["n"] == 4
        assert [point["hits"] for point in see.breakpoints] == [1, 1]
        await see.release_held()
        assert await run.wait() is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert [one["length"] for one in made] == [8 * KIB] * 2 + [len("another")] + [8 * KIB] * 3


@virtual_time
async def test_a_breakpoint_looks_into_payloads_of_a_node_that_works_on_several(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    several = {"config": {"engine": {"concurrency": {"max": 3}}}}
    line = flow(("in", "MANY"), ("gate", "GATED", several), ("out", "COLLECT_TERMINAL"))
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {"count": 6, "size": 8 * KIB}, step_mode=True)
        gate, live = run.node("gate"), engine._starter.live[run.execution_id].nodes["gate"]
        await gate.set_breakpoint(when="payload.n == 4")
        GATE.add("open")
        await run.resume()
        await until(lambda: live.valve.holds)
        assert (await gate.held["payload"].open())["n"] == 4
        assert live.counters["in"] == 4
        await gate.release_held()
        assert await run.wait() is TaskStatus.SUCCESS
        made = await payloads_of(run)

    assert [one["n"] for one in made] == [0, 1, 2, 3, 4, 5]


@virtual_time
async def test_who_taps_an_edge_sees_what_goes_over_it(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    line = flow(("in", "MANY"), ("gate", "GATED"), ("out", "COLLECT_TERMINAL"))
    async with engine_on(tmp_path / "data", registry, **LIMIT) as engine:
        run = await engine.start("s", line, {"count": 1, "size": 8 * KIB})
        wanted = {"port": None, "max_per_sec": 10, "max_bytes": KIB}
        with engine.gateway.tap(run.execution_id, source="gate", target="out", **wanted) as tap:
            GATE.add("open")
            shown = await anext(tap)
        assert await run.wait() is TaskStatus.SUCCESS
        outputs = await engine.gateway.outputs(run.execution_id, "gate", 10)

    payload = {"n": 0, "limit": 500, "text": text_of(0, 8 * KIB)}
    kept = blob_of(codec.encode(payload))
    tag = {"$yukta": "blob", "v": {"sha256": kept.sha256, "size": kept.size}}
    assert (shown["payload"], shown["truncated"]) == (tag, True)
    assert [one["payload"] for one in outputs["items"]] == [payload]


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [Recover, lambda run: RestartFromNode(run, "gate")],
    ids=["resume", "restart from a node"],
)
@virtual_time
async def test_a_run_of_references_that_a_crash_cut_off_gives_the_same(
    tmp_path: Path, registry: PluginRegistry, how: Any
) -> None:
    line = flow(("in", "MANY"), ("gate", "GATED"), ("see", "STAMP"), ("out", "COLLECT_TERMINAL"))
    GATE.add("open")
    asked = {"count": 5, "size": 8 * KIB}
    async with engine_on(tmp_path / "whole", registry, **LIMIT) as engine:
        run = await engine.start("s", line, asked)
        assert await run.wait() is TaskStatus.SUCCESS
        wanted = [(item.message_id, item.payload) async for item in run.results() if item.message]
    GATE.clear()
    async with doomed(engine_on(tmp_path / "data", registry, **LIMIT)) as engine:
        old = (await engine.start("s", line, asked)).execution_id
        await moments()
        after = await image(tmp_path / "data", "after")
    GATE.add("open")

    async with engine_on(after, registry, **LIMIT) as engine:
        result = await engine.gateway.command(how(old), actor="ada", via="REST")
        again = Execution(engine, result.started.execution_id)
        assert await again.wait() is TaskStatus.SUCCESS
        assert [payload for _, payload in wanted] == await payloads_of(again)
    objects = after / "restart" / "blobs" / "objects"
    # One for each message, however many nodes and runs have passed it on.
    assert len(await names_in(objects)) == 5
