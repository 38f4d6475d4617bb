"""Writes payloads as lines of a file: jsonl, text or csv, what FILE_TRIGGER reads back.

Feature: ENG-01.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError, UnserialisablePayloadError
from yukta_rx.model.codec import dumps_plain
from yukta_rx.nodes._paths import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def jsonl_line(payload: Any) -> bytes:
    """Return a payload as JSON on one line; what JSON cannot say is shown with its tag.

    Raises:
        BadInputError: the payload has no JSON form; names the place in it.
    """
    return _json(payload) + b"\n"


def text_line(payload: Any) -> bytes:
    """Return a text as it is, also with newlines in it, and anything else as its JSON.

    Raises:
        BadInputError: the payload has no JSON form, or is text with half a surrogate pair.
    """
    return _text(payload) + b"\n"


LINES: Final[Mapping[str, Callable[[Any], bytes]]] = {"jsonl": jsonl_line, "text": text_line}
"""The formats in which a line depends on nothing but the payload."""


def csv_row(payload: Any, columns: Sequence[str]) -> bytes:
    """Return an object as a CSV row: text as it is, null as nothing, anything else as its JSON.

    Args:
        payload: the object; a column that it has no member for stays empty.
        columns: the names that its members may have, in their order in the file.

    Raises:
        BadInputError: it is no object, a member is no column, or one has no JSON form.
    """
    for name in checked_members(payload):
        if name not in columns:
            raise BadInputError(f"the member `{name}` is not among the columns of the file")
    return csv_line([_cell(name, payload.get(name)) for name in columns])


def csv_line(cells: Sequence[str]) -> bytes:
    """Return a CSV row of texts."""
    line = io.StringIO()
    # Only what is part of the writer's line end is quoted, and a bare CR has to be.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return _encoded(line.getvalue().removesuffix("\r\n") + "\n")


def checked_members(payload: Any) -> list[str]:
    """Return the names of the members that a payload has as columns.

    Raises:
        BadInputError: it is no object, it has no member, or a name is no text.
    """
    if not isinstance(payload, dict):
        raise BadInputError(f"a row needs an object, and the payload is {kind_of(payload)}")
    if not payload:
        raise BadInputError("a row needs an object with a member, and the payload has none")
    for name in payload:
        if not isinstance(name, str):
            raise BadInputError(f"the member name {name!a} is no text")
    return list(payload)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    try:
        return _text(value).decode()
    except BadInputError as error:
        raise BadInputError(f"the member `{name}`: {error.detail}") from error


def _text(payload: Any) -> bytes:
    return _encoded(payload) if isinstance(payload, str) else _json(payload)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadInputError("the text holds half of a surrogate pair") from None


def _json(payload: Any) -> bytes:
    try:
        return dumps_plain(payload)
    except UnserialisablePayloadError as error:
        raise BadInputError(error.detail) from error
