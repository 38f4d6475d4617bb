"""Reads one `${...}`: namespace, path, type and default.

    ${payload.order.items.0.sku}   ${metadata.trace}   ${payload.secs:int=30}   ${id}
    ${payload.tags:json=["new"]}   ${env.HOME}         ${decrypted:mailbox}

Feature: SEC-02.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID

from yukta_rx.errors import BadInputError, YuktaError
from yukta_rx.model.codec import dumps_plain, loads_external
from yukta_rx.security.environment import looks_secret
from yukta_rx.security.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACES: Final = ("payload", "metadata", "headers", "context", "env", "sys", "id")
SECRET: Final = "decrypted"
TYPES: Final = ("text", "int", "number", "bool", "json")

_HEAD = re.compile(r"[^:=}]*+")
_TYPE = re.compile(r":([^=}]*+)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,5})?")
_SHOWN = 80


class _Required:
    """Says that there is no default; None is a default like any other."""


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One expression, read but not resolved.

    Attributes:
        text: as it is written, for error texts.
        namespace: where it looks; `decrypted` for a secret.
        path: the rest of its name, empty for the whole payload or the id.
        keys: the path cut at its dots.
        type: what its value becomes.
        default: the value to use when there is none, or `REQUIRED`.
    """

    text: str
    namespace: str
    path: str
    keys: tuple[str, ...]
    type: str
    default: Any

    def convert(self, value: Any) -> Any:
        """Return a value as this expression's type.

        Raises:
            BadInputError: it is not of that type and cannot be read as it; names the expression.
        """
        try:
            return CONVERSIONS[self.type](value)
        except _NotThatError as error:
            raise BadInputError(
                f"`{self.text}` is {error}, which is not {_NOUNS[self.type]}", expression=self.text
            ) from None
        except YuktaError as error:
            detail = f"`{self.text}` cannot be written as text: {error.detail}"
            raise BadInputError(detail, expression=self.text) from error


def parse(source: str, start: int) -> tuple[Placeholder, int]:
    """Read the expression that begins with `${` at `start`.

    Returns:
        The expression and the place behind its closing brace.

    Raises:
        BadInputError: it is malformed; names it and says why.
    """
    head = _HEAD.match(source, start + 2)
    at = head.end() if head else start + 2
    name = source[start + 2 : at].strip()
    if name == SECRET and source.startswith(":", at):
        return _secret(source, start, at)
    kind = "text"
    declared = _TYPE.match(source, at)
    if declared:
        kind, at = declared.group(1).strip(), declared.end()
        if kind not in TYPES:
            _refuse(source, start, at, f"there is no type `{kind}`{_suggest(kind, TYPES)}")
    raw, end = _default(source, start, at, kind)
    text = source[start:end]
    namespace, _, path = name.partition(".")
    _check_name(source, start, end, namespace, path)
    keys = tuple(path.split(".")) if path else ()
    placeholder = Placeholder(text, namespace, path, keys, kind, REQUIRED)
    if raw is None:
        return placeholder, end
    default = _read_default(placeholder, raw)
    return Placeholder(text, namespace, path, keys, kind, default), end


def _secret(source: str, start: int, at: int) -> tuple[Placeholder, int]:
    end = source.find("}", at)
    if end < 0:
        _refuse(source, start, len(source), "the closing } is missing")
    name = source[at + 1 : end].strip()
    if not is_secret_name(name):
        _refuse(source, start, end + 1, "a secret's name is letters, digits, and . _ -")
    text = source[start : end + 1]
    return Placeholder(text, SECRET, name, (name,), "text", REQUIRED), end + 1


def _default(source: str, start: int, at: int, kind: str) -> tuple[str | None, int]:
    """Return the default as written, None without one, and the place behind the brace."""
    if source.startswith("=", at):
        if kind == "json":
            return _json_default(source, start, at + 1)
        end = source.find("}", at)
        if end >= 0:
            return source[at + 1 : end], end + 1
    elif source.startswith("}", at):
        return None, at + 1
    _refuse(source, start, len(source), "the closing } is missing")


