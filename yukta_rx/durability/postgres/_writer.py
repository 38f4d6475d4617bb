"""Writer: the rows of one store, written by one task on a connection of its own.

What waits is one batch, and one transaction: the more is said at a time, the less each row costs.
A batch whose answer was lost is written again, so statements must not mind a row that is there.

Feature: DUR-04.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from yukta_rx.durability.postgres.database import RETRIED, failing, is_lost, state_of
from yukta_rx.durability.stores.writing import Writing
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import asyncpg

    from yukta_rx.durability.postgres.database import Database

Row = TypeVar("Row")

MOST_ROWS: Final = 1000
MOST_BYTES: Final = 4 * 1024 * 1024
"""What one batch holds, unless a single row is more."""

QUEUE_BYTES: Final = 16 * 1024 * 1024
"""Bytes that may wait before whoever gives more is held back."""

ATTEMPTS: Final = 3
"""Times that a batch is tried before its rows fail."""

PAUSE: Final = 0.5
"""Seconds between two of them at the most."""

CLOSING: Final = 5.0
"""Seconds that a close waits for what is not written."""

log = logging.getLogger(__name__)


class Writer(Generic[Row]):
    """Writes rows in the order in which they came, as an async context. Belongs to the loop.

    Args:
        database: gives the connection, the partition and the epoch.
        name: of the store, for logs and tasks.
        write: writes a batch in one transaction, fenced; may be called again for the same rows.
        failed: told of rows that could not be written, with the reason; their futures fail too.
        patience: seconds that a batch waits for a database that gives no answer, or is not there;
            with 0 it is only tried again where the connection is lost.
        most_rows: rows of one batch.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        write: Callable[[asyncpg.Connection[Any], Sequence[Row]], Awaitable[None]],
        failed: Callable[[Sequence[Row], BaseException], None] = lambda _rows, _error: None,
        *,
        patience: float = 0,
        most_rows: int = MOST_ROWS,
    ) -> None:
        self._database = database
        self._name = name
        self._write = write
        self._failed = failed
        self._patience = patience
        self._most_rows = most_rows
        self._waiting: deque[_Given[Row]] = deque()
        self._bytes = 0
        self._writing = 0
        self._current: _Given[Row] | None = None
        """The last row of the batch that is being written."""
        self._idle: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._closing = False
        self._connection: asyncpg.Connection[Any] | None = None
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self.stale = 0
        """Rows that were refused because another server leads."""

    async def __aenter__(self) -> Self:
        """Start."""
        if (meters := self._database.meters) is not None:
            meters.watch("yukta.postgres.rows.waiting", lambda: len(self), store=self._name)
        self._tasks.spawn(self._run(), f"yukta write {self._name}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Write what waits, for a few seconds at the most, then end."""
        self._closing = True
        self._wake()
        try:
            async with asyncio.timeout(CLOSING):
                await self._tasks.ended()
        except TimeoutError:
            log.error("%s: %d rows were not written", self._name, len(self))
            self._tasks.cancel()
            await self._tasks.ended()
        error = StoreUnavailableError(f"{self._name}: the store is closed", store=self._name)
        self._fail([self._waiting.popleft() for _ in range(len(self._waiting))], error)
        await self._disconnect()

    def __len__(self) -> int:
        return len(self._waiting) + self._writing

    @property
    def full(self) -> bool:
        """Whether so much waits that whoever gives more should wait for `room`."""
        return self._bytes >= QUEUE_BYTES

    def put(self, row: Row, size: int = 100) -> Writing:
        """Take a row over.

        Args:
            row: what `write` gets.
            size: its bytes, roughly.

        Returns:
            Settled once it is committed; fails with StoreUnavailableError or StaleLeaderError.
        """
        given = _Given(row, size)
        self._waiting.append(given)
        self._bytes += size
        self._wake()
        return given

    async def room(self) -> None:
        """Wait until it is not `full`."""
        while self.full:
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._room,))

    async def flushed(self) -> None:
        """Wait until all that was given so far is written, or has failed."""
        # They are written in their order.
        last = self._waiting[-1] if self._waiting else self._current
        if last is not None:
            await last.over()

    # -- the task

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _run(self) -> None:
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
                self._idle = None
                continue
            batch = self._batch()
            self._writing, self._current = len(batch), batch[-1]
            try:
                await self._settle(batch)
            except asyncio.CancelledError:
                cut = StoreUnavailableError(f"{self._name}: closed meanwhile", store=self._name)
                self._fail([one for one in batch if not one.settled], cut)
                raise
            finally:
                self._writing, self._current = 0, None
                self._bytes -= sum([one.size for one in batch])
                if self._room is not None and not self.full and not self._room.done():
                    self._room.set_result(None)

    async def _settle(self, batch: Sequence[_Given[Row]]) -> None:
        """Write a batch, and tell whoever gave its rows."""
        try:
            await self._commit([one.row for one in batch])
        except (StoreUnavailableError, StaleLeaderError) as error:
            self._fail(batch, error)
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch, error)
                return
            # It lies in one of the rows; the others have nothing to do with it.
            for one in batch:
                await self._settle([one])
        else:
            for one in batch:
                one.settle(None)

    def _batch(self) -> list[_Given[Row]]:
        batch: list[_Given[Row]] = []
        size = 0
        while self._waiting and len(batch) < self._most_rows:
            size += self._waiting[0].size
            if batch and size > MOST_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _commit(self, rows: Sequence[Row]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        for attempt in count():
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._database.connect()
                with failing():
                    await self._write(self._connection, rows)
            except StaleLeaderError:
                self.stale += len(rows)
                self._database.refused(len(rows))
                raise
            except Exception as error:
                cause = error.__cause__ or error
                again = attempt < ATTEMPTS - 1 and (state_of(cause) in RETRIED or is_lost(cause))
                again = again or (isinstance(error, StoreUnavailableError) and loop.time() < until)
                if isinstance(error, StoreUnavailableError) and state_of(cause) not in RETRIED:
                    # It may be in any state; the next attempt has a new one.
                    await self._disconnect()
                if not again:
                    raise
            else:
                return
            await asyncio.sleep(min(0.05 * 2**attempt, PAUSE))

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # A frozen server answers no farewell.
            connection.terminate()

    def _fail(self, batch: Sequence[_Given[Row]], error: BaseException) -> None:
        if not batch:
            return
        if not isinstance(error, StoreUnavailableError | StaleLeaderError):
            log.error(
                "%s: a batch of %d rows cannot be written", self._name, len(batch), exc_info=error
            )
        self._failed([one.row for one in batch], error)
        for one in batch:
            one.settle(error)


class _Given(Writing, Generic[Row]):
    """A row that waits."""

    __slots__ = ("row", "size")

    def __init__(self, row: Row, size: int) -> None:
        super().__init__()
        self.row = row
        self.size = size
