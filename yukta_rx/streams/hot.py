"""HotSource: elements that come along anyway, pushed to all subscribers, or iterated by one.

A Flow begins anew for each subscriber. What happens in the world does not: two subscribers see the
same elements. So this one is pushed from outside and carries no demand; who pushes decides how
fast, and keeps what waits bounded.

Feature: CTL-07.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from reactivex.subject import Subject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

T = TypeVar("T")


class HotSource(Subject[T]):
    """An Observable that others push into; `async for` takes the elements from their origin.

    Use one way or the other: an element that was iterated is not pushed as well.

    Args:
        origin: where the elements come from.
    """

    def __init__(self, origin: AsyncIterator[T]) -> None:
        super().__init__()
        self._origin = origin

    def __aiter__(self) -> AsyncIterator[T]:
        return self._origin

    async def push_all(self) -> None:
        """Push every element of the origin, then the end.

        Raises:
            Exception: a subscriber failed where no operator caught it.
        """
        async for element in self._origin:
            self.on_next(element)
        self.on_completed()