def _json_default(source: str, start: int, at: int) -> tuple[str, int]:
    # A JSON default may hold braces of its own, so its end is found by reading it.
    try:
        _, end = json.JSONDecoder().raw_decode(source, at)
    except (ValueError, RecursionError):
        _refuse(source, start, len(source), "the default is not JSON")
    if not source.startswith("}", end):
        _refuse(source, start, end, "the closing } does not follow the default")
    return source[at:end], end + 1


def _check_name(source: str, start: int, end: int, namespace: str, path: str) -> None:
    if namespace not in NAMESPACES:
        if not namespace:
            _refuse(source, start, end, f"it names nothing; begin with {_listed(NAMESPACES)}")
        hint = _suggest(namespace, NAMESPACES) or f"; there is {_listed(NAMESPACES)}"
        _refuse(source, start, end, f"there is no `{namespace}` to read{hint}")
    if namespace == "id":
        if path:
            _refuse(source, start, end, "the id has no members")
    elif not path:
        if namespace != "payload":
            _refuse(source, start, end, f"say what to read of {namespace}: `{namespace}.name`")
    elif namespace in ("env", "sys"):
        if looks_secret(path):
            advice = "it looks like a secret, and those are never read; write `decrypted:name`"
            _refuse(source, start, end, advice)
    elif "" in path.split("."):
        _refuse(source, start, end, "its path has an empty part between dots")
    elif namespace == "context" and path.partition(".")[0] == "yukta":
        _refuse(source, start, end, "what is named yukta.* belongs to the engine")


def _read_default(placeholder: Placeholder, raw: str) -> Any:
    if placeholder.type == "text":
        return raw
    try:
        value = loads_external(raw) if placeholder.type == "json" else raw.strip()
    except YuktaError as error:
        detail = f"`{placeholder.text}`: the default is not usable: {error.detail}"
        raise BadInputError(detail, expression=placeholder.text) from None
    try:
        return CONVERSIONS[placeholder.type](value)
    except _NotThatError:
        detail = f"`{placeholder.text}`: the default is not {_NOUNS[placeholder.type]}"
        raise BadInputError(detail, expression=placeholder.text) from None


def _refuse(source: str, start: int, end: int, why: str) -> NoReturn:
    text = source[start : min(end, start + _SHOWN)]
    raise BadInputError(f"`{text}`: {why}", expression=text)


def _suggest(word: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + " or " + words[-1]


# --- what a value becomes ------------------------------------------------------------------------


class _NotThatError(Exception):
    pass


_NOUNS = {
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "text": "text",
    "json": "JSON",
}


def as_text(value: Any) -> str:
    """Return a string as it is, anything else as its JSON text (`3`, `true`, `null`, `[1]`)."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return dumps_plain(value).decode()


def _as_int(value: Any) -> int:
    if isinstance(value, str):
        if _WHOLE.fullmatch(value):
            return int(value)
    elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        try:
            whole = int(value)
        except (ValueError, OverflowError, ArithmeticError):
            raise _NotThatError(describe(value)) from None
        if whole == value:
            return whole
    raise _NotThatError(describe(value))


def _as_number(value: Any) -> int | float:
    if isinstance(value, str):
        if _WHOLE.fullmatch(value):
            return int(value)
        number = float(value) if _NUMBER.fullmatch(value) else float("inf")
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    elif isinstance(value, (float, Decimal)):
        number = float(value)
    else:
        raise _NotThatError(describe(value))
    if number - number != 0:
        raise _NotThatError(describe(value))
    return number


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _NotThatError(describe(value))


CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "text": as_text,
    "int": _as_int,
    "number": _as_number,
    "bool": _as_bool,
    "json": lambda value: value,
}


def describe(value: object) -> str:
    """Return a value for an error text: what it is, and a little of it."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:37] + '...'!a}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"the number {value!r}"
    if isinstance(value, int):
        # The digits of a huge one could fill pages, or be refused.
        return f"the number {value}" if abs(value) < 10**20 else "a very large number"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    return f"a {type(value).__name__}"
