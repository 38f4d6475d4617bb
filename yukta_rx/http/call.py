"""Call: one request as a handler sees it, checked, and the ways to answer it.

Features: OBS-01, SEC-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiohttp import web

from yukta_rx.control.commands.base import Role
from yukta_rx.errors import NotFoundError, UnserialisablePayloadError
from yukta_rx.http.headers import entity_tags
from yukta_rx.model.codec import dumps_plain
from yukta_rx.observe.frames import showable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pydantic import BaseModel

    from yukta_rx.http.route import Route
    from yukta_rx.http.state import ServedEngine, Shared

JSON: Final = "application/json"
M = TypeVar("M", bound="BaseModel")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks.

    Attributes:
        name: as the audit shows it.
        role: what they may do.
        sessions: the sessions that they may see; None is all.
        expires: when the key stops to be good, aware; None is never.
        key: the name of the key; None without one.
        cookie: whether a browser sent the cookie that it got for the key.
    """

    name: str
    role: Role
    sessions: frozenset[str] | None = None
    expires: datetime | None = None
    key: str | None = None
    cookie: bool = False

    def sees(self, session_id: str) -> bool:
        """Whether what belongs to a session is there for them."""
        return self.sessions is None or session_id in self.sessions

    def within(self, wanted: Iterable[str]) -> frozenset[str]:
        """The sessions to look in, of those that are asked for; empty stands for all.

        A limited actor never gets the empty set: where nothing is left it is a session that
        cannot exist.
        """
        given = frozenset(wanted)
        if self.sessions is None:
            return given
        return (given & self.sessions if given else self.sessions) or NOWHERE

    def check_session(self, session_id: str) -> None:
        """Raise what a session that is not there raises, if they may not see it."""
        if not self.sees(session_id):
            raise NotFoundError(
                f"there is no session {session_id}",
                code="session_not_found",
                sessionId=session_id,
            )


NOWHERE: Final = frozenset({"-"})
"""Fits no session: an id begins with a letter or digit."""

ANYONE: Final = Actor("anonymous", Role.ADMIN)
"""Everybody, while no key is set: the Host and Origin check keeps strangers out."""

STRANGER: Final = Actor("anonymous", Role.VIEWER, frozenset())
"""Who shows no key although there are some: sees nothing but what is open to all."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that passed the checks of its route.

    Attributes:
        request: aiohttp's request; its body has been read.
        shared: the app's state.
        route: the line of the table.
        request_id: as in `X-Request-Id`.
        actor: who asks.
        ids: the ids of the path, by placeholder.
        query: every declared query parameter, by name.
        body: the JSON value of the body; `{}` if there was none.
        model: the body as the route's request model.
    """

    request: web.Request
    shared: Shared
    route: Route
    request_id: str
    actor: Actor
    ids: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    model: BaseModel | None = None

    @property
    def engine(self) -> ServedEngine:
        """The engine that is served."""
        return self.shared.engine

    @property
    def via(self) -> str:
        """How the request came, as the audit shows it."""
        agent = self.header("User-Agent") or ""
        return "CLI" if agent.startswith("yukta-cli") else "REST"

    def header(self, name: str) -> str | None:
        """A request header; several lines of it are one list."""
        values = self.request.headers.getall(name, None)
        return None if values is None else ", ".join(values)

    def typed(self, kind: type[M]) -> M:
        """The body as the route's request model, which is `kind`."""
        if not isinstance(self.model, kind):
            raise TypeError(f"{self.route.name} does not declare {kind.__name__}")
        return self.model

    def json(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Answer with JSON."""
        return web.Response(status=status, body=_encoded(value), content_type=JSON, headers=headers)

    def tagged(self, value: Any, tag: str | None = None) -> web.Response:
        """Answer with JSON and an entity tag, or 304 if the client has just that.

        Args:
            value: the answer.
            tag: a strong tag; None makes a weak one from the content.
        """
        body = _encoded(value)
        if tag is None:
            shown, bare = _weak(body)
        else:
            shown, bare = f'"{tag}"', tag
        given = entity_tags("If-None-Match", self.header("If-None-Match"))
        if given is not None and (given.every or bare in given.all):
            return web.Response(status=304, headers={"ETag": shown})
        return web.Response(body=body, content_type=JSON, headers={"ETag": shown})

    def nothing(self, headers: Mapping[str, str] | None = None) -> web.Response:
        """Answer 204."""
        return web.Response(status=204, headers=headers)


def _encoded(value: Any) -> bytes:
    """Encode an answer; where a run holds what JSON cannot show, what it is stands in its place."""
    try:
        return dumps_plain(value)
    except UnserialisablePayloadError:
        return dumps_plain(showable(value))


def _weak(body: bytes) -> tuple[str, str]:
    digest = blake2b(body, digest_size=16).hexdigest()
    return f'W/"{digest}"', digest
