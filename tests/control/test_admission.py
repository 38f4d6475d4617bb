"""Admission end to end: starts that wait, are stopped, fail or are refused, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.audit import AuditQuery
from yukta_rx.control.commands import SetLimits, SetPriority, StopWorkflow
from yukta_rx.control.commands.limits import restore_limits
from yukta_rx.control.starter import StartRequest
from yukta_rx.errors import (
    ConflictError,
    IdempotencyKeyReusedError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    ValidationError,
    YuktaError,
)
from yukta_rx.model.execution_log import ControlRejected
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from yukta_rx.control.starter import Started
    from yukta_rx.model.events import ExecutionEvent

pytestmark = pytest.mark.feature("ADM-01")


@processor("CRASH", blocking=False)
def crash(msg: Any, cfg: Any, ctx: Any) -> Any:
    """Fail at every message."""
    raise SystemError("broken inside")


def numbers(workflow_id: str = "numbers", count: int = 5, kind: str = "TRANSFORM") -> Any:
    """One message per second."""
    config = {"set": {"seen": True}} if kind == "TRANSFORM" else {}
    return {
        "workflowId": workflow_id,
        "nodes": [
            {
                "nodeId": "in",
                "type": "SEQUENCE_TRIGGER",
                "config": {"count": count, "intervalMs": 1000},
            },
            {"nodeId": "mid", "type": kind, "config": config},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "mid"}, {"source": "mid", "target": "out"}],
    }


class World:
    """An engine with few slots, and what it says."""

    def __init__(self, max_concurrent: int = 1, **group: Any) -> None:
        limits = {"max_concurrent": max_concurrent, "shutdown_timeout": timedelta(seconds=20)}
        self.engine = Engine(Settings(execution={**limits, **group}), plugins=[crash])
        self.events: list[ExecutionEvent] = []

    async def __aenter__(self) -> World:
        await self.engine.__aenter__()
        workflows = [numbers(), numbers("endless", 0), numbers("broken", kind="CRASH")]
        await self.engine.definitions.apply_session({"sessionId": "s", "workflows": workflows})
        emit = self.engine.tracker.emit

        def heard(event: ExecutionEvent) -> None:
            self.events.append(event)
            emit(event)

        self.engine.tracker.emit = heard  # type: ignore[method-assign]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.engine.close()

    async def start(
        self,
        workflow: str = "numbers",
        *,
        patience: float | None = None,
        priority: float | None = None,
        **more: Any,
    ) -> Started:
        payload = {} if priority is None else {"yukta.priority": priority}
        request = StartRequest(session_id="s", workflow_id=workflow, **{"payload": payload, **more})
        return await self.engine.gateway.start(request, patience)

    async def queued(self, **more: Any) -> str:
        """The id of a start that waits."""
        started = await self.start(patience=0, **more)
        assert started.status == "QUEUED"
        return started.execution_id

    async def command(self, command: Any) -> Any:
        return await self.engine.gateway.command(command, actor="ada", via="REST")

    async def ended(self, execution_id: str) -> str:
        shown = await self.engine.gateway.wait(execution_id, 10_000)
        assert shown is not None
        return str(shown["status"])

    def status(self, execution_id: str) -> str:
        return str(self.engine.gateway.summary(execution_id)["status"])

    def gauge(self, name: str) -> float:
        families = {family.name: family for family in self.engine.meters.collect()}
        return float(families[f"yukta_executions_{name}"].samples[0].value)

    def waited(self) -> float:
        families = {family.name: family for family in self.engine.meters.collect()}
        family = families["yukta_execution_queue_wait_seconds"]
        return float(next(s.value for s in family.samples if s.name.endswith("_count")))

    def check_gauges(self) -> None:
        """Slots are held by just the live runs."""
        roots = self.engine._starter.roots
        assert self.gauge("running") == len(roots)
        assert self.gauge("queued") == len(self.engine.gateway.queue())


@virtual_time
async def test_a_start_waits_for_its_slot_and_then_runs() -> None:
    async with World() as world:
        first = await world.start()
        began = asyncio.get_running_loop().time()
        second = await world.start()

        waited = asyncio.get_running_loop().time() - began
        assert waited == pytest.approx(4, abs=1.5)
        assert (await world.ended(first.execution_id), second.status) == ("SUCCESS", "RUNNING")
        assert await world.ended(second.execution_id) == "SUCCESS"
        detail = world.engine.gateway.detail(second.execution_id)
        assert detail["queuedTime"] < detail["startTime"]
        assert "queuePosition" not in detail
        assert world.waited() == 1


@virtual_time
async def test_a_waiting_run_is_seen_as_queued_with_the_reason() -> None:
    async with World() as world:
        await world.start("endless")
        labels = {"team": "billing"}
        ahead = await world.queued()
        waiting = await world.queued(labels=labels, actor="ada", via="CLI")

        detail = world.engine.gateway.detail(waiting, ("nodes", "edges"))
        assert (detail["status"], detail["queuePosition"]) == ("QUEUED", 2)
        assert (detail["actor"], detail["labels"]) == ("ada", labels)
        assert detail["definitionVersion"]
        [reason] = detail["waitingOn"]
        assert (reason["kind"], reason["detail"]) == ("QUEUE", "1 of 1 runs go on")
        assert reason["since"] == detail["queuedTime"]
        assert (detail["nodes"], detail["edges"]) == ([], [])
        listed = {run["executionId"]: run["status"] for run in (await everything(world))}
        assert (listed[ahead], listed[waiting]) == ("QUEUED", "QUEUED")
        assert world.engine.gateway.snapshot(waiting)["execution"]["status"] == "QUEUED"
        [event] = [
            event
            for event in world.events
            if event.type == "execution.queued" and event.execution_id == waiting
        ]
        assert event.data == {"position": 2, "reason": "MAX_CONCURRENT"}
        assert not [e for e in world.events if e.execution_id == waiting and e != event]
        world.check_gauges()


async def everything(world: World) -> list[dict[str, Any]]:
    from yukta_rx.control.queries import ExecutionQuery

    return world.engine.gateway.executions(ExecutionQuery(), 500).items


@virtual_time
async def test_progress_of_a_run_begins_with_its_waiting() -> None:
    async with World() as world:
        await world.start()
        waiting = await world.queued()
        with world.engine.progress.follow(waiting) as snapshots:
            shown = [snapshot.as_dict() async for snapshot in snapshots]
        seen = [snapshot["execution"]["status"] for snapshot in shown]

        assert seen[0] == "QUEUED"
        assert seen[-1] == "SUCCESS"
        assert "RUNNING" in seen


@virtual_time
async def test_results_of_a_waiting_run_can_be_followed_from_the_beginning() -> None:
    async with World() as world:
        await world.start()
        waiting = await world.queued()
        channel = world.engine.results.get(waiting)
        assert channel is not None

        with channel.follow() as items:
            kinds = [str(item.type) async for item in items if hasattr(item, "type")]

        assert kinds == ["RESULT"] * 5 + ["NODE_END", "EXECUTION_END"]


@virtual_time
async def test_patience_ends_with_an_answer_and_the_start_goes_on() -> None:
    async with World() as world:
        first = await world.start()
        soon = await world.start(patience=2)
        assert (soon.status, soon.queue_position) == ("QUEUED", 1)
        patient = await world.start(patience=60)

        assert patient.status == "RUNNING"
        assert await world.ended(soon.execution_id) == "SUCCESS"
        assert soon.execution_id > first.execution_id


@virtual_time
async def test_a_caller_that_leaves_while_its_start_waits_changes_nothing() -> None:
    async with World() as world:
        await world.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await world.engine.start("s", "numbers")
        [row] = world.engine.gateway.queue()

        assert await world.ended(row["executionId"]) == "SUCCESS"


@virtual_time
async def test_a_program_gets_a_handle_on_a_run_that_waits() -> None:
    async with World() as world:
        await world.start()
        run = await world.engine.start("s", "numbers", patience=0)
        assert world.status(run.execution_id) == "QUEUED"

        assert await run.wait() is TaskStatus.SUCCESS


# --- case 49: no slot is lost ------------------------------------------------------------------


@virtual_time
async def test_case_49_a_start_that_is_stopped_while_it_waits_ends_cancelled() -> None:
    async with World() as world:
        blocker = await world.start("endless")
        start = asyncio.create_task(world.start("endless"))
        await asyncio.sleep(1)
        [row] = world.engine.gateway.queue()
        waiting = row["executionId"]
        after = await world.queued()

        result = await world.command(StopWorkflow(execution_id=waiting))

        assert (result.outcome, result.state["status"]) == ("APPLIED", "CANCELLED")
        with pytest.raises(ConflictError) as error:
            await start
        assert error.value.code == "execution_not_running"
        assert error.value.members["executionId"] == waiting
        assert "error" not in world.engine.gateway.detail(waiting)
        assert [item.type async for item in follow(world, waiting)] == ["EXECUTION_END"]
        world.check_gauges()
        await world.command(StopWorkflow(execution_id=blocker.execution_id, mode=StopMode.KILL))
        assert await world.ended(after) == "SUCCESS"
        world.check_gauges()


async def follow(world: World, execution_id: str) -> Any:
    channel = world.engine.results.get(execution_id)
    assert channel is not None
    with channel.follow() as items:
        async for item in items:
            yield item


@virtual_time
async def test_case_49_after_every_kind_of_end_the_next_start_is_admitted() -> None:
    async with World() as world:
        kill = StopMode.KILL
        # Killed, and ended twice.
        run = await world.start("endless")
        await world.command(StopWorkflow(execution_id=run.execution_id, mode=kill))
        world.engine._starter.scheduler.release(run.execution_id)
        world.check_gauges()
        # Killed before its first message, while its plugins are being opened.
        run = await world.start("endless", step_mode=True)
        await world.command(StopWorkflow(execution_id=run.execution_id, mode=kill))
        world.check_gauges()
        # A plugin crashes.
        run = await world.start("broken")
        assert await world.ended(run.execution_id) == "FAILURE"
        world.check_gauges()
        # Preparation fails.
        for wrong in ({"workflow": "none"}, {"priority": 10**7}, {"breakpoints": [{}]}):
            with pytest.raises(YuktaError):
                await world.start(**wrong)
            world.check_gauges()
        preparer = world.engine._starter._planner._preparer
        prepare = preparer.prepare
        preparer.prepare = crash  # type: ignore[method-assign]
        with pytest.raises(TypeError):
            await world.start()
        preparer.prepare = prepare  # type: ignore[method-assign]
        world.check_gauges()

        last = await world.start()
        assert last.status == "RUNNING"
        world.check_gauges()


@virtual_time
async def test_case_49_a_failure_between_slot_and_run_gives_the_slot_back() -> None:
    async with World() as world:
        make = world.engine._starter._make

        def fail(*_args: Any) -> Any:
            raise OSError("no more memory")

        for name, part in (("_make", make), ("_record", world.engine._starter._record)):
            setattr(world.engine._starter, name, fail)
            with pytest.raises(OSError, match="no more memory"):
                await world.start()
            setattr(world.engine._starter, name, part)
            world.check_gauges()

        # The same for one that had to wait: it has been seen, so its end is said.
        await world.start()
        waiting = await world.queued()
        world.engine._starter._make = fail  # type: ignore[method-assign]
        assert await world.ended(waiting) == "ERROR"
        world.engine._starter._make = make  # type: ignore[method-assign]
        world.check_gauges()
        assert (await world.start()).status == "RUNNING"


@virtual_time
async def test_case_49_a_slot_that_comes_while_the_start_is_written_down_is_taken() -> None:
    async with World() as world:
        blocker = await world.start("endless")
        history = world.engine._starter.history
        started = history.started

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(1)
            return await started(*args)

        history.started = slow  # type: ignore[method-assign]
        start = asyncio.create_task(world.start())
        await asyncio.sleep(0.5)
        world.engine._starter.live[blocker.execution_id].stop(StopMode.KILL)
        first = await start

        assert first.status == "RUNNING"
        assert await world.ended(first.execution_id) == "SUCCESS"
        world.check_gauges()
        assert world.engine._starter.scheduler._claiming == {}


@virtual_time
async def test_case_49_a_caller_cancelled_at_any_moment_loses_no_slot() -> None:
    async with World() as world:
        for turns in range(12):
            start = asyncio.create_task(world.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            start.cancel()
            await asyncio.wait((start,))
            for run in world.engine._starter.roots:
                run.stop(StopMode.KILL)
            await asyncio.sleep(1)
            world.check_gauges()
            assert world.gauge("running") == 0


@virtual_time
async def test_stopping_a_workflow_withdraws_what_waits_too() -> None:
    async with World(max_concurrent=2) as world:
        live = [(await world.start("endless")).execution_id for _ in range(2)]
        waiting = [await world.queued(workflow="endless") for _ in range(3)]
        other = await world.queued()

        results = await world.engine.gateway.stop_workflow(
            "s",
            "endless",
            lambda name: StopWorkflow(execution_id=name, mode=StopMode.KILL),
            actor="ada",
            via="REST",
        )

        assert {result.execution_id for result in results} == {*live, *waiting}
        assert [world.status(name) for name in (*live, *waiting)] == ["CANCELLED"] * 5
        assert await world.ended(other) == "SUCCESS"
        assert not [
            e for e in world.events if e.type == "execution.started" and e.execution_id in waiting
        ]


@virtual_time
async def test_stopping_a_workflow_reaches_a_start_that_is_just_being_written_down() -> None:
    async with World() as world:
        await world.start("endless")
        history = world.engine._starter.history
        started = history.started

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(1)
            return await started(*args)

        history.started = slow  # type: ignore[method-assign]
        start = asyncio.create_task(world.start())
        await asyncio.sleep(0.5)

        [result] = await world.engine.gateway.stop_workflow(
            "s",
            "numbers",
            lambda name: StopWorkflow(execution_id=name),
            actor="ada",
            via="REST",
        )

        assert result.outcome == "APPLIED"
        with pytest.raises(ConflictError):
            await start
        assert world.engine.gateway.queue() == []
        assert result.execution_id not in [run["executionId"] for run in await everything(world)]
        world.check_gauges()


@virtual_time
async def test_other_commands_to_a_waiting_run_are_refused_by_name() -> None:
    from yukta_rx.control.commands import PauseWorkflow

    async with World() as world:
        await world.start()
        waiting = await world.queued()

        with pytest.raises(ConflictError, match="QUEUED") as error:
            await world.command(PauseWorkflow(execution_id=waiting))

        assert (error.value.code, error.value.members["status"]) == (
            "execution_not_running",
            "QUEUED",
        )


@virtual_time
async def test_a_dry_run_of_a_stop_withdraws_nothing() -> None:
    async with World() as world:
        await world.start()
        waiting = await world.queued()

        result = await world.engine.gateway.command(
            StopWorkflow(execution_id=waiting), actor="ada", via="REST", dry_run=True
        )

        assert result.outcome == "DRY_RUN"
        assert world.status(waiting) == "QUEUED"


@virtual_time
async def test_a_workflow_with_waiting_starts_is_in_use() -> None:
    async with World() as world:
        await world.start("endless")
        await world.queued()

        with pytest.raises(ConflictError) as error:
            await world.engine.definitions.delete("s", "numbers")
        assert error.value.code == "in_use"


@virtual_time
async def test_children_borrow_the_slot_of_their_parent() -> None:
    parent = {
        "workflowId": "parent",
        "nodes": [
            {"nodeId": "in", "type": "API_TRIGGER"},
            {"nodeId": "sub", "type": "SUB_WORKFLOW", "config": {"workflowId": "numbers"}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "sub"}, {"source": "sub", "target": "out"}],
    }
    async with World() as world:
        await world.engine.definitions.save("s", "parent", parent)
        run = await world.start("parent")
        await asyncio.sleep(2)

        assert len(world.engine._starter.live) == 2
        world.check_gauges()
        assert await world.ended(run.execution_id) == "SUCCESS"


# --- refusals ----------------------------------------------------------------------------------


@virtual_time
async def test_a_start_that_waits_too_long_ends_timed_out_and_its_key_is_forgotten() -> None:
    async with World(queue_timeout=timedelta(seconds=3)) as world:
        await world.start("endless")
        first = await world.queued(idempotency_key="k")

        with pytest.raises(RejectedError) as error:
            await world.start(idempotency_key="k")

        assert (error.value.code, error.value.members) == ("queue_timeout", {"executionId": first})
        detail = world.engine.gateway.detail(first)
        assert (detail["status"], detail["error"]["code"]) == ("TIMED_OUT", "queue_timeout")
        again = await world.queued(idempotency_key="k")
        assert again != first
        [event] = [e for e in world.events if e.type == "scheduler.rejected"]
        assert event.data["executionId"] == first


@virtual_time
async def test_a_refused_start_leaves_nothing() -> None:
    async with World(on_limit="REJECT") as world:
        run = await world.start("endless")
        with pytest.raises(RejectedError) as error:
            await world.start(idempotency_key="k")

        assert error.value.code == "limit"
        assert world.engine.gateway.would_admit("s", "numbers") == "WOULD_REJECT"
        assert [shown["executionId"] for shown in await everything(world)] == [run.execution_id]
        await world.command(StopWorkflow(execution_id=run.execution_id, mode=StopMode.KILL))
        assert world.engine.gateway.would_admit("s", "numbers") == "WOULD_RUN"
        assert not (await world.start(idempotency_key="k")).replayed


@virtual_time
async def test_shutdown_refuses_what_waits_and_lets_what_runs_finish() -> None:
    async with World() as world:
        running = await world.start()
        waiting = await world.queued()
        start = asyncio.create_task(world.start())
        await asyncio.sleep(1)

        await world.engine.close()

        with pytest.raises(UnavailableError) as error:
            await start
        assert error.value.code == "shutting_down"
        with pytest.raises(UnavailableError):
            await world.start()
        assert world.status(running.execution_id) in ("STOPPED", "SUCCESS")
        assert world.status(waiting) == "CANCELLED"
        counter = world.engine.meters.counter("yukta.executions.rejected", reason="shutdown")
        assert counter.value == 3
        assert (world.gauge("running"), world.gauge("queued")) == (0, 0)


# --- case 40: one key, one run -----------------------------------------------------------------


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize("busy", [False, True])
@virtual_time
async def test_case_40_twenty_starts_with_one_key_are_one_run(busy: bool) -> None:
    async with World() as world:
        if busy:
            await world.start()
        starts = [world.start(idempotency_key="k") for _ in range(20)]
        answers = await asyncio.gather(*starts)

        assert len({answer.execution_id for answer in answers}) == 1
        assert [answer.replayed for answer in answers].count(False) == 1
        run = answers[0].execution_id
        started = [
            e for e in world.events if (e.type, e.execution_id) == ("execution.started", run)
        ]
        assert len(started) == 1
        assert len(await everything(world)) == 1 + busy


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_repeat_while_the_first_waits_gets_the_same_id() -> None:
    async with World() as world:
        await world.start()
        first = await world.queued(idempotency_key="k")
        at_once = await world.start(idempotency_key="k", patience=0)
        patient = await world.start(idempotency_key="k")

        assert (at_once.execution_id, at_once.status) == (first, "QUEUED")
        assert (at_once.replayed, at_once.queue_position) == (True, 1)
        assert (patient.execution_id, patient.status) == (first, "RUNNING")


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize(
    "other",
    [
        {"priority": 1},
        {"labels": {"a": "b"}},
        {"step_mode": True},
        {"options": {"onTerminalFailure": "FAIL_FAST"}},
        {"breakpoints": [{"nodeId": "mid"}]},
    ],
    ids=lambda value: next(iter(value)),
)
@virtual_time
async def test_another_body_under_the_same_key_is_refused(other: dict[str, Any]) -> None:
    async with World(max_concurrent=0) as world:
        await world.start(idempotency_key="k")

        with pytest.raises(IdempotencyKeyReusedError):
            await world.start(idempotency_key="k", **other)


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_failed_start_is_not_remembered() -> None:
    async with World(max_concurrent=0) as world:
        with pytest.raises(NotFoundError):
            await world.start("later", idempotency_key="k")
        await world.engine.definitions.save("s", "later", numbers("later"))

        assert not (await world.start("later", idempotency_key="k")).replayed


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_the_repeat_of_a_start_that_was_stopped_does_not_start_it_again() -> None:
    async with World() as world:
        await world.start()
        first = await world.queued(idempotency_key="k")
        await world.command(StopWorkflow(execution_id=first))

        for patience in (0, None):
            with pytest.raises(ConflictError) as error:
                await world.start(idempotency_key="k", patience=patience)
            assert error.value.members["executionId"] == first


# --- limits and priorities ---------------------------------------------------------------------


@pytest.mark.feature("ADM-03")
@virtual_time
async def test_limits_change_live_and_are_audited() -> None:
    async with World() as world:
        await world.start("endless")
        waiting = await world.queued()

        result = await world.command(SetLimits(max_concurrent=2, per_workflow=1))
        await asyncio.sleep(0.1)

        assert (result.outcome, result.execution_id, result.state) == ("APPLIED", "scheduler", {})
        assert world.status(waiting) == "RUNNING"
        shown = world.engine.gateway.limits()
        assert (shown["maxConcurrent"], shown["perWorkflow"], shown["source"]) == (2, 1, "LOG")
        assert (shown["running"], shown["queued"]) == (2, 0)
        again = await world.command(SetLimits(max_concurrent=2, per_workflow=1))
        assert again.outcome == "NO_OP"
        rows = world.engine.gateway.audit_page(AuditQuery(execution_id="scheduler"), 10).items
        assert [(row["command"], row["args"], row["actor"]) for row in rows] == [
            ("SetLimits", {"maxConcurrent": 2, "perWorkflow": 1}, "ada")
        ] * 2
        assert [e.type for e in world.events if e.type.startswith("scheduler")] == [
            "scheduler.limits_changed"
        ]


@pytest.mark.feature("ADM-03")
@virtual_time
async def test_limits_that_a_command_set_last_are_in_force_after_a_restart() -> None:
    async with World() as world:
        log = world.engine.history._store
        await world.command(SetLimits(max_concurrent=7, per_workflow=3))
        await world.command(SetLimits(max_concurrent=5, per_workflow=2))
        await world.engine.history.settled()
        rejected = ControlRejected(
            execution_id="scheduler",
            time=world.engine.started_at,
            command="SetLimits",
            args={"maxConcurrent": 1, "perWorkflow": 1},
        )
        await log.append([rejected])
    async with World(max_concurrent=1) as world:
        scheduler = world.engine._starter.scheduler
        assert scheduler.limits()["source"] == "CONFIG"

        await restore_limits(scheduler, log)

        shown = scheduler.limits()
        assert (shown["maxConcurrent"], shown["perWorkflow"], shown["source"]) == (5, 2, "LOG")


@pytest.mark.feature("ADM-03")
def test_limits_below_nothing_are_refused_by_name() -> None:
    with pytest.raises(ValidationError) as error:
        SetLimits(max_concurrent=-1, per_workflow=-1)
    assert [fault.pointer for fault in error.value.errors] == ["/maxConcurrent", "/perWorkflow"]
    with pytest.raises(ValidationError, match="executionId"):
        SetLimits(execution_id="some-run", max_concurrent=1, per_workflow=1)
    with pytest.raises(ValidationError, match="priority"):
        SetPriority(execution_id="r", priority=float("nan"))


@pytest.mark.feature("ADM-03")
@virtual_time
async def test_a_priority_moves_a_waiting_start() -> None:
    async with World() as world:
        await world.start()
        first, second = await world.queued(), await world.queued(priority=-2)

        result = await world.command(SetPriority(execution_id=second, priority=1))

        assert (result.outcome, result.state["status"]) == ("APPLIED", "QUEUED")
        assert [row["executionId"] for row in world.engine.gateway.queue()] == [second, first]
        await world.ended(second)
        assert world.status(first) == "RUNNING"
        with pytest.raises(ConflictError) as error:
            await world.command(SetPriority(execution_id=second, priority=2))
        assert error.value.code == "not_queued"
        with pytest.raises(NotFoundError):
            await world.command(SetPriority(execution_id="none", priority=2))


# --- what a start asks for ---------------------------------------------------------------------


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_breakpoints_of_a_start_are_in_force_before_the_first_message() -> None:
    async with World() as world:
        points = [{"nodeId": "mid"}, {"nodeId": "out", "expression": "payload.n", "equals": "3"}]
        run = await world.start(breakpoints=points)
        await asyncio.sleep(3)

        detail = world.engine.gateway.detail(run.execution_id, ("nodes",))
        assert [point["nodeId"] for point in detail["breakpoints"]] == ["mid", "out"]
        assert next(node for node in detail["nodes"] if node["nodeId"] == "mid")["in"] == 0
        assert detail["waitingOn"][0]["kind"] == "BREAKPOINT"


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_wrong_breakpoints_are_named_by_place_and_start_nothing() -> None:
    async with World() as world:
        with pytest.raises(ValidationError) as error:
            await world.start(
                breakpoints=[
                    {"nodeId": "nowhere"},
                    {"nodeId": "in"},
                    {"nodeId": "mid", "colour": "red"},
                    {"expression": "payload.n"},
                    {"nodeId": "mid", "executionId": "r"},
                ]
            )

        assert [(fault.pointer, fault.code) for fault in error.value.errors] == [
            ("/breakpoints/0/nodeId", "node_not_found"),
            ("/breakpoints/1/nodeId", "node_takes_no_messages"),
            ("/breakpoints/2/colour", "unknown_field"),
            ("/breakpoints/3/nodeId", "invalid_id"),
            ("/breakpoints/4/executionId", "unknown_field"),
        ]
        assert await everything(world) == []
        world.check_gauges()


@pytest.mark.feature("DEF-01")
@virtual_time
async def test_a_start_can_name_an_older_version() -> None:
    async with World(max_concurrent=0) as world:
        old = await world.engine.definitions.get("s", "numbers")
        await world.engine.definitions.save("s", "numbers", numbers(count=2))
        current = await world.start()
        pinned = await world.start(payload={"yukta.version": 1})

        assert pinned.definition_version == old.definition_version
        assert current.definition_version != old.definition_version
        await world.ended(pinned.execution_id)
        items = [item async for item in follow(world, pinned.execution_id)]
        assert [str(item.type) for item in items].count("RESULT") == 5
        with pytest.raises(NotFoundError) as error:
            await world.start(payload={"yukta.version": 9})
        assert error.value.code == "version_not_found"
        with pytest.raises(ValidationError):
            await world.start(payload={"yukta.version": [1]})


@virtual_time
async def test_a_waiting_start_runs_the_form_that_it_was_started_with() -> None:
    async with World() as world:
        await world.start()
        waiting = await world.queued()
        version = world.engine.gateway.detail(waiting)["definitionVersion"]
        await world.engine.definitions.save("s", "numbers", numbers(count=1))

        await world.ended(waiting)
        assert world.engine.gateway.detail(waiting)["definitionVersion"] == version
        items = [item async for item in follow(world, waiting)]
        assert [str(item.type) for item in items].count("RESULT") == 5
