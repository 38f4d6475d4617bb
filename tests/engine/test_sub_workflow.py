"""SUB_WORKFLOW: runs below a run, from start to end, in whole engines and in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from reactivex import operators as rx

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import StopWorkflow
from yukta_rx.control.queries import ExecutionQuery
from yukta_rx.engine.local import LocalChildren
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-07")


@processor("SPOIL")
def spoil(msg, cfg, ctx):
    """Change the payload in place."""
    msg.payload["spoilt"] = True
    return msg


@processor("REFUSE", blocking=False, pure=True)
def refuse(msg, cfg, ctx):
    """Fail at every message."""
    raise LookupError("the shop is closed")


@processor("STUBBORN", default_timeout=None)
async def stubborn(msg, cfg, ctx):
    """Ignore every cancellation for a minute."""
    end = asyncio.get_running_loop().time() + 60
    while asyncio.get_running_loop().time() < end:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            ctx.log("ignored")
    return msg


@processor("LATE", default_timeout=None)
async def late(msg, cfg, ctx):
    """Ignore a cancellation, and start a run after it."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await ctx.run_child("slow", {}, msg)


PLUGINS = (spoil, refuse, stubborn, late)


def flow(workflow_id: str, *nodes: Any, edges: str | None = None) -> dict[str, Any]:
    """A workflow: nodes as (id, type, config?, timeoutSeconds?), in a line or as `edges` says."""
    ids = [node[0] for node in nodes]
    pairs = (
        [pair.split(">") for pair in edges.split()]
        if edges
        else [list(pair) for pair in pairwise(ids)]
    )
    return {
        "workflowId": workflow_id,
        "nodes": [
            {
                "nodeId": node[0],
                "type": node[1],
                "config": node[2] if len(node) > 2 else {},
                **({"timeoutSeconds": node[3]} if len(node) > 3 else {}),
            }
            for node in nodes
        ],
        "edges": [{"source": source, "target": target} for source, target in pairs],
    }


def sub(workflow_id: str, node_id: str = "sub", **config: Any) -> tuple[Any, ...]:
    return (node_id, "SUB_WORKFLOW", {"workflowId": workflow_id, **config})


IN = ("in", "API_TRIGGER")
OUT = ("out", "COLLECT_TERMINAL")
SLOW = flow("slow", IN, ("wait", "DELAY", {"ms": 1000}), OUT)


def parent(child: str = "slow", count: int = 1, **config: Any) -> dict[str, Any]:
    return flow("parent", ("in", "SEQUENCE_TRIGGER", {"count": count}), sub(child, **config), OUT)


@asynccontextmanager
async def engine_with(*workflows: dict[str, Any], **settings: Any):
    """An engine whose session `s` has these workflows."""
    names = {name.replace("__", ".").replace("_", "-"): name for name in settings}
    overrides = {f"yukta.{name}": settings[keyword] for name, keyword in names.items()}
    loaded = load_settings(environ={}, overrides=overrides)
    async with Engine(loaded, plugins=PLUGINS) as engine:
        await engine.definitions.apply_session({"sessionId": "s", "workflows": list(workflows)})
        yield engine


async def results(run) -> list[Any]:
    return [item.payload async for item in run.results() if item.type == "RESULT"]


def children(engine, run) -> list[dict[str, Any]]:
    """The runs right below a run, the oldest first."""
    query = ExecutionQuery(parent_execution_id=run.execution_id)
    return engine.gateway.executions(query, 500).items[::-1]


def statuses(engine) -> list[str]:
    """The status of every run below another."""
    runs = engine.gateway.executions(ExecutionQuery(), 500).items
    return [run["status"] for run in runs if run["depth"]]


# --- what a child is -----------------------------------------------------------------------------


@virtual_time
async def test_each_message_runs_the_workflow_once_and_becomes_its_results():
    async with engine_with(SLOW, parent(count=3)) as engine:
        run = await engine.start("s", "parent")
        status = await run.wait()
        emitted = await results(run)
        found = children(engine, run)

    assert status is TaskStatus.SUCCESS
    assert [item["results"] for item in emitted] == [[{"n": 0}], [{"n": 1}], [{"n": 2}]]
    assert [item["executionId"] for item in emitted] == [item["executionId"] for item in found]


