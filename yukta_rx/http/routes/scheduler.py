"""Reading the scheduler: its limits, and what waits. Features: ADM-01, ADM-03."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call


async def limits(call: Call) -> web.StreamResponse:
    """Show the limits in force."""
    return call.json(call.engine.gateway.limits())


async def queue(call: Call) -> web.StreamResponse:
    """List the starts that wait for a slot."""
    items = [row for row in call.engine.gateway.queue() if call.actor.sees(row["sessionId"])]
    return call.json({"items": items, "nextCursor": None})
