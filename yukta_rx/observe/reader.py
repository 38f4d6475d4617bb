"""Reader: one reader of something that goes on, who gets what is there and waits for more.

A reader has no task and no queue between it and its source: it pulls, and parks on one future
when there is nothing. So it costs nothing while it waits and leaves nothing behind.

Feature: OBS-01.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

if TYPE_CHECKING:
    from yukta_rx.observe.circle import Outlet
    from yukta_rx.observe.frames import Frame

T = TypeVar("T")

BATCH: Final = 64
"""Items that one call of `take` returns at most, unless told otherwise."""


class Reader(ABC, Generic[T]):
    """An asynchronous iterator for one consumer; also a context manager that closes itself.

    Iterate for single items, or call `take` or `frames` for all that is there: a server that
    writes that in one go serves many times as many clients. A call that is cancelled loses
    nothing; the next one goes on.
    """

    __slots__ = ("__weakref__", "_waiter", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._waiter: asyncio.Future[None] | None = None

    # -- what a kind of reader says; `Any` is the form that its source keeps

    @abstractmethod
    def _pull(self, limit: int) -> list[Any]:
        """Return what is there, at most `limit`; nothing if one has to wait."""

    @abstractmethod
    def _over(self) -> bool:
        """Whether nothing can come any more, once `_pull` gave nothing."""

    @abstractmethod
    def _item(self, kept: Any) -> T:
        """Return what was pulled as this reader's kind of item."""

    @abstractmethod
    def _frame(self, kept: Any) -> Frame:
        """Return what was pulled as a frame."""

    def _let_go(self) -> None:
        """Take leave of the source; called once."""

    def _parked(self) -> None:
        """The consumer begins to wait: everything was pulled."""

    def _resumed(self) -> None:
        """The consumer waits no more."""

    def connect(self, outlet: Outlet) -> None:
        """Let frames that come while the consumer waits go past it, where a source can do that.

        The consumer writes what it gets to the same place, in the same form, before it asks again.
        """

    # -- reading

    async def take(self, limit: int = BATCH) -> list[T]:
        """Wait until something is there and return it, oldest first.

        Returns:
            At most `limit` items; none once the stream is over or closed.

        Raises:
            RuntimeError: another consumer waits already.
        """
        return [self._item(kept) for kept in await self._next(limit)]

    async def frames(self, limit: int = BATCH) -> list[Frame]:
        """As `take`, but as frames, each made once for all readers."""
        return [self._frame(kept) for kept in await self._next(limit)]

    async def _next(self, limit: int) -> list[Any]:
        while not self.closed:
            if self._waiter is not None:
                raise RuntimeError("a reader has one consumer")
            pulled = self._pull(limit)
            if pulled:
                return pulled
            if self._over():
                self.close()
                break
            self._waiter = asyncio.get_running_loop().create_future()
            self._parked()
            try:
                await self._waiter
            finally:
                self._waiter = None
                self._resumed()
        return []

    def wake(self) -> None:
        """Let the consumer look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def close(self) -> None:
        """Read no more; who waits gets nothing. Closing twice is no error."""
        if not self.closed:
            self.closed = True
            self._let_go()
            self.wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        for item in await self.take(1):
            return item
        raise StopAsyncIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
