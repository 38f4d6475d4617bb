"""SparseRing: a ring from whose middle items can go too.  Feature: OBS-02."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol, TypeVar

from yukta_rx.observe.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Sequence


class Numbered(Protocol):
    """An item that knows its place."""

    cursor: int


N = TypeVar("N", bound=Numbered)


class SparseRing(Ring[N]):
    """Items with rising numbers, which they know as `cursor`; any of them may be taken out.

    Attributes:
        first: number of the oldest item kept; one more than `last` while there is none.
    """

    __slots__ = ()

    def pop(self) -> tuple[N, int]:
        """Let the oldest item go; returns it and its weight."""
        popped = super().pop()
        self._look_first()
        return popped

    def items(self) -> Sequence[tuple[N, int]]:
        """Return all items with their weights, the oldest first."""
        begin = self._begin
        return list(zip(self._items[begin:], self._weights[begin:], strict=True))

    def replace(self, items: list[tuple[N, int]]) -> None:
        """Keep these instead of all that is kept; their numbers must rise."""
        self._items = [item for item, _ in items]
        self._weights = [weight for _, weight in items]
        self._begin = 0
        self.weight = sum(self._weights)
        self._look_first()

    def get(self, number: int) -> N | None:
        """Return the item of that number, None if it is not kept."""
        found = self.after(number - 1, 1)
        return found[0] if found and found[0].cursor == number else None

    def _look_first(self) -> None:
        self.first = self.oldest().cursor if len(self) else self.last + 1

    def _behind(self, number: int) -> int:
        return bisect_right(self._items, number, self._begin, key=lambda item: item.cursor)

    def _number_at(self, place: int) -> int:
        return self._items[place].cursor
