"""Runs that must lose no message, and the ledger of those that do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control import history
from yukta_rx.control.handles import Execution
from yukta_rx.control.starter import StartRequest
from yukta_rx.errors import ConflictError, DefinitionError, NotFoundError, ValidationError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import run_virtual, virtual_time

pytestmark = pytest.mark.feature("OBS-01")


def node(node_id: str, type: str, **config: Any) -> dict[str, Any]:
    return {"nodeId": node_id, "type": type, "config": config}


def flow(*nodes: dict[str, Any], edges: str, **options: Any) -> dict[str, Any]:
    """A workflow; an edge is `a > b`, or `a.port > b`."""
    pairs = [edge.split(" > ") for edge in edges.split(", ")]
    made = []
    for left, right in pairs:
        source, _, port = left.partition(".")
        made.append({"source": source, "target": right} | ({"sourcePort": port} if port else {}))
    return {"workflowId": "w", "nodes": list(nodes), "edges": made, "options": options}


SWITCH = {"cases": [{"port": "even", "when": "payload.n % 2 == 0"}], "otherwise": "odd"}
NUMBERS = node("in", "SEQUENCE_TRIGGER", count=10)
OUT = node("out", "COLLECT_TERMINAL")


def unrouted(**options: Any) -> dict[str, Any]:
    """Odd numbers go to a port that no edge leaves by."""
    switch = node("s", "SWITCH", **SWITCH)
    return flow(NUMBERS, switch, OUT, edges="in > s, s.even > out", **options)


def buffered(overflow: str, **options: Any) -> dict[str, Any]:
    """A slow node behind a buffer for two messages."""
    engine = {"edgeBuffer": {"size": 2, "overflow": overflow}}
    slow = node("slow", "DELAY", ms=100, engine=engine)
    return flow(NUMBERS, slow, OUT, edges="in > slow, slow > out", **options)


async def ledger(engine: Engine, run: Any) -> dict[tuple[str, str], int]:
    """How many messages each node lost, by reason."""
    shown = await engine.gateway.losses(run.execution_id)
    assert shown["lossless"] is not bool(shown["items"])
    return {
        (item["nodeId"], item["reason"]): item["count"]
        for item in shown["items"]
        if item["place"] == "edge"
    }


@virtual_time
async def test_a_lossless_run_that_lost_messages_fails_and_says_where() -> None:
    async with Engine() as engine:
        run = await engine.start("s", unrouted(lossless=True))
        status = await run.wait(10)
        lost = await ledger(engine, run)
        detail = run.detail
        end = [item async for item in run.results()][-1]

    assert status is TaskStatus.FAILURE
    assert lost == {("s", "UNROUTED"): 5}
    assert detail["error"] == {
        "code": "losses",
        "detail": "the run is lossless and lost 5 messages, 5 of them at node s",
        "nodeId": "s",
    }
    assert (end.type, end.status, end.totals["dropped"]) == ("EXECUTION_END", "FAILURE", 5)


@virtual_time
async def test_without_the_option_the_same_run_succeeds_and_the_ledger_has_it() -> None:
    async with Engine() as engine:
        run = await engine.start("s", unrouted())
        status = await run.wait(10)
        lost = await ledger(engine, run)

    assert status is TaskStatus.SUCCESS
    assert lost == {("s", "UNROUTED"): 5}


@pytest.mark.parametrize("overflow", ["SPILL", "BLOCK"])
@virtual_time
async def test_a_lossless_run_that_lost_nothing_succeeds(overflow: str) -> None:
    async with Engine() as engine:
        run = await engine.start("s", buffered(overflow, lossless=True))
        status = await run.wait(100)
        shown = await engine.gateway.losses(run.execution_id)

    assert status is TaskStatus.SUCCESS
    assert shown == {"lossless": True, "items": []}


@virtual_time
async def test_a_start_may_ask_for_it_and_the_run_fails_by_what_an_operator_dropped() -> None:
    document = flow(node("in", "SEQUENCE_TRIGGER", count=3, intervalMs=100), OUT, edges="in > out")
    async with Engine() as engine:
        await (await engine.start("s", document)).wait(10)
        started = await engine.gateway.start(
            StartRequest(
                session_id="s",
                workflow_id="w",
                options={"lossless": True},
                breakpoints=[{"nodeId": "out", "when": "payload.n == 1"}],
            )
        )
        run = Execution(engine, started.execution_id)
        await asyncio.sleep(0.3)
        held = run.node("out").held
        await run.node("out").drop_held()
        status = await run.wait(10)
        items = (await engine.gateway.losses(run.execution_id))["items"]

    assert status is TaskStatus.FAILURE
    assert items == [
        {
            "place": "edge",
            "nodeId": "out",
            "reason": "DROP_HELD",
            "count": 1,
            "sample": [held["id"]],
        }
    ]


@virtual_time
async def test_a_run_that_is_cancelled_stays_so_whatever_it_lost() -> None:
    async with Engine() as engine:
        run = await engine.start("s", buffered("BLOCK", lossless=True))
        await asyncio.sleep(0.15)
        await run.stop(StopMode.CANCEL)
        status = await run.wait(10)
        lost = await ledger(engine, run)
        totals = engine.tracker.state(run.execution_id).totals

    assert status is TaskStatus.CANCELLED
    assert {reason for _, reason in lost} == {"DISCARDED"}
    assert sum(lost.values()) == totals["dropped"] > 0


@pytest.mark.parametrize("overflow", ["DROP_OLDEST", "DROP_NEWEST"])
@virtual_time
async def test_a_buffer_that_drops_is_refused_by_node_and_option(overflow: str) -> None:
    async with Engine() as engine:
        with pytest.raises(DefinitionError) as saved:
            await engine.start("s", buffered(overflow, lossless=True))
        await (await engine.start("s", buffered(overflow))).wait(10)
        with pytest.raises(ValidationError) as started:
            await engine.gateway.start(
                StartRequest(session_id="s", workflow_id="w", options={"lossless": True})
            )

    (fault,) = saved.value.errors
    assert (fault.pointer, fault.code) == ("/nodes/1/config/engine/edgeBuffer", "invalid_option")
    (again,) = started.value.errors
    assert (again.pointer, again.code) == ("/options/lossless", "invalid_option")
    for one in (fault, again):
        assert f"edgeBuffer.overflow {overflow} of node `slow` drops messages" in one.detail


@virtual_time
async def test_a_ledger_can_be_read_while_the_run_goes_on() -> None:
    document = unrouted()
    document["nodes"][0] = node("in", "SEQUENCE_TRIGGER", count=0, intervalMs=100)
    async with Engine() as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(0.95)
        lost = await ledger(engine, run)
        await run.stop(StopMode.KILL)
        with pytest.raises(NotFoundError):
            await engine.gateway.losses("no-such-run")

    assert lost == {("s", "UNROUTED"): 5}


@virtual_time
async def test_an_output_over_the_cap_is_a_loss_of_the_recording() -> None:
    capped = load_settings(
        "/dev/null", environ={}, overrides={"yukta.restart.messages-per-node": 5}
    )
    async with Engine(capped) as engine:
        run = await engine.start("s", flow(NUMBERS, OUT, edges="in > out", lossless=True))
        status = await run.wait(10)
        shown = await engine.gateway.losses(run.execution_id)

    # No message is lost, so the run has kept its word.
    assert status is TaskStatus.SUCCESS
    row = {"place": "recording", "nodeId": "in", "reason": "output_over_cap"}
    assert shown == {"lossless": False, "items": [{**row, "count": 1, "sample": []}]}


@virtual_time
async def test_ends_of_nodes_that_the_execution_log_left_out_are_in_the_ledger(monkeypatch) -> None:
    monkeypatch.setattr(history, "WAITING", 0)
    async with Engine() as engine:
        run = await engine.start("s", flow(NUMBERS, OUT, edges="in > out", lossless=True))
        status = await run.wait(10)
        shown = await engine.gateway.losses(run.execution_id)

    assert status is TaskStatus.SUCCESS
    row = {"place": "history", "reason": "overflow", "count": 1, "sample": []}
    assert shown["items"] == [{**row, "nodeId": name} for name in ("in", "out")]


# -- any graph


@processor("TWICE", blocking=False)
async def twice(msg, cfg, ctx):
    """Emit each message, after a while."""
    await ctx.clock.sleep(0.01)
    return msg


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """A tree: nodes with and without dropping buffers, switches with and without both ports."""
    every = draw(st.sampled_from([0, 3]))
    trigger = node("in", "SEQUENCE_TRIGGER", count=draw(st.integers(1, 60)), intervalMs=every)
    nodes, edges, open_ends = [trigger], [], ["in"]
    for place in range(draw(st.integers(0, 4))):
        parent = draw(st.sampled_from(open_ends))
        name = f"n{place}"
        config: dict[str, Any] = {}
        if draw(st.booleans()):
            overflow = draw(st.sampled_from(["DROP_OLDEST", "DROP_NEWEST"]))
            size = draw(st.integers(1, 8))
            config["engine"] = {"edgeBuffer": {"size": size, "overflow": overflow}}
        edges.append(f"{parent} > {name}")
        if draw(st.booleans()):
            nodes.append(node(name, "SWITCH", **SWITCH, **config))
            ports = draw(st.sampled_from([["even"], ["odd"], ["even", "odd"]]))
            for port in ports:
                nodes.append(node(f"{name}-{port}", "COLLECT_TERMINAL"))
                edges.append(f"{name}.{port} > {name}-{port}")
        else:
            nodes.append(node(name, "TWICE", **config))
            open_ends.append(name)
    for end in open_ends:
        nodes.append(node(f"{end}-out", "COLLECT_TERMINAL"))
        edges.append(f"{end} > {end}-out")
    return flow(*nodes, edges=", ".join(edges))


async def drop_what_is_held(run: Any, name: str) -> None:
    """Drop each message that a breakpoint of a node holds, until the run has ended."""
    target = run.node(name)
    with suppress(ConflictError, NotFoundError):
        await target.set_breakpoint(when="payload.n % 7 == 3")
    while not TaskStatus(run.detail["status"]).terminal:
        with suppress(ConflictError, NotFoundError):
            await target.drop_held()
        await asyncio.sleep(0.005)


async def play(document: dict[str, Any], cancel: bool) -> None:
    """Run a graph, and hold its ledger against its counters."""
    async with Engine(plugins=[twice]) as engine:
        run = await engine.start("s", document)
        dropper = asyncio.ensure_future(drop_what_is_held(run, document["nodes"][-1]["nodeId"]))
        if cancel:
            await asyncio.sleep(0.02)
            with suppress(ConflictError):
                await run.stop(StopMode.CANCEL)
        await run.wait(1000)
        await dropper
        lost = await ledger(engine, run)
        detail = engine.gateway.detail(run.execution_id, ["nodes"])
        totals = engine.tracker.state(run.execution_id).totals

    assert sum(lost.values()) == totals["dropped"]
    by_node: dict[str, int] = {}
    for (node_id, _), n in lost.items():
        by_node[node_id] = by_node.get(node_id, 0) + n
    assert by_node == {one["nodeId"]: one["dropped"] for one in detail["nodes"] if one["dropped"]}
    if cancel:
        return
    children = [(edge["source"], edge.get("sourcePort")) for edge in document["edges"]]
    emitted = sum(
        one["out"] * max(1, children.count((one["nodeId"], None))) for one in detail["nodes"]
    )
    arrived = sum(one["in"] for one in detail["nodes"])
    assert sum(lost.values()) == emitted - arrived


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=graphs(), cancel=st.booleans())
def test_the_ledger_of_any_graph_is_what_was_emitted_and_did_not_arrive(
    document: dict[str, Any], cancel: bool
) -> None:
    run_virtual(play(document, cancel))
