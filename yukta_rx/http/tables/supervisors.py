"""Supervisors: what there is, their switches, and programs outside. Feature: CTL-07."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import resources, shapes, supervisor_shapes
from yukta_rx.http.route import FEED_PLACE, Body, Media, Reach, Role, Route
from yukta_rx.http.routes import commands, supervisors
from yukta_rx.http.tables.parts import CURSOR_DOC, EVENT_FILTERS, LAST_DOC, NAMED, RESUME, place

_UNKNOWN: Final = "supervisor_not_found"
_LEASE: Final = (_UNKNOWN, "in_use", "lease_expired", "supervisor_disabled", "forbidden")

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/supervisors",
        handler=supervisors.all_supervisors,
        summary="Supervisors and reviewers, with what became of their commands",
        tag="supervisors",
        responses={200: supervisor_shapes.SupervisorPage},
    ),
    Route(
        method="POST",
        path="/api/supervisors",
        handler=supervisors.register,
        summary="Register a program that steers, or renew its lease",
        tag="supervisors",
        role=Role.OPERATOR,
        reach=Reach.OWN,
        body=Body.REQUIRED,
        request=supervisor_shapes.SupervisorBody,
        responses={
            200: supervisor_shapes.SupervisorLease,
            201: supervisor_shapes.SupervisorLease,
        },
        errors=("in_use", "limit", "forbidden"),
        guarded=True,
    ),
    Route(
        method="GET",
        path="/api/supervisors/{supervisorId}",
        handler=supervisors.one,
        summary="A supervisor or reviewer",
        tag="supervisors",
        responses={200: supervisor_shapes.SupervisorState},
        errors=(_UNKNOWN,),
    ),
    Route(
        method="PUT",
        path="/api/supervisors/{supervisorId}",
        handler=supervisors.change,
        summary="Switch a supervisor on or off, or change its bounds",
        tag="supervisors",
        role=Role.ADMIN,
        body=Body.REQUIRED,
        request=supervisor_shapes.SupervisorChange,
        responses={200: supervisor_shapes.SupervisorState},
        errors=(_UNKNOWN,),
        guarded=True,
    ),
    Route(
        method="GET",
        path="/api/supervisors/{supervisorId}/events",
        handler=supervisors.events,
        summary="The events for a program that steers, without its own commands' but with outcomes",
        tag="supervisors",
        role=Role.OPERATOR,
        reach=Reach.OWN,
        query=(
            *EVENT_FILTERS,
            place("lastEventId", LAST_DOC, FEED_PLACE),
            place("afterCursor", CURSOR_DOC, FEED_PLACE),
            NAMED,
        ),
        responses={200: resources.Event},
        errors=(*_LEASE, "too_many_streams"),
        headers=RESUME,
        place=FEED_PLACE,
        media=Media.EVENTS,
    ),
    Route(
        method="POST",
        path="/api/supervisors/{supervisorId}/commands",
        handler=supervisors.commands,
        summary="Give the commands of a program that steers",
        tag="supervisors",
        role=Role.OPERATOR,
        reach=Reach.OWN,
        query=(commands.DRY_RUN,),
        body=Body.REQUIRED,
        document=commands.BatchBody,
        responses={200: shapes.BatchAnswers},
        errors=(*_LEASE, "rate_limited", "validation"),
        guarded=True,
    ),
)
