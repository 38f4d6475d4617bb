"""The execution log of an engine: what is written when, and what a failing store does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.commands import PauseWorkflow, SetLimits, StopWorkflow
from yukta_rx.control.starter import StartRequest
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.errors import (
    IdempotencyKeyReusedError,
    NotFoundError,
    StoreUnavailableError,
    UnserialisablePayloadError,
    YuktaError,
)
from yukta_rx.model.execution_log import ORPHANS, SCHEDULER, RunFinished
from yukta_rx.plugins.contract import processor
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

pytestmark = pytest.mark.feature("DUR-01")

TICKS = {
    "workflowId": "ticks",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 5, "intervalMs": 1000}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}
ECHO = {
    "workflowId": "echo",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}
PARENT = {
    "workflowId": "parent",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "sub", "type": "SUB_WORKFLOW", "config": {"workflowId": "echo"}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "sub"}, {"source": "sub", "target": "out"}],
}
WHO: dict[str, Any] = {"actor": "key:ada", "via": "REST"}


class Flaky(MemoryExecutionLogStore):
    """A store that can be down."""

    def __init__(self) -> None:
        super().__init__(500, 10_000)
        self.down = False
        self.tried = 0
        self.writes: list[list[Any]] = []

    def _append(self, events: Sequence[Any]) -> None:
        self.tried += 1
        if self.down:
            raise OSError("no space left")
        super()._append(events)
        self.writes.append(list(events))


@asynccontextmanager
async def world(*plugins: Any, **options: Any) -> AsyncIterator[tuple[Engine, Flaky]]:
    """An engine whose execution log is in a store that can be down."""
    async with Engine(Settings(**options), plugins=plugins) as engine:
        store = Flaky()
        engine.history._store = store
        await engine.definitions.apply_session(
            {"sessionId": "s", "workflows": [TICKS, ECHO, PARENT]}
        )
        yield engine, store


def asked(workflow_id: str = "ticks", **more: Any) -> StartRequest:
    return StartRequest(session_id="s", workflow_id=workflow_id, **{**WHO, **more})


async def history(engine: Engine, execution_id: str) -> list[dict[str, Any]]:
    return (await engine.gateway.history(execution_id, 500)).items


def types(items: list[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]


def failures(engine: Engine, kind: str) -> float:
    return float(engine.meters.counter("yukta.tracker.log.append.failed", type=kind).value)


# --- what is written -----------------------------------------------------------------------------


@virtual_time
async def test_a_run_is_recorded_from_its_start_to_its_end() -> None:
    async with world() as (engine, store):
        started = await engine.gateway.start(
            asked(payload={"a": 1}, labels={"team": "x"}, step_mode=False)
        )
        at_once = await store.read(started.execution_id)
        await asyncio.sleep(1.5)
        await engine.gateway.command(PauseWorkflow(execution_id=started.execution_id), **WHO)
        await engine.gateway.command(
            StopWorkflow(execution_id=started.execution_id, mode=StopMode.CANCEL), **WHO
        )
        await engine.gateway.wait(started.execution_id, 100)
        items = await history(engine, started.execution_id)

    [entry] = at_once
    event = entry.event
    assert (event.TYPE, event.payload, event.actor, event.via) == (
        *("RUN_STARTED", {"a": 1}, "key:ada", "REST"),
    )
    assert (event.lineage, event.labels) == (started.execution_id, {"team": "x"})
    assert event.definition_version == started.definition_version
    assert event.options["onTerminalFailure"] == "FAIL_FAST"
    # A cancel ends nodes while it is applied, others a moment after it was answered.
    assert [kind for kind in types(items) if kind != "NODE_FINISHED"] == [
        *("RUN_STARTED", "CONTROL_APPLIED", "CONTROL_APPLIED", "RUN_FINISHED")
    ]
    assert items[1]["status"] == items[1]["command"] == "PauseWorkflow"
    assert {item["nodeId"]: item["status"] for item in items if "nodeId" in item} == {
        "in": "CANCELLED",
        "out": "CANCELLED",
    }
    assert items[5]["status"] == "CANCELLED"
    assert items[5]["totals"]["in"] >= 1
    assert "payload" not in items[0]


@virtual_time
async def test_W04_the_start_is_written_with_its_key_in_one_write_before_the_id_is_told() -> None:
    async with world() as (engine, store):
        told: list[Any] = []

        async def start() -> None:
            told.append(await engine.gateway.start(asked(idempotency_key="k")))

        task = asyncio.ensure_future(start())
        while not store.writes:
            assert not told
            await asyncio.sleep(0)
        await task
        repeated = await engine.gateway.start(asked(idempotency_key="k"))

    [started] = told
    first = store.writes[0]
    assert [event.TYPE for event in first] == ["RUN_STARTED", "IDEMPOTENCY_KEY"]
    assert {event.execution_id for event in first} == {started.execution_id}
    assert (repeated.execution_id, repeated.replayed) == (started.execution_id, True)
    starts = [event for write in store.writes for event in write if event.TYPE == "RUN_STARTED"]
    assert len(starts) == 1


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_key_that_the_window_has_lost_is_still_in_the_log() -> None:
    async with world(start={"idempotency_max_keys": 1}) as (engine, _):
        first = await engine.gateway.start(asked(idempotency_key="a"))
        await engine.gateway.start(asked(idempotency_key="b"))
        again = await engine.gateway.start(asked(idempotency_key="a"))
        with pytest.raises(IdempotencyKeyReusedError):
            await engine.gateway.start(asked(idempotency_key="b", payload={"other": 1}))

    assert (again.execution_id, again.replayed, again.status) == (
        *(first.execution_id, True, "RUNNING"),
    )


@virtual_time
async def test_a_child_run_is_recorded_with_its_parent() -> None:
    async with world() as (engine, store):
        started = await engine.gateway.start(asked("parent", payload={"a": 1}))
        await engine.gateway.wait(started.execution_id, 100)
        await engine.history.settled()
        runs = await store.runs()

    by_workflow = {run.started.workflow_id: run for run in runs}
    child = by_workflow["echo"]
    assert child.started.parent_execution_id == started.execution_id
    assert (child.started.depth, child.started.payload["a"]) == (1, 1)
    assert {str(run.ended.status) for run in runs if isinstance(run.ended, RunFinished)} == {
        "SUCCESS"
    }


@virtual_time
async def test_W60_commands_for_nobody_and_for_the_scheduler_have_streams_of_their_own() -> None:
    async with world() as (engine, store):
        with pytest.raises(NotFoundError):
            await engine.gateway.command(PauseWorkflow(execution_id="nobody"), **WHO)
        await engine.gateway.command(SetLimits(max_concurrent=5, per_workflow=0), **WHO)
        orphans = [entry.event for entry in await store.read(ORPHANS)]
        limits = [entry.event for entry in await store.read(SCHEDULER)]
        with pytest.raises(NotFoundError):
            await history(engine, "nobody")

    [orphan] = orphans
    assert (orphan.TYPE, orphan.named, orphan.actor) == ("CONTROL_REJECTED", "nobody", "key:ada")
    [applied] = limits
    assert (applied.TYPE, applied.args) == (
        "CONTROL_APPLIED",
        {"maxConcurrent": 5, "perWorkflow": 0},
    )


@virtual_time
async def test_a_dry_run_is_not_logged() -> None:
    async with world() as (engine, _):
        started = await engine.gateway.start(asked())
        await engine.gateway.command(
            PauseWorkflow(execution_id=started.execution_id), **WHO, dry_run=True
        )
        items = await history(engine, started.execution_id)

    assert types(items) == ["RUN_STARTED"]


@pytest.mark.feature("ADM-01")
@virtual_time
async def test_a_queued_start_is_written_when_it_is_admitted_and_ends_when_it_is_refused() -> None:
    options = {"execution": {"max_concurrent": 1}}
    async with world(**options) as (engine, store):
        await engine.gateway.start(asked())
        queued = await engine.gateway.start(asked(), patience=0)
        before = types(await history(engine, queued.execution_id))
        await engine.gateway.command(
            StopWorkflow(execution_id=queued.execution_id, mode=StopMode.CANCEL), **WHO
        )
        after = await history(engine, queued.execution_id)
        unfinished = await store.unfinished()

    assert (queued.status, before) == ("QUEUED", ["RUN_STARTED"])
    assert sorted(types(after)) == ["CONTROL_APPLIED", "RUN_FINISHED", "RUN_STARTED"]
    assert queued.execution_id not in [run.execution_id for run in unfinished]


@virtual_time
async def test_a_history_is_read_in_pages() -> None:
    async with world() as (engine, _):
        started = await engine.gateway.start(asked())
        await engine.gateway.wait(started.execution_id, 100)
        whole = await history(engine, started.execution_id)
        pages, after = [], 0
        while True:
            page = await engine.gateway.history(started.execution_id, 2, after)
            pages.append(page.items)
            if page.next_cursor is None:
                break
            after = int(page.next_cursor)

    assert [len(page) for page in pages] == [2, 2]
    assert [item for page in pages for item in page] == whole


# --- what cannot be written ----------------------------------------------------------------------


@virtual_time
async def test_W24_a_payload_that_cannot_be_written_exactly_is_refused_before_its_run_is() -> None:
    async with world() as (engine, store):
        with pytest.raises(UnserialisablePayloadError) as refused:
            await engine.gateway.start(
                asked("echo", payload={"a": [object()]}, idempotency_key="k")
            )
        good = await engine.gateway.start(asked("echo", payload={"a": 1}, idempotency_key="k"))
        runs = [run.started.execution_id for run in await store.runs()]

    assert refused.value.members["pointer"] == "/payload/a/0"
    assert not good.replayed
    assert runs == [good.execution_id]


@virtual_time
async def test_case_35_what_a_plugin_says_that_json_cannot_is_marked_and_nothing_is_lost() -> None:
    @processor("ODD", blocking=False)
    def odd(msg: Any, cfg: Any, ctx: Any) -> Any:
        """Fail with half a surrogate pair."""
        raise LookupError("half \ud800 pair")

    document = {
        "workflowId": "odd",
        "nodes": [*ECHO["nodes"], {"nodeId": "odd", "type": "ODD"}],  # type: ignore[misc]
        "edges": [{"source": "in", "target": "odd"}, {"source": "odd", "target": "out"}],
    }
    async with world(odd) as (engine, store):
        await engine.definitions.save("s", "odd", document)
        started = await engine.gateway.start(asked("odd"))
        await engine.gateway.wait(started.execution_id, 100)
        items = await history(engine, started.execution_id)
        unfinished = await store.unfinished()

    assert types(items) == ["RUN_STARTED", *["NODE_FINISHED"] * 3, "RUN_FINISHED"]
    assert items[-1]["error"]["detail"].endswith("half \\ud800 pair")
    assert unfinished == []


# --- a store that fails --------------------------------------------------------------------------


@virtual_time
async def test_while_the_store_is_down_nothing_is_started() -> None:
    async with world() as (engine, store):
        store.down = True
        with pytest.raises(StoreUnavailableError) as refused:
            await engine.gateway.start(asked(idempotency_key="k"))
        store.down = False
        started = await engine.gateway.start(asked(idempotency_key="k"))
        listed = engine.gateway.count(_everything())["count"]
        failed = failures(engine, "run")

    assert refused.value.code == "store_unavailable"
    assert not started.replayed
    assert (listed, failed) == (1, 1)


@virtual_time
async def test_W05_an_end_that_cannot_be_written_is_tried_until_it_is() -> None:
    async with world() as (engine, store):
        started = await engine.gateway.start(asked())
        store.down = True
        ended = await engine.gateway.wait(started.execution_id, 100)
        assert ended is not None
        await asyncio.sleep(60)
        waiting = engine.gateway.summary(started.execution_id)
        failing = engine.history.failing
        store.down = False
        await asyncio.sleep(10)
        written = engine.gateway.summary(started.execution_id)
        items = await history(engine, started.execution_id)
        counted = failures(engine, "run"), failures(engine, "node")

    assert (waiting["status"], waiting["recorded"], failing) == ("SUCCESS", False, True)
    assert written["recorded"] is True
    assert not engine.history.failing
    assert types(items) == [*("RUN_STARTED", "NODE_FINISHED", "NODE_FINISHED", "RUN_FINISHED")]
    assert min(counted) >= 5


@virtual_time
async def test_a_command_is_answered_though_its_row_waits_to_be_written() -> None:
    async with world() as (engine, store):
        started = await engine.gateway.start(asked())
        store.down = True
        result = await engine.gateway.command(
            PauseWorkflow(execution_id=started.execution_id), **WHO
        )
        missing = types(await history(engine, started.execution_id))
        store.down = False
        await asyncio.sleep(10)
        items = types(await history(engine, started.execution_id))

    assert (str(result.outcome), missing) == ("APPLIED", ["RUN_STARTED"])
    assert items == ["RUN_STARTED", "CONTROL_APPLIED"]


@virtual_time
async def test_a_shutdown_gives_up_on_a_store_that_stays_down() -> None:
    async with world() as (engine, store):
        await engine.gateway.start(asked())
        store.down = True
        began = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() - began < 60


@virtual_time
async def test_what_waits_while_the_store_is_down_is_bounded_but_for_ends_and_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("yukta_rx.control.history.WAITING", 3)
    async with world() as (engine, store):
        ids = [(await engine.gateway.start(asked())).execution_id for _ in range(4)]
        store.down = True
        for execution_id in ids:
            await engine.gateway.wait(execution_id, 100)
        store.down = False
        await asyncio.sleep(20)
        unfinished = await store.unfinished()
        counted = failures(engine, "node")

    assert unfinished == []
    assert counted >= 5


@virtual_time
async def test_every_end_is_written_when_an_engine_closes() -> None:
    async with world(execution={"shutdown_timeout": 0}) as (engine, store):
        for _ in range(3):
            await engine.gateway.start(asked())

    assert await store.unfinished() == []
    assert len(await store.runs()) == 3


@virtual_time
async def test_a_start_that_fails_after_it_was_written_has_an_end() -> None:
    async with world() as (engine, store):
        engine._starter._make = _fails  # type: ignore[method-assign,assignment]
        with pytest.raises(YuktaError):
            await engine.gateway.start(asked(idempotency_key="k"))
        await engine.history.settled()
        [run] = await store.runs()
        keys = await store.idempotency_keys(run.started.time)

    assert isinstance(run.ended, RunFinished)
    assert (str(run.ended.status), run.ended.error) == (
        "ERROR",
        {"code": "sub_workflow_failed", "detail": "not now"},
    )
    assert keys == []


def _fails(_plan: Any) -> Any:
    from yukta_rx.errors import SubWorkflowError

    raise SubWorkflowError("not now", code="sub_workflow_failed")


def _everything() -> Any:
    from yukta_rx.control.queries import ExecutionQuery

    return ExecutionQuery()


@virtual_time
async def test_the_end_of_a_run_is_written_after_what_has_to_be_durable_by_then() -> None:
    async with world() as (engine, _store):
        gate = asyncio.Event()
        asked_for = 0

        async def before_end() -> None:
            nonlocal asked_for
            asked_for += 1
            await gate.wait()

        engine.history.before_end = before_end
        started = await engine.gateway.start(asked("echo"))
        assert await engine.tracker.wait(started.execution_id, 10)
        await asyncio.sleep(60)
        assert asked_for == 1
        assert not engine.history.recorded(started.execution_id)
        gate.set()
        await asyncio.sleep(1)

        assert engine.history.recorded(started.execution_id)
        assert types(await history(engine, started.execution_id))[-1] == "RUN_FINISHED"
