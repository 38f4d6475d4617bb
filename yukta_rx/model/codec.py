"""The strict JSON boundary: nothing that goes through it comes back as something else.

JSON has no word for many Python values, and the fast parser and writer change some of them
silently (NaN becomes null, 2**64 a float, a tuple a list). Here they are marked with a tag,
`{"$yukta": kind, "v": ...}`, or refused with a JSON pointer.

Plain JSON values take a fast way: write with orjson, read back, compare. What compares equal was
kept; anything else goes through the slow way, `tags`.

Feature: DUR-04.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from yukta_rx.errors import BadRequestError, UnserialisablePayloadError, json_pointer
from yukta_rx.model.json_scan import find_fault
from yukta_rx.model.tags import Blob, TagError, Unserialisable, untag, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MAX_DEPTH", "MAX_INPUT_DEPTH", "Blob", "canonical", "decode", "dumps_plain", "encode"]
__all__ += ["dumps_state", "loads_external"]

PLAIN = frozenset({str, int, bool, type(None)})
"""Types of which the fast writer changes no value that it takes."""

MAX_INPUT_DEPTH = 200
"""How many arrays and objects may stand inside one another in JSON from outside."""

MAX_DEPTH = 254
"""The same inside: what came in at its limit can still be wrapped by a node."""

_OPTIONS = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
)
_NUL = b"\\u0000"
_TAG = b'"$yukta"'
_ESCAPED_DOLLAR = b"\\u0024"
_ROOMY = 4096
"""Bytes that what orjson gives occupies at least, however short it is."""
# Shorter runs of digits fit 64 bits whatever they are.
_LONG_DIGITS = re.compile(rb"[0-9]{19}")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89abAB]")
_CONTAINERS = frozenset({dict, list})
_LINE_BREAKS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)


def encode(value: Any, *, plain: bool = False) -> bytes:
    """Return a value as JSON that `decode` turns back into an equal value.

    Kept: None, bool, int and float of any size, str, bytes, list, tuple, dict with string keys,
    Decimal, datetime, date, time, timedelta, UUID and `Blob`. An instance of a subclass (an enum
    member that is a str, a named tuple) is kept as the base type it equals.

    Args:
        value: what is to be written.
        plain: whether the caller knows that all of it is `PLAIN`, but for the objects that hold
            it: then it is not read back, which takes four times as long as writing it.

    Raises:
        UnserialisablePayloadError: some part is of another type, is text with half a surrogate
            pair, or is nested deeper than `MAX_DEPTH`; `pointer` names the place.
    """
    # Written out, not shared with the others: every checkpoint and every frame comes through here.
    try:
        data = orjson.dumps(value, None, _OPTIONS)
        # `find`, since `in` first tries whether the pattern is a number, at twice the cost.
        if data.find(_NUL) < 0 and data.find(_TAG) < 0 and (plain or orjson.loads(data) == value):
            # Those who keep many of them would notice.
            return bytes(memoryview(data)) if len(data) < _ROOMY else data
    except (TypeError, ValueError, RecursionError):
        pass
    return _slow(value)


def is_plain(value: Any) -> bool:
    """Whether a value is `PLAIN`, or an object of such values: what is deeper is not looked at."""
    kind = type(value)
    return kind in PLAIN or (kind is dict and PLAIN.issuperset(map(type, value.values())))


def dumps_plain(value: Any) -> bytes:
    r"""Return a value as JSON for people and other programs, on one line.

    As `encode`, but integers of any size are digits and a NUL is its JSON escape. What else JSON
    cannot say is shown with its tag. U+2028, U+2029 and U+0085 are escaped: some readers of event
    streams and of lines would split there.

    Raises:
        UnserialisablePayloadError: as for `encode`.
    """
    data = _fast(value)
    return _one_line(_slow(value, plain=True) if data is None else data)


def dumps_state(state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bytes:
    """Return what the engine says of its own state as JSON, on one line: as `dumps_plain`.

    Such a state is made of text, truth values, numbers that JSON has, and objects and arrays of
    these. So it is not read back, which takes four times as long as writing it.

    Raises:
        UnserialisablePayloadError: as for `encode`.
    """
    try:
        data = orjson.dumps(state, None, _OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return dumps_plain(state)
    return _one_line(_compact(data)) if data.find(_TAG) < 0 else dumps_plain(state)


def _one_line(data: bytes) -> bytes:
    if not data.isascii():
        for raw, escape in _LINE_BREAKS:
            data = data.replace(raw, escape)
    return data


def _compact(data: bytes) -> bytes:
    """The same in no more memory than it takes: who keeps many of them would notice."""
    return bytes(memoryview(data)) if len(data) < _ROOMY else data


def canonical(value: Any) -> bytes:
    """Return the one JSON text of a value: as `encode`, with sorted keys. 1 and 1.0 differ.

    Always written the exact way: how the fast writer shows a float may change with its version.

    Raises:
        UnserialisablePayloadError: as for `encode`.
    """
    return _slow(value, sort=True)


def decode(data: bytes) -> Any:
    """Return the value that `encode` was given.

    Raises:
        BadRequestError: code `malformed_json`: this is not what `encode` writes; `pointer` names
            the place.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        _refuse_text(data, str(error), MAX_DEPTH * 4)
    if data.find(_TAG) < 0 and data.find(_ESCAPED_DOLLAR) < 0:
        return value
    try:
        return untag(value)
    except TagError as error:
        pointer = json_pointer(error.path)
        raise BadRequestError(
            f"{pointer or 'the value'}: {error}", code="malformed_json", pointer=pointer
        ) from error