@virtual_time
async def test_a_child_is_a_tracked_run_that_knows_its_parent():
    async with engine_with(SLOW, parent()) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        [child] = children(engine, run)
        detail = engine.gateway.detail(run.execution_id, ("children",))
        channel = engine.results.get(child["executionId"])
        page = channel.read()

    assert child["parentExecutionId"] == run.execution_id
    assert (child["depth"], detail["depth"]) == (1, 0)
    assert (child["status"], child["actor"]) == ("SUCCESS", detail["actor"])
    assert detail["children"] == [child["executionId"]]
    assert [item.payload for item in page.items if item.type == "RESULT"] == [{"n": 0}]


@pytest.mark.parametrize(
    ("config", "given"),
    [
        ({}, {"n": 0}),
        ({"payload": {"order": "${payload.n}", "fixed": [1]}}, {"order": "0", "fixed": [1]}),
        ({"payload": "${payload.n:int}"}, 0),
        ({"payload": None}, None),
        ({"payload": {"yukta.depth": 4, "a": 1}}, {"a": 1}),
    ],
)
def test_a_child_begins_with(config, given):
    @virtual_time
    async def emitted():
        async with engine_with(SLOW, parent(**config)) as engine:
            run = await engine.start("s", "parent")
            await run.wait()
            return await results(run)

    [made] = emitted()
    assert made["results"] == [given]


@virtual_time
async def test_results_come_in_order_of_arrival_from_terminals_that_publish():
    child = flow(
        "child",
        IN,
        ("late", "DELAY", {"ms": 50}),
        ("mark", "TRANSFORM", {"replace": "late"}),
        OUT,
        ("first", "COLLECT_TERMINAL"),
        ("none", "NULL_TERMINAL"),
        edges="in>late late>mark mark>out in>first in>none",
    )
    async with engine_with(child, parent("child")) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        [made] = await results(run)

    assert made["results"] == [{"n": 0}, "late"]


@virtual_time
async def test_a_child_does_not_touch_the_payload_that_a_branch_beside_it_has():
    child = flow("child", IN, ("spoil", "SPOIL"), OUT)
    both = flow(
        "parent",
        ("in", "SEQUENCE_TRIGGER", {"count": 1}),
        sub("child"),
        ("out", "NULL_TERMINAL"),
        ("wait", "DELAY", {"ms": 1000}),
        ("beside", "COLLECT_TERMINAL"),
        edges="in>sub sub>out in>wait wait>beside",
    )
    async with engine_with(child, both) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        beside = await results(run)
        [made] = children(engine, run)

    assert beside == [{"n": 0}]
    assert made["status"] == "SUCCESS"


@virtual_time
async def test_two_workflows_share_a_child_workflow():
    other = {**parent(count=2), "workflowId": "other"}
    async with engine_with(SLOW, parent(count=2), other) as engine:
        one = await engine.start("s", "parent")
        two = await engine.start("s", "other")
        ended = [await one.wait(), await two.wait()]
        found = [len(children(engine, run)) for run in (one, two)]

    assert ended == [TaskStatus.SUCCESS] * 2
    assert found == [2, 2]


@virtual_time
async def test_a_child_is_what_is_stored_when_its_message_comes():
    new = flow("slow", IN, ("new", "TRANSFORM", {"replace": "new"}), OUT)
    async with engine_with(SLOW, parent(count=2)) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        await engine.definitions.save("s", "slow", new)
        await run.wait()
        emitted = await results(run)

    assert [item["results"] for item in emitted] == [[{"n": 0}], ["new"]]


@virtual_time
async def test_children_borrow_the_slot_of_their_parent():
    async with engine_with(SLOW, parent()) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        running = engine.meters.registry.get_sample_value("yukta_executions_running")
        live = statuses(engine)
        await run.wait()

    assert live == ["RUNNING"]
    assert running == 1


