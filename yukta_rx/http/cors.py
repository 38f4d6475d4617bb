"""CORS: which pages of other origins may read answers. Feature: SEC-01.

Only those of `yukta.allowed-origins`, and never with a cookie: no answer says
`Access-Control-Allow-Credentials`, so a page of another origin has to bring a key of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDict

    from yukta_rx.http.host_origin import HostOrigin

METHODS: Final = "GET, POST, PUT, PATCH, DELETE"
_REQUEST_HEADERS: Final = (
    "Content-Type, Authorization, X-API-Key, Idempotency-Key, If-Match, If-None-Match,"
    " Last-Event-ID, Prefer, X-Request-Id, traceparent, tracestate"
)
_EXPOSED: Final = (
    "Location, ETag, Retry-After, Idempotency-Replayed, Deprecation, Sunset, X-Request-Id,"
    " Yukta-Version, Yukta-Leader, traceparent"
)


def preflight(doors: HostOrigin, origin: str | None) -> Mapping[str, str] | None:
    """Return the headers that answer a browser's question beforehand; None for other origins."""
    if origin is None or not doors.allows(origin):
        return None
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": _REQUEST_HEADERS,
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }


def let_read(doors: HostOrigin, origin: str | None, headers: CIMultiDict[str]) -> None:
    """Add to an answer what lets a page of an allowed origin read it."""
    if origin is None or not doors.allows(origin):
        return
    headers["Access-Control-Allow-Origin"] = origin
    headers["Access-Control-Expose-Headers"] = _EXPOSED
    vary = headers.get("Vary")
    if vary is None:
        headers["Vary"] = "Origin"
    elif "origin" not in vary.lower():
        headers["Vary"] = f"{vary}, Origin"
