"""Reads one value of a setting, from text or from TOML, and says what it expected instead."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, NewType, Union, get_args, get_origin

from pydantic import AwareDatetime, SecretStr

ByteSize = NewType("ByteSize", int)
"""A number of bytes, written as `4MiB`, `500kB` or a plain number."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(\d+)\s*([kKMGT]i?)?[bB]?")
_SIZE_FACTOR = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "ki": 2**10,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class ExpectedError(ValueError):
    """A value is not of the kind that is wanted; the text says which kind that is."""


def parse(kind: Any, raw: object, *, text: bool) -> Any:
    """Return `raw` as a value of `kind`.

    Args:
        kind: a type as written on a settings field: bool, int, float, str, SecretStr, Path,
            timedelta, AwareDatetime, ByteSize, an Enum, `X | None`, `tuple[X, ...]` or
            `Mapping[str, X]`.
        raw: what was written.
        text: True when all there is is text (a variable), False for TOML with types of its own.

    Raises:
        ExpectedError: it cannot be read so; the message is what was expected.
    """
    if _is_optional(kind):
        return parse(_present(kind), raw, text=text)
    if kind is ByteSize:
        return parse_size(raw)
    if get_origin(kind) is tuple:
        return _parse_list(get_args(kind)[0], raw, text=text)
    if get_origin(kind) is Mapping:
        return _parse_map(get_args(kind)[1], raw, text=text)
    if kind is timedelta:
        return parse_duration(raw)
    if kind is AwareDatetime:
        return parse_time(raw)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return parse_choice(kind, raw)
    return _parse_scalar(kind, raw, text=text)


def parse_duration(raw: object) -> timedelta:
    """Read `15s`, `500ms`, `1h30m`; a bare 0 means off, any other number needs its unit."""
    expected = "expected a duration with a unit, such as 500ms, 15s, 10m or 1h30m, or 0 for off"
    if raw == 0 and not isinstance(raw, bool):
        return timedelta(0)
    if not isinstance(raw, str):
        raise ExpectedError(expected)
    word = raw.strip().replace(" ", "")
    if word == "0":
        return timedelta(0)
    parts = _DURATION.findall(word)
    if not parts or "".join(number + unit for number, unit in parts) != word:
        raise ExpectedError(expected)
    try:
        return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    except OverflowError:
        raise ExpectedError("expected a duration below 999999999 days") from None


def parse_time(raw: object) -> datetime:
    """Read an RFC 3339 time, or a time of TOML's own; it has to say its zone."""
    try:
        time = raw if isinstance(raw, datetime) else datetime.fromisoformat(str(raw).strip())
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        raise ExpectedError("expected a time with its zone, such as 2026-12-31T23:59:00Z")
    return time


def show_duration(value: timedelta) -> str:
    """Write a duration the way `parse_duration` reads it: `1h30m`, `500ms`, `0`."""
    left = round(value.total_seconds() * 1000)
    words = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0"


def parse_size(raw: object) -> int:
    """Read `1MiB`, `500kB`, `4096`: a number of bytes; `k` is 1000 and `Ki` is 1024."""
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0:
        return raw
    match = _SIZE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is None:
        raise ExpectedError("expected a size such as 1MiB, 500kB or a plain number of bytes")
    return int(match[1]) * _SIZE_FACTOR[match[2] or ""]


def show_size(value: int) -> str:
    """Write a size the way `parse_size` reads it, with the largest unit that divides it."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if value and value % _SIZE_FACTOR[unit] == 0:
            return f"{value // _SIZE_FACTOR[unit]}{unit}B"
    return str(value)


def choices(kind: type[Enum]) -> tuple[str, ...]:
    """Return the words that a choice is written with."""
    return tuple(str(member.value) for member in kind)


def _parse_path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ExpectedError("expected a path; nobody's home is known by that name") from None


def parse_choice(kind: type[Enum], raw: object) -> Enum:
    """Read one of the words of an enum; case does not matter."""
    if isinstance(raw, str):
        word = raw.strip().lower()
        for member in kind:
            if word == str(member.value).lower():
                return member
        # An enum may know further spellings of its members (`_missing_`).
        try:
            return kind(word)
        except ValueError:
            pass
    raise ExpectedError(f"expected one of {', '.join(choices(kind))}")


def _parse_scalar(kind: Any, raw: object, *, text: bool) -> Any:
    match kind:
        case _ if kind is bool:
            return _parse_bool(raw, text=text)
        case _ if kind is int:
            return _parse_int(raw, text=text)
        case _ if kind is str and isinstance(raw, str):
            return raw
        case _ if kind is SecretStr and isinstance(raw, str):
            return SecretStr(raw)
        case _ if kind is Path and isinstance(raw, str) and raw.strip() and "\0" not in raw:
            return _parse_path(raw.strip())
    expected = {str: "a text", SecretStr: "a text", Path: "a path"}.get(kind)
    if expected is None:
        raise TypeError(f"settings of kind {kind} are not supported")
    raise ExpectedError(f"expected {expected}")


def _parse_bool(raw: object, *, text: bool) -> bool:
    if isinstance(raw, bool):
        return raw
    if text and isinstance(raw, str) and raw.strip().lower() in _TRUE | _FALSE:
        return raw.strip().lower() in _TRUE
    raise ExpectedError("expected true or false")


def _parse_int(raw: object, *, text: bool) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if text and isinstance(raw, str) and re.fullmatch(r"[+-]?\d{1,30}", raw.strip()):
        return int(raw)
    raise ExpectedError("expected a whole number")


def _parse_list(kind: Any, raw: object, *, text: bool) -> tuple[Any, ...]:
    if text and isinstance(raw, str):
        raw = [part.strip() for part in raw.split(",") if part.strip()]
    if not isinstance(raw, list | tuple):
        raise ExpectedError("expected a list")
    return tuple(parse(kind, item, text=text) for item in raw)


def _parse_map(kind: Any, raw: object, *, text: bool) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise ExpectedError("expected a table")
    return {str(name): parse(kind, value, text=text) for name, value in raw.items()}


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def _present(kind: Any) -> Any:
    return next(part for part in get_args(kind) if part is not type(None))