def local_run(world, recorded: list[Any], **options: Any):
    """A run with a child, without an engine around it."""
    child = world.run({"in": "API_TRIGGER", "out": "COLLECT_TERMINAL"}, "in > out").prepared
    at_hand = LocalChildren({"w": child}, settings=world.settings)

    async def start(request):
        recorded.append(request)
        await at_hand(request)

    return world.run(
        {
            "in": ("SEQUENCE_TRIGGER", {"count": 2}),
            "sub": ("SUB_WORKFLOW", {"workflowId": "w", **options.pop("config", {})}),
            "out": "COLLECT_TERMINAL",
        },
        "in > sub > out",
        start_child=start,
        **options,
    )


@virtual_time
async def test_a_repeat_makes_children_of_the_same_lineage(world):
    first: list[Any] = []
    second: list[Any] = []
    await local_run(world, first, lineage="L").execute()
    await local_run(world, second, lineage="L").execute()

    lineages = [request.lineage for request in first]
    assert lineages == [request.lineage for request in second]
    assert len(set(lineages)) == 2


@virtual_time
async def test_a_start_payload_that_is_an_object_names_depth_and_parent(world):
    seen: list[Any] = []
    run = local_run(world, seen)
    await run.execute()

    assert seen[0].payload == {
        "n": 0,
        "yukta.depth": 1,
        "yukta.parentExecutionId": run.execution_id,
    }


@virtual_time
async def test_a_run_that_can_have_no_children_says_so(world):
    nodes = {"in": "API_TRIGGER", "sub": ("SUB_WORKFLOW", {"workflowId": "w"})}
    outcome = await world.run(nodes, "in > sub").execute()

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error == {
        "code": "bad_input",
        "detail": "node sub: nothing here could start another workflow",
        "nodeId": "sub",
    }


# --- children that fail --------------------------------------------------------------------------


@virtual_time
async def test_a_child_that_fails_fails_the_node_which_says_how_it_ended():
    child = flow("child", IN, ("shop", "REFUSE"), OUT)
    async with engine_with(child, parent("child")) as engine:
        run = await engine.start("s", "parent")
        status = await run.wait()
        [made] = children(engine, run)
        error = run.detail["error"]

    assert status is TaskStatus.FAILURE
    assert (made["status"], made["error"]["nodeId"]) == ("FAILURE", "shop")
    assert error == {
        "code": "sub_workflow_failed",
        "detail": f"run {made['executionId']} of workflow child ended FAILURE: the shop is closed",
        "nodeId": "sub",
    }


@virtual_time
@pytest.mark.parametrize(("mode", "ended"), [("DRAIN", "STOPPED"), ("CANCEL", "CANCELLED")])
async def test_a_child_that_a_command_stopped_fails_the_node(mode, ended):
    child = flow("child", ("in", "SEQUENCE_TRIGGER", {"count": 9, "intervalMs": 1000}), OUT)
    async with engine_with(child, parent("child")) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(1.5)
        [made] = children(engine, run)
        stop = StopWorkflow(execution_id=made["executionId"], mode=StopMode(mode))
        await engine.gateway.command(stop, actor="someone", via="REST")
        status = await run.wait()
        audit = engine.gateway.audit(made["executionId"])
        error = run.detail["error"]

    assert status is TaskStatus.FAILURE
    assert f"ended {ended}" in error["detail"]
    assert [(row["command"], row["actor"]) for row in audit] == [("StopWorkflow", "someone")]


@virtual_time
async def test_a_workflow_that_is_not_there_is_bad_input():
    async with engine_with(parent("missing")) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        error = run.detail["error"]

    assert error["code"] == "bad_input"
    assert "workflow missing cannot be run: session s has no workflow missing" in error["detail"]


@virtual_time
async def test_case_05_a_workflow_that_runs_itself_stops_at_depth_5():
    own = flow("loop", IN, sub("loop"), OUT)
    async with engine_with(own) as engine:
        run = await engine.start("s", "loop", {"a": 1})
        status = await run.wait(timeout=60)
        found = engine.gateway.executions(ExecutionQuery(), 500).items
        error = run.detail["error"]

    assert status is TaskStatus.FAILURE
    assert sorted(item["depth"] for item in found) == [0, 1, 2, 3, 4, 5]
    assert {item["status"] for item in found} == {"FAILURE"}
    assert error["code"] == "sub_workflow_depth"
    assert "a run at depth 6 is not started: yukta.sub-workflow.max-depth is 5" in error["detail"]


