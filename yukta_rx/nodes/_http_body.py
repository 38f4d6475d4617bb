"""Bodies of requests and answers: JSON where it is JSON, else text or bytes.  Feature: DUR-04."""

from __future__ import annotations

import asyncio
import codecs
import zlib
from typing import TYPE_CHECKING, Any, Final

from aiohttp import ClientPayloadError

from yukta_rx.errors import BadInputError, UnserialisablePayloadError, YuktaError
from yukta_rx.model.codec import dumps_plain, loads_external

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiohttp import ClientResponse

# Codecs of Python that are no charset of a text, or let through what no text may hold.
_NO_CHARSET: Final = frozenset(
    ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf_7", "utf-7")
)

_GZIP: Final = 32 + zlib.MAX_WBITS
_STEP: Final = 256 * 1024
"""Bytes that are unpacked in one piece at most; in between the loop goes on."""


class BodyTooLargeError(Exception):
    """An answer is larger than its reader allows."""


async def read_body(response: ClientResponse, limit: int) -> bytes:
    """Return the body of an answer, unpacked.

    Raises:
        BodyTooLargeError: it is larger than `limit` bytes; no more than that is read or unpacked.
        ClientPayloadError: it broke off, or cannot be unpacked.
    """
    unpacking = _Unpacking(response.headers.get("Content-Encoding", "identity"), limit)
    body = bytearray()
    async for piece in response.content.iter_any():
        for part in unpacking.feed(piece):
            body += part
            if len(body) > limit:
                raise BodyTooLargeError
            if len(part) == _STEP:
                await asyncio.sleep(0)
    unpacking.end()
    return bytes(body)


class _Unpacking:
    """Undoes the encoding of a body, in pieces that no packed one can make large."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._step = min(_STEP, limit + 1)
        self._inflate: Any = None
        self._plain = encoding.strip().lower() in ("identity", "")
        if not self._plain and encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
            raise ClientPayloadError(f"it is encoded as {encoding[:40]!a}, which was not asked for")

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` unpacks to."""
        if self._plain:
            yield data
            return
        while data:
            # A body may consist of several packed parts.
            if self._inflate is None or self._inflate.eof:
                self._inflate = zlib.decompressobj(_GZIP)
            try:
                yield self._inflate.decompress(data, self._step)
            except zlib.error:
                raise ClientPayloadError("it cannot be unpacked") from None
            data = self._inflate.unconsumed_tail or self._inflate.unused_data

    def end(self) -> None:
        """Check that nothing is missing."""
        if self._inflate is not None and not self._inflate.eof:
            raise ClientPayloadError("its packed form has no end")


def encoded(body: Any) -> tuple[bytes, str]:
    """Return a body to send, and its content type: bytes and text as they are, the rest as JSON.

    Raises:
        BadInputError: it has no JSON form, or is text with half a surrogate pair.
    """
    if isinstance(body, bytes):
        return body, "application/octet-stream"
    try:
        if isinstance(body, str):
            return body.encode(), "text/plain; charset=utf-8"
        return dumps_plain(body), "application/json"
    except (UnicodeEncodeError, UnserialisablePayloadError) as error:
        why = getattr(error, "detail", "the text holds half of a surrogate pair")
        raise BadInputError(f"option `body`: {why}", option="body") from error


def decoded(data: bytes, content_type: str, charset: str | None) -> tuple[Any, bool]:
    """Return the body of an answer, and whether it is what its content type says.

    It is the value if the type is JSON and the body too, else the text, or the bytes if it is
    none in its charset (UTF-8 where none is given).
    """
    try:
        text = data.decode(_codec(charset))
    except UnicodeDecodeError:
        return data, not (is_json(content_type) or content_type.startswith("text/"))
    if not is_json(content_type):
        return text, True
    try:
        return loads_external(text), True
    except YuktaError:
        return text, False


def is_json(content_type: str) -> bool:
    """Whether a content type, without parameters, is one of JSON."""
    return content_type in ("application/json", "text/json") or content_type.endswith("+json")


def shown_headers(response: ClientResponse) -> Mapping[str, str]:
    """Return the headers of an answer: names in lower case, repeated ones joined by `, `.

    Set-Cookie, in which a comma may stand, is joined by newlines.
    """
    joined: dict[str, str] = {}
    for name, value in response.headers.items():
        name = name.lower()
        # Bytes that are no UTF-8 come as halves of surrogate pairs, which no payload can hold.
        value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        between = "\n" if name == "set-cookie" else ", "
        joined[name] = f"{joined[name]}{between}{value}" if name in joined else value
    return joined


def _codec(charset: str | None) -> str:
    try:
        name = codecs.lookup(charset or "utf-8").name
        "a".encode(name)  # refused where it is no encoding of text
    except (LookupError, ValueError):
        return "utf-8"
    return "utf-8" if name in _NO_CHARSET else name
