# Long because it is one table: every route in one place, and nothing but the routes.
"""The table of routes: router, checks, OpenAPI and documents are made from it and nothing else.

Features: CTL-01, DEF-01, OBS-01, OBS-03, SEC-01.
"""

from __future__ import annotations

from typing import Final

from yukta_rx.http import resources, shapes
from yukta_rx.http.route import FEED_PLACE, MAX_PAGE, NUMBER, Body, Kind, Media, Query, Role, Route
from yukta_rx.http.routes import admin, commands, runs, sessions, streams
from yukta_rx.model.ids import ID_PATTERN
from yukta_rx.model.status import TaskStatus


def _flag(name: str, doc: str) -> Query:
    return Query(name, doc, Kind.BOOLEAN, default=False)


def _place(name: str, doc: str, pattern: str) -> Query:
    return Query(name, doc, high=200, pattern=pattern)


_LIMIT: Final = Query("limit", "Items at most.", Kind.WHOLE, default=50, low=1, high=MAX_PAGE)
_CURSOR_DOC: Final = "Where the page before ended: its `nextCursor`."
_LAST_DOC: Final = "Where to go on; as the header Last-Event-ID."
_PAGE: Final = (_LIMIT, _place("afterCursor", _CURSOR_DOC, ID_PATTERN))
_NUMBERED: Final = (_LIMIT, _place("afterCursor", _CURSOR_DOC, NUMBER))
_TIMEOUT: Final = Query(
    "timeout", "Seconds to wait at most.", Kind.NUMBER, default=30.0, low=0, high=3600
)
_NAMED: Final = Query("named", "Whether frames carry `event:`.", Kind.BOOLEAN, default=True)
_FOLLOW: Final = (*_NUMBERED, _place("lastEventId", _LAST_DOC, NUMBER), _NAMED)
_EVENT_FILTERS: Final = (
    Query("executionId", "Events of these runs.", Kind.ID, many=True),
    Query("type", "Events of these types, `node.*` for a family.", many=True, high=100),
    Query("sessionId", "Events of these sessions.", Kind.ID, many=True),
    Query("workflowId", "Events of these workflows.", Kind.ID, many=True),
    Query("nodeId", "Events of these nodes.", Kind.ID, many=True),
)
_WITH_WORKFLOWS: Final = Query(
    "include", "`workflows` adds their documents.", Kind.WORD, many=True, words=("WORKFLOWS",)
)
_RESUME: Final = {"Last-Event-ID": "Id of the last event that was seen; the stream goes on there."}
_IDEMPOTENT: Final = {
    "Idempotency-Key": "A repeat with the same key gets the first run back, with 200.",
}
_IF_MATCH: Final = {"If-Match": "Change only what still has this ETag."}
_IF_EITHER: Final = {**_IF_MATCH, "If-None-Match": "`*` creates only."}
_IF_NONE: Final = {"If-None-Match": "An ETag that the client has; then the answer is 304."}

_START_ERRORS: Final = (
    *("malformed_json", "session_not_found", "workflow_not_found", "validation"),
    *("unserialisable_payload", "idempotency_key_reused", "shutting_down"),
)
_EXECUTION: Final = ("execution_not_found",)
_WORKFLOW: Final = ("session_not_found", "workflow_not_found")
_CHANGE: Final = ("stale_definition", "validation", "precondition_required", "malformed_json")

