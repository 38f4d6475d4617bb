"""Columns of many rows as arguments of one statement: each the text of an array.

The driver looks at every element of an array that it is given, which costs more than the rest of a
write; of a text it does not. A statement says `$3::text::bigint[]` where it would say
`$3::bigint[]`. Long texts are another matter: there are few of them, and quoting them costs more.

Feature: DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.model.times import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime


def texts(values: Iterable[str]) -> str:
    """An array of texts, which are not None."""
    quoted = '","'.join([one.replace("\\", "\\\\").replace('"', '\\"') for one in values])
    return f'{{"{quoted}"}}'


def texts_or_none(values: Iterable[str | None]) -> str:
    """An array of texts, some of which may be None."""
    return f"{{{','.join([_text(one) for one in values])}}}"


def _text(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def long_texts(values: Iterable[str]) -> list[str]:
    """An array of texts of which most are long, as the driver takes it: `$3::text[]`."""
    return list(values)


def numbers(values: Iterable[int]) -> str:
    """An array of whole numbers."""
    return f"{{{','.join(map(str, values))}}}"


def times(values: Iterable[datetime | None]) -> str:
    """An array of aware times, some of which may be None."""
    return f"{{{','.join(['NULL' if one is None else exact(one) for one in values])}}}"


def flags(values: Iterable[bool]) -> str:
    """An array of truth values."""
    return f"{{{','.join(['t' if one else 'f' for one in values])}}}"


EMPTY: Final = "{}"


def arrays(rows: Sequence[tuple[Any, ...]], *kinds: Callable[[Iterable[Any]], Any]) -> list[Any]:
    """Rows as one array for each of their columns, as `unnest` takes them."""
    if not rows:
        return [[] if kind is long_texts else EMPTY for kind in kinds]
    return [kind(column) for kind, column in zip(kinds, zip(*rows, strict=True), strict=True)]
