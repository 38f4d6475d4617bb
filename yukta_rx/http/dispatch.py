"""From a line of the table to a handler of aiohttp: the checks that come before any code of it.

The order is fixed: key and role, ids of the path, whether they are there for a key that is limited
to sessions, Accept, query, body. So nothing is said about a body to
someone who may not send it, and no handler ever sees an id of the wrong shape.

Features: DEF-02, SEC-01.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yukta_rx.errors import BadRequestError, NotAcceptableError
from yukta_rx.http.auth import check_ids
from yukta_rx.http.body import checked, parse_body, read_body
from yukta_rx.http.call import Call
from yukta_rx.http.headers import (
    accepts,
    accepts_diagram,
    accepts_events,
    accepts_json,
    prefers_json,
)
from yukta_rx.http.route import Body, Media, Query, Route
from yukta_rx.http.state import SHARED
from yukta_rx.model.ids import check_id

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic import BaseModel

    from yukta_rx.http.state import Shared

REQUEST_ID: Final = web.RequestKey("yukta_request_id", str)

AioHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def handler_of(route: Route) -> AioHandler:
    """Return what the router calls for a route."""

    async def answer(request: web.Request) -> web.StreamResponse:
        shared = request.app[SHARED]
        call = await _checked_call(route, request, shared)
        if not shared.engine.leadership.leads and _streams(route, request):
            return _standby(call)
        if route.guarded:
            return await shared.guarded(_run(route, call), route.name)
        if call.actor.expires is not None and route.media in (Media.EVENTS, Media.EITHER):
            return await _until(call.actor.expires, route, call)
        return await route.handler(call)

    return answer


def _streams(route: Route, request: web.Request) -> bool:
    """Whether a request is for an event stream."""
    return route.media is Media.EVENTS or (
        route.media is Media.EITHER and not prefers_json(request.headers.get("Accept"))
    )


def _standby(call: Call) -> web.Response:
    """A whole event stream that says who leads: what a browser takes for an error it gives up."""
    body = call.shared.standby().sse(call.query.get("named", True))
    headers = {"X-Accel-Buffering": "no"}
    return web.Response(body=body, content_type=str(Media.EVENTS), headers=headers)


async def _until(end: datetime, route: Route, call: Call) -> web.StreamResponse:
    """Answer, and cut a stream off when the key of its reader stops to be good."""
    clock, task = call.shared.guard.clock, asyncio.current_task()

    def cut_off() -> None:
        if task is not None:
            task.cancel()

    seconds = (end - clock.wall()).total_seconds()
    timer = clock.call_at(clock.now() + seconds, cut_off)
    try:
        return await route.handler(call)
    finally:
        timer.cancel()


async def expect(request: web.Request) -> None:
    """Pass over `Expect`: whoever waits for leave to send a body gets it once that is read.

    So a body that would be refused for its sender or its size is not sent at all.
    """


async def _run(route: Route, call: Call) -> web.StreamResponse:
    return await route.handler(call)


async def _checked_call(route: Route, request: web.Request, shared: Shared) -> Call:
    actor = shared.guard.admit(route, request)
    ids = {name: check_id(name, text) for name, text in request.match_info.items()}
    leads = shared.engine.leadership.leads
    if route.for_leader and not leads:
        if route.starts:
            shared.engine.meters.counter("yukta.executions.rejected", reason="not_leader").add()
        raise shared.engine.leadership.refusal()
    # A standby knows no runs that go on, and tells nothing of any in a stream.
    if actor.sessions is not None and (leads or not _streams(route, request)):
        await check_ids(actor, ids, shared.engine)
    _check_accept(route, request)
    query = _read_query(route, request)
    body: Any = None
    model: BaseModel | None = None
    if route.body is not Body.NONE:
        data = await read_body(request, int(shared.engine.settings.limits.max_body))
        if route.body is Body.BUNDLE:
            body = data
        else:
            body = parse_body(data, required=route.body is Body.REQUIRED)
        if route.request is not None:
            model = checked(route.request, body)
    return Call(request, shared, route, request[REQUEST_ID], actor, ids, query, body, model)


def _check_accept(route: Route, request: web.Request) -> None:
    header = ", ".join(request.headers.getall("Accept", ()))
    match route.media:
        case Media.JSON if not accepts_json(header):
            raise NotAcceptableError(f"this answers {Media.JSON}, which Accept does not allow")
        case Media.EVENTS if not accepts_events(header):
            raise NotAcceptableError(f"this answers {Media.EVENTS}, which Accept does not allow")
        case Media.DIAGRAM if not (accepts_json(header) or accepts_diagram(header)):
            raise NotAcceptableError(f"this answers {Media.DIAGRAM}, which Accept does not allow")
        case Media.ZIP if not accepts(header, (Media.ZIP, "application/*", "*/*")):
            raise NotAcceptableError(f"this answers {Media.ZIP}, which Accept does not allow")
        case _:
            return


def _read_query(route: Route, request: web.Request) -> Mapping[str, Any]:
    given = request.query
    declared: dict[str, Query] = {query.name: query for query in route.query}
    for name in given:
        # A probe has to answer whatever its caller adds to the address.
        if name not in declared and route.role is not None:
            raise BadRequestError(
                f"there is no query parameter {name[:60]!a} here{_hint(name, declared)}",
                code="invalid_parameter",
                parameter=ascii(name[:60]).strip("'"),
            )
    return {name: query.read(given.getall(name, [])) for name, query in declared.items()}


def _hint(name: str, declared: Mapping[str, Query]) -> str:
    if close := get_close_matches(name, declared, n=1):
        return f"; did you mean {close[0]}?"
    return f"; there is {', '.join(declared)}" if declared else ""
