"""Health, meters, version. Feature: OBS-04."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import resources
from yukta_rx.http.route import Media, Route
from yukta_rx.http.routes import admin
from yukta_rx.http.tables.parts import IF_NONE

_STANDBY: Final = ("not_leader",)

ROUTES: Final[tuple[Route, ...]] = (
    *(
        Route(
            method="GET",
            path=path,
            handler=handler,
            summary=summary,
            tag="server",
            role=None,
            responses={200: resources.Health},
            errors=("shutting_down", "recovering", "store_unavailable", *more),
            also=also,
        )
        for path, handler, summary, also, more in (
            ("/health", admin.health, "How each part is", (), ()),
            ("/health/live", admin.live, "Whether the process lives", ("HEAD", "OPTIONS"), ()),
            ("/health/ready", admin.ready, "Whether it takes requests", ("HEAD", "OPTIONS"), ()),
            ("/health/leader", admin.leader, "Whether it leads", ("HEAD", "OPTIONS"), _STANDBY),
        )
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=admin.metrics,
        summary="Every meter, as Prometheus or OpenMetrics text",
        tag="server",
        role=None,
        responses={200: None},
        media=Media.METRICS,
    ),
    Route(
        method="GET",
        path="/api/version",
        handler=admin.version,
        summary="What runs here",
        tag="server",
        role=None,
        responses={200: resources.Version},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        handler=admin.openapi,
        summary="This document",
        tag="server",
        role=None,
        responses={200: resources.OpenApi, 304: None},
        headers=IF_NONE,
    ),
)
