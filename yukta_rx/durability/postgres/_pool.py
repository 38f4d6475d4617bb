"""Pool: connections that one after another uses, for a statement or a transaction each.

The driver's own pool gives each of them back in a task of its own, under three timers, which costs
twice what a small statement does. Feature: DUR-04.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

IDLE: Final = 300.0

log = logging.getLogger(__name__)


class Pool:
    """Belongs to the loop.

    Args:
        connect: makes a connection.
        size: connections at most.
        patience: seconds that one waits for a connection that another one has.
        idle: seconds after which one that nobody used is let go: something may have cut it.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        size: int,
        patience: float,
        idle: float = IDLE,
    ) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._longest = idle
        self._places = asyncio.Semaphore(size)
        self._made: set[Connection] = set()
        self._idle: deque[tuple[Connection, float]] = deque()
        """Those that nobody has, and since when; the one that was used last comes last."""
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._tasks = Tasks(loop)
        self._closed = False
        self.waiting = 0
        """How many wait for one."""

    def __len__(self) -> int:
        return len(self._made)

    @property
    def idle(self) -> int:
        """How many connections nobody has."""
        return len(self._idle)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Connection]:
        """A connection, for as long as the context lasts.

        Raises:
            TimeoutError: all are in use, and remain so.
            StoreUnavailableError: the pool is closed.
        """
        self.waiting += 1
        try:
            async with asyncio.timeout(self._patience if self._places.locked() else None):
                await self._places.acquire()
        finally:
            self.waiting -= 1
        try:
            made = await self._one()
            cut = False
            try:
                yield made
            except (asyncio.CancelledError, TimeoutError):
                cut = True
                raise
            finally:
                self._give_back(made, cut=cut)
        finally:
            self._places.release()

    async def _one(self) -> Connection:
        while self._idle:
            made, since = self._idle.pop()
            if not made.is_closed() and self._time() - since < self._longest:
                return made
            self._drop(made)
        if not self._closed:
            made = await self._connect()
            self._made.add(made)
        if self._closed:
            self.terminate()
            raise StoreUnavailableError("the database is not open", store="postgres")
        return made

    def _give_back(self, made: Connection, *, cut: bool) -> None:
        now = self._time()
        if cut:
            # Its statement may still be under way, and may have begun a transaction.
            self._tasks.spawn(self._end(made), "yukta end of a connection")
            return
        if made.is_closed() or made.is_in_transaction():
            self._drop(made)
            # What cut it has cut the others too, as a rule: who tries again gets a new one.
            self._drop_idle()
            return
        self._idle.append((made, now))
        if now - self._idle[0][1] > self._longest:
            self._drop(self._idle.popleft()[0])

    async def _end(self, made: Connection) -> None:
        """Have the server give up what it does on a connection; then it is of no more use."""
        try:
            await made.close(timeout=self._patience)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            log.debug("a connection is cut off: %s", error)
        finally:
            self._drop(made)

    def _drop(self, made: Connection) -> None:
        made.terminate()
        self._made.discard(made)

    def _drop_idle(self) -> None:
        while self._idle:
            self._drop(self._idle.pop()[0])

    async def close(self) -> None:
        """Wait until nobody has one, and say goodbye to all; there are none any more."""
        for _ in range(self._size):
            await self._places.acquire()
        self._closed = True
        for made, _ in self._idle:
            await made.close()
        await self._tasks.ended()
        self.terminate()

    def terminate(self) -> None:
        """Cut off all of them; there are none any more."""
        self._closed = True
        self._idle.clear()
        for made in tuple(self._made):
            self._drop(made)
