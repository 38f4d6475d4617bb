"""Commands: parsed with every fault named, applied in order, audited, answered truthfully."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.commands import (
    COMMANDS,
    PauseNode,
    PauseWorkflow,
    ResumeWorkflow,
    StepWorkflow,
    StopWorkflow,
)
from yukta_rx.control.idempotency import IdempotencyWindow
from yukta_rx.errors import (
    BadRequestError,
    ConflictError,
    IdempotencyKeyReusedError,
    NotFoundError,
    ValidationError,
)
from yukta_rx.observe.filters import EventFilter
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-01")

DOCUMENT = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 10, "intervalMs": 1000}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}


@asynccontextmanager
async def live_run(**options):
    """An engine with one live run, half way; what it emits on control is in `said`."""
    async with Engine(**options) as engine:
        run = await engine.start("s", DOCUMENT)
        await asyncio.sleep(1.5)
        yield engine, run
        if engine.gateway.detail(run.execution_id)["status"] == "RUNNING":
            await run.stop(StopMode.KILL)


def rows(engine, run):
    """Outcome and reason of each audit row of a run."""
    audit = engine.gateway.audit(run.execution_id)
    return [(row["outcome"], row.get("reason")) for row in audit]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_declares_role_route_and_summary(name):
    command = COMMANDS[name]

    assert command.name() == name
    assert command.role in ("VIEWER", "OPERATOR", "ADMIN")
    assert command.route[0] in ("POST", "PUT", "DELETE")
    assert command.route[1].startswith("/")
    assert command.summary


def test_fields_may_be_text_as_in_a_query():
    step = StepWorkflow.parse({"executionId": "x", "n": "3"})
    stop = StopWorkflow.parse({"executionId": "x", "mode": "kill"})

    assert (step.n, stop.mode) == (3, StopMode.KILL)
    assert step.arguments() == {"n": 3}
    assert stop.arguments() == {"mode": "KILL"}


@pytest.mark.parametrize(
    ("name", "values", "pointer"),
    [
        ("StepWorkflow", {"executionId": "x", "n": "many"}, "/n"),
        ("StepWorkflow", {"executionId": "x", "n": 0}, ""),
        ("StepWorkflow", {"executionId": "x", "n": True}, "/n"),
        ("StepWorkflow", {"executionId": "x", "n": 1.5}, "/n"),
        ("StopWorkflow", {"executionId": "x", "mode": "GENTLY"}, "/mode"),
        ("SetStepMode", {"executionId": "x"}, "/enabled"),
        ("SetStepMode", {"executionId": "x", "enabled": "perhaps"}, "/enabled"),
        ("PauseNode", {"executionId": "x"}, "/nodeId"),
        ("PauseWorkflow", {"executionId": "x", "force": 1}, "/force"),
    ],
)
def test_a_wrong_field_is_refused_by_name(name, values, pointer):
    with pytest.raises(ValidationError) as caught:
        COMMANDS[name].parse(values)

    assert [fault.pointer for fault in caught.value.errors] == [pointer]


@virtual_time
async def test_an_answer_says_what_is_in_force():
    async with live_run() as (engine, run):
        paused = await run.pause()
        again = await run.pause()
        command = ResumeWorkflow(execution_id=run.execution_id)
        resumed = await engine.gateway.command(command, actor="ann", via="REST", reason="go on")

        assert rows(engine, run) == [("APPLIED", None), ("APPLIED", "no_op"), ("APPLIED", "go on")]
        events = [item["type"] for item in engine.feed.read(EventFilter(), None, 100).items]

    assert [item.outcome for item in (paused, again, resumed)] == ["APPLIED", "NO_OP", "APPLIED"]
    assert [item.seq for item in (paused, again, resumed)] == [1, 2, 3]
    assert paused.state == {"status": "RUNNING", "paused": True, "stepMode": False}
    assert resumed.as_dict()["reason"] == "go on"
    assert [kind for kind in events if kind.startswith("control.")] == ["control.applied"] * 3


@virtual_time
async def test_a_dry_run_checks_and_changes_nothing():
    async with live_run() as (engine, run):
        ids = {"execution_id": run.execution_id}
        who = {"actor": "ann", "via": "REST", "dry_run": True}
        result = await engine.gateway.command(PauseWorkflow(**ids), **who)
        with pytest.raises(NotFoundError):
            await engine.gateway.command(PauseNode(**ids, node_id="nowhere"), **who)

        assert run.detail["paused"] is False
        assert [outcome for outcome, _ in rows(engine, run)] == ["DRY_RUN", "REJECTED"]

    assert result.outcome == "DRY_RUN"


@virtual_time
async def test_a_repeated_command_id_gets_the_first_answer():
    async with live_run() as (engine, run):
        who = {"actor": "ann", "via": "REST", "command_id": "c1"}
        step = StepWorkflow(execution_id=run.execution_id)
        first = await engine.gateway.command(step, **who)
        again = await engine.gateway.command(step, **who)
        with pytest.raises(IdempotencyKeyReusedError):
            await engine.gateway.command(PauseWorkflow(execution_id=run.execution_id), **who)

        assert len(rows(engine, run)) == 1

    assert again is first


@pytest.mark.feature("ENG-06")
@virtual_time
async def test_case_22_a_command_after_the_end_is_refused_and_the_end_stands():
    async with live_run() as (engine, run):
        await run.wait()
        with pytest.raises(ConflictError) as caught:
            await run.stop()

        assert run.detail["status"] == "SUCCESS"
        assert [outcome for outcome, _ in rows(engine, run)] == ["REJECTED"]

    assert caught.value.code == "execution_not_running"


class Starts:
    """Counts how often something was really started."""

    def __init__(self, error=None):
        self.count = 0
        self.error = error

    async def __call__(self):
        self.count += 1
        number = self.count
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        return f"run-{number}"


SCOPE = ("s", "w", "key-1")


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_case_40_twenty_parallel_starts_with_one_key_start_once():
    idempotency = IdempotencyWindow(Settings(), asyncio.get_running_loop().time)
    starts = Starts()

    found = await asyncio.gather(
        *(idempotency.run(SCOPE, {"payload": 1}, starts) for _ in range(20))
    )

    assert starts.count == 1
    assert {item for item, _ in found} == {"run-1"}
    assert sorted(replayed for _, replayed in found) == [False] + [True] * 19


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_key_is_forgotten_after_its_window():
    idempotency = IdempotencyWindow(Settings(), asyncio.get_running_loop().time)
    starts = Starts()
    await idempotency.run(SCOPE, {}, starts)

    await asyncio.sleep(590)
    within = await idempotency.run(SCOPE, {}, starts)
    await asyncio.sleep(20)
    after = await idempotency.run(SCOPE, {}, starts)

    assert within == ("run-1", True)
    assert after == ("run-2", False)


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_key_with_another_request_is_refused():
    idempotency = IdempotencyWindow(Settings(), asyncio.get_running_loop().time)
    starts = Starts()
    await idempotency.run(SCOPE, {"payload": 1}, starts)

    with pytest.raises(IdempotencyKeyReusedError):
        await idempotency.run(SCOPE, {"payload": 1.0}, starts)


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_failed_start_is_not_remembered_and_who_waited_starts_anew():
    idempotency = IdempotencyWindow(Settings(), asyncio.get_running_loop().time)
    failing, good = Starts(RuntimeError("no")), Starts()

    first = asyncio.ensure_future(idempotency.run(SCOPE, {}, failing))
    await asyncio.sleep(0.5)
    second = asyncio.ensure_future(idempotency.run(SCOPE, {}, good))
    outcomes = await asyncio.gather(first, second, return_exceptions=True)

    assert isinstance(outcomes[0], RuntimeError)
    assert outcomes[1] == ("run-1", False)


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_who_waits_for_a_first_start_that_is_cancelled_starts_itself():
    idempotency = IdempotencyWindow(Settings(), asyncio.get_running_loop().time)
    starts = Starts()
    first = asyncio.ensure_future(idempotency.run(SCOPE, {}, starts))
    await asyncio.sleep(0.1)
    second = asyncio.ensure_future(idempotency.run(SCOPE, {}, starts))
    await asyncio.sleep(0.1)

    first.cancel()

    assert await second == ("run-2", False)
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "schlüssel"])
@virtual_time
async def test_a_key_must_be_visible_text(key):
    idempotency = IdempotencyWindow(Settings(), asyncio.get_running_loop().time)

    with pytest.raises(BadRequestError) as caught:
        await idempotency.run(("s", "w", key), {}, Starts())

    assert caught.value.members["parameter"] == "Idempotency-Key"


@virtual_time
async def test_a_command_is_written_as_people_say_it_and_carries_its_reason():
    async with live_run() as (engine, run):
        command = PauseNode(run.execution_id, "out", reason="look at it")
        result = await run.send(command)

        assert command == PauseNode(execution_id=run.execution_id, node_id="out")
        assert rows(engine, run) == [("APPLIED", "look at it")]
    assert result.reason == "look at it"
