"""Scan: reads the files of a segment log, and tells a torn write from damage.

Feature: DUR-02.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from yukta_rx.durability.file._checkpoint_lines import (
    FORMAT,
    GROUP_LINE,
    SEGMENT,
    Head,
    head_of,
    intact,
)
from yukta_rx.durability.file._folder import unavailable
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

SUFFIX: Final = ".jsonl"
CHUNK: Final = 1 << 20
"""Bytes that are read at a time."""

_GROUP: Final = GROUP_LINE[:-1]

Take: TypeAlias = "Callable[[int, int, int, Head], None]"
"""Number of the file, where the line begins, its size with the newline, what it says."""

Damaged: TypeAlias = "Callable[[int, int, bytes], None]"
"""Number of the file, where the line begins, the line."""


class _Line(NamedTuple):
    start: int
    text: bytes
    head: Head | None


def name_of(number: int) -> str:
    """The name of a file of the log."""
    return f"{number:08d}{SUFFIX}"


def numbers_in(folder: Path) -> list[int]:
    """The files of a log, in their order. Blocks."""
    return sorted(int(path.stem) for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal())


class Scan:
    """One reading of all files; blocks.

    Args:
        take: gets every line that is intact.
        damaged: gets every line that is not, although it was durable once.
        sized: gets the number of each file, and the size of what is good in it.
    """

    def __init__(self, take: Take, damaged: Damaged, sized: Callable[[int, int], None]) -> None:
        self._take = take
        self._damaged = damaged
        self._sized = sized
        self.torn = 0
        """Files with an unfinished write at their end."""

    def run(self, folder: Path) -> tuple[int, int, tuple[int, int] | None]:
        """Number and good size of the last file, and what it follows; 0 if there is none.

        Raises:
            StoreUnavailableError: a file cannot be read, or is of a newer version.
        """
        numbers = numbers_in(folder)
        number, size, after = 0, 0, None
        for place, number in enumerate(numbers):
            path = folder / name_of(number)
            after = (numbers[place - 1], size) if place else None
            known = None
            if place + 1 < len(numbers):
                known = _told_by(folder / name_of(numbers[place + 1]), number)
            try:
                size = self._file(path, number, known)
            except OSError as error:
                raise unavailable(path, "cannot be read", error) from error
            self._sized(number, size)
        return number, size, after

    def _file(self, path: Path, number: int, known: int | None) -> int:
        """Give away what is good in a file; the size of that."""
        held: list[_Line] = []
        end = 0
        fd = os.open(path, os.O_RDONLY)
        try:
            for start, text in _lines(fd, known):
                whole = text.endswith(b"\n")
                line = text[:-1] if whole else text
                end = start + len(text)
                if line == _GROUP and whole:
                    self._deliver(number, held)
                    continue
                head = head_of(line) if whole and intact(line) else None
                if head is None or held:
                    held.append(_Line(start, line, head))
                elif head.kind != SEGMENT:
                    self._take(number, start, len(text), head)
                elif head.format > FORMAT:
                    raise StoreUnavailableError(
                        f"{path}: was written by a newer version, in format {head.format}; this"
                        f" one reads {FORMAT}"
                    )
        finally:
            os.close(fd)
        if known is not None:
            self._deliver(number, held)
            return known
        if held:
            self.torn += 1
            log.warning(
                "%s: the last %d bytes are an unfinished write and were cut off",
                path,
                end - held[0].start,
            )
            return held[0].start
        return end

    def _deliver(self, number: int, held: list[_Line]) -> None:
        for line in held:
            if line.head is not None:
                self._take(number, line.start, len(line.text) + 1, line.head)
            elif line.start:
                self._damaged(number, line.start, line.text)
            else:
                log.warning("%s: its first line is damaged", name_of(number))
        held.clear()


def _told_by(path: Path, number: int) -> int | None:
    """The good size of a file, as the one behind it says; None if that cannot be told."""
    try:
        with path.open("rb") as file:
            line = file.readline(1000)
    except OSError as error:
        raise unavailable(path, "cannot be read", error) from error
    head = head_of(line[:-1]) if line.endswith(b"\n") and intact(line[:-1]) else None
    if head is not None and head.after is not None and head.after[0] == number:
        return head.after[1]
    return None


def _lines(fd: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Each line with its newline and where it begins; the last one may lack it."""
    position, start = 0, 0
    rest: list[bytes] = []
    while chunk := os.pread(fd, CHUNK if end is None else min(CHUNK, end - position), position):
        position += len(chunk)
        first = chunk.find(b"\n") + 1
        if not first:
            rest.append(chunk)
            continue
        whole = b"".join((*rest, chunk[:first]))
        yield start, whole
        start += len(whole)
        lines = chunk[first:].splitlines(keepends=True)
        rest = [lines.pop()] if lines and not lines[-1].endswith(b"\n") else []
        for line in lines:
            yield start, line
            start += len(line)
    if rest:
        yield start, b"".join(rest)


def read_at(folder: Path, places: Sequence[tuple[int, int, int]]) -> list[bytes]:
    """Lines, without their newlines, by number of the file, start and size. Blocks.

    Raises:
        FileNotFoundError: a file is not there any more.
        StoreUnavailableError: a file cannot be read, or has no such line; names it.
    """
    lines: list[bytes] = []
    fd, number = -1, 0
    try:
        for segment, start, size in places:
            if segment != number or fd < 0:
                if fd >= 0:
                    os.close(fd)
                    fd = -1
                fd, number = os.open(folder / name_of(segment), os.O_RDONLY), segment
            line = os.pread(fd, size, start)
            if len(line) != size:
                raise StoreUnavailableError(
                    f"{folder / name_of(number)}: ends before the {size} bytes at {start}"
                )
            lines.append(line[:-1])
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(folder / name_of(number), "cannot be read", error) from error
    finally:
        if fd >= 0:
            os.close(fd)
    return lines
