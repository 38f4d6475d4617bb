"""Reading the execution log. Feature: DUR-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.errors import BadRequestError

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call


async def history(call: Call) -> web.StreamResponse:
    """List what the log has of a run, oldest first."""
    after = call.query["afterCursor"] or "0"
    if not after.isdecimal() or len(after) > 18:
        raise BadRequestError(
            "this is not a cursor of this list", code="invalid_cursor", parameter="afterCursor"
        )
    execution_id, limit = call.ids["executionId"], call.query["limit"]
    page = await call.engine.gateway.history(execution_id, limit, int(after))
    return call.json(page.as_dict())