def loads_external(data: bytes | str) -> Any:
    """Return the value of JSON text that comes from outside, exactly or not at all.

    Integers of any size are exact, of a repeated member the last one counts, and `$yukta` has no
    meaning here: it is a name like any other.

    Raises:
        BadRequestError: code `malformed_json`: not JSON (also a bare NaN or Infinity, a number
            that only infinity could stand for, half a surrogate pair); `pointer` names the place.
        UnserialisablePayloadError: JSON, but nested deeper than `MAX_INPUT_DEPTH`, or with an
            integer of more than 4300 digits; `pointer` names the place.
    """
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError:
            _refuse_text(data, "the text holds half of a surrogate pair", MAX_INPUT_DEPTH)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if not _LONG_DIGITS.search(data):
            _refuse_text(data, str(error), MAX_INPUT_DEPTH)
        # An integer beyond the range of floats stops the fast parser; nothing else is excused.
        return _loads_exactly(data, str(error))
    if _may_be_deep(data) and _deeper_than(value, MAX_INPUT_DEPTH):
        _refuse_text(data, "nested too deep", MAX_INPUT_DEPTH)
    if _LONG_DIGITS.search(data):
        return _loads_exactly(data, "")
    return value


def _fast(value: Any) -> bytes | None:
    """Return the text if orjson's own reading of it equals the value, and needs no tag."""
    try:
        data = orjson.dumps(value, None, _OPTIONS)
        kept = data.find(_TAG) < 0 and orjson.loads(data) == value
    except (TypeError, ValueError, RecursionError):
        return None
    return _compact(data) if kept else None


def _slow(value: Any, *, plain: bool = False, sort: bool = False) -> bytes:
    try:
        return write(value, max_depth=MAX_DEPTH, plain=plain, sort=sort)
    except Unserialisable as refusal:
        pointer = json_pointer(refusal.path)
        detail = f"{pointer or 'the value'}: {refusal}"
        raise UnserialisablePayloadError(detail, pointer=pointer) from None


def _may_be_deep(data: bytes) -> bool:
    return data.count(b"[") + data.count(b"{") > MAX_INPUT_DEPTH


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) in _CONTAINERS
        ]
        if not level:
            return False
    return True


def _loads_exactly(data: bytes, complaint: str) -> Any:
    """Read with the standard parser, which knows integers of any size.

    `complaint` is what the fast parser said; with one, nothing about the text is known yet.
    """
    unknown = bool(complaint) and (_may_be_deep(data) or _SURROGATE_ESCAPE.search(data))
    if unknown and find_fault(data.decode("utf-8", "replace"), MAX_INPUT_DEPTH):
        _refuse_text(data, complaint, MAX_INPUT_DEPTH)
    try:
        return json.loads(data.decode(), parse_float=_finite, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        _refuse_text(data, complaint or str(error), MAX_INPUT_DEPTH)


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large for a 64-bit float")
    return number


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _refuse_text(data: bytes | str, complaint: str, max_depth: int) -> NoReturn:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    fault = find_fault(text, max_depth)
    if fault is None:
        raise BadRequestError(f"not JSON: {complaint}", code="malformed_json", pointer="")
    detail = f"{fault.pointer or 'the document'}: {fault.detail}"
    if fault.is_json:
        raise UnserialisablePayloadError(detail, pointer=fault.pointer)
    raise BadRequestError(f"not JSON: {detail}", code="malformed_json", pointer=fault.pointer)
