"""What browsers load from a server: the client of event streams, as a module of JavaScript.

It is no part of the REST interface, so it stands in no document of it, and needs no key: it holds
nothing of any run. Feature: OBS-01.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from aiohttp import web

EVENTS_CLIENT: Final = "/ui/yukta-events.js"

_SOURCE: Final = Path(__file__).parents[1].joinpath("ui", "yukta-events.js").read_bytes()
_TAG: Final = f'"{blake2b(_SOURCE, digest_size=16).hexdigest()}"'


async def events_client(request: web.Request) -> web.Response:
    """Return the module `yukta-events.js`."""
    if _TAG in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers={"ETag": _TAG})
    return web.Response(
        body=_SOURCE, content_type="text/javascript", charset="utf-8", headers={"ETag": _TAG}
    )
