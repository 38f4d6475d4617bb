"""The feed. Feature: OBS-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import resources
from yukta_rx.http.route import FEED_PLACE, Kind, Media, Query, Reach, Route
from yukta_rx.http.routes import streams
from yukta_rx.http.tables.parts import (
    CURSOR_DOC,
    EVENT_FILTERS,
    LAST_DOC,
    LIMIT,
    NAMED,
    RESUME,
    place,
)

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/events/stream",
        handler=streams.events,
        summary="The events of all runs, as they happen",
        tag="streams",
        reach=Reach.OWN,
        query=(
            *EVENT_FILTERS,
            place("lastEventId", LAST_DOC, FEED_PLACE),
            place("afterCursor", CURSOR_DOC, FEED_PLACE),
            NAMED,
            Query(
                "coalesceMs",
                "Milliseconds between two samples of one thing.",
                Kind.WHOLE,
                default=500,
                low=100,
                high=10_000,
            ),
            Query(
                "heartbeat",
                "`event` adds `stream.heartbeat` events.",
                Kind.WORD,
                words=("EVENT",),
            ),
        ),
        responses={200: resources.Event},
        errors=("invalid_cursor", "too_many_streams"),
        headers=RESUME,
        place=FEED_PLACE,
        media=Media.EVENTS,
    ),
    Route(
        method="GET",
        path="/api/events",
        handler=streams.events_page,
        summary="The events that are still kept",
        tag="streams",
        reach=Reach.OWN,
        query=(LIMIT, place("afterCursor", CURSOR_DOC, FEED_PLACE), *EVENT_FILTERS),
        responses={200: resources.EventPage},
        errors=("invalid_cursor", "cursor_expired"),
    ),
    Route(
        method="GET",
        path="/api/events/types",
        handler=streams.event_types,
        summary="Every event type with its JSON Schema",
        tag="streams",
        reach=Reach.OPEN,
        responses={200: resources.EventTypes},
    ),
)
