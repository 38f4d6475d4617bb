"""Dotted paths into a payload: `items`, `box.v`, `rows.0.name`; empty is the payload itself."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from yukta_rx.errors import BadInputError

_SCALARS = {"str": "text", "int": "a number", "float": "a number", "bool": "true or false"}


def check_path(path: str) -> str:
    """Return the path if it is well formed.

    Raises:
        ValueError: it has an empty part, or an expression in it.
    """
    if "${" in path:
        raise ValueError(f"the path `{path}` holds an expression; a path is fixed text")
    segments(path)
    return path


@lru_cache(maxsize=4096)
def segments(path: str) -> tuple[str, ...]:
    """Return the parts of a path.

    Raises:
        BadInputError: one of them is empty.
    """
    if path == "":
        return ()
    parts = tuple(path.split("."))
    if "" in parts:
        raise BadInputError(f"the path `{path}` has an empty part")
    return parts


def look_up(payload: Any, path: str) -> Any:
    """Return what stands at `path`.

    Raises:
        BadInputError: nothing does; names the part that is missing.
    """
    value = payload
    for depth, part in enumerate(segments(path)):
        try:
            value = value[part] if isinstance(value, dict) else value[index_in(value, part)]
        except (LookupError, TypeError):
            above = ".".join(segments(path)[:depth])
            where = f"`{above}`" if above else "the payload"
            raise BadInputError(
                f"no `{path}` in the payload: {where} is {kind_of(value)} without `{part}`"
            ) from None
    return value


def array_at(payload: Any, path: str) -> list[Any]:
    """Return the array at `path`.

    Raises:
        BadInputError: there is nothing, or something else.
    """
    value = look_up(payload, path)
    if not isinstance(value, list | tuple):
        where = f"`{path}` in the payload" if path else "the payload"
        raise BadInputError(f"{where} is {kind_of(value)}, not an array")
    return list(value)


def index_in(value: Any, part: str) -> int:
    """Return `part` as an index of an array.

    Raises:
        TypeError: `value` is no array, or `part` no index.
    """
    if not isinstance(value, list | tuple) or not (part.isascii() and part.isdigit()):
        raise TypeError
    return int(part)


def kind_of(value: Any) -> str:
    """Return the JSON word for a value's type, for error texts."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    return _SCALARS.get(type(value).__name__, f"a {type(value).__name__}")
