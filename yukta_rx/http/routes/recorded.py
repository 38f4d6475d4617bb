"""Reading what is recorded of a run. Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.errors import BadRequestError

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call


async def payload(call: Call) -> web.StreamResponse:
    """Show what a run was started with."""
    return call.json(await call.engine.gateway.payload(call.ids["executionId"]))


async def outputs(call: Call) -> web.StreamResponse:
    """List what a node emitted."""
    after = call.query["afterCursor"] or "0"
    if not after.isdecimal() or len(after) > 18:
        raise BadRequestError(
            "this is not a cursor of this list", code="invalid_cursor", parameter="afterCursor"
        )
    execution_id, node_id = call.ids["executionId"], call.ids["nodeId"]
    gateway = call.engine.gateway
    return call.json(await gateway.outputs(execution_id, node_id, call.query["limit"], int(after)))
