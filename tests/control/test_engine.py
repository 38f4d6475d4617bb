"""Engine: the whole system embedded in a program, without a server."""

import asyncio

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Settings
from yukta_rx.control.queries import ExecutionQuery
from yukta_rx.control.starter import StartRequest
from yukta_rx.errors import (
    BadRequestError,
    ConfigError,
    ConflictError,
    NotFoundError,
    UnavailableError,
    ValidationError,
)
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-01")


@processor("ECHO", blocking=False)
def echo(msg, cfg, ctx):
    """Send on what came."""
    ctx.log(f"saw {msg.payload['n']}")
    return msg.payload["n"]


@processor("TALLY", blocking=False)
def tally(msg, cfg, ctx):
    """Count what came."""
    ctx.count("seen")
    return msg


DOCUMENT = {
    "workflowId": "numbers",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 5, "intervalMs": 1000}},
        {"nodeId": "mid", "type": "ECHO"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "mid"}, {"source": "mid", "target": "out"}],
}


@pytest.fixture(scope="module")
def registry():
    from yukta_rx.config.settings import Settings
    from yukta_rx.plugins.registry import PluginRegistry

    return PluginRegistry.load(Settings(), extra=[echo, tally])


@virtual_time
async def test_a_program_starts_a_run_watches_it_and_gets_its_results(registry):
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", DOCUMENT, labels={"why": "test"})
        kinds = [event.type async for event in run.events()]
        status = await run.wait()
        payloads = [item.payload async for item in run.results() if item.type == "RESULT"]

    assert status is TaskStatus.SUCCESS
    assert payloads == [0, 1, 2, 3, 4]
    assert kinds[-1] == "execution.finished"
    assert kinds.count("node.log") == 5


@virtual_time
async def test_a_handle_steers_its_run(registry):
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", DOCUMENT)
        await asyncio.sleep(1.5)
        paused = await run.pause()
        await asyncio.sleep(100)
        held = run.detail
        again = await run.pause()
        await run.resume()
        await run.node("mid").pause()
        await run.node("mid").step(2)
        await run.node("mid").resume()
        status = await run.wait()
        audit = engine.gateway.audit(run.execution_id)

    assert (paused.outcome, again.outcome) == ("APPLIED", "NO_OP")
    assert held["paused"] is True
    assert {item["kind"] for item in held["waitingOn"]} == {"PAUSE"}
    assert [node["in"] for node in held["nodes"]] == [0, 2, 2]
    assert status is TaskStatus.SUCCESS
    assert [row["command"] for row in audit] == [
        "PauseWorkflow",
        "PauseWorkflow",
        "ResumeWorkflow",
        "PauseNode",
        "StepNode",
        "ResumeNode",
    ]
    assert {row["via"] for row in audit} == {"ENGINE"}


@virtual_time
async def test_a_read_after_an_answer_shows_its_effect(registry):
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", DOCUMENT)
        started = engine.gateway.summary(run.execution_id)
        await run.stop(StopMode.KILL)
        await run.wait()
        ended = engine.gateway.detail(run.execution_id, ("nodes",))
        with pytest.raises(ConflictError):
            await run.pause()

    assert started["status"] == "RUNNING"
    assert ended["status"] == "CANCELLED"
    assert {node["status"] for node in ended["nodes"]} == {"CANCELLED"}
    assert engine.gateway.audit(run.execution_id)[-1]["outcome"] == "REJECTED"


@virtual_time
async def test_runs_are_listed_newest_first_and_paged(registry):
    async with Engine(registry=registry) as engine:
        ids = [(await engine.start("s", DOCUMENT)).execution_id for _ in range(5)]
        other = await engine.start("t", DOCUMENT)
        await other.stop(StopMode.KILL)
        first = engine.gateway.executions(ExecutionQuery(session_ids=frozenset({"s"})), 2)
        second = engine.gateway.executions(
            ExecutionQuery(session_ids=frozenset({"s"})), 10, first.next_cursor
        )
        killed = engine.gateway.executions(
            ExecutionQuery(statuses=frozenset({TaskStatus.CANCELLED})), 10
        )
        counted = engine.gateway.count(ExecutionQuery())

    assert [item["executionId"] for item in first.items] == ids[:2:-1]
    assert [item["executionId"] for item in second.items] == ids[2::-1]
    assert second.next_cursor is None
    assert [item["executionId"] for item in killed.items] == [other.execution_id]
    assert counted == {"count": 6, "countCapped": False}


