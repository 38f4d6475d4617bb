"""Random commands, starts, stops and failures against random live graphs.

Whatever is done, nothing hangs, no message is lost, no slot and no task is left, and what the
audit, the feed and the reads say is the same. `YUKTA_TEST_EXAMPLES=5000` tries as many.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.audit import AuditQuery
from yukta_rx.control.commands import COMMANDS, Role
from yukta_rx.control.queries import ExecutionQuery
from yukta_rx.control.reviewers import Allow, Deny, Hold
from yukta_rx.control.starter import StartRequest
from yukta_rx.errors import ConflictError, YuktaError
from yukta_rx.model.status import TaskStatus
from yukta_rx.observe.filters import EventFilter
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [
    pytest.mark.feature("CTL-01", "ADM-01", "ENG-06", "OBS-01"),
    pytest.mark.slow,
    pytest.mark.timeout(7200),
]

EXAMPLES = int(os.environ.get("YUKTA_TEST_EXAMPLES", "40"))

OVERRIDES = {
    "yukta.execution.max-concurrent": 3,
    "yukta.execution.max-concurrent-per-workflow": 2,
    "yukta.execution.queue-capacity": 4,
    "yukta.plugins.allow-fault-injection": True,
    "yukta.control.hold-timeout": "5s",
    "yukta.streaming.replay-events": 1_000_000,
    "yukta.tracker.max-executions": 1_000_000,
    "yukta.tracker.cleanup-ttl": "10d",
}
PATIENCE = 120.0
"""Seconds of virtual time in which everything has to have ended after it was told to."""


@processor("SLOW")
async def slow(msg: Any, cfg: Any, ctx: Any) -> Any:
    """Take a while, in a coroutine."""
    await asyncio.sleep(0.3)
    return msg


SETTINGS = load_settings(environ={}, overrides=OVERRIDES)
REGISTRY = PluginRegistry.load(SETTINGS, extra=[slow])


# -- graphs

MIDDLES: list[dict[str, Any]] = [
    {"type": "FILTER", "config": {"when": "payload.n % 3 != 0"}},
    {"type": "TRANSFORM", "config": {"set": {"seen": True}}},
    {"type": "SLOW"},
    {"type": "SLOW", "config": {"engine": {"concurrency": {"max": 4, "ordered": False}}}},
    {"type": "DELAY", "config": {"ms": 200}},
    {"type": "WAIT_FOR_SIGNAL", "config": {"signal": "go", "timeoutSeconds": 3}},
    {
        "type": "WAIT_FOR_SIGNAL",
        "config": {"signal": "go", "timeoutSeconds": 60, "onTimeout": "DROP", "maxWaiting": 2},
    },
    {"type": "SUB_WORKFLOW", "config": {"workflowId": "c"}},
    {"type": "BATCH", "config": {"size": 3, "maxWaitMs": 500}},
    {"type": "FAULT_INJECTOR", "config": {"failWhen": "payload.n == 7"}},
    {
        "type": "FAULT_INJECTOR",
        "config": {"failTimes": 1, "engine": {"retry": {"maxAttempts": 2, "backoffMs": 50}}},
    },
    {
        "type": "FAULT_INJECTOR",
        "config": {"failWhen": "payload.n % 2 == 0", "engine": {"onError": "CONTINUE"}},
    },
]


CHILD = {
    "workflowId": "c",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "wait", "type": "DELAY", "config": {"ms": 100}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "wait"}, {"source": "wait", "target": "out"}],
}


@st.composite
def documents(draw: Any, workflow_id: str) -> dict[str, Any]:
    """A trigger, some processors, each behind one or two nodes, and a terminal at each end."""
    count = draw(st.sampled_from([0, 1, 5, 30]))
    every = draw(st.sampled_from([0, 20, 300])) if count else 500
    config = {"count": count, "intervalMs": every}
    nodes = [{"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": config}]
    edges: list[dict[str, Any]] = []
    for place in range(draw(st.integers(0, 4))):
        name = f"p{place}"
        known = [node["nodeId"] for node in nodes]
        parents = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))
        nodes.append({"nodeId": name, **draw(st.sampled_from(MIDDLES))})
        edges += [{"source": parent, "target": name} for parent in parents]
    sources = {edge["source"] for edge in edges}
    for node in list(nodes):
        if node["nodeId"] not in sources:
            name = f"end-{node['nodeId']}"
            nodes.append({"nodeId": name, "type": "COLLECT_TERMINAL"})
            edges.append({"source": node["nodeId"], "target": name})
    return {"workflowId": workflow_id, "nodes": nodes, "edges": edges}


# -- what is done

FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "n": st.integers(1, 5),
    "mode": st.sampled_from(["DRAIN", "CANCEL", "KILL"]),
    "enabled": st.booleans(),
    "payload": st.sampled_from([{"n": 1}, {"n": 7}]),
    "priority": st.integers(-3, 3),
    "maxConcurrent": st.integers(1, 4),
    "perWorkflow": st.integers(0, 2),
    "name": st.sampled_from(["go", "stop"]),
    "decision": st.sampled_from([None, "reject"]),
    "version": st.sampled_from([None, "same", "current", "9"]),
}


BREAKPOINTS: list[dict[str, Any]] = [
    {},
    {"expression": "payload.n", "equals": "3"},
    {"expression": "payload.n", "op": ">", "value": 4},
    {"expression": "payload.n", "op": "sideways", "value": 4},
    {"when": "payload.n == 2"},
]


@st.composite
def steps(draw: Any) -> tuple[Any, ...]:
    """Time that passes, then a start or a command."""
    wait = draw(st.sampled_from([0.0, 0.0, 0.05, 0.7, 4.0]))
    if draw(st.integers(0, 3)) == 0:
        return wait, "start", draw(st.sampled_from("ab")), draw(st.sampled_from([None, "k1", "k2"]))
    name = draw(st.sampled_from(sorted(COMMANDS)))
    fields = {}
    for field_name in COMMANDS[name].own_fields():
        value = draw(FIELDS.get(field_name, st.none()))
        if value is not None:
            fields[field_name] = value
    if name == "SetBreakpoint":
        fields = draw(st.sampled_from(BREAKPOINTS))
    return wait, name, fields, draw(st.integers(0, 15)), draw(st.integers(0, 15))


@dataclass
class World:
    """An engine, what was done to it, and what came of it."""

    engine: Engine
    started: list[str] = field(default_factory=list)
    asked: int = 0
    decided: int = 0
    starting: list[asyncio.Task[None]] = field(default_factory=list)

    async def do(self, step: tuple[Any, ...], group: asyncio.TaskGroup) -> None:
        await asyncio.sleep(step[0])
        for held in self.engine.gateway.held()[:1]:
            group.create_task(self.decide(held["commandId"]))
        if step[1] == "start":
            self.starting.append(group.create_task(self.start(step[2], step[3])))
        else:
            group.create_task(self.give(*step[1:]))
        await asyncio.sleep(0)

    async def start(self, workflow: str, key: str | None) -> None:
        request = StartRequest(session_id="s", workflow_id=workflow, idempotency_key=key)
        try:
            made = await self.engine.gateway.start(request)
        except YuktaError:
            return
        self.started.append(made.execution_id)

    async def give(self, name: str, fields: dict[str, Any], run: int, node: int) -> None:
        known = [item["executionId"] for item in self.runs()]
        execution_id = known[run % len(known)] if known and run < 14 else "nothing-there"
        if name == "SetLimits":
            execution_id = "scheduler"
        body = {"type": name, **fields, "executionId": execution_id}
        if "node_id" in COMMANDS[name].__dataclass_fields__:
            body["nodeId"] = self.node(execution_id, node, name)
        try:
            command = self.engine.gateway.parse(body)
        except YuktaError:
            return
        self.asked += 1
        try:
            await self.engine.gateway.command(command, actor="ann", via="REST")
        except YuktaError:
            return

    async def decide(self, command_id: str) -> None:
        """A second actor decides, each time otherwise."""
        self.decided += 1
        who = {"actor": "bob", "role": Role.ADMIN}
        try:
            await self.engine.gateway.decide(command_id, approve=self.decided % 2 == 0, **who)
        except YuktaError:
            return

    def node(self, execution_id: str, place: int, command: str) -> str:
        """A node of the run, one that the command can be meant for where there is one."""
        try:
            nodes = self.engine.gateway.nodes(execution_id)
        except YuktaError:
            nodes = []
        wanted = {
            "RetryNode": lambda node: node["status"] in ("FAILURE", "TIMED_OUT"),
            "ReleaseHeld": lambda node: "held" in node,
            "DropHeld": lambda node: "held" in node,
            "EditHeld": lambda node: "held" in node,
            "SignalNode": lambda node: node["type"] == "WAIT_FOR_SIGNAL",
        }.get(command, lambda node: True)
        fitting = [node for node in nodes if wanted(node)] or nodes
        return str(fitting[place % len(fitting)]["nodeId"]) if fitting and place < 14 else "nowhere"

    def runs(self) -> list[dict[str, Any]]:
        return self.engine.gateway.executions(ExecutionQuery(), 1_000_000).items


class Moody:
    """A reviewer that refuses some commands and holds others, after a while."""

    async def review(self, request: Any) -> Any:
        await asyncio.sleep(0.01)
        name = request.command.name()
        if name == "StepNode" and request.command.arguments()["n"] == 5:
            return Deny("not five")
        return Hold("two have to agree") if name in ("PauseNode", "StopNode") else Allow()


async def live_through(
    made: list[dict[str, Any]], done: list[tuple[Any, ...]], reviewed: bool
) -> None:
    before = set(asyncio.all_tasks())
    reviewers = [Moody()] if reviewed else []
    async with Engine(SETTINGS, registry=REGISTRY, reviewers=reviewers) as engine:
        await engine.definitions.apply_session({"sessionId": "s", "workflows": [*made, CHILD]})
        world = World(engine)
        own = set(asyncio.all_tasks()) - before
        async with asyncio.timeout(PATIENCE * 10), asyncio.TaskGroup() as group:
            for workflow in "ab":
                await world.do((0.1, "start", workflow, None), group)
            for step in done:
                await world.do(step, group)
            await everything_ends(world)
        await asyncio.sleep(6)
        check(world)
        assert set(asyncio.all_tasks()) - before <= own, "a task is left"
    assert set(asyncio.all_tasks()) == before


async def everything_ends(world: World) -> None:
    """Tell every run to end, also those that only get their slot meanwhile."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while True:
        live = [run for run in world.runs() if not TaskStatus(run["status"]).terminal]
        if not live and all(task.done() for task in world.starting):
            return
        assert loop.time() < end, f"still there: {live}, {world.starting}"
        for place, run in enumerate(live):
            mode = ("DRAIN", "CANCEL", "KILL")[place % 3] if loop.time() < end - 60 else "CANCEL"
            body = {"type": "StopWorkflow", "executionId": run["executionId"], "mode": mode}
            world.asked += 1
            try:
                command = world.engine.gateway.parse(body)
                await world.engine.gateway.command(command, actor="ann", via="REST")
            except ConflictError:
                # It ended meanwhile.
                continue
        await asyncio.sleep(1)


