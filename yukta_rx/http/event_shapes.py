"""What the events carry: a JSON Schema of `data` for each type. Feature: OBS-01."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal

from pydantic import BaseModel, create_model

from yukta_rx.http.approval_shapes import Approval, ApprovalEvent
from yukta_rx.http.definition_shapes import VersionRow
from yukta_rx.http.resources import Event
from yukta_rx.http.scheduler_shapes import RejectedStart, SchedulerLimits
from yukta_rx.http.shapes import (
    AuditRow,
    Count,
    EdgeState,
    LogLine,
    Milliseconds,
    NodeError,
    RunError,
    Shape,
    Totals,
)
from yukta_rx.model.events import EVENT_TYPES, SAMPLE_TYPES
from yukta_rx.model.policy import OnError, Overflow  # noqa: TC001
from yukta_rx.model.status import TaskStatus  # noqa: TC001  (pydantic reads the annotation)


class Queued(Shape):
    """A start waits for a slot: its place, and the limit that it waits for."""

    position: Count
    reason: str


class StartedData(Shape):
    """A run began."""

    definition_version: str


class RunStatus(Shape):
    """A run's status moved forward; `version` grows by one per change."""

    status: TaskStatus
    previous: TaskStatus
    version: Count


class RunProgress(Shape):
    """How many nodes have which status."""

    version: Count
    counts: dict[str, Count]


class Finished(Shape):
    """A run ended; each has exactly one of these, and nothing of the run follows.

    `droppedLines` is there if lines of its log were dropped because too many waited.
    """

    status: TaskStatus
    error: RunError | None = None
    totals: Totals
    dropped_lines: Count | None = None


class NodeStatus(Shape):
    """A node's status moved forward."""

    status: TaskStatus
    previous: TaskStatus
    attempt: int | None = None
    error: NodeError | None = None


class AttemptError(Shape):
    """What an attempt at a message raised."""

    exception: str
    detail: str
    code: str | None = None


class Retry(Shape):
    """A message gets another attempt, with this number, after so long."""

    message_id: str
    attempt: int
    delay_ms: Milliseconds
    error: AttemptError


class AttemptDiscarded(Shape):
    """What an attempt had made was thrown away."""

    message_id: str
    attempt: int
    outputs: Count


class MessageFailed(Shape):
    """A message was given up."""

    message_id: str
    attempts: int
    error: AttemptError
    action: OnError


class DeadLetter(Shape):
    """A message went to the `error` port."""

    message_id: str
    exception: str


class BreakpointHit(Shape):
    """A valve holds a message."""

    message_id: str


class NodeStats(Shape):
    """The counters of a node."""


class EdgeDropped(Shape):
    """Messages in front of a node were dropped, by its buffer or by an operator.

    How many, the ids of some, and by which rule; DROP_HELD is the command `DropHeld`.
    """

    count: Count
    sample: list[str]
    overflow: Overflow | Literal["DROP_HELD"]


class Resource(Shape):
    """The resource concerned."""


_DATA: Final[dict[str, type[BaseModel]]] = {
    "execution.queued": Queued,
    "execution.started": StartedData,
    "execution.status": RunStatus,
    "execution.progress": RunProgress,
    "execution.finished": Finished,
    "node.status": NodeStatus,
    "node.retry": Retry,
    "node.attempt_discarded": AttemptDiscarded,
    "node.message_failed": MessageFailed,
    "node.dead_letter": DeadLetter,
    "node.breakpoint_hit": BreakpointHit,
    "node.stats": NodeStats,
    "node.log": LogLine,
    "edge.stats": EdgeState,
    "edge.dropped": EdgeDropped,
    "definition.saved": VersionRow,
    "definition.rolled_back": VersionRow,
    "control.applied": AuditRow,
    "control.rejected": AuditRow,
    "approval.requested": Approval,
    "approval.answered": ApprovalEvent,
    "approval.expired": Approval,
    "scheduler.limits_changed": SchedulerLimits,
    "scheduler.rejected": RejectedStart,
}


@cache
def event_catalogue() -> tuple[dict[str, Any], ...]:
    """Return every event type: its name, whether it is a sample, and the schema of the event."""
    return tuple(
        {"type": name, "sample": name in SAMPLE_TYPES, "schema": _schema(name)}
        for name in sorted(EVENT_TYPES)
    )


def _schema(name: str) -> dict[str, Any]:
    data = _DATA.get(name, Resource)
    model = create_model(f"Event of {name}", __base__=Event, data=(data, ...))
    schema: dict[str, Any] = model.model_json_schema(by_alias=True)
    schema["properties"]["type"] = {"const": name}
    return schema
