"""What a server finds in its files: aborted runs, ended ones, starts that wait, approvals."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.control.commands import Recover, RestartFromNode, RestartWorkflow, SetLimits
from yukta_rx.control.handles import Execution
from yukta_rx.errors import ConflictError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("DUR-01")

CALLS: Counter[tuple[str, Any]] = Counter()
"""Calls of plugins, by node and message."""

HELD: set[int] = set()
"""Messages that WORK does not come to an end with."""


@trigger("NUMBERS", blocking=False, replayable=True)
async def numbers(cfg, ctx):
    """Count to what the payload says."""
    for n in range((ctx.payload or {}).get("count", 3)):
        yield {"n": n}


@processor("WORK", blocking=False)
async def work(msg, cfg, ctx):
    """Pass on, or hang."""
    CALLS[ctx.node_id, msg.payload["n"]] += 1
    while msg.payload["n"] in HELD:
        await asyncio.sleep(1)
    return {**msg.payload, ctx.node_id: True}


@pytest.fixture(autouse=True)
def fresh():
    CALLS.clear()
    HELD.clear()


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry.load(None, extra=[numbers, work])


LINE = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "NUMBERS"},
        {"nodeId": "first", "type": "WORK"},
        {"nodeId": "second", "type": "WORK"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [
        {"source": "in", "target": "first"},
        {"source": "first", "target": "second"},
        {"source": "second", "target": "out"},
    ],
}


async def results_of(run: Any) -> list[Any]:
    found = [item async for item in run.results()]
    return sorted(item.payload["n"] for item in found if item.type == "RESULT")


async def moments(n: int = 30) -> None:
    """Let what is under way be written."""
    for _ in range(n):
        await asyncio.sleep(0.01)


async def resumes_of(engine: Any, execution_id: str) -> list[tuple[str, int]]:
    rows = (await engine.gateway.history(execution_id, 100)).items
    return [(row["newExecutionId"], row["attempt"]) for row in rows if row["type"] == "RUN_RESUMED"]


def listed(engine: Any) -> dict[str, str]:
    return {run.execution_id: str(run.status) for run in engine.tracker.runs()}


@virtual_time
async def test_runs_without_an_end_are_aborted_and_ended_ones_are_shown(tmp_path, registry) -> None:
    HELD.add(2)
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        ended = await engine.start("s", LINE, {"count": 2}, labels={"team": "a"})
        assert await ended.wait() is TaskStatus.SUCCESS
        cut = await engine.start("s", "w", {"count": 3})
        await moments()
        after = await image(tmp_path / "data", "after")

    async with engine_on(after, registry) as engine:
        assert listed(engine) == {ended.execution_id: "SUCCESS", cut.execution_id: "ABORTED"}
        shown = engine.gateway.detail(ended.execution_id)
        assert (shown["labels"], shown["resumable"]["ok"]) == ({"team": "a"}, False)
        assert engine.gateway.detail(cut.execution_id)["resumable"] == {"ok": True}
        history = await engine.gateway.history(cut.execution_id, 10)
        assert [row["type"] for row in history.items][-1] == "RUN_ABORTED"
        again = await image(after, "again")

    async with engine_on(again, registry) as engine:
        assert listed(engine)[cut.execution_id] == "ABORTED"
        history = await engine.gateway.history(cut.execution_id, 10)
        assert [row["type"] for row in history.items].count("RUN_ABORTED") == 1


@virtual_time
async def test_starts_that_waited_go_on_in_their_order_under_their_ids(tmp_path, registry) -> None:
    HELD.add(0)
    settings = {"execution.max-concurrent": 1}
    async with doomed(engine_on(tmp_path / "data", registry, **settings)) as engine:
        first = await engine.start("s", LINE)
        waiting = [
            await engine.start(
                "s",
                "w",
                {"count": 1, "yukta.priority": priority},
                idempotency_key=f"key-{priority}",
                patience=0,
            )
            for priority in (1, 3, 2)
        ]
        await moments()
        after = await image(tmp_path / "data", "after")

    HELD.clear()
    order: list[str] = []
    async with engine_on(after, registry, **settings) as engine:
        async for event in engine.listen(None):
            if event.type == "execution.finished":
                order.append(event.execution_id)
            if len(order) == 3:
                break
        assert order == [waiting[n].execution_id for n in (1, 2, 0)]
        assert listed(engine)[first.execution_id] == "ABORTED"
        replayed = await engine.start(
            "s", "w", {"count": 1, "yukta.priority": 3}, idempotency_key="key-3"
        )
        assert replayed.execution_id == waiting[1].execution_id


@virtual_time
async def test_an_acknowledged_start_outlives_a_shutdown_and_a_refused_one_does_not(
    tmp_path, registry
) -> None:
    HELD.add(0)
    settings = {"execution.max-concurrent": 1, "execution.shutdown-timeout": "1s"}
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        await engine.start("s", LINE)
        told = await engine.start("s", "w", {"count": 1}, patience=0)
        async with asyncio.TaskGroup() as group:
            refused = group.create_task(_refused(engine.start("s", "w", {"count": 2})))
            await asyncio.sleep(0.1)
            HELD.clear()
            group.create_task(engine.close())
        assert refused.result() == "shutting_down"

    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        assert await engine.tracker.wait(told.execution_id, 100)
        assert listed(engine)[told.execution_id] == "SUCCESS"
        assert "CANCELLED" in listed(engine).values()


async def _refused(start: Any) -> str:
    try:
        await start
    except Exception as error:
        return error.code  # type: ignore[attr-defined]
    return ""


@virtual_time
async def test_limits_that_a_command_set_are_in_force_again(tmp_path, registry) -> None:
    async with engine_on(tmp_path / "data", registry) as engine:
        await engine.gateway.command(
            SetLimits(max_concurrent=7, per_workflow=2), actor="ada", via="REST"
        )
    async with engine_on(tmp_path / "data", registry) as engine:
        limits = engine.gateway.limits()
        assert (limits["maxConcurrent"], limits["perWorkflow"], limits["source"]) == (7, 2, "LOG")


# --- resume --------------------------------------------------------------------------------------


async def aborted(tmp_path: Any, registry: Any, count: int = 6, hang: int = 4) -> tuple[Any, str]:
    """The files of a server that was killed while `second` worked on message `hang`."""
    HELD.add(hang)
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        run = await engine.start("s", LINE, {"count": count}, labels={"team": "a"})
        await moments()
        after = await image(tmp_path / "data", "after")
    HELD.clear()
    return after, run.execution_id


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_resume_works_only_on_what_was_not_finished(tmp_path, registry) -> None:
    after, old = await aborted(tmp_path, registry)
    before = CALLS.copy()
    CALLS.clear()

    async with engine_on(after, registry) as engine:
        result = await engine.gateway.command(Recover(old), actor="ada", via="REST")
        new = engine.gateway.detail(result.started.execution_id)
        assert (new["resumedFrom"], new["labels"]) == (old, {"team": "a"})
        assert await engine.tracker.wait(new["executionId"], 100)
        ended = engine.gateway.detail(new["executionId"], ["nodes"])

        assert ended["status"] == "SUCCESS"
        assert {node["status"] for node in ended["nodes"]} == {"SUCCESS"}
        assert await results_of(Execution(engine, new["executionId"])) == [0, 1, 2, 3, 4, 5]
        repeated = {key for key in CALLS if before[key]}
        assert repeated <= {("first", 4), ("second", 4)}
        assert await resumes_of(engine, old) == [(new["executionId"], 1)]


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_resume_is_refused_while_another_goes_on_or_has_succeeded(
    tmp_path, registry
) -> None:
    after, old = await aborted(tmp_path, registry)
    HELD.add(5)
    async with engine_on(after, registry) as engine:
        first = await engine.gateway.command(Recover(old), actor="ada", via="REST")
        for hold in (True, False):
            if not hold:
                HELD.clear()
                await engine.tracker.wait(first.started.execution_id, 100)
            with pytest.raises(ConflictError) as caught:
                await engine.gateway.command(Recover(old), actor="ada", via="REST")
            assert caught.value.code == "not_recoverable"
            assert caught.value.members["reason"] == "already_resumed"
            assert caught.value.members["resumedBy"] == first.started.execution_id
        assert engine.gateway.detail(old)["resumable"] == {"ok": False, "reason": "already_resumed"}


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_resume_that_was_cancelled_may_be_made_again(tmp_path, registry) -> None:
    after, old = await aborted(tmp_path, registry)
    HELD.add(5)
    async with engine_on(after, registry) as engine:
        first = await engine.gateway.command(Recover(old), actor="ada", via="REST")
        await moments()
        engine._starter.live[first.started.execution_id].stop(StopMode.CANCEL)
        await engine.tracker.wait(first.started.execution_id, 100)
        HELD.clear()
        second = await engine.gateway.command(Recover(old), actor="ada", via="REST")
        await engine.tracker.wait(second.started.execution_id, 100)
        assert engine.gateway.detail(second.started.execution_id)["status"] == "SUCCESS"
        ids = [result.started.execution_id for result in (first, second)]
        assert await resumes_of(engine, old) == [(ids[0], 1), (ids[1], 2)]


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_second_crash_goes_on_from_the_resume(tmp_path, registry) -> None:
    after, old = await aborted(tmp_path, registry, count=8, hang=3)
    HELD.add(6)
    async with doomed(engine_on(after, registry)) as engine:
        first = await engine.gateway.command(Recover(old), actor="ada", via="REST")
        await moments()
        later = await image(after, "later")
    HELD.clear()
    CALLS.clear()
    async with engine_on(later, registry) as engine:
        with pytest.raises(ConflictError) as caught:
            await engine.gateway.command(Recover(old), actor="ada", via="REST")
        assert "recover that" in caught.value.detail
        new = first.started.execution_id
        plan = await engine.gateway.resumes.plan(new)
        assert plan["attempt"] == 2
        second = await engine.gateway.command(Recover(new), actor="ada", via="REST")
        await engine.tracker.wait(second.started.execution_id, 100)
        shown = await results_of(Execution(engine, second.started.execution_id))
        assert shown == list(range(8))
        assert all(n >= 6 for _, n in CALLS)


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_interrupted_runs_are_resumed_without_being_asked(tmp_path, registry) -> None:
    after, old = await aborted(tmp_path, registry)
    async with engine_on(after, registry, **{"restart.auto-resume": True}) as engine:
        while (new := engine.gateway.resumes._newest.get(old)) is None:
            await asyncio.sleep(0.01)
        await engine.tracker.wait(new, 100)
        assert engine.gateway.detail(new)["status"] == "SUCCESS"
        rows = engine.gateway.audit(old)
        assert [(row["command"], row["actor"]) for row in rows] == [("Recover", "engine")]


@pytest.mark.feature("CTL-03", "DUR-03")
@virtual_time
async def test_a_run_that_was_being_stopped_is_resumed_only_by_hand(tmp_path, registry) -> None:
    HELD.add(1)
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        going = [await engine.start("s", LINE, {"count": 2}) for _ in range(2)]
        await moments()
        await going[0].stop(StopMode.DRAIN)
        after = await image(tmp_path / "data", "after")

    HELD.clear()
    stopped, other = (run.execution_id for run in going)
    async with engine_on(after, registry, **{"restart.auto-resume": True}) as engine:
        await moments()
        assert engine.gateway.resumes._newest.keys() == {other}
        assert listed(engine)[stopped] == "ABORTED"
        result = await engine.gateway.command(Recover(stopped), actor="ada", via="REST")
        assert await Execution(engine, result.started.execution_id).wait(100) is TaskStatus.SUCCESS


@pytest.mark.feature("CTL-04")
@virtual_time
async def test_a_run_that_ended_is_restarted_by_the_next_server(tmp_path, registry) -> None:
    async with engine_on(tmp_path / "data", registry) as engine:
        run = await engine.start("s", LINE, {"count": 3})
        await run.wait()
    CALLS.clear()
    async with engine_on(tmp_path / "data", registry) as engine:
        for command in (
            RestartFromNode(execution_id=run.execution_id, node_id="second"),
            RestartWorkflow(execution_id=run.execution_id),
        ):
            result = await engine.gateway.command(command, actor="ada", via="REST")
            await engine.tracker.wait(result.started.execution_id, 100)
            assert engine.gateway.detail(result.started.execution_id)["status"] == "SUCCESS"
        assert {
            **{("second", n): 2 for n in range(3)},
            **{("first", n): 1 for n in range(3)},
        } == CALLS


@pytest.mark.feature("CTL-04")
@virtual_time
async def test_an_aborted_run_can_be_run_again_from_its_beginning_and_from_a_node(
    tmp_path, registry
) -> None:
    after, old = await aborted(tmp_path, registry)
    CALLS.clear()
    async with engine_on(after, registry) as engine:
        assert engine.gateway.detail(old)["restartable"] == {"ok": True}
        again = await engine.gateway.command(
            RestartFromNode(execution_id=old, node_id="first"), actor="ada", via="REST"
        )
        await engine.tracker.wait(again.started.execution_id, 100)
        whole = await engine.gateway.command(
            RestartWorkflow(execution_id=old), actor="ada", via="REST"
        )
        await engine.tracker.wait(whole.started.execution_id, 100)
        for started in (again.started, whole.started):
            run = Execution(engine, started.execution_id)
            assert await results_of(run) == [0, 1, 2, 3, 4, 5]
        assert CALLS["first", 0] == 2


WAITS = {
    "workflowId": "asks",
    "nodes": [
        {"nodeId": "in", "type": "NUMBERS"},
        {"nodeId": "ask", "type": "WAIT_FOR_SIGNAL", "config": {"signal": "go"}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
}


@pytest.mark.feature("CTL-05")
@virtual_time
async def test_an_approval_is_the_same_after_a_resume(tmp_path, registry) -> None:
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        run = await engine.start("s", WAITS, {"count": 1})
        await moments()
        [asked] = engine.approvals.page(lambda session: True, 10)[0]
        after = await image(tmp_path / "data", "after")
    async with engine_on(after, registry) as engine:
        result = await engine.gateway.command(Recover(run.execution_id), actor="ada", via="REST")
        await moments()
        [again] = engine.approvals.page(lambda session: True, 10)[0]
        assert again["approvalId"] == asked["approvalId"]
        assert again["since"] == asked["since"]
        assert again["executionId"] == result.started.execution_id


@processor("ONCE", blocking=False)
async def once(msg, cfg, ctx):
    """Do something once for the message, and hang after it if that is wanted."""

    def do() -> str:
        CALLS["once", msg.payload["n"]] += 1
        return "done"

    said = await ctx.once("it", do)
    while msg.payload["n"] in HELD:
        await asyncio.sleep(1)
    return {**msg.payload, "said": said}


ONCE = {
    "workflowId": "once",
    "nodes": [
        {"nodeId": "in", "type": "NUMBERS"},
        {"nodeId": "act", "type": "ONCE"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "act"}, {"source": "act", "target": "out"}],
}


@pytest.mark.feature("DUR-02")
@virtual_time
async def test_what_was_done_once_is_not_done_again_by_the_next_server(tmp_path) -> None:
    registry = PluginRegistry.load(None, extra=[numbers, once])
    HELD.add(1)
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        run = await engine.start("s", ONCE, {"count": 3})
        await moments()
        after = await image(tmp_path / "data", "after")
    assert CALLS["once", 1] == 1
    HELD.clear()
    async with engine_on(after, registry, **{"restart.retained-executions": 1}) as engine:
        result = await engine.gateway.command(Recover(run.execution_id), actor="ada", via="REST")
        await engine.tracker.wait(result.started.execution_id, 100)
        assert dict(CALLS) == {("once", n): 1 for n in range(3)}
        kept = engine.keeping.effects.store.kept
        assert kept == 3
        # Once no run of its kind can be repeated any more, nobody asks for it.
        other = await engine.start("s", "once", {"count": 1})
        await other.wait()
        await moments()
        assert engine.keeping.effects.store.kept == 1


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_shutdown_interrupts_what_does_not_end_and_the_next_server_resumes_it(
    tmp_path, registry
) -> None:
    HELD.add(4)
    settings = {"execution.shutdown-timeout": "1s"}
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        work = await engine.start("s", LINE, {"count": 6})
        asks = await engine.start("s", WAITS, {"count": 2})
        await moments()
        asked = engine.approvals.page(lambda session: True, 10)[0]
    assert len(asked) == 2
    HELD.clear()
    CALLS.clear()
    async with engine_on(
        tmp_path / "data", registry, **{"restart.auto-resume": True}, **settings
    ) as engine:
        assert listed(engine)[work.execution_id] == "ABORTED"
        history = await engine.gateway.history(work.execution_id, 100)
        [row] = [row for row in history.items if row["type"] == "RUN_ABORTED"]
        assert "shut down" in row["reason"]
        while len(engine._starter.live) + len(listed(engine)) < 5:
            await asyncio.sleep(0.01)
        resumed = engine.gateway.resumes._newest
        assert await engine.tracker.wait(resumed[work.execution_id], 100)
        assert await results_of(Execution(engine, resumed[work.execution_id])) == list(range(6))
        await moments()
        again = engine.approvals.page(lambda session: True, 10)[0]
        assert [one["approvalId"] for one in again] == [one["approvalId"] for one in asked]
    # With auto-resume nothing waits for the time that a shutdown has.
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        assert listed(engine)[resumed[asks.execution_id]] == "ABORTED"


TWO = {
    "workflowId": "two",
    "nodes": [
        {"nodeId": "in", "type": "NUMBERS"},
        {"nodeId": "left", "type": "WORK"},
        {"nodeId": "right", "type": "WORK"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        {"nodeId": "aside", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [
        {"source": "in", "target": "left"},
        {"source": "left", "target": "out"},
        {"source": "in", "target": "right"},
        {"source": "right", "target": "aside"},
    ],
}


@pytest.mark.feature("CTL-04", "DUR-03")
@virtual_time
async def test_a_run_that_began_behind_a_node_goes_on_so_after_a_crash(tmp_path, registry) -> None:
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        first = await engine.start("s", TWO, {"count": 6})
        await first.wait()
        HELD.add(3)
        again = await engine.gateway.command(
            RestartFromNode(execution_id=first.execution_id, node_id="left"),
            actor="ada",
            via="REST",
        )
        await moments()
        after = await image(tmp_path / "data", "after")
    HELD.clear()
    CALLS.clear()
    async with engine_on(after, registry) as engine:
        old = again.started.execution_id
        plan = await engine.gateway.resumes.plan(old)
        actions = {row["nodeId"]: row["action"] for row in plan["nodes"]}
        assert actions == {
            "in": "REPLAYED",
            "left": "CONTINUED",
            "right": "ALONE",
            "out": "CONTINUED",
            "aside": "ALONE",
        }
        result = await engine.gateway.command(Recover(old), actor="ada", via="REST")
        new = result.started.execution_id
        await engine.tracker.wait(new, 100)
        assert await results_of(Execution(engine, new)) == list(range(6))
        assert {node for node, _ in CALLS} == {"left"}
        shown = {node["nodeId"]: node["status"] for node in engine.gateway.nodes(new)}
        assert (shown["right"], shown["aside"]) == ("SKIPPED", "SKIPPED")
        losses = await engine.gateway.losses(new)
        assert losses["items"] == []
