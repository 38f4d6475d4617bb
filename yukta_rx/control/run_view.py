"""RunView: what an explanation needs to know of a run, at one moment; live or as it ended.

Features: OBS-01, CTL-02.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yukta_rx.engine.hold import is_held
from yukta_rx.engine.recording import is_withheld
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.run import Run
    from yukta_rx.observe.state import RunState
    from yukta_rx.streams.edge import Edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that is so, and since when.

    Attributes:
        kind: what sort of thing, see API.md.
        detail: a sentence for a person.
        since: RFC 3339.
        node_id: the node that it is about; None for the run.
    """

    kind: str
    detail: str
    since: str
    node_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fact as it is answered."""
        node = {} if self.node_id is None else {"nodeId": self.node_id}
        return {"kind": self.kind, **node, "since": self.since, "detail": self.detail}

    @classmethod
    def of(cls, shown: Mapping[str, Any]) -> Fact:
        """The fact of what `as_dict` gives."""
        return cls(
            kind=shown["kind"],
            detail=shown["detail"],
            since=shown["since"],
            node_id=shown.get("nodeId"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node.

    Attributes:
        id: the node.
        kind: TRIGGER, PROCESSOR or TERMINAL.
        status: its status.
        since: when it began; None if it has not.
        ended: when it ended.
        received: messages in.
        emitted: messages out.
        error: its `NodeError`.
        waits: what holds it by itself: a pause, a breakpoint, an approval, a backoff.
        children: ids of the runs that it waits for.
    """

    id: str
    kind: str
    status: TaskStatus
    since: str | None = None
    ended: str | None = None
    received: int = 0
    emitted: int = 0
    error: Mapping[str, Any] | None = None
    waits: tuple[Fact, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeView:
    """One edge.

    Attributes:
        source: the node that it comes from.
        target: the node that it goes to.
        waiting: messages between the two, those in the target's hand included.
        blocked_since: since when the source has had work and no room here; None if it has room.
        blocked: the same in seconds.
        recording: whether the room is withheld because the record of the source is behind.
        observing: whether it is because too much of what runs say waits to be handed on.
    """

    source: str
    target: str
    waiting: int = 0
    blocked_since: str | None = None
    blocked: float = 0.0
    recording: bool = False
    observing: bool = False

    @property
    def withheld(self) -> bool:
        """Whether it is not the target that the source waits for."""
        return self.recording or self.observing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run.

    Attributes:
        status: its status.
        since: when it was queued, or began.
        ended: when it ended.
        error: its `RunError`.
        opening: whether its plugins are being opened.
        queue: what it waits for in the queue.
        nodes: by id, in topological order.
        edges: in the document's order.
    """

    status: TaskStatus
    since: str
    ended: str | None = None
    error: Mapping[str, Any] | None = None
    opening: bool = False
    queue: Fact | None = None
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    edges: tuple[EdgeView, ...] = ()


def live_view(run: Run, now: datetime, asked: Iterable[Mapping[str, Any]]) -> RunView:
    """A run that goes on, at time `now`.

    Args:
        run: the run.
        now: the time of day.
        asked: what its nodes wait for of people and programs, as `waitingOn`.
    """
    approvals: dict[str, list[Fact]] = {}
    for shown in asked:
        approvals.setdefault(shown["nodeId"], []).append(Fact.of(shown))
    started = rfc3339(run.started_at or now)
    edges = run.edges
    return RunView(
        status=run.status,
        since=started,
        ended=None if run.ended_at is None else rfc3339(run.ended_at),
        error=run.error,
        opening=not edges and not any(node.status.terminal for node in run.nodes.values()),
        nodes={
            node.id: _live_node(node, run, approvals.get(node.id, ()))
            for node in run.nodes.values()
        },
        edges=tuple(_live_edge(edge, now) for edge in edges)
        or tuple(EdgeView(source=edge.source, target=edge.target) for edge in run.definition.edges),
    )


def _live_node(node: NodeRuntime, run: Run, approvals: Iterable[Fact]) -> NodeView:
    counters = node.counters
    children: tuple[str, ...] = ()
    if node.prepared.spec.type == "SUB_WORKFLOW":
        children = tuple(child.execution_id for child in run.children.runs)
    return NodeView(
        id=node.id,
        kind=str(node.kind),
        status=node.status,
        since=None if node.started_at is None else rfc3339(node.started_at),
        ended=None if node.ended_at is None else rfc3339(node.ended_at),
        received=counters["in"],
        emitted=counters["out"],
        error=None if node.error is None else node.failure(),
        waits=(*_held(node), *approvals, *_backoffs(node)),
        children=children,
    )


def _held(node: NodeRuntime) -> tuple[Fact, ...]:
    if not node.paused or node.paused_at is None:
        return ()
    kind, detail = "PAUSE", "paused; resume or step lets messages through"
    if (message := node.valve.held) is not None:
        kind = "BREAKPOINT"
        detail = f"held before message {message.id}; resume or step lets it through"
    return (Fact(kind=kind, node_id=node.id, since=node.paused_at, detail=detail),)


def _backoffs(node: NodeRuntime) -> tuple[Fact, ...]:
    if node.status.terminal or not (waits := node.policies.waits()):
        return ()
    waits.sort(key=lambda one: one[0].due)
    first, until = waits[0]
    more = f"; {len(waits) - 1} more messages wait for theirs" if waits[1:] else ""
    detail = (
        f"message {first.message_id} waits for attempt {first.attempt}, due {rfc3339(until)}, "
        f"after: {first.error}{more}"
    )
    return (Fact(kind="BACKOFF", node_id=node.id, since=rfc3339(first.since), detail=detail),)


def _live_edge(edge: Edge, now: datetime) -> EdgeView:
    blocked, since = 0.0, None
    if edge.blocked_at is not None:
        blocked = edge.src.circuit.loop.time() - edge.blocked_at
        since = rfc3339(now - timedelta(seconds=blocked))
    return EdgeView(
        source=edge.src.plan.name,
        target=edge.dst.plan.name,
        waiting=edge.waiting,
        blocked_since=since,
        blocked=blocked,
        recording=is_withheld(edge),
        observing=is_held(edge),
    )


def kept_view(
    state: RunState, snapshot: Mapping[str, Any], now: datetime, queue: Fact | None = None
) -> RunView:
    """A run that waits in the queue or has ended, as the tracker knows it.

    Args:
        state: the run.
        snapshot: its `ProgressSnapshot` with edges.
        now: the time of day.
        queue: what it waits for in the queue.
    """
    began = state.start_time or state.queued_time or now
    return RunView(
        status=state.status,
        since=rfc3339(began if queue is None else state.queued_time or began),
        ended=None if state.end_time is None else rfc3339(state.end_time),
        error=state.error,
        queue=queue,
        nodes={shown["nodeId"]: _kept_node(shown) for shown in snapshot["nodes"]},
        edges=tuple(
            EdgeView(source=shown["source"], target=shown["target"]) for shown in snapshot["edges"]
        ),
    )


def _kept_node(shown: Mapping[str, Any]) -> NodeView:
    return NodeView(
        id=shown["nodeId"],
        kind=shown["kind"],
        status=TaskStatus(shown["status"]),
        since=shown.get("startTime"),
        ended=shown.get("endTime"),
        received=shown["in"],
        emitted=shown["out"],
        error=shown.get("error"),
    )
