"""Reads records from a file, one at a time: jsonl, csv or lines of text.

Memory is bounded by the longest line. A record that cannot be read is given as a BadLine, and
reading goes on behind it.  Feature: ENG-01.
"""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from yukta_rx.errors import BadInputError, YuktaError
from yukta_rx.model.codec import loads_external

MAX_LINE: Final = 1024 * 1024
"""Bytes of a line at most, without its newline."""

_TOO_LONG: Final = f"longer than {MAX_LINE} bytes"


@dataclass(frozen=True, slots=True)
class BadLine:
    """Stands for a record that cannot be read, and says why."""

    detail: str


Records = Iterator[tuple[int, Any]]
"""Number of the line, from 1, and the record or a BadLine."""


def jsonl_records(file: BinaryIO) -> Records:
    """Yield one JSON value per line; empty lines are passed over."""
    for number, line in _lines(file):
        if line is None:
            yield number, BadLine(_TOO_LONG)
        elif line.strip():
            try:
                yield number, loads_external(line)
            except YuktaError as error:
                yield number, BadLine(error.detail)


def text_records(file: BinaryIO) -> Records:
    """Yield each line as text, without its newline."""
    for number, line in _lines(file):
        if line is None:
            yield number, BadLine(_TOO_LONG)
            continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            yield number, BadLine(_not_utf8(error))


def csv_records(file: BinaryIO) -> Records:
    """Yield one object per row, its members named by the first row, its values text.

    As `csv.DictReader`: empty rows are passed over, and what a short row lacks is null. A row
    with more values than the first one has names is bad, since no name is left for them.

    Raises:
        BadInputError: the names are not usable, or a line is too long to find its end.
    """
    source = _CsvLines(file)
    reader = csv.reader(source, strict=True)
    names: list[str] | None = None
    while True:
        number = reader.line_num + 1
        source.fault = None
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, BadLine(str(error))
            continue
        if names is None:
            names = _names(row, source.fault)
        elif source.fault:
            yield number, BadLine(source.fault)
        elif len(row) > len(names):
            yield number, BadLine(f"{len(row)} values for {len(names)} columns")
        elif row:
            row += [None] * (len(names) - len(row))  # type: ignore[list-item]
            yield number, dict(zip(names, row, strict=True))


def csv_columns(file: BinaryIO) -> list[str]:
    """Return the names in the first row of a CSV file, none if it is empty.

    Raises:
        BadInputError: that row names no columns.
    """
    source = _CsvLines(file)
    try:
        row = next(csv.reader(source, strict=True), None)
    except csv.Error as error:
        raise BadInputError(f"line 1: {error}") from error
    return [] if row is None else _names(row, source.fault)


READERS: Final[dict[str, Callable[[BinaryIO], Records]]] = {
    "jsonl": jsonl_records,
    "csv": csv_records,
    "text": text_records,
}


def _lines(file: BinaryIO, *, keep_ends: bool = False) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line, None for one that is too long."""
    if file.read(len(BOM_UTF8)) != BOM_UTF8:
        file.seek(0)
    number = 0
    while line := file.readline(MAX_LINE + 2):
        number += 1
        bare = line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
        if len(bare) <= MAX_LINE:
            yield number, line if keep_ends else bare
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE)
        yield number, None


class _CsvLines:
    """The lines of a CSV file as text; `fault` says whether one since its reset is not UTF-8."""

    def __init__(self, file: BinaryIO) -> None:
        self.fault: str | None = None
        self._lines = _lines(file, keep_ends=True)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        if line is None:
            # Where this record ends is unknown, so what follows could be misread: no skipping.
            raise BadInputError(f"line {number}: {_TOO_LONG}")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self.fault = _not_utf8(error)
            return line.decode(errors="replace")


def _names(row: list[str], fault: str | None) -> list[str]:
    if fault:
        raise BadInputError(f"line 1: {fault}")
    if not row:
        raise BadInputError("line 1: no column names")
    if twice := sorted({name for name in row if row.count(name) > 1}):
        raise BadInputError(f"line 1: the column name `{twice[0]}` is there twice")
    return row


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"not UTF-8 (byte 0x{error.object[error.start]:02x} at column {error.start + 1})"
