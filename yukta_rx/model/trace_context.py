"""The W3C trace context: the header `traceparent`, which says what a run is a part of.

Read and passed on whether or not anything here makes spans of its own.  Feature: OBS-05.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.model.message import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACEPARENT: Final = "traceparent"
"""The name of the header, of requests and answers as of messages."""

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.S)
_KNOWN: Final = "00"
_LONGEST: Final = 512


def parse_traceparent(header: Any) -> str | None:
    """Return a header's value if it is what the W3C recommendation allows, else None.

    One that is malformed is to be ignored, as if it had not been sent. Of a later version only the
    part that this one knows counts, and is returned in the form of this one.

    Args:
        header: the value; anything but text is malformed, as are several values in one.
    """
    if not isinstance(header, str) or len(header) > _LONGEST:
        return None
    found = _FORM.fullmatch(header.strip(" \t"))
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    if version == "ff" or (version == _KNOWN and more is not None):
        return None
    if not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    return f"{_KNOWN}-{trace_id}-{parent_id}-{flags}"


def trace_headers(traceparent: str | None) -> Mapping[str, Any]:
    """Return the headers with which a message carries it; none for None."""
    if traceparent is None:
        return NO_HEADERS
    return MappingProxyType({TRACEPARENT: traceparent})


def with_headers(headers: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the headers of a message with more that it has if it has none of these names."""
    return MappingProxyType({**more, **headers}) if more else headers
