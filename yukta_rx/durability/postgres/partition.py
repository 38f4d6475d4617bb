"""PartitionLock: one server at a time leads a partition of the database.

The leader holds an advisory lock on a connection of its own for as long as it lives, and raises
the epoch before it writes anything else. The lock goes with the connection, so a server that died
is followed at once; the epoch goes with nobody, so what a server that lost its connection still
writes is refused by the fence.

Feature: DUR-04.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.durability.postgres.database import COMMAND, failing
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.durability.postgres.database import Database

LOCK: Final = 1_937_077_060
"""First half of the lock's key, beside the partition."""

PATIENCE: Final = 5.0
"""Seconds that a start waits for the lock: PostgreSQL may not know yet that its holder died."""

LOOK: Final = 1.0
"""Seconds between two looks at the connection."""

PAUSE: Final = 0.1
"""Seconds between two attempts to get the lock."""

log = logging.getLogger(__name__)


class PartitionLock:
    """Leads a partition, as an async context. Belongs to the loop.

    Args:
        database: gets its epoch from here.
        holder: this server, for people.
        lost: called when the connection is gone: nothing may be admitted until `regained`.
        regained: called when the lock is held again, and nobody led meanwhile.
        stale: called once when somebody else led meanwhile: this server has to stop.
    """

    def __init__(
        self,
        database: Database,
        holder: str,
        *,
        lost: Callable[[], None] = lambda: None,
        regained: Callable[[], None] = lambda: None,
        stale: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._holder = holder
        self._lost = lost
        self._regained = regained
        self._stale = stale
        self._connection: Any = None
        self._gone: asyncio.Event = asyncio.Event()
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self.held = False

    async def __aenter__(self) -> Self:
        """Take the lock, and raise the epoch.

        Raises:
            StoreUnavailableError: another server holds it, which is named; or no answer.
        """
        await self._take(PATIENCE)
        try:
            with failing():
                database = self._database
                database.epoch = await raise_epoch(self._connection, database.part, self._holder)
        except BaseException:
            self._drop()
            raise
        self.held = True
        log.info("partition %d is led with epoch %d", database.part, database.epoch)
        self._tasks.spawn(self._watch(), "yukta partition lock")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Let another server lead."""
        self._tasks.cancel()
        await self._tasks.ended()
        self.held = False
        self._drop()

    async def _take(self, patience: float) -> None:
        """Get a connection that holds the lock."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        part = self._database.part
        while True:
            connection = await self._database.connect()
            try:
                with failing():
                    # It lives as long as the server, and is asked now and then.
                    await connection.execute("SET idle_session_timeout = 0")
                    taken = await connection.fetchval(
                        "SELECT pg_try_advisory_lock($1, $2)", LOCK, part
                    )
                    holder = None if taken else await self._who(connection)
            except BaseException:
                connection.terminate()
                raise
            if taken:
                self._connection = connection
                self._gone = asyncio.Event()
                connection.add_termination_listener(lambda _made: self._gone.set())
                return
            connection.terminate()
            if loop.time() >= until:
                raise StoreUnavailableError(
                    f"another server leads partition {part} of this database: {holder}; stop it, "
                    "or give this server a database of its own",
                    store="postgres",
                )
            await asyncio.sleep(PAUSE)

    async def _who(self, connection: Any) -> str:
        row = await connection.fetchrow(
            "SELECT holder, taken_at FROM leader_epoch WHERE part = $1", self._database.part
        )
        return "it has not said its name yet" if row is None else f"{row[0]}, since {row[1]}"

    async def _watch(self) -> None:
        """Notice that the connection is gone, and get another one."""
        while True:
            try:
                async with asyncio.timeout(LOOK):
                    await self._gone.wait()
            except TimeoutError:
                if await self._answers():
                    continue
            self.held = False
            self._drop()
            log.error("the connection that holds partition %d is lost", self._database.part)
            self._lost()
            if not await self._again():
                return

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(COMMAND):
                with failing():
                    await self._connection.fetchval("SELECT 1")
        except (StoreUnavailableError, TimeoutError):
            return False
        return True

    async def _again(self) -> bool:
        """Take the lock once more; False if somebody else led meanwhile."""
        database = self._database
        while True:
            try:
                epoch = await database.fetchval(
                    "SELECT epoch FROM leader_epoch WHERE part = $1", database.part
                )
                if epoch == database.epoch:
                    await self._take(0)
                    with failing():
                        epoch = await self._connection.fetchval(
                            "SELECT epoch FROM leader_epoch WHERE part = $1", database.part
                        )
            except StoreUnavailableError:
                await asyncio.sleep(PAUSE)
                continue
            if epoch != database.epoch:
                self._drop()
                log.error("another server leads partition %d by now", database.part)
                self._stale()
                return False
            self.held = True
            log.warning("partition %d is held again, with epoch %d", database.part, epoch)
            self._regained()
            return True

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # A frozen server answers no farewell, and this frees the lock as well.
            connection.terminate()
