"""Structs as rows of JSON with names in camelCase, and back. Feature: DUR-05."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from yukta_rx.model.codec import Blob
from yukta_rx.model.times import exact
from yukta_rx.model.workflow import WorkflowDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping

S = TypeVar("S", bound=msgspec.Struct)


def to_row(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as a row; members that are None are left out, payloads stay as they are."""
    names = _names(type(value))
    return {
        column: _plain(found)
        for name, column in names.items()
        if (found := getattr(value, name)) is not None
    }


def from_row(kind: type[S], row: Mapping[str, Any]) -> S:
    """Return the struct of a row; members that this version does not know are passed over.

    Raises:
        msgspec.ValidationError: it is none; says at which member.
    """
    return msgspec.convert(_given(kind, row), kind, dec_hook=_special)


def _given(kind: type[msgspec.Struct], row: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: row[column] for name, column in _names(kind).items() if column in row}
    for name, inner in _inner(kind).items():
        if isinstance(given.get(name), dict):
            given[name] = _given(inner, given[name])
    return given


def _plain(value: Any) -> Any:
    match value:
        case Blob():
            # A payload, or what stands for one.
            return value
        case datetime():
            return exact(value)
        case msgspec.Struct():
            return to_row(value)
        case WorkflowDefinition():
            return value.as_document()
        case Path() | Enum():
            return str(value)
    return value


def _special(kind: type[Any], value: Any) -> Any:
    if kind is WorkflowDefinition:
        return WorkflowDefinition.model_validate(value, by_alias=True, by_name=False)
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)


@cache
def _names(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {name: _camel(name) for name in kind.__struct_fields__}


@cache
def _inner(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The members that are structs themselves."""
    return {
        field.name: one
        for field in msgspec.structs.fields(kind)
        for one in (field.type, *get_args(field.type))
        if isinstance(one, type) and issubclass(one, msgspec.Struct)
    }


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
