"""The shapes of requests and answers, as OpenAPI shows them.

Request models are enforced: a field that is not known is refused. Response models describe what
the lower rooms build as plain JSON; readers of them must ignore fields that they do not know.

Feature: OBS-01.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from yukta_rx.model.ids import ID_PATTERN
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.workflow import RunOptions, id_of_kind

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=0)]


class Request(BaseModel):
    """Base of request bodies."""

    model_config = ConfigDict(
        # Made ready at their first use: a start need not wait for bodies that may never come.
        defer_build=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
    )


class Shape(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(
        defer_build=True, extra="allow", alias_generator=to_camel, validate_by_name=True
    )


# --- requests ------------------------------------------------------------------------------------


def Id(kind: str) -> Any:
    """Return the type of an id; `kind` is what the field is called."""
    return Annotated[str, id_of_kind(kind), Field(json_schema_extra={"pattern": ID_PATTERN})]


class StartBody(Request):
    """Which workflow to run, with what."""

    session_id: Id("sessionId")  # type: ignore[valid-type]
    workflow_id: Id("workflowId")  # type: ignore[valid-type]
    payload: dict[str, Any] = Field(
        default_factory=dict, description="The start payload; `yukta.*` members are the engine's."
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Free labels of the run.")
    step_mode: Annotated[bool, Field(strict=True)] = Field(
        False, description="Begin paused, to be stepped."
    )
    breakpoints: Annotated[list[dict[str, Any]], Field(max_length=100)] = Field(
        default_factory=list,
        description="In force before the first message: `nodeId`, and what `.../breakpoint` takes.",
    )
    options: RunOptions | None = Field(None, description="In place of the workflow's own.")


class Payload(Shape):
    """A start payload, or a configuration: any object."""


# --- errors --------------------------------------------------------------------------------------


class FaultShape(Shape):
    """One thing that is wrong with a document."""

    pointer: str
    code: str
    detail: str
    node_id: str | None = None
    option: str | None = None


class Problem(Shape):
    """Why a request was not fulfilled (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FaultShape] | None = None


# --- runs ----------------------------------------------------------------------------------------


class Links(Shape):
    """Paths of a run."""

    self: str
    progress: str
    results: str
    logs: str
    stop: str


class Started(Shape):
    """A run that was started, or waits for its slot at `queuePosition`."""

    execution_id: str
    status: TaskStatus
    definition_version: str
    queue_position: int | None = None
    links: Links


class RunError(Shape):
    """Why a run did not end well."""

    code: str
    detail: str
    node_id: str | None = None


class ExecutionSummary(Shape):
    """A run in a list."""

    execution_id: str
    session_id: str
    workflow_id: str
    definition_version: str
    status: TaskStatus
    start_time: Time | None = None
    end_time: Time | None = None
    queued_time: Time | None = None
    duration_ms: Milliseconds | None = None
    parent_execution_id: str | None = None
    depth: Count
    actor: str
    labels: dict[str, str]
    paused: bool
    recorded: bool
    suspended: bool | None = Field(
        None,
        description="True while the run is put aside, since its messages only wait for signals; "
        "whatever concerns it takes it up again.",
    )
    error: RunError | None = None


class WaitingOn(Shape):
    """Why a run does not move."""

    kind: Literal["QUEUE", "APPROVAL", "BREAKPOINT", "PAUSE", "BACK_PRESSURE", "BACKOFF", "WORKER"]
    node_id: str | None = None
    since: Time
    detail: str


class Ability(Shape):
    """Whether something can be done with a run, and if not why."""

    ok: bool
    reason: str | None = None


class NodeError(Shape):
    """Why a node failed."""

    exception: str
    detail: str
    message_id: str | None = None
    attempts: int | None = None


class Held(Shape):
    """The message that a valve holds."""

    message_id: str
    since: Time
    reason: str


class NodeState(Shape):
    """A node of a run."""

    node_id: str
    type: str
    kind: Literal["TRIGGER", "PROCESSOR", "TERMINAL"]
    status: TaskStatus
    start_time: Time | None = None
    end_time: Time | None = None
    in_: Count = Field(alias="in")
    out: Count
    failed: Count
    retried: Count
    dropped: Count
    dead_lettered: Count
    skipped: Count
    attempt: int
    rate_per_sec: float
    paused: bool
    skipping: bool
    held: Held | None = None
    error: NodeError | None = None
    worker: str | None = None


class EdgeState(Shape):
    """An edge of a run."""

    source: str
    target: str
    source_port: str | None = None
    passed: Count
    rate_per_sec: float
    waiting: Count
    dropped: Count
    blocked_ms: Milliseconds
    paced_by: str | None = None


class ExecutionDetail(ExecutionSummary):
    """A run with all that is known of it."""

    resumed_from: str | None = None
    restarted_from: str | None = None
    queue_position: int | None = None
    step_mode: bool
    waiting_on: list[WaitingOn]
    breakpoints: list[dict[str, Any]]
    resumable: Ability
    restartable: Ability
    nodes: list[NodeState] | None = None
    edges: list[EdgeState] | None = None
    children: list[str] | None = None