_RUNS: Final = (
    Route(
        method="POST",
        path="/api/workflow/start",
        aliases=("/workflow/start",),
        handler=runs.start,
        summary="Start a run",
        tag="runs",
        role=Role.OPERATOR,
        body=Body.REQUIRED,
        request=shapes.StartBody,
        responses={201: shapes.Started, 200: shapes.Started},
        errors=_START_ERRORS,
        headers=_IDEMPOTENT,
        guarded=True,
    ),
    Route(
        method="POST",
        path="/api/workflow/{sessionId}/{workflowId}/start",
        handler=runs.start_workflow,
        summary="Start a run of a workflow; the body is its payload",
        tag="runs",
        role=Role.OPERATOR,
        body=Body.OPTIONAL,
        document=shapes.Payload,
        responses={201: shapes.Started, 200: shapes.Started},
        errors=_START_ERRORS,
        headers=_IDEMPOTENT,
        guarded=True,
    ),
    Route(
        method="POST",
        path="/api/workflow/{sessionId}/{workflowId}/run",
        handler=runs.run_workflow,
        summary="Start a run and wait for its end; the body is its payload",
        tag="runs",
        role=Role.OPERATOR,
        query=(_TIMEOUT,),
        body=Body.OPTIONAL,
        document=shapes.Payload,
        responses={200: shapes.RunResult, 202: shapes.Started},
        errors=_START_ERRORS,
        headers=_IDEMPOTENT,
    ),
    Route(
        method="POST",
        path="/api/workflow/{sessionId}/{workflowId}/stop",
        handler=commands.stop_workflow,
        summary="Stop every live run of a workflow",
        tag="commands",
        role=Role.OPERATOR,
        query=(commands.STOP_MODE, commands.REASON, commands.DRY_RUN),
        body=Body.OPTIONAL,
        request=commands.STOP_BODY,
        responses={200: shapes.CommandAnswers},
        errors=(*_WORKFLOW, "validation"),
        guarded=True,
    ),
    Route(
        method="GET",
        path="/api/executions",
        handler=runs.listing,
        summary="List runs, newest first, or count them",
        tag="runs",
        query=(
            *_PAGE,
            Query(
                "status",
                "Runs with any of these.",
                Kind.WORD,
                many=True,
                words=tuple(str(status) for status in TaskStatus),
            ),
            Query("sessionId", "Runs of these sessions.", Kind.ID, many=True),
            Query("workflowId", "Runs of these workflows.", Kind.ID, many=True),
            Query("startedAfter", "Started then or later.", Kind.TIME),
            Query("startedBefore", "Started earlier.", Kind.TIME),
            Query("parentExecutionId", "Runs that this one started.", Kind.ID),
            Query("actor", "Runs that this one started.", high=200),
            Query("q", "The id begins so.", high=128),
            _flag("count", "Only count, up to 10,000."),
        ),
        responses={200: shapes.ExecutionPage},
        errors=("invalid_cursor",),
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}",
        handler=runs.detail,
        summary="Show a run",
        tag="runs",
        query=(
            Query(
                "include",
                "Parts to add.",
                Kind.WORD,
                many=True,
                words=("NODES", "EDGES", "CHILDREN"),
            ),
        ),
        responses={200: shapes.ExecutionDetail, 304: None},
        errors=_EXECUTION,
        headers=_IF_NONE,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/progress",
        handler=streams.progress,
        summary="Snapshots of a run, as they come or the newest",
        tag="streams",
        query=_FOLLOW,
        responses={200: shapes.ProgressSnapshot},
        errors=(*_EXECUTION, "invalid_cursor", "too_many_streams"),
        headers=_RESUME,
        media=Media.EITHER,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/wait",
        handler=runs.wait,
        summary="Answer when a run has ended; 204 when the time is over",
        tag="runs",
        query=(
            _TIMEOUT,
            Query("until", "What to wait for.", Kind.WORD, default="TERMINAL", words=("TERMINAL",)),
        ),
        responses={200: shapes.ExecutionDetail, 204: None},
        errors=_EXECUTION,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/nodes",
        handler=runs.nodes,
        summary="Every node of a run",
        tag="runs",
        responses={200: shapes.NodePage},
        errors=_EXECUTION,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/nodes/{nodeId}",
        handler=runs.node,
        summary="One node of a run",
        tag="runs",
        responses={200: shapes.NodeState},
        errors=(*_EXECUTION, "node_not_found"),
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/edges",
        handler=runs.edges,
        summary="Every edge of a run",
        tag="runs",
        responses={200: shapes.EdgePage},
        errors=_EXECUTION,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/children",
        handler=runs.children,
        summary="The runs that a run started",
        tag="runs",
        query=_PAGE,
        responses={200: shapes.ExecutionPage},
        errors=(*_EXECUTION, "invalid_cursor"),
    ),
    Route(
        method="GET",
        path="/api/sessions/{sessionId}/executions/{executionId}/results",
        handler=streams.results,
        summary="What reaches the terminals of a run",
        tag="streams",
        query=_FOLLOW,
        responses={200: shapes.ResultPage},
        errors=(*_EXECUTION, "invalid_cursor", "too_many_streams"),
        headers=_RESUME,
        media=Media.EITHER,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/logs",
        aliases=("/api/sessions/{sessionId}/executions/{executionId}/logs",),
        handler=streams.logs,
        summary="Lines that the plugins of a run write",
        tag="streams",
        query=(
            *_FOLLOW,
            Query("nodeId", "Lines of this node.", Kind.ID),
            Query(
                "stream",
                "Lines of this stream.",
                Kind.WORD,
                words=("STDOUT", "STDERR", "ENGINE"),
            ),
            Query("q", "Lines that hold this text.", high=200),
        ),
        responses={200: shapes.LogPage},
        errors=(*_EXECUTION, "invalid_cursor", "too_many_streams"),
        headers=_RESUME,
        media=Media.EITHER,
    ),
)

