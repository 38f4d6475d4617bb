"""The slow, exact way of the codec: writes and reads values that JSON has no word for.

Iterative in both directions: depth costs memory, never stack.

Feature: DUR-04.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

KEY = "$yukta"
"""The reserved member name of a tag."""

_INT64 = range(-(2**63), 2**64)


class Blob(msgspec.Struct, frozen=True):
    """Stands for a payload that is kept elsewhere.

    Attributes:
        sha256: hex digest of the kept bytes.
        size: their number.
    """

    sha256: str
    size: int


class Unserialisable(Exception):
    """A value that cannot be written, at `path`."""

    def __init__(self, detail: str, path: list[str | int]) -> None:
        super().__init__(detail)
        self.path = path


class TagError(ValueError):
    """A tag that cannot be read, at `path`."""

    def __init__(self, detail: str, path: list[str | int]) -> None:
        super().__init__(detail)
        self.path = path


# --- writing -------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """One step inside a container: what to write around a child, and the child's key."""

    key: str | int
    before: str
    child: Any
    after: str


class _Frame(NamedTuple):
    parts: Iterator[_Part]
    close: str


class _Refused(Exception):
    pass


def write(value: Any, *, max_depth: int, plain: bool, sort: bool) -> bytes:
    """Return a value as JSON text with tags.

    Args:
        value: the value.
        max_depth: how many containers may stand inside one another.
        plain: write integers of any size as digits and NUL as an escape, not as tags.
        sort: write members in the order of their names.

    Raises:
        Unserialisable: some part cannot be written.
    """
    out: list[str] = []
    frames: list[_Frame] = []
    path: list[str | int] = []
    after: list[str] = []
    try:
        _begin(value, out, frames, max_depth, plain, sort)
        while frames:
            if len(path) == len(frames):
                out.append(after.pop())
                path.pop()
            part = next(frames[-1].parts, None)
            if part is None:
                out.append(frames.pop().close)
                continue
            path.append(part.key)
            after.append(part.after)
            out.append(part.before)
            _begin(part.child, out, frames, max_depth, plain, sort)
        return "".join(out).encode()
    except _Refused as refused:
        raise Unserialisable(str(refused), path) from None


def _begin(
    value: Any, out: list[str], frames: list[_Frame], max_depth: int, plain: bool, sort: bool
) -> None:
    """Write a scalar whole, or the start of a container whose frame goes on the stack."""
    if isinstance(value, (list, tuple, Mapping)):
        if len(frames) == max_depth:
            raise _Refused(f"nested deeper than {max_depth} levels, or holding itself")
        out.append(_opened(value, frames, plain, sort))
    else:
        out.append(_scalar(value, plain))


def _opened(value: Any, frames: list[_Frame], plain: bool, sort: bool) -> str:
    if isinstance(value, Mapping):
        return _opened_object(value, frames, plain, sort)
    frames.append(_Frame(_elements(value), "]}" if isinstance(value, tuple) else "]"))
    return _opening("tuple") + "[" if isinstance(value, tuple) else "["


def _opened_object(value: Mapping[Any, Any], frames: list[_Frame], plain: bool, sort: bool) -> str:
    for key in value:
        if not isinstance(key, str):
            raise _Refused(f"the key {_shown(key)} is {_a(type(key).__name__)}; keys must be text")
    keys = sorted(value) if sort else list(value)
    if not plain and any("\0" in key for key in keys):
        # A key with NUL is text that needs a tag, so the members become pairs.
        frames.append(_Frame(_pairs(value, keys, plain), "]}"))
        return _opening("object") + "["
    tagged = KEY in value
    frames.append(_Frame(_members(value, keys), "}}" if tagged else "}"))
    return _opening("object") + "{" if tagged else "{"


def _opening(kind: str) -> str:
    return f'{{"{KEY}":"{kind}","v":'


def _elements(value: list[Any] | tuple[Any, ...]) -> Iterator[_Part]:
    for index, child in enumerate(value):
        yield _Part(index, "," if index else "", child, "")


def _members(value: Mapping[str, Any], keys: list[str]) -> Iterator[_Part]:
    for index, key in enumerate(keys):
        yield _Part(key, f"{',' if index else ''}{_quoted(key)}:", value[key], "")


def _pairs(value: Mapping[str, Any], keys: list[str], plain: bool) -> Iterator[_Part]:
    for index, key in enumerate(keys):
        yield _Part(key, f"{',[' if index else '['}{_text(key, plain)},", value[key], "]")


def _scalar(value: Any, plain: bool) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    writer = _SCALARS.get(type(value))
    if writer is not None:
        return writer(value, plain)
    for kind, writer in _SCALARS.items():
        if isinstance(value, kind):
            return writer(value, plain)
    if type(blob := getattr(value, "__blob__", None)) is Blob:
        return _SCALARS[Blob](blob, plain)
    raise _Refused(f"{_a(type(value).__name__)} cannot be stored or sent as JSON")


def _text(value: str, plain: bool) -> str:
    value = str.__str__(value)
    if "\0" in value and not plain:
        return _tag("text", b64encode(_utf8(value)).decode())
    return _quoted(value)


