"""Versions of workflows, graphs, dry runs, bundles. Features: DEF-01, DUR-05."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import definition_shapes as shapes
from yukta_rx.http.resources import SavedWorkflow
from yukta_rx.http.route import Body, Kind, Media, Query, Reach, Role, Route
from yukta_rx.http.routes import bundle, versions
from yukta_rx.http.shapes import Payload
from yukta_rx.http.tables.parts import EXECUTION, IF_MATCH, NUMBERED, WORKFLOW, flag

_WORKFLOW_PATH: Final = "/api/sessions/{sessionId}/workflows/{workflowId}"
_VERSION: Final = (*WORKFLOW, "version_not_found")


def _number(name: str, doc: str) -> Query:
    return Query(name, doc, Kind.WHOLE, low=1, high=10**15 - 1)


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path=_WORKFLOW_PATH + "/versions",
        handler=versions.listing,
        summary="List the versions of a workflow, the newest first",
        tag="sessions",
        query=NUMBERED,
        responses={200: shapes.VersionPage},
        errors=(*WORKFLOW, "invalid_cursor"),
    ),
    Route(
        method="GET",
        path=_WORKFLOW_PATH + "/versions/diff",
        handler=versions.diff,
        summary="What changed from one version to another",
        tag="sessions",
        query=(
            _number("from", "The older version; has to be given."),
            _number("to", "The newer version; the current one if it is left out."),
        ),
        responses={200: shapes.WorkflowDiff},
        errors=_VERSION,
    ),
    Route(
        method="POST",
        path=_WORKFLOW_PATH + "/versions/note",
        handler=versions.note,
        summary="Write something about a version; one with a note is never dropped",
        tag="sessions",
        role=Role.ADMIN,
        query=(
            _number("version", "The version; has to be given, here or in the body."),
            Query("note", "The text; empty takes the note away.", low=0, high=shapes.MAX_NOTE),
        ),
        body=Body.OPTIONAL,
        request=shapes.NoteBody,
        responses={204: None},
        errors=_VERSION,
        guarded=True,
    ),
    Route(
        method="GET",
        path=_WORKFLOW_PATH + "/versions/{version}",
        handler=versions.show,
        summary="Show one version of a workflow",
        tag="sessions",
        responses={200: shapes.VersionDetail},
        errors=_VERSION,
    ),
    Route(
        method="POST",
        path=_WORKFLOW_PATH + "/versions/{version}/rollback",
        handler=versions.rollback,
        summary="Make the content of a version the current one, as a new version",
        tag="sessions",
        role=Role.ADMIN,
        responses={200: SavedWorkflow},
        errors=(*_VERSION, "stale_definition", "precondition_required", "validation"),
        headers=IF_MATCH,
        guarded=True,
    ),
    Route(
        method="GET",
        path=_WORKFLOW_PATH + "/graph",
        handler=versions.graph,
        summary="A workflow as a graph with its layout",
        tag="sessions",
        responses={200: shapes.Graph},
        errors=WORKFLOW,
        media=Media.DIAGRAM,
    ),
    Route(
        method="POST",
        path=_WORKFLOW_PATH + "/dry-run",
        handler=versions.dry_run,
        anywhere=True,
        summary="What a start would do; no plugin runs, the body is the start payload",
        tag="sessions",
        role=Role.OPERATOR,
        body=Body.OPTIONAL,
        document=Payload,
        responses={200: shapes.DryRun},
        errors=(*_VERSION, "validation"),
        guarded=True,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/graph",
        handler=versions.run_graph,
        summary="A run as a graph with its layout and the status of each node",
        tag="runs",
        responses={200: shapes.Graph},
        errors=EXECUTION,
        media=Media.DIAGRAM,
    ),
    Route(
        method="GET",
        path="/api/export",
        handler=bundle.export,
        summary="Sessions and their workflows as a zip of folders",
        tag="sessions",
        reach=Reach.OWN,
        query=(Query("session", "Only these; all if it is left out.", Kind.ID, many=True),),
        responses={200: None},
        errors=("session_not_found",),
        media=Media.ZIP,
    ),
    Route(
        method="POST",
        path="/api/import",
        handler=bundle.bring_in,
        summary="Store the sessions of a bundle, all of them or none",
        tag="sessions",
        role=Role.ADMIN,
        reach=Reach.OWN,
        query=(
            flag("dryRun", "Only say what would change."),
            flag("prune", "Remove workflows that the bundle does not have from its sessions."),
        ),
        body=Body.BUNDLE,
        document=shapes.Bundle,
        responses={200: shapes.ImportResult},
        errors=(
            "session_not_found",
            "validation",
            "stale_definition",
            "precondition_required",
            "in_use",
        ),
        guarded=True,
    ),
)