_COMMANDS: Final = (
    *commands.command_routes(),
    Route(
        method="POST",
        path="/api/executions/{executionId}/commands",
        handler=commands.one_door,
        summary="Give any command, named by `type`",
        tag="commands",
        role=Role.OPERATOR,
        query=(commands.DRY_RUN,),
        body=Body.REQUIRED,
        document=commands.AnyCommand,
        responses={200: shapes.CommandAnswer},
        errors=(*commands.ERRORS, "node_not_found", "malformed_json"),
        headers={"Idempotency-Key": commands.KEY_DOC},
        guarded=True,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/commands",
        handler=commands.audit,
        summary="The commands that a run was given",
        tag="commands",
        query=_NUMBERED,
        responses={200: shapes.AuditPage},
        errors=(*_EXECUTION, "invalid_cursor"),
    ),
)

_SESSIONS: Final = (
    Route(
        method="GET",
        path="/api/sessions",
        handler=sessions.listing,
        summary="List sessions",
        tag="sessions",
        query=(*_PAGE, _WITH_WORKFLOWS),
        responses={200: resources.SessionPage},
        errors=("invalid_cursor",),
    ),
    Route(
        method="GET",
        path="/api/sessions/{sessionId}",
        handler=sessions.show,
        summary="Show a session",
        tag="sessions",
        query=(_WITH_WORKFLOWS,),
        responses={200: resources.Session, 304: None},
        errors=("session_not_found",),
        headers=_IF_NONE,
    ),
    Route(
        method="PUT",
        path="/api/sessions/{sessionId}",
        handler=sessions.apply,
        summary="Make a session exactly what the body says, workflows included",
        tag="sessions",
        role=Role.ADMIN,
        query=(_flag("dryRun", "Only say what would change."),),
        body=Body.REQUIRED,
        document=resources.SessionDocument,
        responses={200: resources.SessionPlan, 201: resources.SessionPlan},
        errors=(*_CHANGE, "in_use"),
        headers=_IF_EITHER,
        guarded=True,
    ),
    Route(
        method="PATCH",
        path="/api/sessions/{sessionId}",
        handler=sessions.patch,
        summary="Change settings of a session (RFC 7396)",
        tag="sessions",
        role=Role.ADMIN,
        body=Body.REQUIRED,
        request=resources.SessionPatch,
        responses={200: resources.Session},
        errors=("session_not_found", *_CHANGE),
        headers=_IF_MATCH,
        guarded=True,
    ),
    Route(
        method="DELETE",
        path="/api/sessions/{sessionId}",
        handler=sessions.remove,
        summary="Remove a session and its workflows",
        tag="sessions",
        role=Role.ADMIN,
        query=(_flag("force", "Kill its live runs first."),),
        responses={204: None},
        errors=("session_not_found", "in_use"),
        guarded=True,
    ),
    Route(
        method="GET",
        path="/api/sessions/{sessionId}/workflows",
        handler=sessions.workflows,
        summary="List the workflows of a session",
        tag="sessions",
        query=_PAGE,
        responses={200: resources.WorkflowPage},
        errors=("session_not_found", "invalid_cursor"),
    ),
    Route(
        method="GET",
        path="/api/sessions/{sessionId}/workflows/{workflowId}",
        handler=sessions.show_workflow,
        summary="Show a workflow document",
        tag="sessions",
        responses={200: resources.Workflow, 304: None},
        errors=_WORKFLOW,
        headers=_IF_NONE,
    ),
    Route(
        method="PUT",
        path="/api/sessions/{sessionId}/workflows/{workflowId}",
        handler=sessions.save_workflow,
        summary="Save a workflow",
        tag="sessions",
        role=Role.ADMIN,
        body=Body.REQUIRED,
        document=resources.WorkflowDocument,
        responses={200: resources.SavedWorkflow, 201: resources.SavedWorkflow},
        errors=("session_not_found", *_CHANGE),
        headers=_IF_EITHER,
        guarded=True,
    ),
    Route(
        method="DELETE",
        path="/api/sessions/{sessionId}/workflows/{workflowId}",
        handler=sessions.remove_workflow,
        summary="Remove a workflow",
        tag="sessions",
        role=Role.ADMIN,
        responses={204: None},
        errors=(*_WORKFLOW, "in_use", "stale_definition", "precondition_required"),
        headers=_IF_MATCH,
        guarded=True,
    ),
    Route(
        method="POST",
        path="/api/sessions/{sessionId}/workflows/{workflowId}/validate",
        handler=sessions.validate,
        summary="Examine a workflow document for this place",
        tag="sessions",
        body=Body.REQUIRED,
        responses={200: resources.ValidationReport},
        errors=("malformed_json",),
    ),
    Route(
        method="POST",
        path="/api/workflows/validate",
        handler=sessions.validate,
        summary="Examine a workflow document",
        tag="sessions",
        body=Body.REQUIRED,
        responses={200: resources.ValidationReport},
        errors=("malformed_json",),
    ),
)