@virtual_time
async def test_two_engines_in_one_process_know_nothing_of_each_other(registry):
    async with Engine(registry=registry) as one, Engine(registry=registry) as two:
        run = await one.start("s", DOCUMENT)
        with pytest.raises(NotFoundError):
            two.gateway.summary(run.execution_id)
        assert await run.wait() is TaskStatus.SUCCESS
        assert one.feed.epoch == two.feed.epoch or one.feed is not two.feed
        assert two.feed.head_seq == 0


@virtual_time
async def test_closing_drains_live_runs_and_leaves_no_task(registry):
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", DOCUMENT)
        await asyncio.sleep(1.5)

    assert run._engine.tracker.state(run.execution_id).status is TaskStatus.STOPPED
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_events_are_an_observable_too(registry):
    from reactivex import operators as rx

    seen = []
    async with Engine(registry=registry) as engine:
        engine.events.pipe(rx.filter(lambda event: event.type == "node.status")).subscribe(
            lambda event: seen.append(event.node_id)
        )
        await asyncio.sleep(0.001)
        await (await engine.start("s", DOCUMENT)).wait()
        await asyncio.sleep(0.001)

    assert set(seen) == {"in", "mid", "out"}


@virtual_time
async def test_the_same_key_gets_the_first_run(registry):
    async with Engine(registry=registry) as engine:
        first = await engine.start("s", DOCUMENT, {"a": 1}, idempotency_key="k")
        again = await engine.start("s", DOCUMENT, {"a": 1}, idempotency_key="k")
        other = await engine.start("s", DOCUMENT, {"a": 1}, idempotency_key="k2")

    assert first.execution_id == again.execution_id != other.execution_id


@virtual_time
async def test_a_repeated_start_says_how_the_first_run_is_doing(registry):
    async with Engine(registry=registry) as engine:
        await engine.definitions.apply_session({"sessionId": "s", "workflows": [DOCUMENT]})
        request = StartRequest(session_id="s", workflow_id="numbers", idempotency_key="k")
        first = await engine.gateway.start(request)
        await engine.tracker.wait(first.execution_id, 60)

        again = await engine.gateway.start(request)

    assert (first.status, first.replayed) == ("RUNNING", False)
    assert (again.execution_id, again.status) == (first.execution_id, "SUCCESS")
    assert again.replayed


@virtual_time
async def test_a_start_that_a_shutdown_overtakes_is_refused(registry):
    engine = Engine(registry=registry)
    await engine.__aenter__()
    await engine.definitions.apply_session({"sessionId": "s", "workflows": [DOCUMENT]})
    prepared, go_on = asyncio.Event(), asyncio.Event()
    prepare = engine._starter._planner._preparer.prepare

    async def slow(*args):
        prepared.set()
        await go_on.wait()
        return await prepare(*args)

    engine._starter._planner._preparer.prepare = slow
    async with asyncio.TaskGroup() as group:
        request = StartRequest(session_id="s", workflow_id="numbers")
        start = group.create_task(refusal(engine.gateway.start(request)))
        await prepared.wait()
        closing = group.create_task(engine.close())
        await asyncio.sleep(1)
        assert not closing.done()
        go_on.set()

    assert start.result().code == "shutting_down"
    assert engine._starter.live == {}


async def refusal(start):
    with pytest.raises(UnavailableError) as refused:
        await start
    return refused.value


