"""Commands and their audit. Feature: CTL-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import shapes
from yukta_rx.http.route import Body, Role, Route
from yukta_rx.http.routes import commands
from yukta_rx.http.tables.parts import EXECUTION, NUMBERED

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
        query=NUMBERED,
        responses={200: shapes.AuditPage},
        errors=(*EXECUTION, "invalid_cursor"),
    ),
)
