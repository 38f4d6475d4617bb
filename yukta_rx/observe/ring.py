"""Ring: the newest of a numbered sequence, bounded by their number and by their weight.

Feature: OBS-01, OBS-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

OVERHEAD: Final = 200
"""Bytes that an item costs beside its content, roughly."""

_NONE: Final[list[Any]] = []
"""What a ring has before its first item: many rings stay empty."""

_GONE: Final[Any] = None
"""What stands where an item was, until its place goes too."""

_CUT: Final = 256
"""Places of items that are gone which may be left."""


class Ring(Generic[T]):
    """Items with consecutive numbers; the oldest go first.

    Attributes:
        first: number of the oldest item kept; one more than `last` while there is none.
        last: number of the newest item ever added.
        weight: the sum of the weights kept.
    """

    __slots__ = ("_begin", "_items", "_weights", "first", "last", "weight")

    def __init__(self, last: int = 0) -> None:
        self._items: list[T] = _NONE
        self._weights: list[int] = _NONE
        self._begin = 0
        """Where the items begin; those before it are gone."""
        self.first = last + 1
        self.last = last
        self.weight = 0

    def __len__(self) -> int:
        return len(self._items) - self._begin

    def append(self, item: T, weight: int) -> int:
        """Add the newest item and return its number."""
        if self._items is _NONE:
            self._items, self._weights = [], []
        self._items.append(item)
        self._weights.append(weight)
        self.weight += weight
        self.last += 1
        return self.last

    def pop(self) -> tuple[T, int]:
        """Let the oldest item go; returns it and its weight."""
        items, weights, place = self._items, self._weights, self._begin
        item, weight = items[place], weights[place]
        items[place] = _GONE
        self._begin = place = place + 1
        if place > _CUT:
            del items[:place], weights[:place]
            self._begin = 0
        self.weight -= weight
        self.first += 1
        return item, weight

    def trim(self, most: int, weight: int) -> None:
        """Let the oldest items go until no more than that is left, but never the newest."""
        newest = self.last
        while self.first < newest and (newest - self.first >= most or self.weight > weight):
            self.pop()

    def clear(self) -> None:
        """Let all items go."""
        self._items = self._weights = _NONE
        self._begin = self.weight = 0
        self.first = self.last + 1

    def oldest(self) -> T:
        """Return the oldest item."""
        return self._items[self._begin]

    def get(self, number: int) -> T | None:
        """Return the item of that number, None if it is not kept."""
        if self.first <= number <= self.last:
            return self._items[self._begin + number - self.first]
        return None

    def after(self, number: int, limit: int) -> list[T]:
        """Return the oldest items behind `number` that are kept, at most `limit`."""
        start = self._behind(number)
        return self._items[start : start + limit]

    def find(self, number: int, wanted: Callable[[T], bool], limit: int) -> tuple[list[T], int]:
        """Look at the items behind `number` for those that are wanted.

        Returns:
            At most `limit` of them, and the number up to which all were looked at.
        """
        found: list[T] = []
        for place in range(self._behind(number), len(self._items)):
            item = self._items[place]
            if wanted(item):
                found.append(item)
                if len(found) >= limit:
                    return found, self._number_at(place)
        return found, self.last

    def _behind(self, number: int) -> int:
        """The place of the oldest item behind `number`."""
        return self._begin + max(0, number - self.first + 1)

    def _number_at(self, place: int) -> int:
        """The number of the item at a place."""
        return self.first + place - self._begin