@virtual_time
@pytest.mark.parametrize(("levels", "ended"), [(5, TaskStatus.SUCCESS), (6, TaskStatus.FAILURE)])
async def test_a_chain_may_be_5_levels_deep(levels, ended):
    chain = [flow(f"w{n}", IN, sub(f"w{n + 1}"), OUT) for n in range(levels)]
    async with engine_with(*chain, flow(f"w{levels}", IN, OUT)) as engine:
        run = await engine.start("s", "w0", {"a": 1})
        status = await run.wait()

    assert status is ended


@virtual_time
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"sub_workflow__max_results": 3}, "more than 3 results (yukta.sub-workflow.max-results)"),
        (
            {"sub_workflow__max_result_bytes": "1kB"},
            "more than 1000 bytes of results (yukta.sub-workflow.max-result-bytes)",
        ),
    ],
)
async def test_a_child_that_gives_too_much_is_cancelled_and_the_node_fails(setting, told):
    child = flow("child", ("in", "INTERVAL_TRIGGER", {"everyMs": 1000}), OUT)
    async with engine_with(child, parent("child"), **setting) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        [made] = children(engine, run)
        error = run.detail["error"]

    assert made["status"] == "CANCELLED"
    assert (error["code"], error["nodeId"]) == ("bad_input", "sub")
    assert told in error["detail"]


@virtual_time
async def test_more_live_runs_below_one_than_allowed_fail_the_attempt():
    wide = flow(
        "parent",
        ("in", "SEQUENCE_TRIGGER", {"count": 1}),
        ("later", "DELAY", {"ms": 500}),
        *[sub("slow", f"s{n}") for n in range(3)],
        OUT,
        edges="in>s0 s0>out in>s1 s1>out in>later later>s2 s2>out",
    )
    async with engine_with(SLOW, wide, sub_workflow__max_children=2) as engine:
        run = await engine.start("s", "parent")
        status = await run.wait()
        error = run.detail["error"]
        found = children(engine, run)

    assert status is TaskStatus.FAILURE
    assert error["code"] == "sub_workflow_limit"
    assert "2 runs are alive" in error["detail"]
    assert [item["status"] for item in found] == ["CANCELLED"] * 2


@virtual_time
async def test_the_cap_is_one_for_all_levels():
    middle = flow("middle", IN, sub("slow"), OUT)
    async with engine_with(SLOW, middle, parent("middle"), sub_workflow__max_children=1) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        error = run.detail["error"]

    assert "1 runs are alive below the one that was started from outside" in error["detail"]


# --- ends of the parent --------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_case_52_a_cancel_while_children_start_leaves_none_running(turns):
    nodes = [sub("slow", f"s{n}") for n in range(8)]
    edges = " ".join(f"in>s{n} s{n}>out" for n in range(8))
    wide = flow("parent", ("in", "SEQUENCE_TRIGGER", {"count": 50}), *nodes, OUT, edges=edges)
    async with engine_with(SLOW, wide) as engine:
        run = await engine.start("s", "parent")
        for _ in range(turns):
            await asyncio.sleep(0)
        await run.stop(StopMode.CANCEL)
        status = await run.wait()
        below = statuses(engine)
        live = dict(engine._starter.live)

    assert status is TaskStatus.CANCELLED
    assert set(below) <= {"CANCELLED"}
    assert live == {}


@virtual_time
async def test_case_52_a_cancel_in_the_middle_of_50_messages_cancels_what_runs():
    async with engine_with(SLOW, parent(count=50)) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(10.5)
        await run.stop(StopMode.CANCEL)
        await run.wait()
        below = statuses(engine)

    assert below == ["CANCELLED"] + ["SUCCESS"] * 10


@virtual_time
async def test_50_messages_run_50_children():
    async with engine_with(SLOW, parent(count=50)) as engine:
        run = await engine.start("s", "parent")
        status = await run.wait()
        below = statuses(engine)

    assert status is TaskStatus.SUCCESS
    assert below == ["SUCCESS"] * 50