def _quoted(value: str) -> str:
    _utf8(value)
    # Written as orjson does: only what must be escaped is.
    return encode_basestring(str.__str__(value))


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _Refused("text holds half of a surrogate pair, which is no character") from None


def _integer(value: int, plain: bool) -> str:
    value = int(value)
    try:
        digits = str(value)
    except ValueError:
        raise _Refused("an integer of more than 4300 digits") from None
    return digits if plain or value in _INT64 else _tag("int", digits)


def _float(value: float, plain: bool) -> str:
    number = float.__float__(value)
    if math.isfinite(number):
        return repr(number)
    return _tag("float", repr(number))


def _tag(kind: str, text: str) -> str:
    return f"{_opening(kind)}{encode_basestring(text)}}}"


_SCALARS: dict[type, Callable[[Any, bool], str]] = {
    str: _text,
    int: _integer,
    float: _float,
    bytes: lambda value, plain: _tag("bytes", b64encode(value).decode()),
    Decimal: lambda value, plain: _tag("decimal", str(value)),
    # A datetime is a date as well, so it comes first.
    datetime: lambda value, plain: _tag("datetime", value.isoformat()),
    date: lambda value, plain: _tag("date", value.isoformat()),
    time: lambda value, plain: _tag("time", value.isoformat()),
    timedelta: lambda value, plain: (
        f"{_opening('timedelta')}[{value.days},{value.seconds},{value.microseconds}]}}"
    ),
    UUID: lambda value, plain: _tag("uuid", str(value)),
    Blob: lambda value, plain: (
        f'{_opening("blob")}{{"sha256":{_quoted(value.sha256)},"size":{int(value.size)}}}}}'
    ),
}


# --- reading -------------------------------------------------------------------------------------

_READERS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "decimal": Decimal,
    "float": float,
    "bytes": lambda v: b64decode(v, validate=True),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda v: timedelta(*v),
    "uuid": UUID,
    "tuple": tuple,
    "text": lambda v: b64decode(v, validate=True).decode(),
    "blob": lambda v: msgspec.convert(v, Blob, strict=True),
    "object": dict,
}
_CONTAINER_KINDS: dict[str, tuple[type, ...]] = {
    "tuple": (list,),
    "timedelta": (list,),
    "object": (dict, list),
    "blob": (dict,),
}


class _Slot(NamedTuple):
    """A container or tag, and where the value that it stands for goes."""

    holder: Any
    key: Any
    node: Any
    kind: str | None
    parent: int


def untag(value: Any) -> Any:
    """Return the value that parsed JSON with tags stands for; the parsed value is used up.

    Raises:
        TagError: a tag is not one that `write` makes.
    """
    root = [value]
    slots: list[_Slot] = []
    pending: list[tuple[Any, Any, int]] = [(root, 0, -1)]
    while pending:
        holder, key, parent = pending.pop()
        node = holder[key]
        if type(node) is list:
            slots.append(_Slot(holder, key, node, None, parent))
            pending.extend(_inside(node, len(slots) - 1))
        elif type(node) is dict:
            kind = _kind(node, slots, key, parent) if KEY in node else None
            slots.append(_Slot(holder, key, node, kind, parent))
            if kind in ("tuple", "object"):
                node = node["v"]
            elif kind is not None:
                continue
            pending.extend(_inside(node, len(slots) - 1))
    # Parents were found before their children, so backwards every child is ready first.
    for slot in reversed(slots):
        if slot.kind is not None:
            slot.holder[slot.key] = _read(slot, slots)
    return root[0]


def _inside(node: Any, parent: int) -> list[tuple[Any, Any, int]]:
    items = node.items() if type(node) is dict else enumerate(node)
    return [(node, key, parent) for key, child in items if type(child) in (dict, list)]


def _kind(node: dict[str, Any], slots: list[_Slot], key: Any, parent: int) -> str:
    kind, path = node[KEY], [*_path(slots, parent), key] if parent >= 0 else []
    if len(node) != 2 or "v" not in node:
        raise TagError(f"a tag has the members {KEY} and v and no other", path)
    if not isinstance(kind, str) or kind not in _READERS:
        raise TagError(f"there is no tag {_shown(kind)}", path)
    expected = _CONTAINER_KINDS.get(kind, (str,))
    if not isinstance(node["v"], expected):
        raise TagError(f"the tag {kind} cannot hold {_a(type(node['v']).__name__)}", path)
    return kind


def _read(slot: _Slot, slots: list[_Slot]) -> Any:
    kind, held = str(slot.kind), slot.node["v"]
    try:
        return _READERS[kind](held)
    except (ValueError, TypeError, ArithmeticError) as error:
        path = [*_path(slots, slot.parent), slot.key] if slot.parent >= 0 else []
        raise TagError(f"the tag {kind} cannot hold {_shown(held)}", path) from error


def _path(slots: list[_Slot], index: int) -> list[str | int]:
    keys: list[str | int] = []
    while index >= 0:
        slot = slots[index]
        if slot.parent >= 0:
            keys.append(slot.key)
        index = slot.parent
    return keys[::-1]


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _a(name: str) -> str:
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"
