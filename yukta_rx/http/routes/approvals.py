"""Approvals: what waits for a signal, and answering it. Feature: CTL-05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.control.approvals import answer_to, no_such_approval
from yukta_rx.control.commands import Outcome
from yukta_rx.http.approval_shapes import AnswerBody
from yukta_rx.http.headers import idempotency_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from yukta_rx.http.call import Call


async def of_session(call: Call) -> web.StreamResponse:
    """List what waits in a session, the oldest first."""
    session_id = call.ids["sessionId"]
    await call.engine.definitions.get_session(session_id)
    return _page(call, lambda other: other == session_id)


async def all_open(call: Call) -> web.StreamResponse:
    """List what waits in all sessions that the caller may see, the oldest first."""
    return _page(call, call.actor.sees)


def _page(call: Call, sessions: Callable[[str], bool]) -> web.Response:
    approvals = call.engine.gateway.approvals
    items, cursor = approvals.page(sessions, call.query["limit"], call.query["afterCursor"])
    return call.json({"items": items, "nextCursor": cursor})


async def answer(call: Call) -> web.StreamResponse:
    """Answer one approval: a signal to its node, reviewed and audited as any command."""
    approval_id = call.ids["approvalId"]
    body = call.typed(AnswerBody)
    request = await call.engine.gateway.approvals.find(approval_id)
    if not call.actor.sees(request.session_id):
        raise no_such_approval(approval_id)
    result = await call.engine.gateway.command(
        answer_to(request, body.decision, body.data, body.comment),
        actor=call.actor.name,
        via=call.via,
        request_id=call.request_id,
        reason=body.comment,
        dry_run=call.query["dryRun"],
        command_id=idempotency_key(call.header("Idempotency-Key")),
    )
    return call.json(result.as_dict(), 202 if result.outcome is Outcome.HELD else 200)