@virtual_time
async def test_what_a_plugin_counts_is_a_meter_while_the_run_goes_on_and_after(registry):
    def metered():
        (family,) = [f for f in engine.meters.collect() if f.name == "yukta_plugin_events"]
        return {tuple(s.labels.values()): s.value for s in family.samples if "total" in s.name}

    document = {**DOCUMENT, "nodes": [DOCUMENT["nodes"][0], {"nodeId": "mid", "type": "TALLY"}]}
    document["nodes"].append(DOCUMENT["nodes"][2])
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(2.5)
        during = metered()
        await run.wait()
        after = metered()

    assert during == {("TALLY", "seen"): 3}
    assert after == {("TALLY", "seen"): 5}


@virtual_time
async def test_a_start_that_asks_for_what_is_not_there_is_refused(registry):
    async with Engine(registry=registry) as engine:
        with pytest.raises(NotFoundError):
            await engine.start("s", "nowhere")
        for payload in ({"yukta.priority": "high"}, {"yukta.version": True}):
            with pytest.raises(ValidationError):
                await engine.start("s", DOCUMENT, payload)


async def test_two_hundred_small_runs_leave_nothing_behind(registry):
    document = {**DOCUMENT, "workflowId": "small", "nodes": [dict(n) for n in DOCUMENT["nodes"]]}
    document["nodes"][0]["config"] = {"count": 1}
    async with Engine(registry=registry) as engine:
        runs = [await engine.start("s", document) for _ in range(200)]
        statuses = {await run.wait(10) for run in runs}
        assert statuses == {TaskStatus.SUCCESS}
        assert engine._starter.live == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_settings_that_this_version_cannot_honour_are_refused_all_at_once():
    settings = load_settings(
        environ={},
        overrides={
            "yukta.kv.store-type": "postgres",
            "yukta.cluster.partitions": "2",
        },
    )

    with pytest.raises(ConfigError) as caught:
        Engine(settings)

    assert "yukta.kv.store-type = postgres needs yukta.postgres.url" in str(caught.value)
    assert "yukta.cluster.partitions" in str(caught.value)


@virtual_time
async def test_a_start_may_override_the_options_of_the_definition(registry):
    async with Engine(registry=registry) as engine:
        await (await engine.start("s", DOCUMENT)).wait()
        started = await engine.gateway.start(
            StartRequest(
                session_id="s",
                workflow_id="numbers",
                options={"onTerminalFailure": "FINISH_OTHERS"},
            )
        )
        with pytest.raises(ValidationError) as caught:
            await engine.gateway.start(
                StartRequest(session_id="s", workflow_id="numbers", options={"lossless": 1})
            )
        run = engine._starter.live[started.execution_id]

    assert run._options.on_terminal_failure == "FINISH_OTHERS"
    assert caught.value.errors[0].pointer == "/options/lossless"


@virtual_time
async def test_a_run_that_ends_by_a_defect_of_the_engine_is_told_to_its_followers(
    registry, monkeypatch, caplog
):
    from yukta_rx.engine.run import Run

    async def broken(self):
        raise RuntimeError("a bug")

    monkeypatch.setattr(Run, "execute", broken)
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", DOCUMENT)
        status = await run.wait(1)
        ends = [item.type async for item in run.results()]

    assert status is TaskStatus.ERROR
    assert run.detail["error"]["code"] == "engine"
    assert ends == ["EXECUTION_END"]
    assert "a bug" in caplog.text


@virtual_time
async def test_closing_cancels_runs_that_do_not_drain_in_time(registry):
    settings = Settings()
    slow = {
        **DOCUMENT,
        "workflowId": "stuck",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 1}},
            {"nodeId": "mid", "type": "DELAY", "config": {"ms": 86_400_000}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
    }
    loop = asyncio.get_running_loop()
    engine = Engine(settings, registry=registry)
    async with engine:
        run = await engine.start("s", slow)
        await asyncio.sleep(1)
        closing = loop.time()

    assert loop.time() - closing == pytest.approx(30, abs=1)
    assert run.detail["status"] in ("STOPPED", "CANCELLED")
    with pytest.raises(UnavailableError):
        await engine.start("s", DOCUMENT)


