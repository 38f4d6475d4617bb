"""Commands and their audit. Features: CTL-01, CTL-06."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import shapes
from yukta_rx.http.route import Body, Kind, Query, Reach, Role, Route
from yukta_rx.http.routes import commands
from yukta_rx.http.tables.parts import CURSOR_DOC, EXECUTION, LIMIT, NUMBERED, flag, place

ROUTES: Final[tuple[Route, ...]] = (
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
        responses={200: shapes.CommandAnswer, 202: shapes.CommandAnswer},
        errors=(*commands.ERRORS, "node_not_found", "malformed_json"),
        headers={"Idempotency-Key": commands.KEY_DOC},
        guarded=True,
    ),
    Route(
        method="POST",
        path="/api/commands",
        handler=commands.batch,
        summary="Give several commands, for any runs",
        tag="commands",
        role=Role.OPERATOR,
        reach=Reach.OWN,
        query=(
            commands.DRY_RUN,
            flag("atomic", "Apply none if one of them would be refused."),
        ),
        body=Body.REQUIRED,
        document=commands.BatchBody,
        responses={200: shapes.BatchAnswers},
        errors=("validation", "malformed_json"),
        guarded=True,
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/commands",
        handler=commands.audit,
        summary="The commands that a run was given",
        tag="commands",
        query=NUMBERED,
        responses={200: shapes.AuditPage},
        errors=(*EXECUTION, "invalid_cursor"),
    ),
    Route(
        method="GET",
        path="/api/control/audit",
        handler=commands.audit_all,
        summary="The commands that all runs were given",
        tag="commands",
        reach=Reach.OWN,
        query=(
            LIMIT,
            place("afterCursor", CURSOR_DOC, "^[0-9]{1,18}$"),
            Query("actor", "Given by.", high=200),
            Query("command", "Of this name.", high=60),
            Query(
                "outcome",
                "With this outcome.",
                Kind.WORD,
                words=("APPLIED", "REJECTED", "HELD", "DRY_RUN"),
            ),
            Query("executionId", "To this run.", Kind.ID),
            Query("sessionId", "To runs of this session.", Kind.ID),
            Query("since", "Given then or later.", Kind.TIME),
        ),
        responses={200: shapes.AuditPage},
        errors=("invalid_cursor", "cursor_expired"),
    ),
    Route(
        method="GET",
        path="/api/control/held",
        handler=commands.held,
        summary="The commands that wait for a second actor",
        tag="commands",
        reach=Reach.OWN,
        responses={200: shapes.HeldPage},
    ),
    Route(
        method="POST",
        path="/api/control/held/{commandId}",
        handler=commands.decide,
        summary="Approve or reject a command that waits for a second actor",
        tag="commands",
        role=Role.OPERATOR,
        reach=Reach.OWN,
        body=Body.REQUIRED,
        request=shapes.DecisionBody,
        responses={200: shapes.CommandAnswer},
        errors=(*commands.ERRORS, "command_not_found", "node_not_found", "malformed_json"),
        guarded=True,
    ),
)
