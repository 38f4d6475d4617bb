"""Parser of event streams (SSE), after the WHATWG standard.  Feature: OBS-01."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_BOM: Final = b"\xef\xbb\xbf"
_BREAK: Final = re.compile(rb"\r\n|\r|\n")
_DIGITS: Final = re.compile(rb"[0-9]+")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event of a stream.

    Attributes:
        type: its name, `message` if it has none.
        data: its text.
        id: the id in force, what `Last-Event-ID` takes to go on behind it; may be empty.
    """

    type: str
    data: str
    id: str


class EventTooLargeError(Exception):
    """An event, or a line beside one, is larger than the parser may hold."""


class SseParser:
    """Makes events of the bytes of one connection; where chunks are cut does not matter.

    An event whose blank line has not come when the connection ends is lost, as the standard says:
    the server sends it again to a client that resumes.

    Args:
        last_id: the id in force when the connection begins.
        limit: bytes of an event's data, and of any line, at most; None for no limit.

    Attributes:
        last_id: id of the newest whole event; stays in force until another one comes.
        retry_ms: what the server asks a client to wait before it connects again, if it does.
    """

    def __init__(self, last_id: str = "", limit: int | None = None) -> None:
        self.last_id = last_id
        self.retry_ms: int | None = None
        self._id = last_id
        self._type = ""
        self._data: list[str] = []
        self._head: bytes | None = b""  # while it may still be a byte order mark
        self._rest: list[bytes] = []
        self._after_cr = False
        self._limit = limit
        self._held = 0
        self._waiting = 0
        self._fault: EventTooLargeError | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes.

        Raises:
            EventTooLargeError: the next event is too large; those before it were returned.
        """
        if self._fault is not None:
            raise self._fault
        events: list[SseEvent] = []
        try:
            self._feed(chunk, events)
        except EventTooLargeError as error:
            if not events:
                raise
            self._fault = error
        return events

    def _feed(self, chunk: bytes, events: list[SseEvent]) -> None:
        chunk = self._body(chunk)
        if not chunk:
            return
        # The second half of a line break that was cut in two is not one of its own.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        *lines, rest = _BREAK.split(chunk)
        for line in lines:
            if self._rest:
                line = b"".join((*self._rest, line))
                self._rest.clear()
                self._waiting = 0
            self._line(line, events)
        if rest:
            self._rest.append(rest)
            self._waiting += len(rest)
            self._check(self._waiting)

    def _body(self, chunk: bytes) -> bytes:
        """Take away a byte order mark at the begin of the stream."""
        if self._head is None:
            return chunk
        self._head += chunk
        if len(self._head) < len(_BOM) and _BOM.startswith(self._head):
            return b""
        body, self._head = self._head.removeprefix(_BOM), None
        return body

    def _check(self, more: int) -> None:
        if self._limit is not None and self._held + more > self._limit:
            raise EventTooLargeError(f"an event or line is larger than {self._limit} bytes")

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            self._dispatch(events)
            return
        self._check(len(line))
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._held += len(line)
                self._data.append(value.decode(errors="replace"))
            case b"event":
                self._type = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case b"retry" if _DIGITS.fullmatch(value):
                self.retry_ms = int(value[:9])
            case _:
                pass  # a comment, or a field that is not known

    def _dispatch(self, events: list[SseEvent]) -> None:
        self.last_id = self._id
        if self._data:
            events.append(SseEvent(self._type or "message", "\n".join(self._data), self._id))
        self._data, self._type, self._held = [], "", 0
