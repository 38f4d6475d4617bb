"""SparseRing: a ring from whose middle items can go too.  Feature: OBS-02."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from yukta_rx.observe.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Numbered(Protocol):
    """An item that knows its place."""

    cursor: int


N = TypeVar("N", bound=Numbered)

_CUT: Final = 256
"""Items that have been popped and are still held."""


class SparseRing(Ring[N]):
    """Items with rising numbers, which they know as `cursor`; any of them may be taken out.

    Attributes:
        first: number of the oldest item kept; one more than `last` while there is none.
    """

    __slots__ = ("_begin", "_kept")

    def __init__(self, last: int = 0) -> None:
        super().__init__(last)
        self._kept: list[tuple[N, int]] = []
        self._begin = 0
        """Where the items begin; those before it have been popped."""

    def __len__(self) -> int:
        return len(self._kept) - self._begin

    def append(self, item: N, weight: int) -> int:
        """Add the newest item and return its number."""
        self._kept.append((item, weight))
        self.weight += weight
        self.last += 1
        return self.last

    def pop(self) -> tuple[N, int]:
        """Let the oldest item go; returns it and its weight."""
        kept, place = self._kept, self._begin
        item, weight = kept[place]
        place += 1
        if place > _CUT:
            del kept[:place]
            place = 0
        self._begin = place
        self.weight -= weight
        self.first = kept[place][0].cursor if place < len(kept) else self.last + 1
        return item, weight

    def oldest(self) -> N:
        """Return the oldest item."""
        return self._kept[self._begin][0]

    def items(self) -> Sequence[tuple[N, int]]:
        """Return all items with their weights, the oldest first."""
        return self._kept[self._begin :]

    def replace(self, items: list[tuple[N, int]]) -> None:
        """Keep these instead of all that is kept; their numbers must rise."""
        self._kept = items
        self._begin = 0
        self.weight = sum(weight for _, weight in items)
        self.first = items[0][0].cursor if items else self.last + 1

    def get(self, number: int) -> N | None:
        """Return the item of that number, None if it is not kept."""
        found = self.after(number - 1, 1)
        return found[0] if found and found[0].cursor == number else None

    def after(self, number: int, limit: int) -> list[N]:
        """Return the oldest items behind `number` that are kept, at most `limit`."""
        start = self._behind(number)
        return [item for item, _ in self._kept[start : start + limit]]

    def find(self, number: int, wanted: Callable[[N], bool], limit: int) -> tuple[list[N], int]:
        """Look at the items behind `number` for those that are wanted.

        Returns:
            At most `limit` of them, and the number up to which all were looked at.
        """
        found: list[N] = []
        for place in range(self._behind(number), len(self._kept)):
            item = self._kept[place][0]
            if wanted(item):
                found.append(item)
                if len(found) >= limit:
                    return found, item.cursor
        return found, self.last

    def _behind(self, number: int) -> int:
        return bisect_right(self._kept, number, self._begin, key=lambda one: one[0].cursor)
