"""Who asks, the session of a browser, the settings in force. Features: SEC-01, SEC-02."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import auth_shapes
from yukta_rx.http.route import Body, Reach, Role, Route
from yukta_rx.http.routes import auth

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/whoami",
        handler=auth.whoami,
        summary="Who asks: the name of the key, its role and its sessions",
        tag="server",
        reach=Reach.OPEN,
        responses={200: auth_shapes.WhoAmI},
    ),
    Route(
        method="GET",
        path="/api/config",
        handler=auth.config,
        summary="The settings in force and where each comes from; secrets are masked",
        tag="server",
        role=Role.ADMIN,
        responses={200: auth_shapes.Config},
    ),
    Route(
        method="POST",
        path="/api/auth/session",
        handler=auth.open_session,
        anywhere=True,
        summary="Give a browser a cookie for a key",
        tag="server",
        role=None,
        body=Body.REQUIRED,
        request=auth_shapes.SessionBody,
        responses={204: None},
        errors=("unauthenticated", "rate_limited", "malformed_json"),
        guarded=True,
    ),
    Route(
        method="DELETE",
        path="/api/auth/session",
        handler=auth.close_session,
        anywhere=True,
        summary="Take the cookie of a browser back",
        tag="server",
        role=None,
        responses={204: None},
        guarded=True,
    ),
)
