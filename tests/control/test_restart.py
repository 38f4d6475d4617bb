"""Restart, restart from a node and retry, in an engine without a server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import Recover, RestartFromNode, RestartWorkflow, RetryNode
from yukta_rx.errors import ConflictError, NotFoundError, RejectedError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("CTL-04")

CALLS: Counter[str] = Counter()
"""Calls of plugins by node."""

FAILING: set[str] = set()
"""Nodes that fail."""


@trigger("NUMBERS", blocking=False)
async def numbers(cfg, ctx):
    """Count to what the payload says."""
    CALLS[ctx.node_id] += 1
    for n in range((ctx.payload or {}).get("count", 3)):
        yield {"n": n}
        await asyncio.sleep((ctx.payload or {}).get("pause", 0))


@processor("WORK", blocking=False)
def work(msg, cfg, ctx):
    """Pass on, or fail."""
    CALLS[ctx.node_id] += 1
    if ctx.node_id in FAILING:
        raise LookupError("no luck")
    return {**msg.payload, ctx.node_id: True}


@processor("HANG")
async def hang(msg, cfg, ctx):
    """Never come to an end."""
    CALLS[ctx.node_id] += 1
    await asyncio.sleep(1e9)


def nodes(**types: str) -> list[dict[str, Any]]:
    return [{"nodeId": name, "type": kind} for name, kind in types.items()]


def edges(*lines: str) -> list[dict[str, str]]:
    pairs = [line.split(">") for line in lines]
    return [{"source": source, "target": target} for source, target in pairs]


TWO_BRANCHES = {
    "workflowId": "w",
    "nodes": nodes(
        start="NUMBERS", left="WORK", right="WORK", end="COLLECT_TERMINAL", aside="COLLECT_TERMINAL"
    ),
    "edges": edges("start>left", "left>end", "start>right", "right>aside"),
    "options": {"onTerminalFailure": "FINISH_OTHERS"},
}


@pytest.fixture(autouse=True)
def fresh():
    CALLS.clear()
    FAILING.clear()


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry.load(None, extra=[numbers, work, hang])


@pytest.fixture
def opened(registry):
    def make(**settings):
        return Engine(load_settings(overrides=settings, environ={}), registry=registry)

    return make


async def results_of(run) -> list[tuple[str, str, Any]]:
    """What reached the terminals: node, message id, payload."""
    found = [item async for item in run.results()]
    return sorted(
        (item.node_id, item.message_id, item.payload) for item in found if item.type == "RESULT"
    )


def statuses(run) -> dict[str, str]:
    return {node["nodeId"]: node["status"] for node in run.detail["nodes"]}


# --- whole ---------------------------------------------------------------------------------------


@virtual_time
async def test_a_run_is_run_again_with_the_same_payload_and_new_ids(opened) -> None:
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 2}, labels={"team": "a"})
        await first.wait()
        second = await first.restart()
        assert await second.wait() is TaskStatus.SUCCESS

        old, new = await results_of(first), await results_of(second)
        assert sorted(str(one[2]) for one in old) == sorted(str(one[2]) for one in new)
        assert {uid for _, uid, _ in old}.isdisjoint(uid for _, uid, _ in new)
        assert second.detail["restartedFrom"] == first.execution_id
        assert second.detail["labels"] == {"team": "a"}
        assert "restartedFrom" not in first.detail
        assert CALLS["start"] == 2


@virtual_time
async def test_a_run_is_run_again_with_another_payload(opened) -> None:
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 2})
        await first.wait()
        second = await first.restart(payload={"count": 5})
        await second.wait()

        assert len(await results_of(second)) == 10


@virtual_time
async def test_a_run_is_run_again_with_another_version_of_its_workflow(opened) -> None:
    changed = {**TWO_BRANCHES, "nodes": [*TWO_BRANCHES["nodes"]]}
    changed["nodes"][1] = {"nodeId": "left", "type": "FILTER", "config": {"when": "false"}}
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 2})
        await first.wait()
        await engine.definitions.save("s", "w", changed)
        runs = {
            version: await first.restart(version=version)
            for version in ("same", "current", "1", "2")
        }
        for run in runs.values():
            await run.wait()

        assert {name: len(await results_of(run)) for name, run in runs.items()} == {
            "same": 4,
            "current": 2,
            "1": 4,
            "2": 2,
        }
        with pytest.raises(NotFoundError) as caught:
            await first.restart(version="9")
        assert caught.value.code == "version_not_found"


@virtual_time
async def test_a_live_run_is_cancelled_and_has_ended_when_the_new_one_begins(opened) -> None:
    async with opened(**{"yukta.execution.max-concurrent": 1}) as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 100, "pause": 1})
        await asyncio.sleep(2.5)
        second = await first.restart(payload={"count": 1})
        assert first.detail["status"] == "CANCELLED"
        assert await second.wait() is TaskStatus.SUCCESS
        assert engine.gateway.audit(first.execution_id)[-1]["outcome"] == "APPLIED"


@virtual_time
async def test_a_workflow_that_is_refused_by_now_does_not_cost_the_live_run(opened) -> None:
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 100, "pause": 1})
        with pytest.raises(NotFoundError):
            await first.restart(version="7")

        assert first.detail["status"] == "RUNNING"


@virtual_time
async def test_a_restart_is_admitted_like_any_start(opened) -> None:
    limits = {"yukta.execution.max-concurrent": 1, "yukta.execution.on-limit": "REJECT"}
    async with opened(**limits) as engine:
        first = await engine.start("s", TWO_BRANCHES)
        await first.wait()
        await asyncio.sleep(1)
        other = await engine.start("s", TWO_BRANCHES, {"count": 100, "pause": 1})
        for restart in (first.restart, first.node("left").restart):
            with pytest.raises(RejectedError):
                await restart()
        rows = engine.gateway.audit(first.execution_id)
        assert [row["outcome"] for row in rows] == ["REJECTED", "REJECTED"]
        assert not engine._starter.archive._pins
        # A live run gives its own slot up before.
        assert await (await other.restart(payload={"count": 1})).wait() is TaskStatus.SUCCESS


# --- from a node ---------------------------------------------------------------------------------


@virtual_time
async def test_only_a_node_and_what_is_behind_it_run_again_with_the_ids_of_before(opened) -> None:
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 4})
        await first.wait()
        second = await first.node("left").restart()
        assert await second.wait() is TaskStatus.SUCCESS

        old = await results_of(first)
        assert await results_of(second) == [item for item in old if item[0] == "end"]
        assert CALLS == {"start": 1, "left": 8, "right": 4}
        assert statuses(second) == {
            "start": "SUCCESS",
            "left": "SUCCESS",
            "right": "SKIPPED",
            "end": "SUCCESS",
            "aside": "SKIPPED",
        }
        assert second.detail["restartedFrom"] == first.execution_id


@virtual_time
async def test_what_was_replayed_can_be_replayed_again_from_the_new_run(opened) -> None:
    async with opened() as engine:
        run = await engine.start("s", TWO_BRANCHES, {"count": 4})
        await run.wait()
        wanted = [item for item in await results_of(run) if item[0] == "end"]
        for _ in range(3):
            run = await run.node("left").restart()
            await run.wait()
            assert await results_of(run) == wanted
        assert CALLS["start"] == 1


@virtual_time
async def test_from_a_trigger_all_of_it_runs_again_with_the_ids_of_before(opened) -> None:
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 4})
        await first.wait()
        second = await first.node("start").restart()
        await second.wait()

        assert await results_of(second) == await results_of(first)
        assert CALLS["start"] == 2


@virtual_time
async def test_a_live_run_goes_on_and_only_its_finished_nodes_are_replayed(opened) -> None:
    document = {
        "workflowId": "w",
        "nodes": nodes(
            start="NUMBERS", work="WORK", end="COLLECT_TERMINAL", hang="HANG", last="NULL_TERMINAL"
        ),
        "edges": edges("start>work", "work>end", "start>hang", "hang>last"),
    }
    async with opened() as engine:
        first = await engine.start("s", document, {"count": 3})
        await asyncio.sleep(1)
        assert statuses(first)["hang"] == "RUNNING"
        second = await first.node("work").restart()
        assert await second.wait() is TaskStatus.SUCCESS

        assert len(await results_of(second)) == 3
        assert first.detail["status"] == "RUNNING"
        with pytest.raises(ConflictError) as caught:
            await first.node("last").restart()
        assert caught.value.members["reason"] == "parents_not_finished"
        assert caught.value.members["nodes"] == ["hang"]
        await first.stop()


@virtual_time
async def test_a_run_that_is_stopped_halfway_has_no_finished_trigger(opened) -> None:
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 1000, "pause": 1})
        await asyncio.sleep(150)
        checkpoints = engine._starter.archive._checkpoints
        assert checkpoints.bytes > 0
        await first.stop()
        await first.wait()
        await asyncio.sleep(1)
        assert checkpoints.bytes == 0

        with pytest.raises(ConflictError) as caught:
            await first.node("left").restart()
        assert caught.value.members == {"reason": "parents_not_finished", "nodes": ["start"]}


@virtual_time
async def test_a_node_that_is_not_there_is_refused(opened) -> None:
    async with opened() as engine:
        run = await engine.start("s", TWO_BRANCHES)
        await run.wait()
        for command in (run.node("nowhere").restart, run.node("nowhere").retry):
            with pytest.raises(NotFoundError) as caught:
                await command()
            assert caught.value.code == "node_not_found"


# --- retry ---------------------------------------------------------------------------------------


@virtual_time
async def test_a_failed_node_is_retried_with_what_its_parents_gave(opened) -> None:
    FAILING.add("left")
    async with opened() as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 4})
        assert await first.wait() is TaskStatus.FAILURE
        FAILING.clear()
        second = await first.node("left").retry()
        assert await second.wait() is TaskStatus.SUCCESS

        assert len(await results_of(second)) == 4
        assert CALLS["start"] == 1
        assert CALLS["right"] == 4
        assert [row["command"] for row in engine.gateway.audit(first.execution_id)] == ["RetryNode"]


@virtual_time
async def test_a_node_of_a_live_run_is_retried_while_the_others_go_on(opened) -> None:
    document = {
        **TWO_BRANCHES,
        "nodes": nodes(
            start="NUMBERS",
            left="WORK",
            right="HANG",
            end="COLLECT_TERMINAL",
            aside="NULL_TERMINAL",
        ),
    }
    FAILING.add("left")
    async with opened() as engine:
        first = await engine.start("s", document, {"count": 2})
        await asyncio.sleep(1)
        FAILING.clear()
        second = await first.node("left").retry()
        assert await second.wait() is TaskStatus.SUCCESS
        assert first.detail["status"] == "RUNNING"


@virtual_time
async def test_a_node_that_did_not_fail_is_not_retried(opened) -> None:
    FAILING.add("left")
    async with opened() as engine:
        run = await engine.start("s", TWO_BRANCHES)
        await run.wait()
        for name in ("right", "end"):
            with pytest.raises(ConflictError) as caught:
                await run.node(name).retry()
            assert caught.value.code == "node_not_failed"
        with pytest.raises(ConflictError):
            await engine.gateway.command(
                RetryNode(execution_id=run.execution_id, node_id="right"),
                actor="ada",
                via="REST",
                dry_run=True,
            )
        rows = engine.gateway.audit(run.execution_id)
        assert {row["outcome"] for row in rows} == {"REJECTED"}


# --- what is kept --------------------------------------------------------------------------------


@virtual_time
async def test_only_the_newest_runs_are_kept(opened) -> None:
    async with opened(**{"yukta.restart.retained-executions": 2}) as engine:
        runs = [await engine.start("s", TWO_BRANCHES) for _ in range(3)]
        for run in runs:
            await run.wait()
        await asyncio.sleep(0)

        shown = [run.detail["restartable"] for run in runs]
        assert shown == [{"ok": False, "reason": "evicted"}, {"ok": True}, {"ok": True}]
        for command in (runs[0].restart, runs[0].node("left").restart, runs[0].node("left").retry):
            with pytest.raises(ConflictError) as caught:
                await command()
            assert caught.value.code == "not_restartable"
            assert caught.value.members["reason"] == "evicted"


@virtual_time
async def test_with_no_runs_kept_nothing_is_recorded(opened) -> None:
    async with opened(**{"yukta.restart.retained-executions": 0}) as engine:
        run = await engine.start("s", TWO_BRANCHES)
        assert engine._starter.archive.recorder("x") is None
        await run.wait()

        assert run.detail["restartable"]["ok"] is False
        assert engine._starter.archive._checkpoints.bytes == 0


@virtual_time
async def test_an_output_over_its_cap_makes_only_what_needs_it_impossible(opened) -> None:
    async with opened(**{"yukta.restart.messages-per-node": 3}) as engine:
        run = await engine.start("s", TWO_BRANCHES, {"count": 4})
        await run.wait()
        with pytest.raises(ConflictError) as caught:
            await run.node("left").restart()
        assert caught.value.code == "not_restartable"
        assert caught.value.members == {"reason": "output_over_cap", "nodes": ["start"]}

        again = await run.node("start").restart()
        assert await again.wait() is TaskStatus.SUCCESS
        assert await (await run.restart()).wait() is TaskStatus.SUCCESS


@pytest.mark.feature("DUR-02")
@virtual_time
async def test_with_a_spill_folder_an_output_over_its_cap_is_replayed(
    opened, tmp_path: Path
) -> None:
    settings = {
        "yukta.restart.messages-per-node": 3,
        "yukta.restart.spill-dir": str(tmp_path / "spill"),
    }
    async with opened(**settings) as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 500})
        await first.wait()
        second = await first.node("left").restart()
        third = await (await _ended(second)).node("end").restart()
        await third.wait()

        wanted = [item for item in await results_of(first) if item[0] == "end"]
        assert await results_of(second) == wanted
        assert await results_of(third) == wanted
        assert CALLS["start"] == 1
        assert len(await _names(tmp_path / "spill")) > 0
    assert await _names(tmp_path / "spill") == []


async def _ended(run):
    await run.wait()
    return run


async def _names(folder):
    pool = BlockingPool(1)
    try:
        return await pool.call(lambda: list(folder.iterdir()))
    finally:
        pool.close()


@virtual_time
async def test_a_run_that_is_replayed_is_not_forgotten_before_that_is_over(opened) -> None:
    async with opened(**{"yukta.restart.retained-executions": 1}) as engine:
        first = await engine.start("s", TWO_BRANCHES, {"count": 150})
        await first.wait()
        second = await first.node("left").restart()
        await second.pause()
        other = await engine.start("s", TWO_BRANCHES, {"count": 1})
        await other.wait()
        await asyncio.sleep(1)
        assert first.detail["restartable"]["ok"] is False
        await second.resume()
        assert await second.wait() is TaskStatus.SUCCESS

        assert len(await results_of(second)) == 150
        await asyncio.sleep(1)
        checkpoints = engine._starter.archive._checkpoints
        assert set(checkpoints._runs) == {second.execution_id}


@pytest.mark.slow
@pytest.mark.feature("DUR-02")
@virtual_time
async def test_a_thousand_restarts_leave_what_is_held_as_it_was(opened) -> None:
    async with opened() as engine:
        run = await engine.start("s", TWO_BRANCHES, {"count": 2})
        await run.wait()
        checkpoints = engine._starter.archive._checkpoints
        held = []
        for turn in range(1000):
            run = await (run.restart() if turn % 2 else run.node("left").restart())
            await run.wait()
            if turn % 100 == 99:
                held.append((checkpoints.bytes, len(checkpoints._runs)))

        assert len(set(held)) == 1, held
        assert held[0][1] <= 11


@virtual_time
async def test_a_child_run_is_not_restarted_by_itself(opened) -> None:
    child = {
        "workflowId": "child",
        "nodes": nodes(start="API_TRIGGER", end="COLLECT_TERMINAL"),
        "edges": edges("start>end"),
    }
    parent = {
        "workflowId": "parent",
        "nodes": [
            {"nodeId": "start", "type": "API_TRIGGER"},
            {"nodeId": "sub", "type": "SUB_WORKFLOW", "config": {"workflowId": "child"}},
            {"nodeId": "end", "type": "COLLECT_TERMINAL"},
        ],
        "edges": edges("start>sub", "sub>end"),
    }
    async with opened() as engine:
        await engine._save("s", child)
        run = await engine.start("s", parent)
        await run.wait()
        from yukta_rx.app import Execution

        [child_id] = engine.gateway.detail(run.execution_id, ["children"])["children"]
        below = Execution(engine, child_id)
        assert below.detail["restartable"] == {"ok": False, "reason": "child_run"}
        with pytest.raises(ConflictError):
            await below.restart()


# --- the commands --------------------------------------------------------------------------------


@virtual_time
async def test_a_dry_run_says_whether_and_starts_nothing(opened) -> None:
    async with opened(**{"yukta.restart.retained-executions": 1}) as engine:
        old = await engine.start("s", TWO_BRANCHES)
        await old.wait()
        run = await engine.start("s", TWO_BRANCHES)
        await run.wait()
        who = {"actor": "ada", "via": "REST", "dry_run": True}
        ids = {"execution_id": run.execution_id}
        for command in (
            RestartWorkflow(**ids),
            RestartFromNode(**ids, node_id="left"),
        ):
            result = await engine.gateway.command(command, **who)
            assert (result.outcome, result.started) == ("DRY_RUN", None)
        with pytest.raises(ConflictError):
            await engine.gateway.command(RestartWorkflow(execution_id=old.execution_id), **who)
        assert CALLS["start"] == 2


@virtual_time
async def test_the_new_run_has_the_actor_of_the_command(opened) -> None:
    async with opened() as engine:
        run = await engine.start("s", TWO_BRANCHES)
        await run.wait()
        result = await engine.gateway.command(
            RestartWorkflow(execution_id=run.execution_id), actor="ada", via="CLI"
        )

        assert engine.gateway.detail(result.started.execution_id)["actor"] == "ada"


@virtual_time
async def test_a_run_that_did_not_crash_is_not_recovered(opened) -> None:
    async with opened() as engine:
        run = await engine.start("s", TWO_BRANCHES)
        await run.wait()
        assert run.detail["resumable"] == {"ok": False, "reason": "not_aborted"}
        with pytest.raises(ConflictError) as caught:
            await run.send(Recover(execution_id=run.execution_id))
        assert (caught.value.code, caught.value.members["reason"]) == (
            "not_recoverable",
            "not_aborted",
        )


@virtual_time
async def test_a_run_that_is_not_known_is_not_found(opened) -> None:
    async with opened() as engine:
        for command in (
            RestartWorkflow(execution_id="nobody"),
            RetryNode(execution_id="nobody", node_id="x"),
            Recover(execution_id="nobody"),
        ):
            with pytest.raises(NotFoundError):
                await engine.gateway.command(command, actor="ada", via="REST")
