"""The lines of a journal as bytes: put together, found again, copied. Feature: DUR-05."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from yukta_rx.durability.file._folder import write_all
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

CHUNK: Final = 1 << 20
"""Bytes that are read, copied or gathered for a write at a time."""

AHEAD: Final = 16 * 1024
"""Bytes that are read at least where single lines are wanted."""

MORE: Final = b" "
"""At the end of a line whose next one belongs to it."""


def joined(lines: Sequence[bytes]) -> bytes:
    """Lines that are there together or not at all, as they stand in the file.

    Raises:
        ValueError: a line could not be told from two.
    """
    for line in lines:
        if b"\n" in line or line.endswith(MORE):
            raise ValueError("a line holds a newline byte, or a blank at its end")
    return (MORE + b"\n").join(lines) + b"\n"


def chunks(fd: int, start: int, end: int | None = None) -> Iterator[bytes]:
    """The bytes of a file from one place to another, or its end."""
    while end is None or start < end:
        chunk = os.pread(fd, CHUNK if end is None else min(CHUNK, end - start), start)
        if not chunk:
            return
        yield chunk
        start += len(chunk)


def scan(fd: int, take: Callable[[bytes, int], object]) -> tuple[int, int]:
    """Give each line of whole appends to `take`, and where it begins; bytes and lines of them."""
    good = position = lines = 0
    rest: list[bytes] = []
    held: list[tuple[bytes, int]] = []
    for chunk in chunks(fd, 0):
        head, newline, tail = chunk.partition(b"\n")
        rest.append(head)
        if not newline:
            continue
        *whole, last = (b"".join(rest) + newline + tail).split(b"\n")
        rest = [last]
        for line in whole:
            start = position
            position += len(line) + 1
            if line.endswith(MORE):
                held.append((line[: -len(MORE)], start))
                continue
            for one in held:
                take(*one)
            take(line, start)
            lines += len(held) + 1
            held.clear()
            good = position
    return good, lines


def copy_lines(fd: int, lines: Iterable[bytes]) -> tuple[int, int]:
    """Write lines to a new file, each by itself; their bytes and how many they are."""
    size = count = waiting = 0
    chunk: list[bytes] = []
    for line in lines:
        chunk.append(joined([line]))
        count += 1
        waiting += len(chunk[-1])
        if waiting >= CHUNK:
            write_all(fd, b"".join(chunk), size)
            size, waiting = size + waiting, 0
            chunk.clear()
    write_all(fd, b"".join(chunk), size)
    return size + waiting, count


def copy_rest(fd: int, at: int, source: int, start: int, end: int) -> tuple[int, int]:
    """Copy a part of another file to a place of a new one; its bytes and lines."""
    count, size = 0, 0
    for chunk in chunks(source, start, end):
        write_all(fd, chunk, at + size)
        size += len(chunk)
        count += chunk.count(b"\n")
    return size, count


def lines_at(fd: int, path: Path, spans: Iterable[tuple[int, int]], ahead: int) -> Iterator[bytes]:
    """Lines, by where they begin and a place behind each, in the order of the file.

    Args:
        fd: the file.
        path: its name.
        spans: where the lines are.
        ahead: bytes that are read at least.

    Raises:
        StoreUnavailableError: the file is shorter by now.
    """
    data, base = b"", 0
    for start, end in spans:
        if not base <= start <= end <= base + len(data):
            data, base = os.pread(fd, max(end - start, ahead), start), start
        line, newline, _ = data[start - base : end - base].partition(b"\n")
        if not newline:
            raise StoreUnavailableError(f"{path}: the line at byte {start} is not there")
        yield line.removesuffix(MORE)
