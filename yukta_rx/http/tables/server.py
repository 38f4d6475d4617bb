"""Health, meters, version, durability, diagnostics. Features: DUR-05, OBS-04."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import diagnostics_shapes, resources
from yukta_rx.http.route import Media, Reach, Role, Route
from yukta_rx.http.routes import admin, diagnostics
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
        path="/api/durability",
        handler=diagnostics.durability,
        summary="What of this deployment survives a crash, a power loss, the loss of the machine",
        tag="server",
        reach=Reach.OPEN,
        responses={200: diagnostics_shapes.Durability},
    ),
    Route(
        method="GET",
        path="/api/diagnostics",
        handler=diagnostics.diagnostics,
        summary="Versions, tasks, queue depths and stores of this server; nothing secret",
        tag="server",
        role=Role.ADMIN,
        responses={200: diagnostics_shapes.Diagnostics},
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
