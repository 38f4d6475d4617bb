"""PartitionLock: one server at a time leads a partition of the database.

The leader holds an advisory lock on a connection of its own for as long as it lives, and raises
the epoch before it writes anything else. The lock goes with the connection, so a server that died
is followed at once; the epoch goes with nobody, so what a server that lost its connection still
writes is refused by the fence. A database that gives no answer is not one that was lost: the lock
is kept for a while, since somebody else would get it.

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
    from collections.abc import Awaitable, Callable

    from yukta_rx.durability.postgres.database import Database

LOCK: Final = 1_937_077_060
"""First half of the lock's key, beside the partition."""

PATIENCE: Final = 5.0
"""Seconds that a start waits for the lock: PostgreSQL may not know yet that its holder died."""

LOOK: Final = 1.0
"""Seconds between two looks at the connection."""

DOUBT: Final = 2.0
"""Seconds without an answer after which nobody knows whether the lock is still held."""

PAUSE: Final = 0.1
"""Seconds between two attempts to get the lock."""

GONE_AFTER: Final = (
    ("idle_session_timeout", 0),
    ("tcp_keepalives_idle", 2),
    ("tcp_keepalives_interval", 1),
    ("tcp_keepalives_count", 3),
    ("tcp_user_timeout", 5000),
)
"""The connection lives as long as the server, and no longer where its whole machine is gone."""

_LEADER: Final = "SELECT epoch, holder FROM leader_epoch WHERE part = $1"

log = logging.getLogger(__name__)


class PartitionLock:
    """Leads a partition, as an async context. Belongs to the loop.

    Args:
        database: gets its epoch from here.
        holder: this server, for people.
        lost: called when the connection is gone, or gives no answer: nothing may be admitted until
            `regained`.
        regained: called when it is known again that the lock is held, and nobody led meanwhile.
        stale: called once when somebody else led meanwhile: this server has to stop.

    Attributes:
        held: whether this server leads, as far as it knows.
        leader: who leads, if it was told to stop.
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
        self.leader: str | None = None

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
        # A write that is refused says so before this looks.
        database.on_stale = lambda: self._gone.set()
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
                    for name, value in GONE_AFTER:
                        await connection.execute(f"SET {name} = {value}")
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
            self._drop()
            log.error("the connection that holds partition %d is lost", self._database.part)
            self._doubt()
            if not await self._again():
                return

    async def _answers(self) -> bool:
        """Whether the lock is held; asks, and says that nobody knows where that takes long."""
        asking = asyncio.get_running_loop().create_future()
        self._tasks.spawn(self._ask(self._connection, asking), "yukta partition lock answers")
        await asyncio.wait((asking,), timeout=DOUBT)
        if not asking.done():
            log.warning("the database gives no answer for %g s", DOUBT)
            self._doubt()
        there: bool = await asking
        if there and not self.held:
            self._sure()
        return there

    async def _ask(self, connection: Any, answer: asyncio.Future[bool]) -> None:
        there = True
        try:
            with failing():
                await connection.fetchval("SELECT 1", timeout=COMMAND)
        except StoreUnavailableError:
            there = False
        if not answer.done():
            answer.set_result(there)

    def _doubt(self) -> None:
        if self.held:
            self.held = False
            self._lost()

    def _sure(self) -> None:
        self.held = True
        log.warning("partition %d is led as before", self._database.part)
        self._regained()

    async def _again(self) -> bool:
        """Take the lock once more; False if somebody else led meanwhile."""
        database = self._database
        while True:
            try:
                epoch, holder = await self._leader(database.fetchrow)
                if epoch == database.epoch:
                    await self._take(0)
                    with failing():
                        epoch, holder = await self._leader(self._connection.fetchrow)
            except StoreUnavailableError:
                self._drop()
                await asyncio.sleep(PAUSE)
                continue
            if epoch != database.epoch:
                self._drop()
                self.leader = holder
                log.error("%s leads partition %d by now", holder, database.part)
                self._stale()
                return False
            self._sure()
            return True

    async def _leader(self, fetchrow: Callable[..., Awaitable[Any]]) -> tuple[int, str]:
        row = await fetchrow(_LEADER, self._database.part)
        return (0, "nobody") if row is None else (row[0], row[1])

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # A frozen server answers no farewell, and this frees the lock as well.
            connection.terminate()