def check(world: World) -> None:
    """What is left, and whether everybody tells the same story."""
    engine, gateway = world.engine, world.engine.gateway
    assert engine._starter.live == {}
    events = engine.feed.read(EventFilter(), None, 1_000_000).items
    said = Counter(
        event["executionId"] for event in events if event["type"] == "execution.finished"
    )
    runs = {run["executionId"]: run for run in world.runs()}
    assert set(world.started) <= set(runs)
    assert said == Counter(dict.fromkeys(runs, 1)), "each run ends exactly once"
    for execution_id, run in runs.items():
        statuses = [e for e in events if e["executionId"] == execution_id]
        told = [e["data"]["status"] for e in statuses if e["type"] == "execution.finished"]
        assert told == [run["status"]]
        check_messages(gateway.detail(execution_id, ("nodes", "edges")))
    audit = gateway.audit_page(AuditQuery(), 1_000_000).items
    told = [e["data"] for e in events if e["type"].startswith("control.")]
    assert told == [row for row in audit if row["outcome"] in ("APPLIED", "REJECTED")]
    assert len({row["commandId"] for row in audit}) == world.asked
    ended = Counter(row["commandId"] for row in audit if row["outcome"] != "HELD")
    assert set(ended.values()) <= {1}, "a command comes to one end"
    for row in audit:
        event(f"{row['command']} {row['outcome']}")


def check_messages(run: dict[str, Any]) -> None:
    """No message is lost: what a node took is what its parents passed, less what waits."""
    if run["status"] != "SUCCESS":
        return
    nodes = {node["nodeId"]: node for node in run["nodes"]}
    stopped = {"STOPPED", "CANCELLED", "UPSTREAM_FAILED", "FAILURE", "TIMED_OUT"}
    if any(node["status"] in stopped or node["dropped"] for node in nodes.values()):
        return
    for name, node in nodes.items():
        into = [edge for edge in run["edges"] if edge["target"] == name]
        assert node["in"] == sum(edge["passed"] for edge in into), (name, run)
        for edge in run["edges"]:
            if edge["source"] == name:
                assert edge["passed"] == node["out"], (edge, node)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(documents("a"), documents("b")),
    st.lists(steps(), min_size=4, max_size=20),
    st.booleans(),
)
def test_whatever_is_done_everything_ends_and_all_say_the_same(
    made: tuple[dict[str, Any], ...], done: list[tuple[Any, ...]], reviewed: bool
) -> None:
    run_virtual(live_through(list(made), done, reviewed))