class RecoveryNode(Shape):
    """What becomes of a node when its run goes on."""

    node_id: str
    action: Literal["REPLAYED", "FINISHED", "CONTINUED", "AGAIN", "ALONE"]
    messages: Count
    inputs: Count


class RecoveryPlan(Shape):
    """What going on with an aborted run would do; nodes in topological order."""

    execution_id: str
    attempt: Count
    definition_version: str
    nodes: list[RecoveryNode]


class ExecutionPage(Shape):
    """Runs, newest first; with `count=true` only how many there are."""

    items: list[ExecutionSummary] | None = None
    next_cursor: str | None = None
    count: Count | None = None
    count_capped: bool | None = None


class NodePage(Shape):
    """Every node of a run."""

    items: list[NodeState]
    next_cursor: None = None


class EdgePage(Shape):
    """Every edge of a run."""

    items: list[EdgeState]
    next_cursor: None = None


class ProgressSnapshot(Shape):
    """A run at one moment; `version` grows with each."""

    version: Count
    time: Time
    execution: ExecutionSummary
    nodes: list[NodeState]


class Totals(Shape):
    """Counters of a terminal or a run."""

    in_: Count | None = Field(None, alias="in")
    out: Count | None = None
    failed: Count | None = None
    dropped: Count | None = None


class ResultItem(Shape):
    """One item of a run's results."""

    cursor: str
    type: Literal["RESULT", "NODE_END", "EXECUTION_END"]
    node_id: str | None = None
    message_id: str | None = None
    headers: dict[str, Any] | None = None
    payload: Any = None
    status: TaskStatus | None = None
    truncated: bool | None = None
    totals: Totals | None = None
    time: Time


class Gap(Shape):
    """Items that retention took."""

    dropped: Count | None = None


class ResultPage(Shape):
    """Results of a run, oldest first."""

    items: list[ResultItem]
    next_cursor: str | None = None
    gap: Gap | None = None


class RunResult(Shape):
    """A run that was started and waited for."""

    execution: ExecutionDetail
    results: list[ResultItem]
    truncated: bool


class LogLine(Shape):
    """One line of a run's live log."""

    cursor: str
    time: Time
    node_id: str | None = None
    stream: Literal["stdout", "stderr", "engine"]
    level: str
    line: str
    attempt: int | None = None


class LogPage(Shape):
    """Log lines of a run, oldest first."""

    items: list[LogLine]
    next_cursor: str | None = None
    gap: Gap | None = None


# --- commands ------------------------------------------------------------------------------------


class CommandState(Shape):
    """The run after a command; empty where the command is not about a run."""

    status: TaskStatus | None = None
    paused: bool | None = None
    step_mode: bool | None = None


class CommandAnswer(Shape):
    """What became of a command."""

    command_id: str
    seq: int
    execution_id: str
    node_id: str | None = None
    command: str
    outcome: Literal["APPLIED", "NO_OP", "QUEUED", "HELD", "DRY_RUN", "REJECTED"]
    actor: str
    applied_at: Time
    state: CommandState
    reason: str | None = None
    answer: Literal["ACCEPTED", "QUEUED"] | None = None
    new_execution_id: str | None = None
    recorded: bool | None = Field(
        None, description="False while it is in force but not written to the execution log."
    )


class CommandAnswers(Shape):
    """What became of several commands."""

    results: list[CommandAnswer]


class BatchAnswers(Shape):
    """What became of several commands, in their order; a refusal is a problem."""

    results: list[CommandAnswer | Problem]


class Decision(StrEnum):
    """What becomes of something that waits for a second actor."""

    APPROVE = "approve"
    REJECT = "reject"


class DecisionBody(Request):
    """The decision about a held command."""

    decision: Decision
    reason: Annotated[str, Field(max_length=1000)] | None = None


class HeldRow(Shape):
    """A command that waits for a second actor."""

    command_id: str
    execution_id: str
    node_id: str | None = None
    command: str
    args: dict[str, Any]
    actor: str
    via: Literal["REST", "MCP", "CLI", "SUPERVISOR", "ENGINE"]
    reviewer: str
    reason: str
    since: Time
    expires_at: Time


class HeldPage(Shape):
    """Every command that waits, oldest first."""

    items: list[HeldRow]
    next_cursor: None = None


class AuditRow(Shape):
    """One command as it was recorded."""

    seq: int
    time: Time
    execution_id: str | None = None
    session_id: str | None = None
    node_id: str | None = None
    command: str
    args: dict[str, Any]
    outcome: Literal["APPLIED", "REJECTED", "HELD", "DRY_RUN"]
    reason: str | None = None
    actor: str
    via: Literal["REST", "MCP", "CLI", "SUPERVISOR", "ENGINE"]
    command_id: str
    request_id: str | None = None


class AuditPage(Shape):
    """Commands of a run, oldest first."""

    items: list[AuditRow]
    next_cursor: str | None = None
