"""Approvals. Feature: CTL-05."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import shapes
from yukta_rx.http.approval_shapes import AnswerBody, ApprovalPage
from yukta_rx.http.route import Body, Reach, Role, Route
from yukta_rx.http.routes import approvals, commands
from yukta_rx.http.tables.parts import PAGE

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/sessions/{sessionId}/approvals",
        handler=approvals.of_session,
        summary="Messages of a session that wait for a signal, the oldest first",
        tag="commands",
        query=PAGE,
        responses={200: ApprovalPage},
        errors=("session_not_found", "invalid_cursor"),
    ),
    Route(
        method="GET",
        path="/api/approvals",
        handler=approvals.all_open,
        summary="Messages of all sessions that wait for a signal, the oldest first",
        tag="commands",
        reach=Reach.OWN,
        query=PAGE,
        responses={200: ApprovalPage},
        errors=("invalid_cursor",),
    ),
    Route(
        method="POST",
        path="/api/approvals/{approvalId}",
        handler=approvals.answer,
        summary="Answer a message that waits for a signal",
        tag="commands",
        role=Role.OPERATOR,
        reach=Reach.OWN,
        query=(commands.DRY_RUN,),
        body=Body.REQUIRED,
        request=AnswerBody,
        responses={200: shapes.CommandAnswer, 202: shapes.CommandAnswer},
        errors=(
            *commands.ERRORS,
            *("approval_not_found", "already_answered", "signal_not_registered"),
            *("node_not_found", "malformed_json"),
        ),
        headers={"Idempotency-Key": commands.KEY_DOC},
        guarded=True,
    ),
)
