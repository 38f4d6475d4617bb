"""The table of routes: router, checks, OpenAPI and documents are made from it and nothing else.

Features: CTL-01, DEF-01, OBS-01, OBS-03, SEC-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.http.tables import (
    approvals,
    auth,
    catalogue,
    commands,
    events,
    explain,
    held,
    history,
    losses,
    recorded,
    runs,
    scheduler,
    server,
    sessions,
    supervisors,
    versions,
)

if TYPE_CHECKING:
    from yukta_rx.http.route import Route

ROUTES: Final[tuple[Route, ...]] = (
    *runs.ROUTES,
    *commands.ROUTES,
    *scheduler.ROUTES,
    *held.ROUTES,
    *history.ROUTES,
    *losses.ROUTES,
    *recorded.ROUTES,
    *approvals.ROUTES,
    *sessions.ROUTES,
    *versions.ROUTES,
    *supervisors.ROUTES,
    *events.ROUTES,
    *explain.ROUTES,
    *catalogue.ROUTES,
    *server.ROUTES,
    *auth.ROUTES,
)
"""Every route."""
