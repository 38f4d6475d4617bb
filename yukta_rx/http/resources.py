"""Shapes of what is not a run: sessions, workflows, events, node types, the server.

Feature: DEF-01.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  (pydantic reads the annotation)
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from yukta_rx.http.shapes import (
    Count,
    FaultShape,
    Gap,
    Id,
    Milliseconds,
    Request,
    Shape,
    Time,
)
from yukta_rx.model.policy import fault
from yukta_rx.model.session import SessionConfig
from yukta_rx.model.status import TaskStatus  # noqa: TC001  (pydantic reads the annotation)
from yukta_rx.model.workflow import WorkflowDefinition

# --- requests ------------------------------------------------------------------------------------


def _as_text(value: Any) -> Any:
    """Refuse a number, which would pass for seconds since 1970."""
    if not isinstance(value, str):
        raise fault("invalid_option", "must be an RFC 3339 time")
    return value


class SessionDocument(SessionConfig):
    """A whole session; its id may be left to the address."""

    session_id: Id("sessionId") = ""  # type: ignore[valid-type]


class WorkflowDocument(WorkflowDefinition):
    """A workflow; its id may be left to the address."""

    workflow_id: Id("workflowId") = ""  # type: ignore[valid-type]


class SessionPatch(Request):
    """Settings of a session that change; null takes one back to its default."""

    name: str | None = None
    description: str | None = None
    project_path: str | None = None
    initiator: str | None = None
    initiated_time: Annotated[datetime, BeforeValidator(_as_text)] | None = None
    tags: dict[str, str] | None = None
    execution_timeout_ms: Annotated[int, Field(ge=1)] | None = None


# --- sessions and workflows ----------------------------------------------------------------------


class SessionCounters(Shape):
    """How much of what there is in a session."""

    workflows: Count
    live: Count
    queued: Count


class Session(Shape):
    """A session."""

    session_id: str
    name: str | None = None
    description: str | None = None
    project_path: str | None = None
    initiator: str | None = None
    initiated_time: Time | None = None
    tags: dict[str, str]
    execution_timeout_ms: Milliseconds
    workflows: list[dict[str, Any]] | None = None
    workflow_ids: list[str]
    counters: SessionCounters | None = None
    created_at: Time
    updated_at: Time
    etag: str


class SessionPage(Shape):
    """Sessions, by id."""

    items: list[Session]
    next_cursor: str | None = None


class SessionPlan(Shape):
    """What applying a session did, or with `dryRun` would do; ids of workflows."""

    created: list[str]
    changed: list[str]
    unchanged: list[str]
    removed: list[str]


class NewestRun(Shape):
    """The newest run of a workflow."""

    execution_id: str
    status: TaskStatus


class WorkflowItem(Shape):
    """A workflow in a list."""

    workflow_id: str
    definition_version: str
    version: int
    description: str | None = None
    created_at: Time
    updated_at: Time
    newest_run: NewestRun | None = None


class WorkflowPage(Shape):
    """Workflows of a session, by id."""

    items: list[WorkflowItem]
    next_cursor: str | None = None


class Workflow(Shape):
    """A workflow document."""

    workflow_id: str
    description: str | None = None
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


class SavedWorkflow(Shape):
    """What saving a workflow did."""

    workflow_id: str
    version: int
    definition_version: str
    unchanged: bool
    warnings: list[FaultShape]


class ValidationReport(Shape):
    """What is to be said about a workflow document."""

    valid: bool
    errors: list[FaultShape]
    warnings: list[FaultShape]


# --- events, catalogue, server -------------------------------------------------------------------


class Event(Shape):
    """One fact or sample."""

    id: str | None = None
    type: str
    time: Time
    session_id: str
    workflow_id: str
    execution_id: str
    node_id: str | None = None
    data: dict[str, Any]


class EventPage(Shape):
    """Events, oldest first."""

    items: list[Event]
    next_cursor: str | None = None
    gap: Gap | None = None


class SentEvent(Shape):
    """One event of a stream, as its lines are read; `data` is JSON."""

    data: str
    event: str | None = None
    id: str | None = None
    retry: int | None = None


class EventType(Shape):
    """An event type."""

    type: str
    sample: bool
    json_schema: dict[str, Any] = Field(alias="schema")


class EventTypes(Shape):
    """Every event type."""

    items: list[EventType]
    next_cursor: None = None


class Plugin(Shape):
    """A node type."""

    type: str
    kind: Literal["TRIGGER", "PROCESSOR", "TERMINAL"]
    summary: str
    ports: list[str]
    default_timeout_seconds: float | str | None
    failure_mode: Literal["FAIL", "EMIT"]
    source: str
    example: dict[str, Any] | None
    config_schema: dict[str, Any]


class PluginFault(Shape):
    """A node type that cannot be loaded."""

    type: str
    detail: str


class PluginPage(Shape):
    """Every node type; `errors` only with `errors=true`."""

    items: list[Plugin]
    next_cursor: None = None
    errors: list[PluginFault] | None = None


class JsonSchema(Shape):
    """A JSON Schema."""


class ConfigReport(Shape):
    """What is to be said about a node's configuration."""

    valid: bool
    errors: list[FaultShape]


class Health(Shape):
    """Whether the server is well."""

    status: Literal["UP"]
    components: dict[str, Any] | None = None


class Limits(Shape):
    """Sizes that a client should know."""

    max_body_bytes: Count
    max_json_depth: Count
    max_page_size: Count


class Version(Shape):
    """What is running."""

    name: str
    version: str
    api_version: str
    instance_id: str
    started_at: Time
    limits: Limits


class OpenApi(Shape):
    """An OpenAPI 3.1 document."""

    openapi: str
