"""What a server finds in its database, wherever the one before was cut off.

The server before is cut off by the fence: from one moment on nothing that it writes is written.
What is there then is what a crash at that moment leaves.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.control.crash import dethroned
from tests.durability.conftest import postgres, postgres_schema, postgres_server
from tests.durability.lossy import Lossy
from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import Recover, RestartFromNode, RestartWorkflow, SetLimits
from yukta_rx.control.handles import Execution
from yukta_rx.durability.postgres._writer import ATTEMPTS
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.execution_log import PostgresExecutionLogStore
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.errors import ConflictError, StaleLeaderError, StoreUnavailableError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.durable,
    pytest.mark.feature("DUR-01", "DUR-03", "DUR-04"),
]

__all__ = ["postgres", "postgres_schema", "postgres_server"]

CALLS: Counter[tuple[str, Any]] = Counter()
"""Calls of plugins, by node and message."""

HELD: set[int] = set()
"""Messages that WORK and ONCE do not come to an end with."""


@trigger("NUMBERS", blocking=False, replayable=True)
async def numbers(cfg, ctx):
    """Count to what the payload says."""
    for n in range((ctx.payload or {}).get("count", 3)):
        yield {"n": n}
        await asyncio.sleep((ctx.payload or {}).get("pause", 0))


async def released(n: int) -> None:
    while n in HELD:
        await asyncio.sleep(0.005)


@processor("WORK", blocking=False)
async def work(msg, cfg, ctx):
    """Pass on, or hang."""
    CALLS[ctx.node_id, msg.payload["n"]] += 1
    await released(msg.payload["n"])
    return {**msg.payload, ctx.node_id: True}


@processor("ONCE", blocking=False)
async def once(msg, cfg, ctx):
    """Do something once for the message, and hang after it if that is wanted."""

    def do() -> str:
        CALLS["once", msg.payload["n"]] += 1
        return "done"

    said = await ctx.once("it", do)
    await released(msg.payload["n"])
    return {**msg.payload, "said": said}


@pytest.fixture(autouse=True)
def fresh():
    CALLS.clear()
    HELD.clear()


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry.load(None, extra=[numbers, work, once])


def line(workflow_id: str, *nodes: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    ids = [node[0] for node in nodes]
    return {
        "workflowId": workflow_id,
        "nodes": [{"nodeId": id, "type": type, "config": config} for id, type, config in nodes],
        "edges": [{"source": a, "target": b} for a, b in itertools.pairwise(ids)],
    }


IN, OUT = ("in", "NUMBERS", {}), ("out", "COLLECT_TERMINAL", {})
LINE = line("w", IN, ("first", "WORK", {}), ("second", "WORK", {}), OUT)
WAITS = line("asks", IN, ("ask", "WAIT_FOR_SIGNAL", {"signal": "go"}), OUT)
ACTS = line("acts", IN, ("act", "ONCE", {}), OUT)


@pytest.fixture
def engine(postgres, postgres_schema, registry) -> Callable[..., Engine]:
    """An engine on the database."""

    def on(**settings: Any) -> Engine:
        given = {"profile": "postgres", "postgres.url": postgres_schema, **settings}
        given.setdefault("execution.shutdown-timeout", "100ms")
        overrides = {f"yukta.{name}": value for name, value in given.items()}
        return Engine(load_settings(overrides=overrides, environ={}), registry=registry)

    return on


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await met():
            await asyncio.sleep(0.01)


async def recorded(engine: Engine, execution_id: str, node: str, inputs: int) -> None:
    """Wait until so many inputs of a node are on record as finished."""

    async def are() -> bool:
        states = await engine.stores.checkpoints.states(execution_id)
        return node in states and states[node].inputs >= inputs

    await until(are)


async def asked(engine: Engine, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def are() -> bool:
        found[:] = engine.approvals.page(lambda session: True, 10)[0]
        return len(found) == count

    await until(are)
    return found


async def results_of(engine: Engine, execution_id: str) -> list[int]:
    found = [item async for item in Execution(engine, execution_id).results()]
    return sorted(item.payload["n"] for item in found if item.type == "RESULT")


def listed(engine: Engine) -> dict[str, str]:
    return {run.execution_id: str(run.status) for run in engine.tracker.runs()}


async def recover(engine: Engine, execution_id: str) -> str:
    result = await engine.gateway.command(Recover(execution_id), actor="ada", via="REST")
    new: str = result.started.execution_id
    return new


async def aborted(engine: Engine, count: int = 6, hang: int = 4) -> str:
    """A run that was cut off while `second` worked on the message `hang`."""
    HELD.add(hang)
    async with dethroned(engine) as before:
        run = await before.start("s", LINE, {"count": count}, labels={"team": "a"})
        await recorded(before, run.execution_id, "second", hang)
    HELD.clear()
    return run.execution_id


# --- what is there -------------------------------------------------------------------------------


async def test_runs_without_an_end_are_aborted_once_and_ended_ones_are_shown(engine) -> None:
    HELD.add(2)
    async with dethroned(engine()) as first:
        ended = await first.start("s", LINE, {"count": 2}, labels={"team": "a"})
        assert await ended.wait() is TaskStatus.SUCCESS
        cut = await first.start("s", "w", {"count": 3})
        await first.history.settled()

    for _ in range(2):
        async with engine() as second:
            assert listed(second) == {ended.execution_id: "SUCCESS", cut.execution_id: "ABORTED"}
            assert second.gateway.detail(ended.execution_id)["labels"] == {"team": "a"}
            assert second.gateway.detail(cut.execution_id)["resumable"] == {"ok": True}
            rows = (await second.gateway.history(cut.execution_id, 10)).items
            assert [row["type"] for row in rows].count("RUN_ABORTED") == 1


async def test_starts_that_waited_go_on_in_their_order_under_their_ids(engine) -> None:
    HELD.add(0)
    settings = {"execution.max-concurrent": 1}
    async with dethroned(engine(**settings)) as before:
        first = await before.start("s", LINE)
        waiting = [
            await before.start(
                "s",
                "w",
                {"count": 1, "yukta.priority": priority},
                idempotency_key=f"key-{priority}",
                patience=0,
            )
            for priority in (1, 3, 2)
        ]

    HELD.clear()
    order: list[str] = []
    async with engine(**settings) as after:
        async for event in after.listen(None):
            if event.type == "execution.finished":
                order.append(event.execution_id)
            if len(order) == 3:
                break
        assert order == [waiting[n].execution_id for n in (1, 2, 0)]
        assert listed(after)[first.execution_id] == "ABORTED"
        replayed = await after.start(
            "s", "w", {"count": 1, "yukta.priority": 3}, idempotency_key="key-3"
        )
        assert replayed.execution_id == waiting[1].execution_id


WAITING = "SELECT pid FROM pg_locks WHERE NOT granted AND relation = $1::regclass"
"""Whose write waits for a table."""


@pytest.mark.parametrize("table", ["execution_log", "queued_start"])
async def test_a_start_that_was_cut_in_one_of_its_writes_never_was(
    engine, postgres_schema, table
) -> None:
    HELD.add(0)
    settings = {"execution.max-concurrent": 1}
    async with engine(**settings) as before:
        first = await before.start("s", LINE)
        await before.history.settled()
        async with asyncpg.create_pool(postgres_schema, min_size=2, max_size=2) as pool:
            locking, crashing = await pool.acquire(), await pool.acquire()
            async with locking.transaction():
                # Whichever write needs the table waits; what came before it is written.
                await locking.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
                asked = {"idempotency_key": "k", "patience": 0}
                cut = asyncio.ensure_future(before.start("s", "w", {"count": 1}, **asked))
                while not await locking.fetch(WAITING, table):
                    await asyncio.sleep(0.01)
                part = before.stores.database.part
                crash = asyncio.ensure_future(raise_epoch(crashing, part, "a crash"))
                while not crash.done():
                    await locking.fetch(
                        f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) AS w", table
                    )
                    await asyncio.sleep(0.01)
            for made in (locking, crashing):
                await pool.release(made)
        with pytest.raises(StaleLeaderError):
            await cut
        for run in tuple(before._starter.live.values()):
            run.stop(StopMode.KILL)

    HELD.clear()
    async with engine(**settings) as after:
        assert listed(after) == {first.execution_id: "ABORTED"}
        assert await after.stores.queued_starts.list() == []
        again = await after.start("s", "w", {"count": 1}, idempotency_key="k")
        assert await again.wait() is TaskStatus.SUCCESS


async def test_a_start_of_which_no_answer_came_has_an_end_and_a_repeat_starts_anew(engine) -> None:
    async with engine() as running:
        first = await running.start("s", LINE, {"count": 1})
        assert await first.wait() is TaskStatus.SUCCESS
        led, log = running.stores.database, running.history._store
        async with Lossy(led._url) as way, Database(way.url, part=led.part, size=2) as database:
            database.epoch = led.epoch
            async with PostgresExecutionLogStore(database, 500, 10_000) as store:
                running.history._store = store
                second = await running.start("s", "w", {"count": 1})
                assert await second.wait() is TaskStatus.SUCCESS
                await running.history.settled()
                for _ in range(ATTEMPTS):
                    way.lose("SELECT 1")
                with pytest.raises(StoreUnavailableError):
                    await running.start("s", "w", {"count": 2}, idempotency_key="k")
                assert way.lost == ATTEMPTS
                again = await running.start("s", "w", {"count": 2}, idempotency_key="k")
                assert await again.wait() is TaskStatus.SUCCESS
                await running.history.settled()
                running.history._store = log
        runs = {run.started.execution_id: run.ended for run in await log.runs()}

    for known in (first, second, again):
        assert runs.pop(known.execution_id).status is TaskStatus.SUCCESS
    [lost] = runs.values()
    assert (lost.status, lost.error["code"]) == (TaskStatus.ERROR, "store_unavailable")


async def test_limits_that_a_command_set_are_in_force_again(engine) -> None:
    async with dethroned(engine()) as before:
        await before.gateway.command(
            SetLimits(max_concurrent=7, per_workflow=2), actor="ada", via="REST"
        )
    async with engine() as after:
        limits = after.gateway.limits()
        assert (limits["maxConcurrent"], limits["perWorkflow"], limits["source"]) == (7, 2, "LOG")


# --- going on ------------------------------------------------------------------------------------


async def test_a_resume_works_only_on_what_was_not_finished(engine) -> None:
    old = await aborted(engine())
    CALLS.clear()
    async with engine() as after:
        new = await recover(after, old)
        assert await after.tracker.wait(new, 30)
        shown = after.gateway.detail(new, ["nodes"])
        assert (shown["status"], shown["resumedFrom"]) == ("SUCCESS", old)
        assert shown["labels"] == {"team": "a"}
        assert {node["status"] for node in shown["nodes"]} == {"SUCCESS"}
        assert await results_of(after, new) == [0, 1, 2, 3, 4, 5]
        assert set(CALLS) == {(node, n) for node in ("first", "second") for n in (4, 5)}
        with pytest.raises(ConflictError) as caught:
            await recover(after, old)
        assert caught.value.members["resumedBy"] == new


async def test_a_second_crash_goes_on_from_the_resume(engine) -> None:
    old = await aborted(engine(), count=8, hang=3)
    HELD.add(6)
    async with dethroned(engine()) as between:
        first = await recover(between, old)
        await recorded(between, first, "second", 6)
    HELD.clear()
    CALLS.clear()
    async with engine() as after:
        assert (await after.gateway.resumes.plan(first))["attempt"] == 2
        second = await recover(after, first)
        assert await after.tracker.wait(second, 30)
        assert await results_of(after, second) == list(range(8))
        assert all(n >= 6 for _, n in CALLS)


async def test_interrupted_runs_are_resumed_without_being_asked(engine) -> None:
    old = await aborted(engine())
    async with engine(**{"restart.auto-resume": True}) as after:
        while (new := after.gateway.resumes._newest.get(old)) is None:
            await asyncio.sleep(0.01)
        assert await after.tracker.wait(new, 30)
        assert after.gateway.detail(new)["status"] == "SUCCESS"
        rows = after.gateway.audit(old)
        assert [(row["command"], row["actor"]) for row in rows] == [("Recover", "engine")]


async def test_a_run_is_restarted_by_the_next_server_whether_it_ended_or_not(engine) -> None:
    old = await aborted(engine())
    async with engine() as between:
        run = await between.start("s", "w", {"count": 6})
        await run.wait()
    for execution_id in (old, run.execution_id):
        CALLS.clear()
        async with engine() as after:
            for command in (
                RestartFromNode(execution_id=execution_id, node_id="first"),
                RestartWorkflow(execution_id=execution_id),
            ):
                result = await after.gateway.command(command, actor="ada", via="REST")
                assert await after.tracker.wait(result.started.execution_id, 30)
                assert await results_of(after, result.started.execution_id) == list(range(6))
        assert {CALLS["first", n] for n in range(6)} == {2}


@pytest.mark.feature("CTL-05")
async def test_an_approval_is_the_same_after_a_resume(engine) -> None:
    async with dethroned(engine()) as before:
        run = await before.start("s", WAITS, {"count": 1})
        [one] = await asked(before, 1)
    async with engine() as after:
        new = await recover(after, run.execution_id)
        [again] = await asked(after, 1)
        assert (again["approvalId"], again["since"]) == (one["approvalId"], one["since"])
        assert again["executionId"] == new


@pytest.mark.feature("DUR-02")
async def test_what_was_done_once_is_not_done_again_by_the_next_server(engine) -> None:
    HELD.add(1)
    async with dethroned(engine()) as before:
        run = await before.start("s", ACTS, {"count": 3})
        await recorded(before, run.execution_id, "act", 1)

        async def kept() -> bool:
            return before.keeping.effects.store.kept == 2

        await until(kept)
    HELD.clear()
    async with engine() as after:
        new = await recover(after, run.execution_id)
        assert await after.tracker.wait(new, 30)
        assert dict(CALLS) == {("once", n): 1 for n in range(3)}
        assert after.keeping.effects.store.kept == 3


async def test_a_shutdown_keeps_what_was_acknowledged_for_the_next_server(engine) -> None:
    HELD.add(4)
    async with engine(**{"execution.max-concurrent": 1}) as before:
        run = await before.start("s", LINE, {"count": 6})
        waits = await before.start("s", "w", {"count": 2}, patience=0)
        await recorded(before, run.execution_id, "second", 4)
    HELD.clear()
    async with engine(**{"restart.auto-resume": True}) as after:
        assert listed(after)[run.execution_id] == "ABORTED"
        assert await after.tracker.wait(waits.execution_id, 30)
        assert await results_of(after, waits.execution_id) == [0, 1]
        while (new := after.gateway.resumes._newest.get(run.execution_id)) is None:
            await asyncio.sleep(0.01)
        assert await after.tracker.wait(new, 30)
        assert await results_of(after, new) == [0, 1, 2, 3, 4, 5]


# --- wherever it is cut off ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(int(os.environ.get("YUKTA_TEST_CRASHES", "5"))))
@pytest.mark.timeout(120)
async def test_wherever_it_is_cut_off_a_run_has_each_message_once(engine, seed: int) -> None:
    rng = random.Random(seed)
    count = 60
    started = asyncio.Event()

    async def cut(running: Engine) -> None:
        """Come to any moment: after so many calls, and a little later."""
        calls = sum(CALLS.values()) + rng.randrange(count)
        while sum(CALLS.values()) < calls and running._starter.live:
            await asyncio.sleep(0)
        await asyncio.sleep(rng.random() * 0.06)

    execution_id = ""
    for round in range(4):
        async with dethroned(engine()) as running:
            if not round:
                run = await running.start("s", LINE, {"count": count, "pause": 0.002})
                execution_id = run.execution_id
                started.set()
            elif listed(running)[execution_id] == "ABORTED":
                execution_id = await recover(running, execution_id)
            await cut(running)
    async with engine() as last:
        if listed(last)[execution_id] == "ABORTED":
            execution_id = await recover(last, execution_id)
        assert await last.tracker.wait(execution_id, 60)
        assert last.gateway.detail(execution_id)["status"] == "SUCCESS"
        assert await results_of(last, execution_id) == list(range(count))
