"""Request headers that carry a meaning of their own: Accept, entity tags, idempotency keys.

Features: ADM-02, DEF-01.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from yukta_rx.errors import BadRequestError

_JSON: Final = ("application/json", "application/*", "*/*")
_EVENTS: Final = ("text/event-stream", "text/*", "*/*")
_DIAGRAM: Final = ("text/vnd.mermaid", "text/*", "*/*")
_TAG: Final = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*(?:,|$)')
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


def accepts(header: str | None, kinds: tuple[str, ...]) -> bool:
    """Whether a client takes `kinds[0]`; the others are the wider ranges that include it.

    The narrowest range that the header names decides, so `application/json;q=0, */*` refuses JSON.
    """
    if not header:
        return True
    ranges = _ranges(header)
    return next((ranges[kind] > 0 for kind in kinds if kind in ranges), False)


def accepts_json(header: str | None) -> bool:
    """Whether a client takes JSON."""
    return accepts(header, _JSON)


def accepts_events(header: str | None) -> bool:
    """Whether a client takes an event stream."""
    return accepts(header, _EVENTS)


def accepts_diagram(header: str | None) -> bool:
    """Whether a client takes a Mermaid diagram."""
    return accepts(header, _DIAGRAM)


def prefers_diagram(header: str | None) -> bool:
    """Whether a client that could have either wants a diagram: it likes it more than JSON.

    A client that says nothing, or takes anything, gets JSON.
    """
    ranges = _ranges(header or "")
    diagram = max(ranges.get(kind, 0.0) for kind in _DIAGRAM[:2])
    return diagram > max(ranges.get(kind, 0.0) for kind in _JSON[:2])


def prefers_json(header: str | None) -> bool:
    """Whether a client that could have either wants JSON: it names it, and likes no stream more.

    A client that says nothing, or takes anything, gets the stream.
    """
    ranges = _ranges(header or "")
    stream = max(ranges.get(kind, 0.0) for kind in _EVENTS[:2])
    return ranges.get(_JSON[0], 0.0) > stream


def _ranges(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = (piece.strip() for piece in part.lower().split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        found[name] = quality
    return found


@dataclass(frozen=True, slots=True)
class Tags:
    """The entity tags of a conditional header.

    Attributes:
        every: the header is `*`.
        strong: the tags without their quotes.
        weak: those that were marked weak.
    """

    every: bool = False
    strong: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Both kinds, for a weak comparison."""
        return self.strong + self.weak


def entity_tags(name: str, header: str | None) -> Tags | None:
    """Return the tags of `If-Match` or `If-None-Match`, None if it was not sent.

    A single tag without its quotes is taken as it is meant.

    Raises:
        BadRequestError: code `invalid_parameter`: it is neither `*` nor a list of tags.
    """
    if header is None:
        return None
    text = header.strip()
    if text == "*":
        return Tags(every=True)
    if _KEY.fullmatch(text) and '"' not in text and "," not in text:
        return Tags(strong=(text,))
    strong: list[str] = []
    weak: list[str] = []
    at = 0
    while at < len(text) or not text:
        found = _TAG.match(text, at)
        if found is None:
            detail = f'{name} must be * or entity tags such as "abc"'
            raise BadRequestError(detail, code="invalid_parameter", parameter=name)
        (weak if found[1] else strong).append(found[2])
        at = found.end()
    return Tags(strong=tuple(strong), weak=tuple(weak))


def idempotency_key(header: str | None) -> str | None:
    """Return the key of a header that is a structured string (`"8e03"`) or a bare token.

    Raises:
        BadRequestError: code `invalid_parameter`: it is not 1 to 255 visible characters.
    """
    if header is None:
        return None
    text = header.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = re.sub(r'\\(["\\])', r"\1", text[1:-1])
    if not _KEY.fullmatch(text):
        detail = "Idempotency-Key must be 1 to 255 visible characters"
        raise BadRequestError(detail, code="invalid_parameter", parameter="Idempotency-Key")
    return text


def usable_request_id(header: str | None) -> str | None:
    """Return a client's request id if it is fit for logs and headers."""
    return header if header and _REQUEST_ID.fullmatch(header) else None
