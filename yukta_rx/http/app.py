"""create_app: the aiohttp application of an engine.

Every answer leaves through here: a problem body for whatever was raised, and the headers that are
always there. Features: OBS-01, SEC-01.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from functools import cache
from typing import TYPE_CHECKING, Final

from aiohttp import web

from yukta_rx import __version__
from yukta_rx.errors import YuktaError
from yukta_rx.http import cors
from yukta_rx.http.auth import Guard
from yukta_rx.http.dispatch import REQUEST_ID, expect, handler_of
from yukta_rx.http.errors import problem_internal, problem_of_error, problem_of_http
from yukta_rx.http.headers import usable_request_id
from yukta_rx.http.host_origin import HostOrigin
from yukta_rx.http.openapi import openapi_document
from yukta_rx.http.pulse import Pulse
from yukta_rx.http.router_paths import router_paths
from yukta_rx.http.routes import ui
from yukta_rx.http.sse import OpenStreams, StreamTimes
from yukta_rx.http.state import LOG, SHARED, Shared
from yukta_rx.http.table import ROUTES
from yukta_rx.model.codec import dumps_plain
from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.trace_context import TRACEPARENT, parse_traceparent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from yukta_rx.http.state import ServedEngine

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GRACE: Final = 10.0
"""Seconds that commands under way get at shutdown."""


def create_app(engine: ServedEngine, *, times: StreamTimes | None = None) -> web.Application:
    """Return the web application of an engine; it can be mounted with `add_subapp`.

    The engine is not started or stopped by it, and outlives it. Before it has started only the
    probes are answered, everything else with 503 `recovering`.

    Args:
        engine: what is served.
        times: ping interval and send timeout of event streams.
    """
    settings = engine.settings
    shared = Shared(
        engine=engine,
        streams=OpenStreams(times or StreamTimes()),
        pulse=Pulse(),
        doors=HostOrigin(settings.allowed_hosts, settings.allowed_origins),
        guard=Guard(settings),
        openapi=_openapi,
    )
    app = web.Application(middlewares=[_frame])
    app[SHARED] = shared
    paths = router_paths(path for route in ROUTES for path in route.paths)
    for route in ROUTES:
        handler = handler_of(route)
        for path in route.paths:
            for method in (route.method, *route.also):
                app.router.add_route(method, paths[path], handler, expect_handler=expect)
    app.router.add_get(ui.EVENTS_CLIENT, ui.events_client)
    app.on_response_prepare.append(_finish_headers)
    app.on_shutdown.append(_end_streams)
    app.cleanup_ctx.append(_lifetime)
    return app


@cache
def _openapi() -> bytes:
    """The document as JSON; the table is the same for every app."""
    return dumps_plain(openapi_document(ROUTES))


@web.middleware
async def _frame(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give every request an id, and every failure a problem body."""
    shared = request.app[SHARED]
    request_id = usable_request_id(request.headers.get("X-Request-Id")) or uuid.uuid4().hex
    request[REQUEST_ID] = request_id
    origin = request.headers.get("Origin")
    try:
        if not shared.guard.ring:
            shared.doors.check(request.method, request.headers.get("Host"), origin)
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            headers = cors.preflight(shared.doors, origin)
            if headers is not None:
                return web.Response(status=204, headers=headers)
        waits = shared.engine.readiness.waits_for
        if waits is not None and not request.path.startswith("/health"):
            raise waits
        return await handler(request)
    except web.HTTPException as error:
        return problem_of_http(error, request_id, _shown(request))
    except YuktaError as error:
        answer = problem_of_error(error, request_id, shared.engine.masker.mask_json)
        if answer is not None:
            return answer
        return _defect(request, request_id, error)
    except ConnectionError:
        raise  # the client is gone: nobody is left to answer
    except Exception as error:
        return _defect(request, request_id, error)


def _defect(request: web.Request, request_id: str, error: Exception) -> web.Response:
    about = log_fields(request_id=request_id)
    LOG.error("request %s: %s failed", request_id, _shown(request), exc_info=error, extra=about)
    if request.writer.output_size > 0:
        # The answer has begun, so it can only be cut off.
        raise ConnectionResetError("the answer was cut off by an error") from error
    return problem_internal(request_id)


def _shown(request: web.Request) -> str:
    """Method and path for a sentence; nothing that a client sends may break a line of the log."""
    path = re.sub(r"[^!-~]", "?", request.rel_url.raw_path[:200])
    return f"{request.method} {path}"


async def _finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    shared = request.app[SHARED]
    headers = response.headers
    headers["X-Request-Id"] = request.get(REQUEST_ID, "-")
    if TRACEPARENT in request.headers:
        given = parse_traceparent(", ".join(request.headers.getall(TRACEPARENT)))
        if given is not None:
            headers[TRACEPARENT] = given
    headers["Yukta-Version"] = __version__
    headers["Yukta-Leader"] = "true" if shared.engine.leadership.leads else "false"
    headers["Server"] = "yukta"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Cache-Control"] = "no-cache" if "ETag" in headers else "no-store"
    cors.let_read(shared.doors, request.headers.get("Origin"), headers)


async def _end_streams(app: web.Application) -> None:
    """End event streams before aiohttp waits for connections to become idle."""
    shared = app[SHARED]
    shared.closing = True
    await shared.streams.close("shutting_down")


async def _lifetime(app: web.Application) -> AsyncIterator[None]:
    shared = app[SHARED]
    shared.pulse.start()
    unwatch = shared.engine.leadership.watch(shared.leadership_changed)
    yield
    unwatch()
    shared.pulse.stop()
    await shared.finish(GRACE)
    # Lets answers that were just made reach their sockets.
    await asyncio.sleep(0)
