"""Where the results of a run are in the files of all runs, in a few numbers. Feature: OBS-03."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN_OF_LINES: Final = 64 * 1024
"""Bytes of neighbouring lines of one run that the index holds as one place."""


class Places:
    """Where the results of a run are, by cursor: five numbers for each run of lines."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        # segment, begin, end, first cursor, last cursor
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // 5

    def __getitem__(self, index: int) -> tuple[int, int, int, int, int]:
        segment, start, end, first, last = self._numbers[5 * index : 5 * index + 5]
        return segment, start, end, first, last

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int]]:
        return map(self.__getitem__, range(len(self)))

    def add(self, segment: int, start: int, end: int, cursor: int) -> None:
        """A line with a cursor above all others."""
        numbers = self._numbers
        if (
            numbers
            and numbers[-3] == start
            and numbers[-5] == segment
            and end - numbers[-4] <= RUN_OF_LINES
        ):
            numbers[-3], numbers[-1] = end, cursor
        else:
            numbers.extend((segment, start, end, cursor, cursor))

    def behind(self, cursor: int) -> int:
        """The first of the places that holds a cursor above this one."""
        return bisect_right(range(len(self)), cursor, key=lambda i: self._numbers[5 * i + 4])

    def whole(self, upto: int) -> tuple[int, int]:
        """How many of the first places hold no cursor above this one; the last cursor in them."""
        count = self.behind(upto)
        return count, self._numbers[5 * count - 1] if count else 0

    def drop(self, count: int) -> list[tuple[int, int]]:
        """Let go of the first places; segment and bytes of each."""
        gone = [
            (segment, end - start)
            for segment, start, end, _, _ in map(self.__getitem__, range(count))
        ]
        del self._numbers[: 5 * count]
        return gone

    def move(self, segment: int, moved: Places) -> None:
        """The lines of a segment are in other places of it."""
        before = [place for place in self if place[0] < segment]
        after = [place for place in self if place[0] > segment]
        self._numbers = array("q", [n for place in (*before, *moved, *after) for n in place])
