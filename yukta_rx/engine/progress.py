"""What a run looks like from outside: counters, snapshots, and its outcome.

Features: OBS-01, ENG-06.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from yukta_rx.engine.rates import RateMeter
from yukta_rx.model.times import rfc3339
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.buffer import BufferStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from yukta_rx.definitions.prepare import PreparedNode
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.run import Run
    from yukta_rx.engine.suspension import EdgeLeft, NodeLeft
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.streams.edge import Edge


class RunOutcome:
    """How a run ended; worked out when somebody looks.

    Attributes:
        execution_id: the run.
        seconds: from start to end, pauses included.
    """

    __slots__ = ("_run", "execution_id", "seconds")

    def __init__(self, run: Run, seconds: float) -> None:
        self._run = run
        self.execution_id = run.execution_id
        self.seconds = seconds

    @property
    def status(self) -> TaskStatus:
        """Its final status."""
        return self._run.status

    @property
    def error(self) -> Mapping[str, Any] | None:
        """`{code, detail, nodeId?}` unless it ended well."""
        return self._run.error

    @property
    def totals(self) -> Mapping[str, int]:
        """Messages `in` (emitted by triggers), `out` (reached terminals), `failed`, `dropped`."""
        return self._run.totals()

    @property
    def nodes(self) -> Mapping[str, Mapping[str, Any]]:
        """Every node's final `NodeState`, by id."""
        return {node.id: node.state() for node in self._run.nodes.values()}


def totals(nodes: Iterable[NodeRuntime]) -> dict[str, int]:
    """Messages that triggers emitted, that reached terminals, that failed, were dropped."""
    sums = {"in": 0, "out": 0, "failed": 0, "dropped": 0}
    for node in nodes:
        counters = node.counters
        if node.kind is PluginKind.TRIGGER:
            sums["in"] += counters["out"]
        elif node.kind is PluginKind.TERMINAL:
            sums["out"] += counters["in"]
        sums["failed"] += counters["failed"]
        sums["dropped"] += counters["dropped"]
    return sums


def new_counts(nodes: Iterable[NodeRuntime]) -> Iterator[tuple[str, str, int]]:
    """What plugins have counted since the last call: node type, outcome, how many."""
    for node in nodes:
        for outcome, n in node.counted.fresh().items():
            yield node.prepared.spec.type, outcome, n


class Shown(Protocol):
    """What a snapshot says of a run as a whole."""

    execution_id: str
    session_id: str
    definition: WorkflowDefinition
    status: TaskStatus
    paused: bool
    step_mode: bool
    started_at: datetime | None
    ended_at: datetime | None
    error: dict[str, Any] | None


def snapshot(run: Run, version: int, now: datetime) -> dict[str, Any]:
    """A `ProgressSnapshot` of a run, with `edges`, at time `now`."""
    return {
        "version": version,
        "time": rfc3339(now),
        "execution": execution_state(run, now),
        "nodes": [node.state() for node in run.nodes.values()],
        "edges": [_edge_state(edge, run) for edge in run.edges],
    }


def execution_state(run: Shown, now: datetime) -> dict[str, Any]:
    """A run as a whole, as its snapshot has it."""
    execution: dict[str, Any] = {
        "executionId": run.execution_id,
        "sessionId": run.session_id,
        "workflowId": run.definition.workflow_id,
        "definitionVersion": run.definition.version,
        "status": str(run.status),
        "paused": run.paused,
        "stepMode": run.step_mode,
    }
    if run.started_at is not None:
        end = run.ended_at or now
        execution["startTime"] = rfc3339(run.started_at)
        execution["durationMs"] = round((end - run.started_at).total_seconds() * 1000)
    if run.ended_at is not None:
        execution["endTime"] = rfc3339(run.ended_at)
    if run.error is not None:
        execution["error"] = run.error
    return execution


def node_known(node: PreparedNode, of: NodeRuntime | NodeLeft) -> dict[str, Any]:
    """What the state of a node begins with: what it is, its status, its times."""
    shown: dict[str, Any] = {
        "nodeId": node.node_id,
        "type": node.spec.type,
        "kind": str(node.spec.kind),
        "status": str(of.status),
    }
    if of.started_at is not None:
        shown["startTime"] = rfc3339(of.started_at)
    if of.ended_at is not None:
        shown["endTime"] = rfc3339(of.ended_at)
    return shown


def _edge_state(edge: Edge, run: Run) -> dict[str, Any]:
    now = edge.src.circuit.loop.time()
    meter = run.rates.get(edge)
    if meter is None and run.ended_at is None:
        meter = run.rates[edge] = RateMeter(now, edge.passed)
    ends = edge.src.plan.name, edge.dst.plan.name, edge.port
    waiting = edge.waiting + _in_buffer(edge)
    shown = edge_state(ends, edge, meter, now, waiting=waiting, blocked=edge.blocked_seconds())
    if edge.blocked_at is not None:
        shown["pacedBy"] = edge.dst.plan.name
    return shown


def edge_state(
    ends: tuple[str, str, str | None],
    of: Edge | EdgeLeft,
    meter: RateMeter | None,
    now: float,
    *,
    waiting: int,
    blocked: float,
) -> dict[str, Any]:
    """An edge as API.md's `EdgeState`.

    Args:
        ends: its source, its target and the port at its source.
        of: what it has counted.
        meter: its rate, if anybody has looked at it.
        now: the time of the loop.
        waiting: messages on it.
        blocked: seconds that its source has waited for it.
    """
    source, target, port = ends
    shown: dict[str, Any] = {"source": source, "target": target}
    if port is not None:
        shown["sourcePort"] = port
    shown["passed"] = of.passed
    shown["ratePerSec"] = 0.0 if meter is None else meter.read(now, of.passed)
    shown["waiting"] = waiting
    shown["dropped"] = of.dropped
    shown["blockedMs"] = round(blocked * 1000)
    return shown


def _in_buffer(edge: Edge) -> int:
    """What waits in the buffer that the edge leads to; shown at the first edge into it."""
    buffer = edge.dst
    if isinstance(buffer, BufferStage) and buffer.shown_at is edge:
        return buffer.waiting()
    return 0


def in_document_order(definition: WorkflowDefinition, edges: Iterable[Edge]) -> list[Edge]:
    """The running edges in the order in which the document lists them.

    Those from a buffer to its own node are not among them.
    """
    places = {
        (edge.source, edge.target, edge.source_port): place
        for place, edge in enumerate(definition.edges)
    }
    by_place = {
        places.get((edge.src.plan.name, edge.dst.plan.name, edge.port), -1): edge for edge in edges
    }
    return [by_place[place] for place in sorted(by_place) if place >= 0]
