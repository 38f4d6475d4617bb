"""Host and Origin check: while no key is set for all, with keys for requests by cookie.

A page in a browser can reach a server on this machine. The Host check stops one that made its own
name point here; the Origin check stops one that sends a form or a fetch across origins.

Feature: SEC-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from yukta_rx.errors import HostNotAllowedError, OriginNotAllowedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class HostOrigin:
    """Decides by the headers Host and Origin whether a request may come in.

    Args:
        hosts: names or `name:port`; without a port any is meant.
        origins: `scheme://name` or `scheme://name:port`; without a port any is meant.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = frozenset(_host(text) for text in hosts)
        self._origins = frozenset(_origin(text) for text in origins)

    def check(self, method: str, host: str | None, origin: str | None) -> None:
        """Let a request pass or refuse it.

        Raises:
            HostNotAllowedError: an unknown or missing Host.
            OriginNotAllowedError: a foreign Origin on a method that may change something.
        """
        if host is None or not self._knows_host(host):
            shown = "missing" if host is None else ascii(host[:100])
            raise HostNotAllowedError(
                f"Host {shown} is not among yukta.allowed-hosts", host=shown.strip("'")
            )
        if origin is None or method in SAFE or self.allows(origin) or _same(origin, host):
            return
        shown = ascii(origin[:100])
        raise OriginNotAllowedError(
            f"Origin {shown} is not among yukta.allowed-origins", origin=shown.strip("'")
        )

    @staticmethod
    def check_page(headers: Mapping[str, str], *, required: bool) -> None:
        """Refuse a request that a page of another origin had a browser send.

        A cookie goes with every request of a browser, so its owner need not have meant it. Pages of
        another port are "same site" to a browser, so `SameSite` alone does not keep them out; nor
        do the allowed origins count here, which are those of every port by default.

        Args:
            headers: of the request.
            required: refuse also what says nothing of where it comes from.

        Raises:
            OriginNotAllowedError: it does not come from a page of this very server.
        """
        site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
        if site is not None:
            own = site == "same-origin" or (site == "none" and not required)
        elif origin is not None:
            own = _same(origin, headers.get("Host", ""))
        else:
            own = not required
        if not own:
            shown = ascii((origin or "unknown")[:100]).strip("'")
            detail = f"a page of this server has to send this, not one of origin {shown}"
            raise OriginNotAllowedError(detail, origin=shown)

    def allows(self, origin: str) -> bool:
        """Whether pages of this origin may change something and read what comes back."""
        found = _origin(origin)
        return found is not None and (
            found in self._origins or (found[0], found[1], None) in self._origins
        )

    def _knows_host(self, text: str) -> bool:
        found = _host(text)
        return found is not None and (found in self._hosts or (found[0], None) in self._hosts)


def _host(text: str) -> tuple[str, int | None] | None:
    """Return name and port of a Host header; a bare IPv6 address is taken as well."""
    bare = text.strip().lower()
    if bare.count(":") > 1 and not bare.startswith("["):
        bare = f"[{bare}]"
    if any(sign in bare for sign in "/?#@\\ ") or not bare:
        return None
    try:
        parts = urlsplit(f"//{bare}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if not name else (name.rstrip("."), port)


def _origin(text: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(text.strip().lower())
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not name or parts.scheme not in _DEFAULT_PORTS or parts.path not in ("", "/"):
        return None
    return parts.scheme, name, port


def _same(origin: str, host: str) -> bool:
    """Whether a page was served by this very server."""
    page, server = _origin(origin), _host(host)
    if page is None or server is None:
        return False
    scheme, name, port = page
    default = _DEFAULT_PORTS[scheme]
    return (name, port or default) == (server[0], server[1] or default)
