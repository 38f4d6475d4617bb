"""Who asks, the session of a browser, the settings in force. Features: SEC-01, SEC-02."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.http.auth import COOKIE
from yukta_rx.http.auth_shapes import SessionBody
from yukta_rx.model.times import rfc3339
from yukta_rx.security.settings_view import settings_in_force

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call


async def whoami(call: Call) -> web.StreamResponse:
    """Say who asks, as the server sees it."""
    actor = call.actor
    return call.json(
        {
            "actor": actor.name,
            "key": actor.key,
            "role": str(actor.role),
            "sessions": None if actor.sessions is None else sorted(actor.sessions),
            "expiresAt": None if actor.expires is None else rfc3339(actor.expires),
            "cookie": actor.cookie,
        }
    )


async def config(call: Call) -> web.StreamResponse:
    """Show every setting with its value and where that comes from; secrets are masked."""
    settings = call.engine.settings
    items = [item.as_dict() for item in settings_in_force(settings)]
    return call.json({"items": items, "nextCursor": None, "warnings": list(settings.warnings)})


async def open_session(call: Call) -> web.StreamResponse:
    """Give a browser a cookie for a key."""
    key = call.typed(SessionBody).key.get_secret_value()
    token = call.shared.guard.open_session(key, call.request)
    lifetime = int(call.engine.settings.http.session_lifetime.total_seconds())
    response = call.nothing()
    response.set_cookie(
        COOKIE,
        token,
        max_age=lifetime,
        path="/",
        secure=_by_tls(call),
        httponly=True,
        samesite="Strict",
    )
    return response


async def close_session(call: Call) -> web.StreamResponse:
    """Take the cookie back."""
    call.shared.guard.close_session(call.request)
    response = call.nothing()
    response.del_cookie(COOKIE, path="/", secure=_by_tls(call), httponly=True, samesite="Strict")
    return response


def _by_tls(call: Call) -> bool:
    """Whether the browser talks TLS, to this server or to a proxy before it.

    A client that claims it wrongly only gets a cookie that it cannot use.
    """
    return call.request.secure or call.header("X-Forwarded-Proto") == "https"