_EVENTS: Final = (
    Route(
        method="GET",
        path="/api/events/stream",
        handler=streams.events,
        summary="The events of all runs, as they happen",
        tag="streams",
        query=(
            *_EVENT_FILTERS,
            _place("lastEventId", _LAST_DOC, FEED_PLACE),
            _place("afterCursor", _CURSOR_DOC, FEED_PLACE),
            _NAMED,
            Query(
                "coalesceMs",
                "Milliseconds between two samples of one thing.",
                Kind.WHOLE,
                default=500,
                low=100,
                high=10_000,
            ),
            Query(
                "heartbeat",
                "`event` adds `stream.heartbeat` events.",
                Kind.WORD,
                words=("EVENT",),
            ),
        ),
        responses={200: resources.Event},
        errors=("invalid_cursor", "too_many_streams"),
        headers=_RESUME,
        place=FEED_PLACE,
        media=Media.EVENTS,
    ),
    Route(
        method="GET",
        path="/api/events",
        handler=streams.events_page,
        summary="The events that are still kept",
        tag="streams",
        query=(_LIMIT, _place("afterCursor", _CURSOR_DOC, FEED_PLACE), *_EVENT_FILTERS),
        responses={200: resources.EventPage},
        errors=("invalid_cursor", "cursor_expired"),
    ),
    Route(
        method="GET",
        path="/api/events/types",
        handler=streams.event_types,
        summary="Every event type with its JSON Schema",
        tag="streams",
        responses={200: resources.EventTypes},
    ),
)

_CATALOGUE: Final = (
    Route(
        method="GET",
        path="/api/plugins",
        handler=admin.plugins,
        summary="Every node type",
        tag="plugins",
        query=(_flag("errors", "Also those that cannot be loaded."),),
        responses={200: resources.PluginPage},
    ),
    Route(
        method="GET",
        path="/api/plugins/{type}",
        handler=admin.plugin,
        summary="One node type",
        tag="plugins",
        responses={200: resources.Plugin},
        errors=("plugin_not_found",),
    ),
    Route(
        method="GET",
        path="/api/plugins/{type}/schema",
        handler=admin.plugin_schema,
        summary="The JSON Schema of a node type's configuration",
        tag="plugins",
        responses={200: resources.JsonSchema},
        errors=("plugin_not_found",),
    ),
    Route(
        method="POST",
        path="/api/plugins/{type}/validate-config",
        handler=admin.validate_config,
        summary="Examine a configuration",
        tag="plugins",
        body=Body.OPTIONAL,
        responses={200: resources.ConfigReport},
        errors=("plugin_not_found", "malformed_json"),
    ),
)

_SERVER: Final = (
    *(
        Route(
            method="GET",
            path=path,
            handler=handler,
            summary=summary,
            tag="server",
            role=None,
            responses={200: resources.Health},
            errors=("shutting_down", "recovering"),
            also=also,
        )
        for path, handler, summary, also in (
            ("/health", admin.health, "How each part is", ()),
            ("/health/live", admin.live, "Whether the process lives", ("HEAD", "OPTIONS")),
            ("/health/ready", admin.ready, "Whether it takes requests", ("HEAD", "OPTIONS")),
            ("/health/leader", admin.leader, "Whether it leads", ("HEAD", "OPTIONS")),
        )
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=admin.metrics,
        summary="Every meter, as Prometheus or OpenMetrics text",
        tag="server",
        role=None,
        responses={200: None},
        media=Media.METRICS,
    ),
    Route(
        method="GET",
        path="/api/version",
        handler=admin.version,
        summary="What runs here",
        tag="server",
        role=None,
        responses={200: resources.Version},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        handler=admin.openapi,
        summary="This document",
        tag="server",
        role=None,
        responses={200: resources.OpenApi, 304: None},
        headers=_IF_NONE,
    ),
)

ROUTES: Final[tuple[Route, ...]] = (
    *_RUNS,
    *_COMMANDS,
    *_SESSIONS,
    *_EVENTS,
    *_CATALOGUE,
    *_SERVER,
)
"""Every route."""
