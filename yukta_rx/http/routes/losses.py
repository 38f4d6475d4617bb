"""What a run has lost. Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call


async def losses(call: Call) -> web.StreamResponse:
    """Show the loss ledger of a run."""
    return call.json(await call.engine.gateway.losses(call.ids["executionId"]))
