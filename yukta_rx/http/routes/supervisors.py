"""Supervisors: what there is, their switches, the door for programs outside. Feature: CTL-07."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.control.seat import VIA
from yukta_rx.control.supervision import Proposal
from yukta_rx.http.routes.commands import shown_results, submissions, without_foreign
from yukta_rx.http.routes.streams import event_filter, place_of
from yukta_rx.http.supervisor_shapes import SupervisorBody, SupervisorChange

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.control.supervisors import SupervisorHost
    from yukta_rx.http.call import Call


def _host(call: Call) -> SupervisorHost:
    return call.engine.supervisors


async def all_supervisors(call: Call) -> web.StreamResponse:
    """List reviewers and supervisors."""
    return call.json({"items": _host(call).list(), "nextCursor": None})


async def one(call: Call) -> web.StreamResponse:
    """Return one of them."""
    return call.json(_host(call).get(call.ids["supervisorId"]))


async def change(call: Call) -> web.StreamResponse:
    """Switch a supervisor on or off, or change its bounds."""
    body = call.typed(SupervisorChange)
    shown = _host(call).change(
        call.ids["supervisorId"],
        enabled=body.enabled,
        dry_run=body.dry_run,
        rate=body.max_commands_per_second,
    )
    return call.json(shown)


async def register(call: Call) -> web.StreamResponse:
    """Begin or renew the lease of a program."""
    body = call.typed(SupervisorBody)
    shown, new = _host(call).external.register(
        body.id, call.actor.name, body.description, body.lease_seconds, body.lease_token
    )
    place = {"Location": f"/api/supervisors/{body.id}"}
    return call.json(shown, 201, place) if new else call.json(shown)


async def events(call: Call) -> web.StreamResponse:
    """Stream what a program watches, and what became of its commands."""
    external = _host(call).external
    with (
        call.engine.feed.cap,
        external.listening(
            call.ids["supervisorId"], call.actor.name, event_filter(call), place_of(call)
        ) as inbox,
    ):
        return await call.shared.streams.serve(
            call.request, inbox, named=call.query["named"], greet=False
        )


async def commands(call: Call) -> web.StreamResponse:
    """Carry the commands of a program out; the answer has what became of each."""
    supervisor_id = call.ids["supervisorId"]
    own, foreign = without_foreign(call, submissions(call, actor=supervisor_id, via=VIA))
    given = [Proposal(one.command, one.reason, one.command_id) for one in own]
    results = await _host(call).external.commands(
        supervisor_id, call.actor.name, given, dry_run=call.query["dryRun"]
    )
    return call.json({"results": shown_results(call, results, foreign)})
