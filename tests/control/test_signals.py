"""The command SignalNode, approvals over the life of runs, and the plugin bus."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from yukta_rx import terminal
from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.approvals import Approvals, answer_to
from yukta_rx.control.bus import Heartbeat, NodeAddress, RawSignal, Statistics
from yukta_rx.control.commands import COMMANDS, SignalNode
from yukta_rx.control.commands.signal import MAX_DATA
from yukta_rx.control.reviewers import Hold, Modify
from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore
from yukta_rx.durability.stores.input_requests import Answer, EarlySignal
from yukta_rx.errors import (
    BadRequestError,
    ConflictError,
    ControlRejectedError,
    NotFoundError,
    UnserialisablePayloadError,
    ValidationError,
)
from yukta_rx.plugins.signals import Place
from yukta_rx.streams import StopMode
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-05")


def asking(count: int = 2, **config: Any) -> dict[str, Any]:
    """Numbers that wait for the signal `go`."""
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": count}},
            {"nodeId": "ask", "type": "WAIT_FOR_SIGNAL", "config": {"signal": "go", **config}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
    }


@asynccontextmanager
async def live_run(document: dict[str, Any] | None = None, **options: Any):
    """An engine with a live run whose messages wait."""
    async with Engine(**options) as engine:
        run = await engine.start("s", document or asking())
        await asyncio.sleep(1)
        yield engine, run
        for live in tuple(engine._starter.live.values()):
            live.stop(StopMode.KILL)


def open_ids(engine: Engine) -> list[str]:
    return [one["approvalId"] for one in engine.approvals.page(lambda _: True, 500)[0]]


# --- the command ---------------------------------------------------------------------------------


def test_the_name_of_a_signal_is_called_name_outside() -> None:
    made = SignalNode.parse({"executionId": "x", "nodeId": "n", "name": "go", "data": [1]})

    assert made == SignalNode(execution_id="x", node_id="n", signal="go", data=[1])
    assert made.arguments() == {"name": "go", "decision": None, "data": [1]}
    assert list(SignalNode.own_fields()) == ["name", "decision", "data", "approvalId", "comment"]
    assert COMMANDS["SignalNode"] is SignalNode


@pytest.mark.parametrize(
    ("values", "pointer", "detail"),
    [
        ({}, "/name", "SignalNode needs name"),
        ({"name": "go", "signal": "go"}, "/signal", "has no field signal"),
        ({"name": 1}, "/name", "must be text"),
        ({"name": "two words"}, "", "name 'two words' is not an id"),
        ({"name": "go", "data": "x" * (MAX_DATA + 1)}, "", "data takes more than 256 KiB"),
    ],
)
def test_wrong_fields_are_refused(values: dict[str, Any], pointer: str, detail: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SignalNode.parse({"executionId": "x", "nodeId": "n", **values})

    [fault] = caught.value.errors
    assert fault.pointer == pointer
    assert detail in fault.detail


def test_data_that_is_no_json_value_is_refused() -> None:
    with pytest.raises(UnserialisablePayloadError):
        SignalNode(execution_id="x", node_id="n", signal="go", data=object())


@virtual_time
async def test_a_signal_is_accepted_or_queued_and_audited() -> None:
    async with live_run(asking(1, signal="later")) as (engine, run):
        node = run.node("ask")
        queued = await node.signal("go")
        accepted = await node.signal("later", "sure", {"a": 1})

        assert (queued.answer, accepted.answer) == ("QUEUED", "ACCEPTED")
        rows = engine.gateway.audit(run.execution_id)
        assert [(row["command"], row["outcome"], row["actor"]) for row in rows] == [
            ("SignalNode", "APPLIED", "embedded")
        ] * 2
        assert rows[1]["args"] == {"name": "later", "decision": "sure", "data": {"a": 1}}


@virtual_time
async def test_a_node_that_takes_no_signals_or_has_ended_refuses_one() -> None:
    document = asking(1)
    document["edges"].append({"source": "in", "target": "out"})
    document["nodes"].append({"nodeId": "end", "type": "NULL_TERMINAL"})
    document["edges"].append({"source": "slow", "target": "end"})
    document["nodes"].append({"nodeId": "slow", "type": "DELAY", "config": {"ms": 60_000}})
    document["edges"].append({"source": "in", "target": "slow"})
    async with live_run(document) as (_, run):
        with pytest.raises(ConflictError, match="is a COLLECT_TERMINAL") as other:
            await run.node("out").signal("go")
        await run.node("ask").signal("go")
        await asyncio.sleep(1)
        with pytest.raises(ConflictError, match="ended SUCCESS") as ended:
            await run.node("ask").signal("go")
        with pytest.raises(NotFoundError):
            await run.node("nobody").signal("go")

        assert other.value.code == ended.value.code == "signal_not_registered"


@virtual_time
async def test_data_that_a_program_changes_afterwards_stays_as_it_was_given() -> None:
    async with live_run(asking(1)) as (_, run):
        data = {"list": [1]}
        await run.node("ask").signal("go", data=data)
        data["list"].append(2)
        await run.wait(5)

        [result] = [event async for event in run.results() if event.type == "RESULT"]
        assert result.message.headers["signal.data"] == {"list": [1]}


class Second:
    """Wants a second person for every yes, and calls a perhaps a no."""

    order = 0

    async def review(self, request: Any) -> Any:
        command = request.command
        if not isinstance(command, SignalNode):
            return None
        if command.decision == "perhaps":
            changed = SignalNode(
                execution_id=command.execution_id,
                node_id=command.node_id,
                signal=command.signal,
                decision="reject",
            )
            return Modify(changed, "no perhaps here")
        return Hold("two have to agree") if command.decision == "yes" else None


@virtual_time
async def test_an_answer_can_be_changed_or_held_by_a_reviewer() -> None:
    document = asking(2, onReject="CONTINUE")
    async with live_run(document, reviewers=[Second()]) as (engine, run):
        ids = open_ids(engine)
        request = await engine.approvals.find(ids[0])
        held = await engine.gateway.command(
            answer_to(request, "yes", comment="fine"), actor="ann", via="REST"
        )
        assert held.outcome == "HELD"
        assert open_ids(engine) == ids

        decided = await engine.gateway.decide(
            held.command_id, approve=True, actor="bob", role=SignalNode.role
        )
        changed = await run.node("ask").signal("go", "perhaps")
        await run.wait(5)

        assert (decided.answer, changed.answer) == ("ACCEPTED", "ACCEPTED")
        assert (await engine.approvals.find(ids[0])).answer.answered_by == "ann"
        heads = [
            event.message.headers["signal.decision"]
            async for event in run.results()
            if event.type == "RESULT"
        ]
        assert heads == ["yes", "reject"]


# --- approvals over the life of runs -------------------------------------------------------------


@virtual_time
async def test_a_run_shows_what_it_waits_for_and_pausing_stops_the_time() -> None:
    document = asking(1, timeoutSeconds=100, onTimeout="DROP")
    async with live_run(document) as (engine, run):
        assert [reason["kind"] for reason in run.detail["waitingOn"]] == ["APPROVAL"]

        await run.pause()
        await asyncio.sleep(10_000)
        kinds = {reason["kind"] for reason in run.detail["waitingOn"]}
        assert kinds == {"PAUSE", "APPROVAL"}
        await run.resume()
        await asyncio.sleep(98)
        assert len(open_ids(engine)) == 1
        await asyncio.sleep(2)

        assert await run.wait(5) == "SUCCESS"
        assert run.detail["waitingOn"] == []


@virtual_time
async def test_what_people_are_asked_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YUKTA_SECRET_BANK", "very-secret-4711")
    document = asking(1, prompt="${decrypted:bank} for ${payload.n}?")
    async with live_run(document) as (engine, run):
        [one], _ = engine.approvals.page(lambda _: True, 10)
        asked = await engine.approvals.find(one["approvalId"])

        assert "very-secret-4711" not in one["prompt"] + str(asked) + str(run.detail["waitingOn"])
        assert one["prompt"].endswith(" for 0?")


@virtual_time
async def test_a_retried_node_gets_the_answers_that_were_given_before() -> None:
    document = asking(2)
    document["nodes"].insert(
        2,
        {
            "nodeId": "check",
            "type": "FAULT_INJECTOR",
            "config": {"failWhen": "headers['signal.decision'] == 'second'"},
        },
    )
    document["edges"] = [
        {"source": "in", "target": "ask"},
        {"source": "ask", "target": "check"},
        {"source": "check", "target": "out"},
    ]
    settings = Settings(plugins={"allow_fault_injection": True})
    async with live_run(document, settings=settings) as (engine, run):
        await run.node("ask").signal("go", "first")
        await run.node("ask").signal("go", "second")
        assert await run.wait(5) == "FAILURE"

        again = await run.node("ask").restart()

        # Nobody is asked again: the second run fails by the same answer.
        assert await again.wait(5) == "FAILURE"
        assert open_ids(engine) == []
        assert again.detail["error"]["nodeId"] == "check"


@virtual_time
async def test_the_run_of_a_sub_workflow_waits_for_signals_too() -> None:
    parent = {
        "workflowId": "parent",
        "nodes": [
            {"nodeId": "in", "type": "API_TRIGGER"},
            {"nodeId": "sub", "type": "SUB_WORKFLOW", "config": {"workflowId": "w"}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "sub"}, {"source": "sub", "target": "out"}],
    }
    async with Engine() as engine:
        await engine.start("s", asking(0))
        for live in tuple(engine._starter.live.values()):
            live.stop(StopMode.KILL)
        await engine._save("s", asking(1))
        run = await engine.start("s", parent, {})
        await asyncio.sleep(1)
        [one], _ = engine.approvals.page(lambda _: True, 10)
        assert one["executionId"] != run.execution_id

        request = await engine.approvals.find(one["approvalId"])
        await engine.gateway.command(answer_to(request, "yes"), actor="ann", via="REST")

        assert await run.wait(5) == "SUCCESS"


@virtual_time
async def test_answers_are_forgotten_with_the_run_and_kept_while_it_may_be_restarted() -> None:
    clock = LoopClock(asyncio.get_running_loop())
    store = MemoryInputRequestStore()
    settings = Settings(
        tracker={"cleanup_ttl": timedelta(minutes=10)}, restart={"retained_executions": 2}
    )
    async with Engine(settings) as engine:
        engine.approvals.signals._store = engine.approvals._store = store
        for _ in range(4):
            run = await engine.start("s", asking(1))
            await asyncio.sleep(1)
            await run.node("ask").signal("go")
            await run.wait(5)
        await asyncio.sleep(500)
        assert len(store._requests) == 4
        await asyncio.sleep(200)

        assert len(store._requests) == 2
        await asyncio.sleep(100_000)
        assert len(store._requests) == 2
    assert clock.now() > 100_000


@virtual_time
async def test_a_run_of_the_same_lineage_that_goes_on_keeps_them() -> None:
    store = MemoryInputRequestStore()
    settings = Settings(restart={"retained_executions": 0})
    clock = LoopClock(asyncio.get_running_loop())
    approvals = Approvals(store, settings, clock)

    @dataclass
    class Ended:
        execution_id: str
        lineage: str = "line"

    for execution_id in ("one", "two"):
        approvals.signals._desk(Place("s", "w", execution_id, "line", "ask"))
    await store.keep(_early(clock), clock.wall(), 100)
    approvals.ended(Ended("one"))
    await asyncio.sleep(10_000)
    assert store._early
    approvals.ended(Ended("two"))
    await asyncio.sleep(599)
    assert store._early
    await asyncio.sleep(2)

    assert not store._early
    await approvals.close()


def _early(clock: LoopClock) -> Any:
    return EarlySignal(
        lineage="line",
        node_id="ask",
        signal="go",
        answer=Answer(decision="yes", answered_by="ada", answered_at=clock.wall()),
        expires_at=clock.wall() + timedelta(days=1),
    )


# --- the plugin bus ------------------------------------------------------------------------------


@virtual_time
@pytest.mark.feature("CTL-08")
async def test_a_heartbeat_over_the_bus_keeps_silent_work_alive() -> None:
    async def hang(msg: Any, cfg: Any, ctx: Any) -> None:
        """Do nothing for long."""
        await asyncio.sleep(1000)

    document = asking(1)
    document["nodes"][2]["type"] = "HANG"
    document["edges"] = [{"source": "in", "target": "out"}]
    document["nodes"].pop(1)
    plugin = terminal("HANG", default_timeout=10)(hang)
    async with live_run(document, plugins=[plugin]) as (engine, run):
        address = NodeAddress("s", run.execution_id, "out")
        for _ in range(20):
            await asyncio.sleep(5)
            assert engine.bus.send(address, Heartbeat()) is True

        told = engine.bus.send(address, Statistics())
        assert (told["beats"], told["failed"], told["counts"]) == (20, 0, {})
        assert run.detail["status"] == "RUNNING"
        assert engine.gateway.audit(run.execution_id) == []
        await asyncio.sleep(20)
        assert run.detail["status"] == "FAILURE"
        with pytest.raises(ConflictError):
            engine.bus.send(address, Heartbeat())


@virtual_time
@pytest.mark.feature("CTL-08")
async def test_the_bus_knows_a_node_by_session_run_and_node() -> None:
    async with live_run() as (engine, run):
        for address, code in (
            (NodeAddress("t", run.execution_id, "ask"), "execution_not_found"),
            (NodeAddress("s", "no-such-run", "ask"), "execution_not_found"),
            (NodeAddress("s", run.execution_id, "nobody"), "node_not_found"),
        ):
            with pytest.raises(NotFoundError) as caught:
                engine.bus.send(address, Statistics())
            assert caught.value.code == code
        with pytest.raises(BadRequestError, match="Heartbeat, Statistics, RawSignal, not str"):
            engine.bus.send(NodeAddress("s", run.execution_id, "ask"), "beat")


@virtual_time
@pytest.mark.feature("CTL-08")
async def test_the_bus_refuses_signals_which_are_commands() -> None:
    async with live_run() as (engine, run):
        before = open_ids(engine)

        with pytest.raises(ControlRejectedError, match="send SignalNode"):
            engine.bus.send(NodeAddress("s", run.execution_id, "ask"), RawSignal("go"))

        assert open_ids(engine) == before
