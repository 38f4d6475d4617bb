"""Route: one line of the table, from which router, checks and OpenAPI are made.

Feature: SEC-01.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.commands.base import Role
from yukta_rx.errors import BadRequestError
from yukta_rx.model.ids import ID_PATTERN, id_fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp import web
    from pydantic import BaseModel

    from yukta_rx.http.call import Call

    Handler = Callable[[Call], Awaitable[web.StreamResponse]]

__all__ = ["MAX_PAGE", "Body", "Kind", "Media", "Query", "Reach", "Role", "Route"]

MAX_PAGE: Final = 500
"""Most items of one page."""

NUMBER: Final = "^[0-9]{1,18}$"
"""The form of a place in what one run says."""

FEED_PLACE: Final = "^[0-9A-Za-z]+:[0-9]{1,18}$"
"""The form of a place in the feed."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,15}")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}


class Kind(StrEnum):
    """What the text of a query parameter stands for."""

    TEXT = "text"
    ID = "id"
    WHOLE = "whole number"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    WORD = "word"


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter.

    Attributes:
        name: as it is written in the query.
        doc: one sentence.
        kind: what its text stands for.
        many: whether it may be repeated or be a comma list; its value is then a tuple.
        default: its value when it is absent; () with `many`.
        low: smallest number, or for text 0 if it may be empty.
        high: largest number, or for text the most characters.
        words: the choices of a WORD, in upper case; a client may write them in any case.
        pattern: the form that a text has, for documents; the handler says what is wrong with it.
    """

    name: str
    doc: str
    kind: Kind = Kind.TEXT
    many: bool = False
    default: Any = None
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()
    pattern: str | None = None

    def read(self, texts: Sequence[str]) -> Any:
        """Return the value of what stands in the query, which is nothing for no texts.

        Raises:
            BadRequestError: code `invalid_parameter`, `parameter` is the name.
        """
        if self.many:
            # An empty one is refused like any other that is wrong: left out, it would mean all.
            return tuple(self._value(part) for text in texts for part in text.split(","))
        if len(texts) > 1:
            raise self._refused("may be given only once")
        return self._value(texts[0]) if texts else self.default

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the value."""
        kinds: dict[Kind, dict[str, Any]] = {
            Kind.TEXT: {"type": "string", "minLength": 1},
            Kind.ID: {"type": "string", "pattern": ID_PATTERN},
            Kind.WHOLE: {"type": "integer"},
            Kind.NUMBER: {"type": "number"},
            Kind.BOOLEAN: {"type": "boolean"},
            Kind.TIME: {"type": "string", "format": "date-time"},
            Kind.WORD: {"type": "string", "enum": list(self.words)},
        }
        one = kinds[self.kind]
        if self.kind in (Kind.WHOLE, Kind.NUMBER):
            one |= {"minimum": self.low} if self.low is not None else {}
            one |= {"maximum": self.high} if self.high is not None else {}
        elif self.kind is Kind.TEXT:
            one |= {"minLength": 0} if self.low == 0 else {}
            one |= {"maxLength": self.high} if self.high is not None else {}
            one |= {"pattern": self.pattern} if self.pattern is not None else {}
        if self.many:
            return {"type": "array", "items": one}
        return one if self.default is None else {**one, "default": self.default}

    def _value(self, text: str) -> Any:
        match self.kind:
            case Kind.ID:
                if (fault := id_fault(self.name, text)) is not None:
                    raise self._refused(fault, whole=True)
                return text
            case Kind.WHOLE | Kind.NUMBER:
                return self._number(text)
            case Kind.BOOLEAN:
                if text.lower() not in _BOOLEANS:
                    raise self._refused(f"must be true or false, not {text[:40]!a}")
                return _BOOLEANS[text.lower()]
            case Kind.TIME:
                return self._time(text)
            case Kind.WORD:
                if text.upper() not in self.words:
                    choices = ", ".join(self.words)
                    raise self._refused(f"must be one of {choices}, not {text[:40]!a}")
                return text.upper()
            case _:
                return self._text(text)

    def _text(self, text: str) -> str:
        least = 1 if self.low is None else self.low
        if len(text) < least or (self.high is not None and len(text) > self.high):
            raise self._refused(f"must be {least} to {self.high} characters")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self._refused("must be UTF-8 text") from None
        return text

    def _number(self, text: str) -> float:
        try:
            whole = self.kind is Kind.WHOLE
            if whole and not _WHOLE.fullmatch(text):
                raise ValueError
            number = int(text) if whole else float(text)
        except ValueError:
            raise self._refused(f"must be a {self.kind}, not {text[:40]!a}") from None
        # Comparing from below refuses NaN as well.
        low, high = self.low, self.high
        if (low is not None and not low <= number) or (high is not None and not number <= high):
            raise self._refused(f"must be {low} to {high}, not {text[:40]!a}")
        return number

    def _time(self, text: str) -> datetime:
        try:
            # A `+` that was not percent-encoded arrives as a blank.
            time = datetime.fromisoformat(text.replace(" ", "+"))
        except ValueError:
            time = datetime.min
        if time.tzinfo is None:
            raise self._refused("must be an RFC 3339 time such as 2026-11-30T20:29:00Z")
        return time

    def _refused(self, detail: str, *, whole: bool = False) -> BadRequestError:
        said = detail if whole else f"{self.name} {detail}"
        return BadRequestError(said, code="invalid_parameter", parameter=self.name)


