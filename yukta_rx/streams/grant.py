"""Waiting without a task or a future for each wait: of workers for batches, of many for one end.

Feature: ENG-01.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable, Generator


class Grant:
    """What a worker awaits between two batches: like a future, but used again and again.

    `give` resumes the worker at once, in its own context and as its own task, instead of in a
    later turn of the loop: the pump's turn is a plain callback, so no other task is current then.
    It follows asyncio's protocol for objects that a task may wait for (`_asyncio_future_blocking`
    and a done callback), so cancelling the task works as with any future.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_cancelled", "_context", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._callback: Callable[[Any], object] | None = None
        self._context: contextvars.Context | None = None
        self._cancelled = False

    def give(self) -> None:
        """Let the worker, if it waits, go on until it waits for this or another future."""
        callback, self._callback = self._callback, None
        if callback is not None and self._context is not None:
            self._context.run(callback, self)

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking = True
        yield self

    # -- what a task asks of what it waits for

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the worker."""
        return self._loop

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context
    ) -> None:
        """Remember how to resume the worker."""
        self._callback = callback
        self._context = context

    def result(self) -> None:
        """Raise CancelledError if the wait was cancelled."""
        if self._cancelled:
            self._cancelled = False
            raise asyncio.CancelledError

    def cancel(self, msg: Any = None) -> bool:
        """Resume the worker with CancelledError, in the next turn of the loop."""
        callback, self._callback = self._callback, None
        if callback is None:
            return False
        self._cancelled = True
        self._loop.call_soon(callback, self, context=self._context)
        return True


async def until_done(future: asyncio.Future[Any]) -> None:
    """Wait for a future that others wait for too: who gives up waiting leaves it as it is.

    As `asyncio.wait` for one, at a fifth of the cost; what the future gives is not looked at.
    """
    if future.done():
        return
    waiter = Grant(future.get_loop())

    def wake(_future: asyncio.Future[Any]) -> None:
        waiter.give()

    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        future.remove_done_callback(wake)
