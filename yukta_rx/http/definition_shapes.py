"""Shapes of versions, differences, graphs, dry runs and bundles. Features: DEF-01, DUR-05."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from yukta_rx.http.resources import SessionDocument, SessionPlan
from yukta_rx.http.shapes import Count, Request, Shape, Time
from yukta_rx.model.status import TaskStatus  # noqa: TC001  (pydantic reads the annotation)

MAX_NOTE = 2000
"""Characters of a note at most."""


class VersionRow(Shape):
    """One version of a workflow."""

    version: Annotated[int, Field(ge=1)]
    definition_version: str
    note: str | None = None
    actor: str
    time: Time
    current: bool


class VersionPage(Shape):
    """Versions of a workflow, the newest first."""

    items: list[VersionRow]
    next_cursor: str | None = None


class VersionDetail(VersionRow):
    """One version with its document."""

    document: dict[str, Any]


class NoteBody(Request):
    """What to write about which version; null or empty text takes the note away."""

    version: Annotated[int, Field(ge=1, strict=True)] | None = None
    note: Annotated[str, Field(max_length=MAX_NOTE)] | None = None


class PatchOperation(Shape):
    """One operation of a patch (RFC 6902)."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any = None


class NodeChange(Shape):
    """What changed in a node: a patch of its object in the document."""

    node_id: str
    changes: list[PatchOperation]


class DescriptionChange(Shape):
    """Both descriptions."""

    before: str | None = Field(alias="from")
    after: str | None = Field(alias="to")


class WorkflowDiff(Shape):
    """What changed from one version of a workflow to another."""

    from_version: int = Field(alias="from")
    to_version: int = Field(alias="to")
    description: DescriptionChange | None = None
    nodes_added: list[str]
    nodes_removed: list[str]
    nodes_changed: list[NodeChange]
    edges_added: list[dict[str, Any]]
    edges_removed: list[dict[str, Any]]
    options: list[PatchOperation] | None = None
    reordered: bool


class GraphNode(Shape):
    """A node and its place; with `status` in the graph of a run."""

    node_id: str
    type: str
    kind: Literal["TRIGGER", "PROCESSOR", "TERMINAL"]
    layer: Count
    row: Count
    status: TaskStatus | None = None
    paused: bool | None = None


class GraphEdge(Shape):
    """An edge."""

    source: str
    target: str
    source_port: str | None = None


class Graph(Shape):
    """A workflow or run as a graph with its layout; `layers` are ids, from left to right."""

    session_id: str
    workflow_id: str
    definition_version: str
    execution_id: str | None = None
    status: TaskStatus | None = None
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    layers: list[list[str]]


class Clocks(Shape):
    """Limits in milliseconds: null for none, text where a message gives it."""

    idle_timeout_ms: int | str | None
    element_timeout_ms: int | str | None
    deadline_ms: int | str | None


class DryNode(Shape):
    """A node as it would run; secrets are not shown."""

    node_id: str
    type: str
    kind: Literal["TRIGGER", "PROCESSOR", "TERMINAL"]
    ports: list[str]
    clocks: Clocks
    placement: dict[str, Any] | None
    resolved_config: dict[str, Any]
    missing_variables: list[str]


class DryRun(Shape):
    """What a start would do now."""

    order: list[str]
    nodes: list[DryNode]
    admission: Literal["WOULD_RUN", "WOULD_QUEUE", "WOULD_REJECT"]


class BundledSession(SessionDocument):
    """A session in a bundle; `etag` is the state that the change is based on."""

    etag: str | None = None


class Bundle(Request):
    """Sessions with their workflows."""

    sessions: list[BundledSession]


class BundlePlan(SessionPlan):
    """What importing did, or would do, with one session."""

    session_id: str


class ImportResult(Shape):
    """What importing did, or with `dryRun` would do."""

    sessions: list[BundlePlan]