class Body(StrEnum):
    """What a request body is to a route that takes one."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"
    BUNDLE = "bundle"
    """JSON or a zip; the handler gets the bytes."""


class Reach(StrEnum):
    """What a key that is limited to sessions gets from a route.

    A path with a session or a run is looked at before its handler: what belongs to another session
    is not there. This says how it is with the other paths; closed unless a route says otherwise.
    """

    CLOSED = "closed"
    """Nothing: it is about all sessions, or about the server."""
    OWN = "own"
    """Its handler leaves out what belongs to other sessions, or refuses it."""
    OPEN = "open"
    """All of it: nothing of any session is in it."""


class Media(StrEnum):
    """What a route answers with when all is well."""

    JSON = "application/json"
    EVENTS = "text/event-stream"
    EITHER = "application/json or text/event-stream"
    METRICS = "text/plain"
    DIAGRAM = "application/json or text/vnd.mermaid"
    ZIP = "application/zip"
    EMPTY = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: with placeholders; each is an id that is checked before anything else.
        handler: what answers.
        summary: one sentence.
        tag: the group in the documents.
        role: the least role that may use it; None lets everyone.
        reach: what a key that is limited to sessions gets, on a path without a session or a run.
        aliases: further paths of the same route.
        query: its query parameters; any other is refused.
        body: whether it takes a body.
        request: the model that the body is checked against; None takes any JSON value.
        document: a model that only describes the body, which a lower room checks.
        responses: status of each good answer with its model, None for a body without one.
        errors: codes of the problems that are its own; the general ones go without saying.
        headers: request headers that it heeds, with one sentence each.
        place: the form of the places in its stream, as of `Last-Event-ID`.
        media: what it answers with.
        also: further methods that the same handler answers (HEAD, OPTIONS).
        guarded: whether a client that goes away leaves it running; for all that change something.
        anywhere: whether a standby answers it although it is no GET, as it changes no run, session
            or setting.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    role: Role | None = Role.VIEWER
    reach: Reach = Reach.CLOSED
    aliases: tuple[str, ...] = ()
    query: tuple[Query, ...] = ()
    body: Body = Body.NONE
    request: type[BaseModel] | None = None
    document: type[BaseModel] | None = None
    responses: dict[int, type[BaseModel] | None] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    place: str = NUMBER
    media: Media = Media.JSON
    also: tuple[str, ...] = ()
    guarded: bool = False
    anywhere: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it answers on."""
        return (self.path, *self.aliases)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names of the ids in its path, in order."""
        return self.placeholders_of(self.path)

    @property
    def for_leader(self) -> bool:
        """Whether only the server that leads answers it."""
        return self.method != "GET" and not self.anywhere

    @property
    def starts(self) -> bool:
        """Whether it starts a run, which the limits may refuse."""
        return "queue_timeout" in self.errors

    @property
    def bound(self) -> bool:
        """Whether its path says which session it is about, or which run."""
        return not {"sessionId", "executionId"}.isdisjoint(self.placeholders)

    @staticmethod
    def placeholders_of(path: str) -> tuple[str, ...]:
        """Return the names of the ids in a path, in order."""
        return tuple(_PLACEHOLDER.findall(path))

    @property
    def name(self) -> str:
        """A name that no other route has."""
        words = re.sub(r"[^A-Za-z0-9]+", "_", self.path.removeprefix("/api")).strip("_")
        return f"{self.method.lower()}_{words or 'root'}"
