"""Writing: what is on its way to be written, and who waits for it.  Features: DUR-02, DUR-04."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from yukta_rx.streams.faults import as_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from yukta_rx.streams.aio import Tasks

    Told = Callable[[BaseException | None], None]


class Writing:
    """Something on its way to be written. Belongs to the loop.

    Who awaits it waits until it is written; what it failed with is raised there. Who gives up
    waiting leaves it as it is.
    """

    __slots__ = ("_told", "error", "settled")

    def __init__(self) -> None:
        self.settled = False
        """Whether it is written, or has failed."""
        self.error: BaseException | None = None
        self._told: list[Told] | None = None

    @classmethod
    def by(cls, work: Awaitable[None], tasks: Tasks, name: str) -> Writing:
        """Return what a task does."""
        made = cls()

        async def done() -> None:
            try:
                await work
            except BaseException as error:
                made.settle(as_error(error))
                if not isinstance(error, Exception):
                    raise
            else:
                made.settle(None)

        tasks.spawn(done(), name)
        return made

    def settle(self, error: BaseException | None) -> None:
        """It is written, or has failed: those who wait are told, the first time."""
        if self.settled:
            return
        self.settled, self.error = True, error
        told, self._told = self._told, None
        for one in told or ():
            if error is None:
                one(None)
            else:
                # What they do about it comes later: whoever settles it is in the middle of much.
                asyncio.get_running_loop().call_soon(one, error)

    def tell(self, told: Told) -> None:
        """Have `told` called once it is settled, at once if it is; with what it failed with."""
        if self.settled:
            told(self.error)
        elif self._told is None:
            self._told = [told]
        else:
            self._told.append(told)

    def over(self) -> asyncio.Future[None]:
        """Return a future that is done once it is settled; it does not fail."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tell(lambda _error: None if over.done() else over.set_result(None))
        return over

    def __await__(self) -> Generator[Any, None, None]:
        if not self.settled:
            yield from self.over()
        if self.error is not None:
            raise as_error(self.error)
