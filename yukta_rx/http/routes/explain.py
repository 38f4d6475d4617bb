"""Why a run stands where it does, and a look into one of its edges. Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call


async def why(call: Call) -> web.StreamResponse:
    """Explain why a run, or one of its nodes, stands where it does."""
    facts = call.engine.gateway.why(call.ids["executionId"], call.query["node"])
    return call.json({"facts": facts})


async def tap(call: Call) -> web.StreamResponse:
    """Stream a sample of the messages of an edge."""
    query = call.query
    with call.engine.feed.cap:
        reader = call.engine.gateway.tap(
            call.ids["executionId"],
            source=call.ids["source"],
            target=call.ids["target"],
            port=query["sourcePort"],
            max_per_sec=query["maxPerSec"],
            max_bytes=query["maxBytes"],
        )
        return await call.shared.streams.serve(
            call.request, reader, named=query["named"], greet=True
        )
