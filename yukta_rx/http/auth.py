"""Guard: from a request to the one who asks, and what of the routes is theirs.

A key comes as `Authorization: Bearer`, as `X-API-Key`, or as the cookie that a browser got for it;
never in an address, which ends up in logs and histories. The first of them that is there decides.

Feature: SEC-01.
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from yukta_rx.control.commands.base import Role
from yukta_rx.control.desk import unknown
from yukta_rx.errors import NotAuthenticatedError, RateLimitedError, RoleError
from yukta_rx.http.browser_sessions import BrowserSessions
from yukta_rx.http.call import ANYONE, STRANGER, Actor
from yukta_rx.http.host_origin import SAFE, HostOrigin
from yukta_rx.http.route import Reach
from yukta_rx.security.api_keys import KeyRing
from yukta_rx.streams.clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from yukta_rx.config.settings import Settings
    from yukta_rx.http.route import Route
    from yukta_rx.http.state import ServedEngine
    from yukta_rx.security.api_keys import Grant

COOKIE: Final = "yukta_session"
ATTEMPTS: Final = 10
"""Wrong keys that one address may offer for a cookie within `WINDOW`."""
WINDOW: Final = 60.0
"""Seconds."""
ADDRESSES: Final = 1000
"""Addresses whose wrong keys are counted; the oldest are forgotten first."""

_NO_KEY: Final = "this needs an API key, as `Authorization: Bearer <key>` or `X-API-Key: <key>`"


class Guard:
    """Who may come in, and to what.

    Args:
        settings: the settings in force.
    """

    def __init__(self, settings: Settings) -> None:
        self.ring = KeyRing(settings)
        self._metrics_need_key = settings.metrics.auth
        self._sessions = BrowserSessions(settings.http.session_lifetime.total_seconds())
        self._attempts = Attempts()
        self._actors: dict[str, Actor] = {}
        self._clock: LoopClock | None = None

    @property
    def clock(self) -> LoopClock:
        """The time of the loop that serves."""
        if self._clock is None:
            self._clock = LoopClock(asyncio.get_running_loop())
        return self._clock

    # -- routes

    def admit(self, route: Route, request: web.Request) -> Actor:
        """Return who asks, if the route is open to them; nothing of the body was read.

        Raises:
            NotAuthenticatedError: the route needs a key, and there is none that is good.
            RoleError: the key's role or its limit to sessions does not allow the route.
            OriginNotAllowedError: a page of another origin uses the cookie to change something.
        """
        role = self.least_role(route)
        try:
            actor = self.identify(request)
        except NotAuthenticatedError:
            if role is None:
                return STRANGER
            raise
        if role is None:
            return actor
        if actor.role.rank < role.rank:
            detail = f"this needs the role {role}; {actor.name} has {actor.role}"
            raise RoleError(detail, requiredRole=str(role))
        if actor.sessions is not None and not route.bound and route.reach is Reach.CLOSED:
            raise RoleError(
                f"this is about the whole server; {actor.name} is limited to sessions",
                requiredRole=str(role),
            )
        return actor

    def least_role(self, route: Route) -> Role | None:
        """The least role that may use a route under these settings."""
        if self._metrics_need_key and route.path == "/metrics":
            return Role.VIEWER
        return route.role

    def identify(self, request: web.Request) -> Actor:
        """Return who asks.

        Raises:
            NotAuthenticatedError: there are keys, and none that is good was presented.
            OriginNotAllowedError: as for `admit`.
        """
        if not self.ring:
            return ANYONE
        if (key := presented(request.headers)) is not None:
            return self._actor(self.ring.find(key, self.clock.wall()))
        if (token := request.cookies.get(COOKIE)) is not None:
            if request.method not in SAFE:
                HostOrigin.check_page(request.headers, required=True)
            grant = self._sessions.find(token, self.clock.now())
            if grant is not None:
                grant.check(self.clock.wall())
                return replace(self._actor(grant), cookie=True)
            raise NotAuthenticatedError("the session of this browser is over: give the key again")
        raise NotAuthenticatedError(_NO_KEY)

    def _actor(self, grant: Grant) -> Actor:
        """Whom a grant makes of the one who shows it; the same object each time."""
        actor = self._actors.get(grant.name)
        if actor is None:
            actor = self._actors[grant.name] = Actor(
                f"key:{grant.name}",
                Role(str(grant.role)),
                sessions=grant.sessions,
                expires=grant.expires,
                key=grant.name,
            )
        return actor

    # -- the session of a browser

    def open_session(self, key: str, request: web.Request) -> str:
        """Return the cookie's value that stands for a key from now on.

        Raises:
            NotAuthenticatedError: the key is not good, or there is none at all here.
            OriginNotAllowedError: a page of another origin wants it.
            RateLimitedError: too many wrong keys came from this address.
        """
        if not self.ring:
            raise NotAuthenticatedError("no key is set on this server, so it asks for none")
        HostOrigin.check_page(request.headers, required=False)
        now, address = self.clock.now(), _network(request.remote)
        self._attempts.check(address, now)
        try:
            grant = self.ring.find(key, self.clock.wall())
        except NotAuthenticatedError:
            self._attempts.failed(address, now)
            raise
        return self._sessions.open(grant, now)

    def close_session(self, request: web.Request) -> None:
        """Forget the session of a browser, if it has one.

        Raises:
            OriginNotAllowedError: a page of another origin wants that.
        """
        if (token := request.cookies.get(COOKIE)) is not None:
            HostOrigin.check_page(request.headers, required=True)
            self._sessions.close(token)


class Attempts:
    """Counts the wrong keys of each address."""

    def __init__(self) -> None:
        self._failed: dict[str, list[float]] = {}

    def check(self, address: str, now: float) -> None:
        """Raise RateLimitedError if an address has had its attempts; `now` is in seconds."""
        times = [time for time in self._failed.get(address, ()) if now - time < WINDOW]
        if len(times) >= ATTEMPTS:
            raise RateLimitedError(
                "too many wrong keys came from this address",
                retry_after=WINDOW - (now - times[0]),
            )

    def failed(self, address: str, now: float) -> None:
        """Count one."""
        times = self._failed.pop(address, [])
        self._failed[address] = [*times, now][-ATTEMPTS:]
        if len(self._failed) > ADDRESSES:
            del self._failed[next(iter(self._failed))]


async def check_ids(actor: Actor, ids: Mapping[str, str], engine: ServedEngine) -> None:
    """Let what belongs to sessions that an actor may not see look as if it were not there.

    A run that does not exist is refused here as well: otherwise a wrong body would be told apart
    from a foreign run.

    Raises:
        NotFoundError: the path names such a session or run, or a run that is not there.
    """
    execution_id = ids.get("executionId")
    if execution_id is not None:
        session_id = engine.gateway.session_of(execution_id)
        if session_id is None:
            session_id = await engine.history.session_of(execution_id)
        if session_id is None or not actor.sees(session_id):
            raise unknown(execution_id)
    if "sessionId" in ids:
        actor.check_session(ids["sessionId"])


def presented(headers: Mapping[str, str]) -> str | None:
    """Return the key of a request's headers, None if there is none.

    `Authorization` with another scheme than Bearer is for somebody else, such as a proxy.
    """
    scheme, _, key = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get("X-API-Key")


def _network(remote: str | None) -> str:
    """What counts as one address: of IPv6 the network that one customer has."""
    try:
        address = ipaddress.ip_address((remote or "").partition("%")[0])
    except ValueError:
        return remote or ""
    if address.version == 6:
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)
