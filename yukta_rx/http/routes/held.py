"""Reading the breakpoints of a node, and the message that one holds. Feature: CTL-02."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call


async def breakpoints(call: Call) -> web.StreamResponse:
    """List the breakpoints of a node."""
    items = call.engine.gateway.breakpoints(call.ids["executionId"], call.ids["nodeId"])
    return call.json({"items": items, "nextCursor": None})


async def held(call: Call) -> web.StreamResponse:
    """Show the message that a node holds."""
    ids = call.ids["executionId"], call.ids["nodeId"]
    return call.json(await call.engine.gateway.fetch_held_message(*ids))
