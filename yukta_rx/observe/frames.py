"""Frames of an event stream (SSE): encoded once, then the same bytes for every reader.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.codec import dumps_plain, dumps_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PING: Final = b": ping\n\n"
"""A comment that keeps a connection alive; no client shows it."""

RETRY_MS: Final = 2000
"""What a client waits before it connects again, while all is well."""

CLOSING_RETRY_MS: Final = 1000
"""What it waits when the server said that it is closing."""

STANDBY_RETRY_MS: Final = 5000
"""What it waits when it came to a server that does not lead."""

# The codec escapes them as well; here they are the difference between one event and two.
_SEPARATORS: Final = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
_BREAKS: Final = frozenset("\r\n\0")


class Frame:
    """One event of a stream.

    Args:
        type: the name of the event.
        data: one line of JSON.
        id: what a client gives back to go on behind this frame; None leaves its place unchanged.
        retry: milliseconds that a client is to wait before it connects again.

    Raises:
        ValueError: a line break, with which data would become a frame of its own.
    """

    __slots__ = ("_named", "_plain", "data", "id", "retry", "type")

    def __init__(
        self, type: str, data: bytes, *, id: str | None = None, retry: int | None = None
    ) -> None:
        if b"\n" in data or b"\r" in data:
            raise ValueError(f"the data of a frame is one line: {data[:80]!r}")
        if not _BREAKS.isdisjoint(type) or (id is not None and not _BREAKS.isdisjoint(id)):
            raise ValueError(f"no line break in the type or the id of a frame: {type!r}, {id!r}")
        for raw, escape in _SEPARATORS:
            if raw in data:
                data = data.replace(raw, escape)
        self.type = type
        self.data = data
        self.id = id
        self.retry = retry
        self._named: bytes | None = None
        self._plain: bytes | None = None

    @classmethod
    def of(cls, type: str, value: Any, *, id: str | None = None, retry: int | None = None) -> Frame:
        """Make a frame of a value, see `json_of`."""
        return cls(type, json_of(value), id=id, retry=retry)

    def sse(self, named: bool = True) -> bytes:
        """Return the whole block with the blank line that ends it.

        Args:
            named: False leaves out the event's name, so that `onmessage` of a browser gets it.
        """
        made = self._named if named else self._plain
        if made is None:
            made = b"data: " + self.data + b"\n\n"
            if named:
                made = f"event: {self.type}\n".encode() + made
            if self.id is not None:
                made = f"id: {self.id}\n".encode() + made
            if self.retry is not None:
                made = retry_line(self.retry) + made
            if named:
                self._named = made
            else:
                self._plain = made
        return made

    def __repr__(self) -> str:
        return f"Frame({self.type!r}, {self.data!r}, id={self.id!r})"


def json_of(value: Any, dumps: Callable[[Any], bytes] = dumps_plain) -> bytes:
    """Return a value as one line of JSON; what JSON cannot show is marked, see `showable`."""
    try:
        return dumps(value)
    except UnserialisablePayloadError:
        return dumps_plain(showable(value))


def state_json(state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bytes:
    """As `json_of`, for what the engine says of its own state, see `dumps_state`."""
    return json_of(state, dumps_state)


def showable(value: Any, depth: int = 100) -> Any:
    """Return a value so that JSON can show it, with a mark in place of each part that it cannot.

    Half a surrogate pair becomes its escape as text; anything that has no JSON form becomes
    `{"unserialisable": <its type>}`.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict | list | tuple):
        if not depth:
            return {"unserialisable": "nested too deep"}
        if isinstance(value, dict):
            return {
                showable(str(key)): showable(member, depth - 1) for key, member in value.items()
            }
        return [showable(member, depth - 1) for member in value]
    try:
        dumps_plain(value)
    except UnserialisablePayloadError:
        return {"unserialisable": type(value).__qualname__}
    return value


def json_safe(value: Any) -> Any:
    """Return a value itself if JSON can show it, else what `showable` makes of it."""
    try:
        dumps_plain(value)
    except UnserialisablePayloadError:
        return showable(value)
    return value


def retry_line(ms: int) -> bytes:
    """Return the line that tells a client how long to wait before it connects again."""
    return f"retry: {ms}\n".encode()


def closing(reason: str) -> Frame:
    """Return the last frame of a stream that the server ends; the client comes back soon."""
    return Frame.of("stream.closing", {"reason": reason}, retry=CLOSING_RETRY_MS)


def standby(leader: dict[str, Any] | None) -> Frame:
    """Return the only frame of a stream on a server that does not lead.

    Args:
        leader: `{instanceId, url}` of the one that does, if it is known.
    """
    return Frame.of("stream.standby", {"leader": leader}, retry=STANDBY_RETRY_MS)
