"""What a run waits for, and why it stands where it does."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.lines import line, live_run, slow, told
from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control import explain
from yukta_rx.control.run_view import EdgeView, Fact, NodeView, RunView
from yukta_rx.errors import (
    NotFoundError,
)
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("OBS-01")


# --- waitingOn -----------------------------------------------------------------------------------


@virtual_time
async def test_a_run_that_a_slow_node_paces_says_which():
    async with live_run(line()) as (_engine, run):
        [reason] = run.detail["waitingOn"]

    assert (reason["kind"], reason["nodeId"]) == ("BACK_PRESSURE", "mid")
    assert reason["detail"].startswith("in can emit no more")


@virtual_time
async def test_a_node_that_is_paused_is_named_once_and_not_as_the_one_that_paces():
    async with live_run(line()) as (_engine, run):
        await run.node("mid").pause()
        await asyncio.sleep(100)
        reasons = run.detail["waitingOn"]

    assert told(reasons) == [("PAUSE", "mid")]


@virtual_time
async def test_a_message_that_waits_for_its_next_attempt_is_named_with_when_that_is_due():
    retry = {"maxAttempts": 2, "backoffMs": 20_000, "maxBackoffMs": 20_000}
    async with live_run(line("BROKEN", count=3, retry=retry)) as (_engine, run):
        [reason] = run.detail["waitingOn"]
        [fact] = _engine.gateway.why(run.execution_id, "mid")
        await asyncio.sleep(30)
        later = run.detail["waitingOn"]

    assert (reason["kind"], reason["nodeId"]) == ("BACKOFF", "mid")
    assert "waits for attempt 2, due 20" in reason["detail"]
    assert "no third message, please" in reason["detail"]
    assert fact == reason
    assert later == []


@virtual_time
async def test_a_run_that_flows_waits_for_nothing():
    async with live_run(line("TELLS", every_ms=100)) as (_engine, run):
        assert run.detail["waitingOn"] == []


def test_a_node_whose_record_is_behind_is_named_itself_and_nobody_is_followed():
    nodes = {
        name: NodeView(id=name, kind="PROCESSOR", status=TaskStatus.RUNNING, received=1)
        for name in ("a", "b", "c")
    }
    held = {"blocked_since": NOW, "blocked": 1.0}
    edges = (
        EdgeView(source="a", target="b", waiting=3, **held),
        EdgeView(source="b", target="c", recording=True, **held),
    )
    view = RunView(status=TaskStatus.RUNNING, since=NOW, nodes=nodes, edges=edges)

    facts = [(fact.kind, fact.node_id, fact.detail) for fact in explain.why(view, "a")]

    behind = ("BACK_PRESSURE", "b", "is held back until what it has emitted is recorded")
    assert facts == [
        ("BACK_PRESSURE", "a", "waits for demand of b, which has 3 messages to take"),
        behind,
    ]
    assert [(f.kind, f.node_id, f.detail) for f in explain.waiting_on(view)] == [behind]


# --- why -----------------------------------------------------------------------------------------


@virtual_time
async def test_the_chain_leads_from_a_trigger_to_the_node_that_is_paused():
    async with live_run(line()) as (engine, run):
        await run.node("mid").pause()
        await asyncio.sleep(100)
        facts = engine.gateway.why(run.execution_id, "in")

    assert told(facts) == [("BACK_PRESSURE", "in"), ("PAUSE", "mid")]
    assert facts[0]["detail"].startswith("waits for demand of mid")


@virtual_time
async def test_the_chain_leads_from_a_terminal_to_the_node_that_is_at_work():
    async with live_run(line()) as (engine, run):
        facts = engine.gateway.why(run.execution_id, "out")
        whole = engine.gateway.why(run.execution_id)

    assert told(facts) == [("INPUT", "out"), ("BUSY", "mid")]
    assert told(whole) == [
        ("RUNNING", None),
        *told(facts),
        ("BACK_PRESSURE", "in"),
    ]


@virtual_time
async def test_a_run_that_failed_says_which_node_did_and_with_what():
    async with live_run(line("BROKEN", count=5)) as (engine, run):
        assert await run.wait() is TaskStatus.FAILURE
        whole = engine.gateway.why(run.execution_id)
        terminal = engine.gateway.why(run.execution_id, "out")

    assert told(whole) == [("ENDED", None), ("ERROR", "mid"), ("ENDED", "mid"), ("ERROR", "mid")]
    assert told(terminal) == [("ENDED", "out"), ("ENDED", "mid"), ("ERROR", "mid")]
    assert "because mid failed" in terminal[0]["detail"]
    assert terminal[-1]["detail"].startswith("LookupError: no third message, please, for message")


@virtual_time
async def test_a_node_that_ended_well_says_what_it_did():
    async with live_run(line("BROKEN", count=2)) as (engine, run):
        await run.wait()
        [fact] = engine.gateway.why(run.execution_id, "mid")

    assert fact["detail"] == "ended SUCCESS, after 2 messages in and 2 out"


@virtual_time
async def test_a_node_that_was_cancelled_says_which_node_ended_the_run():
    document = line("BROKEN", count=0, every_ms=1_000)
    document["nodes"] += [{"nodeId": "aside", "type": "COLLECT_TERMINAL"}]
    document["edges"] += [{"source": "in", "target": "aside"}]
    async with live_run(document) as (engine, run):
        assert await run.wait() is TaskStatus.FAILURE
        facts = engine.gateway.why(run.execution_id, "aside")

    assert told(facts) == [
        ("ENDED", "aside"),
        ("ENDED", None),
        ("ERROR", "mid"),
        ("ENDED", "mid"),
        ("ERROR", "mid"),
    ]


@virtual_time
async def test_a_node_that_waits_for_a_run_below_names_it():
    below = {**line(), "workflowId": "below"}
    above = line("SUB_WORKFLOW", count=1)
    above["nodes"][1]["config"] = {"workflowId": "below"}
    registry = PluginRegistry.load(Settings(), extra=[slow])
    async with Engine(registry=registry) as engine:
        await engine.definitions.apply_session({"sessionId": "s", "workflows": [below]})
        run = await engine.start("s", above)
        await asyncio.sleep(5)
        facts = engine.gateway.why(run.execution_id, "out")
        [child] = engine.gateway.detail(run.execution_id, ["children"])["children"]
        await run.stop(StopMode.KILL)

    assert told(facts) == [("INPUT", "out"), ("CHILD_RUN", "mid")]
    assert facts[1]["detail"] == f"waits for the end of run {child}"


@virtual_time
async def test_a_run_in_the_queue_says_what_it_waits_for():
    settings = Settings(execution={"max_concurrent": 1})
    async with live_run(line(), settings=settings) as (engine, _run):
        second = await engine.start("s", line(), patience=0)
        facts = engine.gateway.why(second.execution_id)

    assert told(facts) == [("QUEUE", None)]


@virtual_time
async def test_a_node_that_there_is_not_has_no_explanation():
    async with live_run(line()) as (engine, run):
        with pytest.raises(NotFoundError, match="no node nowhere"):
            engine.gateway.why(run.execution_id, "nowhere")
        with pytest.raises(NotFoundError):
            engine.gateway.why("nothing")


@virtual_time
async def test_the_chain_ends_at_a_question_to_people_and_at_a_breakpoint():
    document = line("WAIT_FOR_SIGNAL", every_ms=100)
    document["nodes"][1]["config"] = {"signal": "go"}
    async with live_run(document) as (engine, run):
        asked = engine.gateway.why(run.execution_id, "out")
    async with live_run(line("TELLS", every_ms=100), seconds=0.1) as (engine, run):
        await run.node("mid").set_breakpoint(when="payload.n > 3")
        await asyncio.sleep(5)
        held = engine.gateway.why(run.execution_id, "out")

    assert told(asked) == [("INPUT", "out"), ("APPROVAL", "mid")]
    assert told(held) == [("INPUT", "out"), ("BREAKPOINT", "mid")]


NODES = [f"n{number}" for number in range(6)]
NOW = "2026-01-01T00:00:00.000Z"


@st.composite
def views(draw: st.DrawFn) -> RunView:
    """Any run, also such as no run can be: with edges in circles."""
    nodes = {
        node_id: NodeView(
            id=node_id,
            kind="PROCESSOR",
            status=draw(st.sampled_from(TaskStatus)),
            waits=draw(
                st.sampled_from(
                    [(), (Fact(kind="PAUSE", node_id=node_id, since=NOW, detail="paused"),)]
                )
            ),
        )
        for node_id in NODES
    }
    edge = st.builds(
        EdgeView,
        source=st.sampled_from(NODES),
        target=st.sampled_from(NODES),
        waiting=st.integers(0, 2),
        blocked_since=st.sampled_from([None, NOW]),
        blocked=st.sampled_from([0.0, 0.05, 1.0, 2.0]),
        recording=st.booleans(),
    )
    return RunView(
        status=draw(st.sampled_from(TaskStatus)),
        since=NOW,
        opening=draw(st.booleans()),
        nodes=nodes,
        edges=tuple(draw(st.lists(edge, max_size=12))),
    )


@given(view=views(), node_id=st.sampled_from([None, *NODES]))
def test_an_explanation_of_any_run_ends_and_tells_of_each_node_in_one_place(
    view: RunView, node_id: str | None
) -> None:
    facts = explain.why(view, node_id)
    waiting = explain.waiting_on(view)

    assert facts
    assert facts[0].node_id == node_id
    # At most two facts are told of one node: how it ended, and its error.
    places = [fact.node_id for fact in facts]
    turns = [name for at, name in enumerate(places) if at == 0 or places[at - 1] != name]
    assert len(turns) == len(set(turns))
    named = [(fact.kind, fact.node_id) for fact in waiting]
    assert len(named) == len(set(named))
