"""Supervisors in the server: forms, isolation, bounds, outcomes, the loop guard, the switch."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest
import reactivex
from reactivex import operators as ops

from yukta_rx import ExecutionSupervisor, Proposal
from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.commands import (
    PauseNode,
    PauseWorkflow,
    ResumeWorkflow,
    SetBreakpoint,
)
from yukta_rx.control.reviewers import Deny, Hold
from yukta_rx.control.supervisors import Backoff
from yukta_rx.errors import ConfigError, NotFoundError, ValidationError
from yukta_rx.observe.filters import EventFilter
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-07")

TICKS = {
    "workflowId": "ticks",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 0, "intervalMs": 1000}},
        {"nodeId": "out", "type": "CONSOLE_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}
REGISTRY = PluginRegistry.load(Settings())


def settings(**supervisor: Any) -> Settings:
    return Settings(
        execution={"shutdown_timeout": timedelta(milliseconds=100)}, supervisor=supervisor
    )


@asynccontextmanager
async def supervised(*supervisors: Any, reviewers: Any = (), **bounds: Any):
    """An engine with supervisors, an endless run in it, and every public event since."""
    engine = Engine(
        settings(**bounds), registry=REGISTRY, supervisors=supervisors, reviewers=reviewers
    )
    async with engine:
        events: list[Any] = []

        async def listen() -> None:
            async for event in engine.events:
                events.append(event)  # noqa: PERF401  (it is read meanwhile)

        async with asyncio.TaskGroup() as group:
            listening = group.create_task(listen())
            run = await engine.start("s", TICKS)
            yield engine, run, events
            await run.stop("KILL")
            await run.wait()
            listening.cancel()


def of(events: list[Any], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == kind]


def named(id: str, work: Any, **attributes: Any) -> Any:
    """A function as supervisor of that id."""
    work.id = id
    for name, value in attributes.items():
        setattr(work, name, value)
    return work


class PauseAtTick(ExecutionSupervisor):
    """Pauses a run at its first tick; in Rx."""

    id = "rx"

    def supervise(self, events):
        return events.pipe(
            ops.filter(lambda event: event.type == "node.log"),
            ops.map(lambda event: Proposal(PauseWorkflow(execution_id=event.execution_id), "tick")),
            ops.take(1),
        )


async def pause_at_tick(events):
    """The same as an async generator."""
    async for event in events:
        if event.type == "node.log":
            yield Proposal(PauseWorkflow(execution_id=event.execution_id), "tick")
            return


def pause_in_plain_function(events):
    """The same as a plain function that returns an async generator."""
    return pause_at_tick(events)


async def pause_in_coroutine(events):
    """The same as a coroutine that returns an Observable."""
    return PauseAtTick().supervise(events)


# --- forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "supervisor",
    [PauseAtTick, PauseAtTick(), pause_at_tick, pause_in_plain_function, pause_in_coroutine],
)
@virtual_time
async def test_each_form_of_a_supervisor_steers_a_run(supervisor) -> None:
    async with supervised(supervisor) as (engine, run, events):
        await asyncio.sleep(5)

        assert run.detail["paused"] is True
        [row] = engine.gateway.audit(run.execution_id)
        assert row["command"] == "PauseWorkflow"
        assert row["actor"] == engine.supervisors.list()[0]["id"]
        assert (row["via"], row["reason"]) == ("SUPERVISOR", "tick")
        assert len(of(events, "node.log")) == 1


@virtual_time
async def test_two_streams_of_one_observable_see_the_same_events() -> None:
    seen: list[str] = []

    def watch(events):
        logs = events.pipe(ops.filter(lambda event: event.type == "node.log"))
        one, other = (logs.pipe(ops.map(lambda _, name=name: name)) for name in "ab")
        noted = reactivex.merge(one, other).pipe(ops.do_action(seen.append))
        return noted.pipe(ops.ignore_elements())

    async with supervised(watch):
        await asyncio.sleep(2.5)

    assert seen == ["a", "b"] * 3


@virtual_time
async def test_the_host_gives_a_scheduler_in_the_time_of_the_loop() -> None:
    at: list[float] = []

    class Later(ExecutionSupervisor):
        id = "later"

        def __init__(self, scheduler=None):
            self.scheduler = scheduler

        def supervise(self, events):
            return events.pipe(
                ops.filter(lambda event: event.type == "execution.started"),
                ops.delay(30, scheduler=self.scheduler),
                ops.do_action(lambda _: at.append(asyncio.get_running_loop().time())),
                ops.map(lambda event: PauseWorkflow(execution_id=event.execution_id)),
            )

    async with supervised(Later) as (_, run, _events):
        await asyncio.sleep(29)
        before = run.detail["paused"]
        await asyncio.sleep(2)

        assert (before, run.detail["paused"]) == (False, True)
        assert at == [pytest.approx(30)]


@virtual_time
async def test_commands_may_come_from_another_thread() -> None:
    def from_a_thread(events):
        def subscribe(observer, scheduler):
            def on_next(event):
                if event.type == "execution.started":
                    command = PauseWorkflow(execution_id=event.execution_id)
                    thread = threading.Thread(target=observer.on_next, args=(command,))
                    thread.start()
                    thread.join()

            return events.subscribe(on_next)

        return reactivex.create(subscribe)

    async with supervised(from_a_thread) as (_, run, _events):
        await asyncio.sleep(1)

        assert run.detail["paused"] is True


@virtual_time
async def test_one_that_wants_only_some_types_gets_no_others() -> None:
    seen: set[str] = set()

    async def watch(events):
        async for event in events:
            seen.add(event.type)
            yield PauseWorkflow(execution_id=event.execution_id)

    watch.types = ("execution.*",)
    watch.outcomes = False
    async with supervised(watch):
        await asyncio.sleep(3)

    assert {kind.partition(".")[0] for kind in seen} == {"execution"}


@virtual_time
async def test_samples_are_read_only_while_somebody_wants_them() -> None:
    async def facts(events):
        async for event in events:
            if event.type == "never":
                yield event

    facts.types = ("node.log",)
    kinds: set[str] = set()

    async def everything(events):
        async for event in events:
            kinds.add(event.type)
            if event.type == "never":
                yield event

    async with supervised(facts) as (engine, _, _events):
        await asyncio.sleep(3)
        assert (engine.feed.listening, engine.feed.sampling) == (True, False)
    async with supervised(facts, everything) as (engine, _, _events):
        await asyncio.sleep(3)
        assert engine.feed.sampling is True
        engine.supervisors.change("everything", enabled=False)
        assert engine.feed.sampling is False
        engine.supervisors.change("facts", enabled=False)
        assert engine.feed.listening is False
    assert {"node.stats", "edge.stats", "node.log", "execution.started"} <= kinds


# --- isolation -----------------------------------------------------------------------------------


@virtual_time
async def test_one_that_raises_is_subscribed_again_behind_the_last_event_it_saw() -> None:
    seen: list[str] = []

    async def fragile(events):
        async for event in events:
            if event.type == "node.log":
                seen.append(event.data["line"])
                if len(seen) in (2, 4):
                    raise ValueError(f"at {len(seen)}")
                yield PauseNode(execution_id="none", node_id=f"n{len(seen)}")

    async with supervised(fragile) as (engine, run, events):
        await asyncio.sleep(20.5)
        [shown] = engine.supervisors.list()
        failed = of(events, "supervisor.failed")

        assert run.detail["status"] == "RUNNING"

    assert seen[:8] == [f'{{"n":{n}}}' for n in range(8)]
    assert [(one["id"], one["reason"], one["detail"]) for one in failed] == [
        ("fragile", "error", "ValueError: at 2"),
        ("fragile", "error", "ValueError: at 4"),
    ]
    assert 500 <= failed[0]["retryMs"] <= 1000
    assert 1000 <= failed[1]["retryMs"] <= 2000
    assert shown["lastError"] == "ValueError: at 4"
    assert shown["state"] == "RUNNING"
    assert shown["droppedEvents"] == 0


@virtual_time
async def test_one_in_rx_that_raises_is_subscribed_again_without_losing_an_event() -> None:
    seen: list[int] = []

    def note(event):
        seen.append(len(seen))
        if len(seen) == 2:
            raise ValueError("no")

    def fragile(events):
        return events.pipe(
            ops.filter(lambda event: event.type == "node.log"),
            ops.do_action(note),
            ops.ignore_elements(),
        )

    async with supervised(fragile) as (_, _run, events):
        await asyncio.sleep(6.5)

    assert len(seen) == 7
    assert [one["detail"] for one in of(events, "supervisor.failed")] == ["ValueError: no"]


@pytest.mark.parametrize("broken", [lambda events: None, lambda events: 1 / 0])
@virtual_time
async def test_one_that_cannot_even_be_subscribed_fails_and_nobody_else_notices(broken) -> None:
    named("broken", broken)

    async with supervised(broken, PauseAtTick) as (engine, run, events):
        await asyncio.sleep(5)

        assert run.detail["paused"] is True
        shown = engine.supervisors.get("broken")
        assert shown["state"] in ("BACKOFF", "RUNNING")
        assert len(of(events, "supervisor.failed")) >= 2
        assert "TypeError" in shown["lastError"] or "ZeroDivisionError" in shown["lastError"]


@virtual_time
async def test_one_that_cancels_itself_has_failed_like_any_other() -> None:
    calls: list[int] = []

    async def cancels(events):
        calls.append(1)
        async for _ in events:
            raise asyncio.CancelledError
        yield

    async with supervised(cancels) as (engine, _, _events):
        await asyncio.sleep(10)

        assert len(calls) > 1
        assert engine.supervisors.get("cancels")["lastError"] == "CancelledError"


@virtual_time
async def test_events_that_are_gone_when_it_begins_again_are_told_as_lost() -> None:
    seen: list[str] = []

    async def fragile(events):
        async for event in events:
            if event.type == "node.log":
                seen.append(event.data["line"])
                if len(seen) == 1:
                    raise ValueError("no")
        yield

    quick = {**TICKS, "nodes": [dict(node) for node in TICKS["nodes"]]}
    quick["nodes"][0]["config"] = {"count": 100, "intervalMs": 1}
    bounds = Settings(streaming={"replay_events": 10})
    async with Engine(bounds, registry=REGISTRY, supervisors=[fragile]) as engine:
        told: list[Any] = []
        feed = engine.feed.subscribe(EventFilter(types=frozenset({"supervisor.dropped"})))
        run = await engine.start("s", quick)
        await run.wait()
        await asyncio.sleep(5)
        shown = engine.supervisors.get("fragile")
        told = [frame for frame in await feed.take() if frame.type == "supervisor.dropped"]

    assert len(seen) < 12
    assert shown["state"] == "RUNNING"
    assert shown["droppedEvents"] >= 88
    assert len(told) == 1


async def test_one_that_holds_the_loop_is_named_by_the_watchdog(caplog) -> None:
    held = asyncio.Event()

    def busy(events):
        def compute(event):
            if not held.is_set():
                held.set()
                end = perf_counter() + 0.4
                while perf_counter() < end:
                    pass

        return events.pipe(ops.do_action(compute), ops.ignore_elements())

    limits = Settings(watchdog={"limit": timedelta(milliseconds=100)})
    with caplog.at_level("WARNING"):
        async with Engine(limits, registry=REGISTRY, supervisors=[busy]) as engine:
            one = {**TICKS, "nodes": [dict(node) for node in TICKS["nodes"]]}
            one["nodes"][0]["config"] = {"count": 1}
            run = await engine.start("s", one)
            await held.wait()
            await run.wait()

    assert "the task `yukta supervisor busy` holds the event loop" in caplog.text


@virtual_time
async def test_waits_between_failures_double_up_to_a_minute_and_begin_anew_after_a_good_while():
    now = 0.0
    backoff = Backoff(lambda: now)
    waits = []
    for _ in range(9):
        backoff.begin()
        waits.append(backoff.after_failure())
    backoff.begin()
    now += 60
    after_good = backoff.after_failure()

    for wait, longest in zip(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert longest / 2 <= wait <= longest
    assert after_good <= 1


@virtual_time
async def test_what_is_no_command_is_counted_and_told_and_the_supervisor_goes_on() -> None:
    async def odd(events):
        async for event in events:
            if event.type == "node.log":
                yield "pause it"
                yield Proposal("pause it")
                yield PauseWorkflow(execution_id=event.execution_id)

    async with supervised(odd) as (engine, run, events):
        await asyncio.sleep(3)
        counts = engine.supervisors.get("odd")["counts"]

        assert run.detail["paused"] is True

    assert counts == {"invalid": 2, "APPLIED": 1}
    [failed] = of(events, "supervisor.failed")
    assert failed["reason"] == "invalid_command"
    assert failed["detail"] == "it answered str, which is no command: 'pause it'"


@virtual_time
async def test_one_that_never_reads_loses_the_oldest_events_and_holds_nobody() -> None:
    waiting = asyncio.Event()
    seen: list[Any] = []

    async def slow(events):
        async for event in events:
            seen.append(event)
            await waiting.wait()
        yield

    fast = {**TICKS, "nodes": [dict(node) for node in TICKS["nodes"]]}
    fast["nodes"][0]["config"] = {"count": 1000, "intervalMs": 0}
    slow.types = ("node.log",)
    async with supervised(slow) as (engine, _run, events):
        burst = await engine.start("s", {**fast, "workflowId": "fast"})
        status = await burst.wait()
        await asyncio.sleep(60)
        shown = engine.supervisors.get("slow")
        dropped = of(events, "supervisor.dropped")
        counted = engine.meters.counter("yukta.tracker.dropped", type="event", kind="supervisor")
        lost = counted.value
        waiting.set()
        await asyncio.sleep(1)

    assert status == "SUCCESS"
    assert shown["droppedEvents"] == lost > 700
    assert lost - 1 <= sum(one["dropped"] for one in dropped) <= lost
    first, *rest = dropped
    assert first["dropped"] > 700
    assert all(one["dropped"] == 1 for one in rest)
    assert len(seen) >= 257


@pytest.mark.parametrize("form", ["rx", "generator"])
@virtual_time
async def test_one_that_keeps_up_loses_nothing_however_fast_a_run_is(form) -> None:
    seen: list[str] = []

    def rx(events):
        return events.pipe(ops.do_action(lambda e: seen.append(e.type)), ops.ignore_elements())

    async def generator(events):
        async for event in events:
            seen.append(event.type)  # noqa: PERF401  (each as it comes)
        yield

    fast = {**TICKS, "nodes": [dict(node) for node in TICKS["nodes"]]}
    fast["nodes"][0]["config"] = {"count": 5000}
    keeps_up = {"rx": rx, "generator": generator}[form]
    async with Engine(settings(), registry=REGISTRY, supervisors=[keeps_up]) as engine:
        run = await engine.start("s", fast)
        await run.wait()
        await asyncio.sleep(1)
        shown = engine.supervisors.get(form)

    assert shown["droppedEvents"] == 0
    assert seen.count("node.log") == 5000


@virtual_time
async def test_a_lost_note_of_a_loss_is_not_noted_again() -> None:
    async def stuck(events):
        async for _ in events:
            await asyncio.Event().wait()
        yield

    idle = {**TICKS, "workflowId": "idle", "nodes": [dict(node) for node in TICKS["nodes"]]}
    idle["nodes"][0]["config"] = {"count": 1000, "intervalMs": 0}
    engine = Engine(settings(), registry=REGISTRY, supervisors=[stuck])
    async with engine:
        run = await engine.start("s", idle)
        await run.wait()
        await asyncio.sleep(5)
        before = engine.feed.head_seq
        await asyncio.sleep(3600)

        assert engine.feed.head_seq == before


# --- bounds --------------------------------------------------------------------------------------


@virtual_time
async def test_a_flood_is_refused_beyond_the_rate_and_holds_no_run() -> None:
    numbers = iter(range(10**9))

    async def flood(events):
        while True:
            yield PauseNode(execution_id=f"none-{next(numbers)}", node_id="x")

    async with supervised(flood) as (engine, _, events):
        await asyncio.sleep(10)
        counts = engine.supervisors.get("flood")["counts"]

        assert len(of(events, "node.log")) >= 10

    assert 20 + 20 <= counts["REJECTED"] <= 20 + 20 * 10
    assert 256 <= counts["rate_limited"] <= 257 * 10


@virtual_time
async def test_a_burst_in_rx_is_refused_beyond_the_rate_and_each_refusal_is_told() -> None:
    outcomes: list[dict[str, Any]] = []

    def burst(events):
        def answer(event):
            if event.type == "supervisor.command":
                outcomes.append(event.data)
            if event.type != "execution.started":
                return reactivex.empty()
            return reactivex.from_iterable(
                PauseNode(execution_id=f"none-{n}", node_id="x") for n in range(50)
            )

        return events.pipe(ops.flat_map(answer))

    async with supervised(burst, max_commands_per_second=5) as (engine, _, _events):
        await asyncio.sleep(1)
        counts = engine.supervisors.get("burst")["counts"]
        metered = engine.meters.counter(
            "yukta.supervisor.commands", id="burst", outcome="rate_limited"
        ).value

    assert counts == {"REJECTED": 5, "rate_limited": 45}
    assert metered == 45
    kinds = [one["outcome"] for one in outcomes]
    assert (kinds.count("rate_limited"), kinds.count("REJECTED")) == (45, 5)
    assert outcomes[0]["reason"] == "supervisor burst may send 5 commands per second"


@virtual_time
async def test_the_rate_recovers_with_time_and_can_be_changed() -> None:
    numbers = iter(range(10**9))

    async def steady(events):
        async for event in events:
            if event.type == "node.log":
                for _ in range(3):
                    yield PauseNode(execution_id=f"none-{next(numbers)}", node_id="x")

    async with supervised(steady, max_commands_per_second=2) as (engine, _, _events):
        await asyncio.sleep(3.5)
        slow = dict(engine.supervisors.get("steady")["counts"])
        shown = engine.supervisors.change("steady", rate=50)
        await asyncio.sleep(4)
        fast = engine.supervisors.get("steady")["counts"]

    assert slow == {"REJECTED": 8, "rate_limited": 4}
    assert shown["maxCommandsPerSecond"] == 50
    assert fast["rate_limited"] in (4, 5, 6)


@pytest.mark.parametrize("own", [True, False])
@virtual_time
async def test_a_dry_run_records_and_changes_nothing(own) -> None:
    outcomes: list[dict[str, Any]] = []

    async def tries(events):
        async for event in events:
            if event.type == "supervisor.command":
                outcomes.append(event.data)
            if event.type == "node.log":
                yield PauseWorkflow(execution_id=event.execution_id)

    async with supervised(tries, dry_run=not own) as (engine, run, _):
        if own:
            assert engine.supervisors.change("tries", dry_run=True)["dryRun"] is True
        await asyncio.sleep(20)
        rows = engine.gateway.audit(run.execution_id)

        assert run.detail["paused"] is False
        assert engine.supervisors.get("tries")["dryRun"] is True
        assert engine.supervisors.get("tries")["enabled"] is True

    assert {row["outcome"] for row in rows} == {"DRY_RUN"}
    assert len(rows) == 20
    assert {one["outcome"] for one in outcomes} == {"DRY_RUN"}


# --- outcomes ------------------------------------------------------------------------------------


class Watcher:
    """Pauses at the first tick, and keeps every event that it was given."""

    def __init__(self, id: str, *commands: Any, outcomes: bool = True) -> None:
        self.id = id
        self.outcomes = outcomes
        self.commands = commands
        self.events: list[Any] = []

    async def supervise(self, events):
        done = False
        async for event in events:
            self.events.append(event)
            if event.type == "node.log" and not done:
                done = True
                for make in self.commands:
                    yield make(event.execution_id)

    def saw(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]


def pause(run: str) -> Any:
    return PauseWorkflow(execution_id=run)


@virtual_time
async def test_the_outcome_goes_to_the_one_that_asked_and_the_audit_event_to_all_others() -> None:
    one, other = Watcher("one", pause), Watcher("other")

    async with supervised(one, other) as (_, run, events):
        await asyncio.sleep(3)

    assert one.saw("control.applied") != []
    assert {event.data["actor"] for event in one.saw("control.applied")} == {"embedded"}
    assert {event.data["actor"] for event in other.saw("control.applied")} == {"one", "embedded"}
    [outcome] = one.saw("supervisor.command")
    assert outcome.execution_id == run.execution_id
    assert set(outcome.data) == {"commandId", "outcome"}
    assert outcome.data["outcome"] == "APPLIED"
    audited = other.saw("control.applied")[0].data
    assert outcome.data["commandId"] == audited["commandId"]
    assert other.saw("supervisor.command") == []
    assert of(events, "supervisor.command") == []


@virtual_time
async def test_one_without_outcomes_hears_nothing_of_its_commands() -> None:
    silent = Watcher("silent", pause, outcomes=False)

    async with supervised(silent) as (_, run, _events):
        await asyncio.sleep(3)

        assert run.detail["paused"] is True

    assert silent.saw("supervisor.command") == []


@virtual_time
async def test_no_op_rejection_and_refusal_are_outcomes_with_reasons() -> None:
    class NoBreakpoints:
        order = 3

        def review(self, request):
            return Deny("not here") if isinstance(request.command, SetBreakpoint) else None

    one = Watcher(
        "one",
        pause,
        pause,
        lambda run: PauseNode(execution_id=run, node_id="none"),
        lambda run: SetBreakpoint(execution_id=run, node_id="out"),
        lambda run: Proposal(ResumeWorkflow(execution_id="none"), command_id="my-own"),
    )

    async with supervised(one, reviewers=[NoBreakpoints()]) as (engine, _, _events):
        await asyncio.sleep(3)
        shown = engine.supervisors.list()

    data = {event.data["outcome"]: event.data for event in one.saw("supervisor.command")}
    found = [event.data for event in one.saw("supervisor.command")]
    assert sorted(one["outcome"] for one in found) == [
        *("APPLIED", "NO_OP", "REJECTED", "REJECTED", "REJECTED")
    ]
    assert "reason" not in data["APPLIED"]
    reasons = sorted(one["reason"] for one in found if one["outcome"] == "REJECTED")
    assert reasons[0] == "control_rejected: refused by reviewer NoBreakpoints: not here"
    assert reasons[1].startswith("execution_not_found: ")
    assert reasons[2].startswith("node_not_found: ")
    assert [one["outcome"] for one in found if one["commandId"] == "my-own"] == ["REJECTED"]
    reviewer, supervisor = shown
    assert reviewer == {
        "id": "NoBreakpoints",
        "kind": "CONTROL_PLANE",
        "order": 3,
        "enabled": True,
        "dryRun": False,
        "maxCommandsPerSecond": None,
        "counts": {},
        "droppedEvents": 0,
        "external": False,
    }
    assert supervisor["kind"] == "SUPERVISOR"
    assert supervisor["counts"] == {"APPLIED": 1, "NO_OP": 1, "REJECTED": 3}


@virtual_time
async def test_a_held_command_gives_a_second_outcome_when_it_is_decided() -> None:
    class Twice:
        def review(self, request):
            return Hold("ask somebody") if request.via == "SUPERVISOR" else None

    one = Watcher("one", pause)

    async with supervised(one, reviewers=[Twice()]) as (engine, run, _):
        await asyncio.sleep(3)
        [held] = engine.gateway.held()
        await engine.gateway.decide(
            held["commandId"], approve=True, actor="ann", role=PauseWorkflow.role
        )
        await asyncio.sleep(1)

        assert run.detail["paused"] is True

    outcomes = [event.data["outcome"] for event in one.saw("supervisor.command")]
    assert outcomes == ["HELD", "APPLIED"]


@virtual_time
async def test_a_command_id_that_is_repeated_gets_the_first_answer() -> None:
    one = Watcher("one", *(2 * [lambda run: Proposal(pause(run), command_id="once")]))

    async with supervised(one) as (engine, run, _):
        await asyncio.sleep(3)

        assert len(engine.gateway.audit(run.execution_id)) == 1

    assert [event.data for event in one.saw("supervisor.command")] == [
        {"commandId": "once", "outcome": "APPLIED"}
    ] * 2


# --- loop guard and switch -----------------------------------------------------------------------


async def quarrel(events):
    """Reacts to what came of its own commands, for ever."""
    async for event in events:
        if event.type in ("node.log", "supervisor.command"):
            yield ResumeWorkflow(execution_id=event.execution_id)


@virtual_time
async def test_the_same_command_to_the_same_run_again_and_again_switches_it_off() -> None:
    async with supervised(quarrel) as (engine, run, events):
        await asyncio.sleep(20)
        shown = engine.supervisors.get("quarrel")
        rows = engine.gateway.audit(run.execution_id)
        before = engine.supervisors.change("quarrel", enabled=True)
        await asyncio.sleep(20)
        again = engine.supervisors.get("quarrel")

        assert run.detail["status"] == "RUNNING"

    assert (shown["enabled"], shown["state"]) == (False, "DISABLED")
    assert len(rows) == 10
    assert shown["counts"]["loop_guard"] == 1
    guarded = [one for one in of(events, "supervisor.failed") if one["reason"] == "loop_guard"]
    assert len(guarded) == 2
    assert guarded[0]["detail"].startswith("ResumeWorkflow to the same target more than 10 times")
    assert (before["enabled"], again["enabled"]) == (True, False)


@pytest.mark.parametrize(
    "bounds",
    [{"loop_guard_commands": 0}, {"loop_guard_window": timedelta(milliseconds=100)}],
)
@virtual_time
async def test_the_guard_can_be_switched_off_and_has_a_window(bounds) -> None:
    async def steps(events):
        async for event in events:
            if event.type == "node.log":
                yield ResumeWorkflow(execution_id=event.execution_id)

    async with supervised(steps, **bounds) as (engine, _, _events):
        await asyncio.sleep(30.5)

        assert engine.supervisors.get("steps")["enabled"] is True
        assert sum(engine.supervisors.get("steps")["counts"].values()) >= 30


@virtual_time
async def test_the_switch_stops_one_at_once_and_lets_it_begin_anew() -> None:
    stopped: list[str] = []
    first: list[Any] = []

    async def counts(events):
        fresh = True
        try:
            async for event in events:
                if fresh and event.type == "node.log":
                    first.append(event.data["line"])
                    fresh = False
                if event.type == "node.log":
                    yield PauseNode(execution_id="none", node_id=event.data["line"][5:-1])
        finally:
            stopped.append("closed")

    async with supervised(counts) as (engine, _, _events):
        await asyncio.sleep(2.5)
        off = engine.supervisors.change("counts", enabled=False)
        await asyncio.sleep(3)
        meanwhile = engine.supervisors.get("counts")["counts"]
        on = engine.supervisors.change("counts", enabled=True)
        await asyncio.sleep(2)

        assert engine.supervisors.get("counts")["counts"]["REJECTED"] == 5

    assert (off["enabled"], off["state"]) == (False, "DISABLED")
    assert stopped[0] == "closed"
    assert meanwhile == {"REJECTED": 3}
    assert (on["enabled"], on["state"]) == (True, "RUNNING")
    assert first == ['{"n":0}', '{"n":6}']


@virtual_time
async def test_a_command_under_way_is_finished_when_its_supervisor_is_switched_off() -> None:
    class Slow:
        async def review(self, request):
            await asyncio.sleep(3)

    async def endless(events):
        async for event in events:
            if event.type == "node.log":
                yield PauseWorkflow(execution_id=event.execution_id)

    async with supervised(endless, reviewers=[Slow()]) as (engine, run, _events):
        await asyncio.sleep(1.5)
        engine.supervisors.change("endless", enabled=False)
        before = run.detail["paused"]
        await asyncio.sleep(10)

        assert (before, run.detail["paused"]) == (False, True)
        assert engine.supervisors.get("endless")["counts"] == {"APPLIED": 1, "NO_OP": 1}


@virtual_time
async def test_one_that_heeds_no_cancellation_is_heard_no_more() -> None:
    async def stubborn(events):
        for _ in range(10):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
            yield PauseWorkflow(execution_id="none")

    async with supervised(stubborn) as (engine, _, _events):
        await asyncio.sleep(2.5)
        engine.supervisors.change("stubborn", enabled=False)
        await asyncio.sleep(30)

        assert engine.supervisors.get("stubborn")["counts"] == {"REJECTED": 2}


@virtual_time
async def test_an_rx_supervisor_with_timers_of_its_own_is_stopped_too() -> None:
    def timer(events):
        return reactivex.interval(1).pipe(ops.map(lambda n: PauseWorkflow(execution_id=f"x{n}")))

    async with supervised(timer) as (engine, _, _events):
        await asyncio.sleep(3.5)
        engine.supervisors.change("timer", enabled=False)
        await asyncio.sleep(30)

        assert engine.supervisors.get("timer")["counts"] == {"REJECTED": 3}


@virtual_time
async def test_one_that_has_no_more_to_say_has_ended() -> None:
    async with supervised(PauseAtTick) as (engine, _, _events):
        await asyncio.sleep(3)

        assert engine.supervisors.get("rx")["state"] == "ENDED"
        assert engine.feed.listening is False


@virtual_time
async def test_only_supervisors_can_be_switched() -> None:
    class Everything:
        def review(self, request):
            return None

    async with supervised(PauseAtTick, reviewers=[Everything()]) as (engine, _, _events):
        with pytest.raises(NotFoundError) as unknown:
            engine.supervisors.change("none", enabled=False)
        with pytest.raises(ValidationError) as refused:
            engine.supervisors.change("Everything", enabled=False)

    assert unknown.value.code == "supervisor_not_found"
    assert "Everything is a reviewer" in refused.value.detail


# --- what is refused at the start ----------------------------------------------------------------


class NeedsMore(ExecutionSupervisor):
    id = "needs-more"

    def __init__(self, limit):
        self.limit = limit

    def supervise(self, events):
        return events


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([3], "int is no supervisor"),
        ([object()], "no method `supervise(events)`"),
        ([NeedsMore], "cannot be made without arguments"),
        ([named("a b", lambda events: events)], "its id 'a b' is not an id"),
        ([PauseAtTick, PauseAtTick()], "two supervisors have the id rx"),
        ([named("t", lambda events: events, types=("no.such",))], "no event type 'no.such'"),
        ([named("t", lambda events: events, types="node.log")], "`types` is a tuple"),
    ],
)
@virtual_time
async def test_what_is_no_supervisor_stops_the_start(given, words) -> None:
    with pytest.raises(ConfigError) as refused:
        async with Engine(registry=REGISTRY, supervisors=given):
            pass

    assert words in refused.value.detail


@virtual_time
async def test_an_id_is_not_both_a_supervisor_and_a_reviewer() -> None:
    class Both:
        id = "rx"

        def review(self, request):
            return None

    with pytest.raises(ConfigError) as refused:
        async with Engine(registry=REGISTRY, supervisors=[PauseAtTick], reviewers=[Both()]):
            pass

    assert refused.value.detail == "rx is both a supervisor and a reviewer"