def test_the_one_door_for_commands_names_every_fault(registry):
    async def main():
        async with Engine(registry=registry) as engine:
            parse = engine.gateway.parse
            for body, pointer in (
                ([], ""),
                ({}, "/type"),
                ({"type": ["PauseWorkflow"]}, "/type"),
                ({"type": "Explode"}, "/type"),
                ({"type": "PauseWorkflow", "executionId": "other"}, "/executionId"),
                ({"type": "PauseNode", "nodeId": "a/b"}, "/nodeId"),
                ({"type": "StepWorkflow", "n": "x"}, "/n"),
            ):
                with pytest.raises(ValidationError) as caught:
                    parse(body, "run-1")
                assert [fault.pointer for fault in caught.value.errors] == [pointer]
            command = parse({"type": "StepNode", "nodeId": "a", "n": 2, "reason": "x"}, "run-1")
            assert (command.execution_id, command.node_id, command.n) == ("run-1", "a", 2)

    asyncio.run(main())


@virtual_time
async def test_what_cannot_be_read_is_refused(registry):
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", DOCUMENT)
        with pytest.raises(NotFoundError):
            engine.gateway.node(run.execution_id, "nowhere")
        with pytest.raises(BadRequestError):
            engine.gateway.detail(run.execution_id, ("everything",))
        with pytest.raises(BadRequestError):
            engine.gateway.executions(ExecutionQuery(), 10, "not/a/cursor")
        with pytest.raises(TimeoutError):
            await run.wait(0.5)
        assert engine.gateway.edges(run.execution_id)[0]["source"] == "in"
        assert [event async for event in (await _ended(engine, run)).events()] == []


async def _ended(engine, run):
    await run.stop(StopMode.KILL)
    await run.wait()
    return run


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_breakpoints_and_skips_are_commands_like_any_other():
    async with Engine(Settings(), plugins=[echo]) as engine:
        run = await engine.start("s", DOCUMENT)
        mid = run.node("mid")

        first = await mid.set_breakpoint("payload.n", "2")
        again = await mid.set_breakpoint("payload.n", "2")
        await asyncio.sleep(10)
        held = run.detail
        await mid.clear_breakpoint()
        await mid.skip()
        await mid.resume()
        await run.wait()

        assert (str(first.outcome), str(again.outcome)) == ("APPLIED", "NO_OP")
        assert held["breakpoints"] == [
            {
                "nodeId": "mid",
                "expression": "payload.n",
                "op": "equals",
                "value": "2",
                "hits": 1,
            }
        ]
        assert [(wait["kind"], wait["nodeId"]) for wait in held["waitingOn"]] == [
            ("BREAKPOINT", "mid")
        ]
        node = next(node for node in run.detail["nodes"] if node["nodeId"] == "mid")
        assert (node["in"], node["skipped"]) == (5, 3)
        audit = [(row["command"], row["outcome"]) for row in engine.gateway.audit(run.execution_id)]
        assert audit == [
            ("SetBreakpoint", "APPLIED"),
            ("SetBreakpoint", "APPLIED"),
            ("ClearBreakpoint", "APPLIED"),
            ("SkipNode", "APPLIED"),
            ("ResumeNode", "APPLIED"),
        ]


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_a_command_that_cannot_be_applied_to_its_node_is_refused_and_audited():
    async with Engine(Settings(), plugins=[echo]) as engine:
        run = await engine.start("s", DOCUMENT)

        with pytest.raises(ConflictError) as skipped:
            await run.node("out").skip()
        with pytest.raises(ConflictError) as held:
            await run.node("in").set_breakpoint()
        with pytest.raises(ValidationError) as unreadable:
            await run.node("mid").set_breakpoint("env.HOME", "x")
        await run.stop(StopMode.CANCEL)
        await run.wait()

        assert skipped.value.code == "node_kind_not_skippable"
        assert held.value.code == "node_takes_no_messages"
        assert unreadable.value.errors[0].pointer == "/expression"
        outcomes = {row["outcome"] for row in engine.gateway.audit(run.execution_id)[:3]}
        assert outcomes == {"REJECTED"}
