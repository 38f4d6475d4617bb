"""Sessions taken out and brought in as one file. Features: DEF-01, DUR-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

from yukta_rx.errors import BadRequestError

if TYPE_CHECKING:
    from yukta_rx.http.call import Call

UNPACKED: Final = 16
"""Times `yukta.limits.max-body` that a zip may unpack to."""


async def export(call: Call) -> web.StreamResponse:
    """Give sessions and their workflows as a zip of folders."""
    data = await call.engine.definitions.export(await _wanted(call))
    headers = {"Content-Disposition": 'attachment; filename="yukta-export.zip"'}
    return web.Response(body=data, content_type="application/zip", headers=headers)


async def bring_in(call: Call) -> web.StreamResponse:
    """Store every session of a bundle, all of them or none."""
    limit = UNPACKED * int(call.engine.settings.limits.max_body)
    applied = await call.engine.definitions.bring_in(
        call.body,
        max_bytes=limit,
        prune=call.query["prune"],
        dry_run=call.query["dryRun"],
        actor=call.actor.name,
        permit=call.actor.check_session,
    )
    return call.json({"sessions": [item.as_dict() for item in applied]})


async def _wanted(call: Call) -> list[str]:
    """The sessions to take out; none stands for all, which a limited key never gets."""
    given = list(call.query["session"])
    if not given and "session" in call.request.query:
        # A program that has no session to name does not mean all of them.
        detail = "session must name a session; leave it out for all"
        raise BadRequestError(detail, code="invalid_parameter", parameter="session")
    for session_id in given:
        call.actor.check_session(session_id)
    if given or call.actor.sessions is None:
        return given
    there = [view.session_id for view in await call.engine.definitions.sessions()]
    # One that is not there is refused by its name, which is better than an empty file.
    return [name for name in there if call.actor.sees(name)] or sorted(call.actor.sessions)