@virtual_time
@pytest.mark.parametrize("mode", list(StopMode))
async def test_a_parent_ends_after_all_that_is_below_it(mode):
    middle = flow("middle", IN, sub("slow"), OUT)
    source = ("in", "SEQUENCE_TRIGGER", {"count": 9, "intervalMs": 400})
    top = flow("parent", source, sub("middle"), OUT)
    async with engine_with(SLOW, middle, top) as engine:
        run = await engine.start("s", "parent")
        ended = []
        engine.events.pipe(rx.filter(lambda event: event.type == "execution.finished")).subscribe(
            lambda event: ended.append((event.workflow_id, event.data["status"]))
        )
        await asyncio.sleep(0.5)
        await run.stop(mode)
        await run.wait()
        await asyncio.sleep(0.001)

    lower = "SUCCESS" if mode is StopMode.DRAIN else "CANCELLED"
    end = "STOPPED" if mode is StopMode.DRAIN else "CANCELLED"
    assert ended[:-1] == [("slow", lower), ("middle", lower)] * (len(ended) // 2)
    assert ended[-1] == ("parent", end)


@virtual_time
async def test_a_kill_does_not_wait_for_the_calls_of_a_child():
    child = flow("child", IN, ("stuck", "STUBBORN"), OUT)
    async with engine_with(child, parent("child")) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(1.5)
        await run.stop(StopMode.KILL)
        now = asyncio.get_running_loop().time()
        await run.wait()
        took = asyncio.get_running_loop().time() - now
        below = statuses(engine)

    assert below == ["CANCELLED"]
    assert took < 0.1


@virtual_time
async def test_a_child_that_ignores_cancellation_holds_its_parent_no_longer_than_the_grace():
    child = flow("child", IN, ("stuck", "STUBBORN"), OUT)
    async with engine_with(child, parent("child")) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(1.5)
        await run.stop(StopMode.CANCEL)
        now = asyncio.get_running_loop().time()
        await run.wait()
        took = asyncio.get_running_loop().time() - now
        below = statuses(engine)

    assert below == ["CANCELLED"]
    assert took == pytest.approx(5, abs=0.1)


@virtual_time
@pytest.mark.parametrize("mode", [StopMode.CANCEL, StopMode.KILL])
async def test_a_call_that_ignores_its_cancellation_starts_no_child_any_more(mode):
    top = flow("parent", ("in", "SEQUENCE_TRIGGER", {"count": 1}), ("late", "LATE"), OUT)
    async with engine_with(SLOW, top) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        await run.stop(mode)
        status = await run.wait()
        await asyncio.sleep(10)
        below = statuses(engine)

    assert status is TaskStatus.CANCELLED
    assert below == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_cancelling_the_node_cancels_its_child_and_the_parent_goes_on():
    async with engine_with(SLOW, parent(count=3)) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(1.5)
        await run.node("sub").stop(StopMode.CANCEL)
        status = await run.wait()
        below = statuses(engine)

    assert status is TaskStatus.SUCCESS
    assert below == ["CANCELLED", "SUCCESS"]


@virtual_time
async def test_the_deadline_of_the_parent_ends_its_children():
    async with engine_with(SLOW, parent(count=50)) as engine:
        await engine.definitions.patch_session("s", {"executionTimeoutMs": 2500})
        run = await engine.start("s", "parent")
        status = await run.wait()
        below = statuses(engine)

    assert status is TaskStatus.TIMED_OUT
    assert below == ["CANCELLED", "SUCCESS", "SUCCESS"]


@virtual_time
async def test_a_shutdown_lets_children_finish_what_a_drain_needs():
    async with engine_with(SLOW, parent(count=5)) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)

    assert engine.tracker.state(run.execution_id).status in (TaskStatus.STOPPED, TaskStatus.SUCCESS)
    assert set(statuses(engine)) == {"SUCCESS"}
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_a_shutdown_that_takes_too_long_cancels_families_whole():
    slower = flow("slow", IN, ("wait", "DELAY", {"ms": 60_000}), OUT)
    settings = {"execution__shutdown_timeout": "5s"}
    async with engine_with(slower, parent(count=5), **settings) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)

    assert engine.tracker.state(run.execution_id).status is TaskStatus.CANCELLED
    assert statuses(engine) == ["CANCELLED"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_stopping_all_runs_of_a_workflow_that_runs_itself_stops_the_family():
    own = flow(
        "loop",
        IN,
        sub("loop"),
        ("wait", "DELAY", {"ms": 60_000}),
        OUT,
        edges="in>sub sub>out in>wait wait>out",
    )
    async with engine_with(own, sub_workflow__max_depth=2) as engine:
        run = await engine.start("s", "loop", {"a": 1}, labels={})
        await asyncio.sleep(0)
        stopped = await engine.gateway.stop_workflow(
            "s",
            "loop",
            lambda execution_id: StopWorkflow(execution_id=execution_id, mode=StopMode.KILL),
            actor="someone",
            via="REST",
        )
        await run.wait()
        below = statuses(engine)

    assert stopped[0].execution_id == run.execution_id
    assert set(below) <= {"CANCELLED"}


# --- pauses --------------------------------------------------------------------------------------


@virtual_time
async def test_a_pause_of_the_parent_holds_every_level_below_it():
    middle = flow("middle", IN, sub("slow"), OUT)
    async with engine_with(SLOW, middle, parent("middle")) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        await run.pause()
        await asyncio.sleep(100)
        held = engine.gateway.executions(ExecutionQuery(), 10).items
        await run.resume()
        before = asyncio.get_running_loop().time()
        status = await run.wait()
        took = asyncio.get_running_loop().time() - before

    assert [(item["status"], item["paused"]) for item in held] == [("RUNNING", True)] * 3
    assert status is TaskStatus.SUCCESS
    assert took == pytest.approx(0.5, abs=0.01)


@virtual_time
async def test_a_child_that_its_own_command_paused_stays_paused_when_the_parent_goes_on():
    async with engine_with(SLOW, parent()) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        [made] = children(engine, run)
        child = engine._starter.live[made["executionId"]]
        child.pause()
        await run.pause()
        await run.resume()
        await asyncio.sleep(100)
        still = child.paused
        child.resume()
        status = await run.wait()

    assert still
    assert status is TaskStatus.SUCCESS


@virtual_time
async def test_a_child_that_was_being_started_when_its_parent_paused_begins_paused():
    async with engine_with(SLOW, parent()) as engine:
        run = await engine.start("s", "parent")
        live = engine._starter.live[run.execution_id]
        while not live.children._live:
            await asyncio.sleep(0)
        unborn = live.children.runs
        await run.pause()
        await asyncio.sleep(100)
        [made] = children(engine, run)
        await run.resume()
        status = await run.wait()

    assert unborn == []
    assert (made["status"], made["paused"]) == ("RUNNING", True)
    assert status is TaskStatus.SUCCESS


@virtual_time
async def test_a_step_of_the_parent_runs_children_to_their_end():
    async with engine_with(SLOW, parent(count=3)) as engine:
        run = await engine.start("s", "parent", step_mode=True)
        for _ in range(2):
            await run.step()
            await asyncio.sleep(0.5)
        await asyncio.sleep(100)
        paused = run.detail["paused"]
        below = statuses(engine)
        await run.stop(StopMode.KILL)
        await run.wait()

    assert paused
    assert below == ["SUCCESS"] * 2


@virtual_time
async def test_a_pause_of_the_node_alone_lets_its_child_finish():
    async with engine_with(SLOW, parent(count=2)) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        await run.node("sub").pause()
        await asyncio.sleep(100)
        below = statuses(engine)
        await run.node("sub").resume()
        await run.wait()

    assert below == ["SUCCESS"]


# --- clocks --------------------------------------------------------------------------------------


def timed(child: str, seconds: float) -> dict[str, Any]:
    return flow("parent", ("in", "SEQUENCE_TRIGGER", {"count": 1}), (*sub(child), seconds), OUT)


@virtual_time
async def test_a_child_may_be_silent_for_as_long_as_it_likes():
    child = flow("child", IN, ("wait", "STUBBORN"), OUT)
    async with engine_with(child, parent("child")) as engine:
        run = await engine.start("s", "parent")
        status = await run.wait()

    assert status is TaskStatus.SUCCESS


@virtual_time
async def test_what_a_child_does_keeps_a_node_with_an_idle_limit_alive():
    ticking = flow("child", ("in", "SEQUENCE_TRIGGER", {"count": 9, "intervalMs": 800}), OUT)
    middle = flow("middle", IN, sub("child"), OUT)
    async with engine_with(ticking, middle, timed("middle", 1)) as engine:
        run = await engine.start("s", "parent")
        status = await run.wait()

    assert status is TaskStatus.SUCCESS


@virtual_time
async def test_a_silent_child_times_out_a_node_with_an_idle_limit():
    silent = flow("child", IN, ("wait", "STUBBORN"), OUT)
    async with engine_with(silent, timed("child", 10)) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        below = statuses(engine)
        error = run.detail["error"]

    assert error["code"] == "idle_timeout"
    assert below == ["CANCELLED"]


@virtual_time
async def test_a_paused_child_does_not_time_out_its_parents_node():
    async with engine_with(SLOW, timed("slow", 1)) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        [made] = children(engine, run)
        child = engine._starter.live[made["executionId"]]
        child.pause()
        await asyncio.sleep(100)
        child.resume()
        status = await run.wait()

    assert status is TaskStatus.SUCCESS


# --- under the policies of the engine ------------------------------------------------------------


@virtual_time
async def test_a_repeated_attempt_runs_a_new_child_that_makes_the_same_ids():
    flaky = flow("child", IN, ("shop", "REFUSE"), OUT, edges="in>shop in>out")
    policy = {"retry": {"maxAttempts": 3, "backoffMs": 1000}}
    async with engine_with(flaky, parent("child", engine=policy)) as engine:
        run = await engine.start("s", "parent")
        status = await run.wait()
        found = children(engine, run)
        pages = [engine.results.get(item["executionId"]).read() for item in found]
        ids = [[item.message_id for item in page.items if item.message_id] for page in pages]

    assert status is TaskStatus.FAILURE
    assert [item["status"] for item in found] == ["FAILURE"] * 3
    assert ids[0]
    assert ids[0] == ids[1] == ids[2]


@virtual_time
async def test_case_05_no_level_tries_again_what_is_too_deep():
    again = {"retry": {"maxAttempts": 5, "backoffMs": 10}}
    own = flow("loop", IN, sub("loop", engine=again), OUT)
    async with engine_with(own) as engine:
        run = await engine.start("s", "loop", {"a": 1})
        await run.wait()
        below = statuses(engine)

    assert below == ["FAILURE"] * 5


@virtual_time
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
async def test_case_52_a_cancel_while_50_children_start_at_once_leaves_none_running(turns):
    at_once = parent(count=50, engine={"concurrency": {"max": 50}})
    async with engine_with(SLOW, at_once) as engine:
        run = await engine.start("s", "parent")
        for _ in range(turns):
            await asyncio.sleep(0)
        await run.stop(StopMode.CANCEL)
        status = await run.wait()
        below = statuses(engine)
        live = dict(engine._starter.live)

    assert status is TaskStatus.CANCELLED
    assert set(below) <= {"CANCELLED"}
    assert live == {}


@virtual_time
async def test_several_children_of_one_node_run_at_once_and_their_results_keep_the_order():
    at_once = parent(count=20, engine={"concurrency": {"max": 10}})
    async with engine_with(SLOW, at_once) as engine:
        run = await engine.start("s", "parent")
        await asyncio.sleep(0.5)
        living = statuses(engine)
        await run.pause()
        await asyncio.sleep(100)
        held = [item["paused"] for item in children(engine, run)]
        await run.resume()
        status = await run.wait()
        emitted = await results(run)

    assert status is TaskStatus.SUCCESS
    assert living == ["RUNNING"] * 10
    assert held == [True] * 10
    assert [item["results"][0]["n"] for item in emitted] == list(range(20))


@virtual_time
async def test_an_element_timeout_cancels_the_child():
    stuck = flow("child", IN, ("wait", "DELAY", {"ms": 60_000}), OUT)
    async with engine_with(stuck, parent("child", engine={"elementTimeoutMs": 1000})) as engine:
        run = await engine.start("s", "parent")
        await run.wait()
        below = statuses(engine)
        error = run.detail["error"]

    assert error["code"] == "element_timeout"
    assert below == ["CANCELLED"]
