"""Ring: the newest of a numbered sequence, bounded by their number and by their weight.

Feature: OBS-01, OBS-03.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

OVERHEAD: Final = 200
"""Bytes that an item costs beside its content, roughly."""

_NONE: Final[deque[Any]] = deque()
"""What a ring has before its first item: a deque takes 700 bytes, and many rings stay empty."""


class Ring(Generic[T]):
    """Items with consecutive numbers; the oldest go first.

    Attributes:
        first: number of the oldest item kept; one more than `last` while there is none.
        last: number of the newest item ever added.
        weight: the sum of the weights kept.
    """

    __slots__ = ("_items", "first", "last", "weight")

    def __init__(self, last: int = 0) -> None:
        self._items: deque[tuple[T, int]] = _NONE
        self.first = last + 1
        self.last = last
        self.weight = 0

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: T, weight: int) -> int:
        """Add the newest item and return its number."""
        items = self._items
        if items is _NONE:
            self._items = items = deque()
        items.append((item, weight))
        self.weight += weight
        self.last += 1
        return self.last

    def pop(self) -> tuple[T, int]:
        """Let the oldest item go; returns it and its weight."""
        item, weight = self._items.popleft()
        self.weight -= weight
        self.first += 1
        return item, weight

    def oldest(self) -> T:
        """Return the oldest item."""
        return self._items[0][0]

    def get(self, number: int) -> T | None:
        """Return the item of that number, None if it is not kept."""
        place = number - self.first
        return self._items[place][0] if 0 <= place < len(self._items) else None

    def after(self, number: int, limit: int) -> list[T]:
        """Return the oldest items behind `number` that are kept, at most `limit`."""
        start = max(0, number - self.first + 1)
        stop = min(len(self._items), start + limit)
        return [self._items[place][0] for place in range(start, stop)]

    def find(self, number: int, wanted: Callable[[T], bool], limit: int) -> tuple[list[T], int]:
        """Look at the items behind `number` for those that are wanted.

        Returns:
            At most `limit` of them, and the number up to which all were looked at.
        """
        found: list[T] = []
        start = max(0, number - self.first + 1)
        for place in range(start, len(self._items)):
            item = self._items[place][0]
            if wanted(item):
                found.append(item)
                if len(found) >= limit:
                    return found, self.first + place
        return found, self.last
