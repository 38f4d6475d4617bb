"""Database: the connections of one server, and what their failures mean.

Every statement has a limit of time on both sides, so a frozen server is an error and not a wait.
What cannot be answered raises `StoreUnavailableError`; no rows are an answer.

Features: DUR-04, DUR-05.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import asyncpg

from yukta_rx.durability.postgres.fence import hold_fence, stale
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from yukta_rx.metrics import Meters

T = TypeVar("T")

CONNECT: Final = 5.0
"""Seconds to connect, and to wait for a free connection."""

COMMAND: Final = 10.0
"""Seconds that a statement may take."""

ATTEMPTS: Final = 8
"""Times that a transaction is tried which another one keeps from committing."""

LOSSES: Final = 3
"""Times that a transaction is tried whose connection is lost."""

PAUSE: Final = 0.01
"""Seconds before the second of them; doubled for each further one."""

RETRIED: Final = frozenset({"40001", "40P01"})
"""States of transactions that the server gave up because of others."""

_CACHED: Final = "0A000"
"""A statement that was prepared before the schema changed; asyncpg prepares it anew."""

_UNAVAILABLE: Final = ("08", "28", "3D", "53", "57", "58")
"""Classes of states that say something about the server, not about the statement."""

_TIMES: Final = frozenset({"55P03", "25P03"})
"""A lock, or a transaction, that took too long."""

_REFUSED: Final = frozenset({"25006", "42501"})
"""A server that lets nobody write, and one that does not let us."""

_BROKEN: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver says of a connection that is no use any more; the second one where it is lost
while a statement is being given up.
"""

_OF_DRIVER: Final = (asyncpg.PostgresError, *_BROKEN)

log = logging.getLogger(__name__)


class Database:
    """A pool of connections, as an async context. Belongs to the loop.

    Args:
        url: `postgresql://user@host:port/database`.
        part: the partition that this server leads.
        size: connections of the pool at most; those that are held come on top.
        meters: where connections and failures are counted.

    Attributes:
        part: see above.
        epoch: the fencing number of this server, which all its writes carry; 0 before it leads.
        meters: see above.
        on_stale: called when a write was refused because another server leads.
    """

    def __init__(
        self, url: str, *, part: int = 0, size: int = 10, meters: Meters | None = None
    ) -> None:
        self.part = part
        self.epoch = 0
        self._url = url
        self._size = size
        self._waiting = 0
        self.meters = meters
        self.on_stale: Callable[[], None] = lambda: None
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        with failing():
            self._pool = await asyncpg.create_pool(
                self._url, min_size=1, max_size=self._size, reset=_as_it_is, **self._options()
            )
        if self.meters is not None:
            self.meters.watch("yukta.postgres.connections", lambda: self._connections()[0])
            self.meters.watch("yukta.postgres.connections.idle", lambda: self._connections()[1])
            self.meters.watch("yukta.postgres.connections.wanted", lambda: self._waiting)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Let go of every connection; one that does not react is cut off."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CONNECT):
                await pool.close()
        except TimeoutError:
            log.warning("connections to the database do not close and are cut off")
            pool.terminate()

    def _options(self, **settings: str) -> dict[str, Any]:
        limit = str(int(COMMAND * 1000))
        return {
            "timeout": CONNECT,
            "command_timeout": COMMAND,
            "server_settings": {
                "application_name": "yukta",
                "statement_timeout": limit,
                "lock_timeout": limit,
                "idle_in_transaction_session_timeout": limit,
                "timezone": "UTC",
                # It never pays for statements as small as ours.
                "jit": "off",
                **settings,
            },
        }

    def _connections(self) -> tuple[int, int]:
        """How many there are, and how many of them nobody uses."""
        pool = self._pool
        return (0, 0) if pool is None else (pool.get_size(), pool.get_idle_size())

    def refused(self, rows: int = 1) -> None:
        """Take note of writes that were refused because another server leads."""
        if self.meters is not None:
            self.meters.counter("yukta.store.stale.refused").add(rows)
        self.on_stale()

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """A connection of its own, outside the pool; the caller closes it.

        It plans each statement once: what is said all the time, with rows in it, is not worth more.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        options = self._options(plan_cache_mode="force_generic_plan")
        with failing():
            made: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self._url, **options)
        return made

    async def check(self) -> None:
        """Find out whether it answers.

        Raises:
            StoreUnavailableError: it does not.
        """
        await self.fetchval("SELECT 1")

    # -- single statements

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """The rows of a statement that changes nothing."""
        rows: list[asyncpg.Record] = await self._read(lambda made: made.fetch(sql, *args))
        return rows

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        """Its first row, None if there is none."""
        return await self._read(lambda made: made.fetchrow(sql, *args))

    async def fetchval(self, sql: str, *args: Any) -> Any:
        """The first value of its first row, None if there is none."""
        return await self._read(lambda made: made.fetchval(sql, *args))

    async def any(self, query: str, *args: Any) -> bool:
        """Whether a query has rows, for what would be written if it had; costs no commit.

        Args:
            query: a SELECT; `$1` is the partition.
            args: `$2` and so on.

        Raises:
            StaleLeaderError: another server leads, so it is no business of ours.
        """
        row = await self.fetchrow(
            f"SELECT EXISTS ({query}) AS there, EXISTS (SELECT FROM leader_epoch"
            f" WHERE part = $1 AND epoch = ${len(args) + 2}) AS leads",
            *(self.part, *args, self.epoch),
        )
        assert row is not None
        if not row["leads"]:
            self.refused()
            raise stale(self.part, self.epoch)
        return bool(row["there"])

    async def _read(self, ask: Callable[[Any], Awaitable[T]]) -> T:
        """Ask; once more where the connection turned out lost, or a plan out of date."""
        for last in (False, True):
            try:
                async with self._acquired() as made:
                    return await ask(made)
            except (*_OF_DRIVER, OSError) as error:
                if last or not (is_lost(error) or state_of(error) == _CACHED):
                    raise unavailable(error) from error
            except TimeoutError as error:
                raise unavailable(error) from error
        raise AssertionError("the second attempt returns or raises")

    async def statement(
        self, sql: str, *args: Any, lost: Callable[[], None] = lambda: None
    ) -> asyncpg.Record:
        """The first row of one statement with the fence in it, which is a transaction of its own.

        It may be done again where the answer is lost, so it must not mind what is done already.

        Args:
            sql: with `FENCE` in it, and how many rows that had as `fence`; `$1` and `$2` are
                partition and epoch.
            args: `$3` and so on.
            lost: told that an answer is lost.

        Raises:
            StaleLeaderError: another server leads by now, and nothing was changed.
            StoreUnavailableError: the database gave no answer. It may be done all the same.
        """
        losses = 0
        for attempt in range(ATTEMPTS):
            try:
                async with self._acquired() as made:
                    row: asyncpg.Record = await made.fetchrow(sql, self.part, self.epoch, *args)
            except (*_OF_DRIVER, OSError, TimeoutError) as error:
                gone = is_lost(error)
                losses += gone
                again = state_of(error) in RETRIED or state_of(error) == _CACHED
                again = again or (gone and losses < LOSSES)
                if not again or attempt == ATTEMPTS - 1:
                    raise unavailable(error) from error
                if gone:
                    lost()
            else:
                if not row["fence"]:
                    self.refused()
                    raise stale(self.part, self.epoch)
                return row
            await asyncio.sleep(PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    # -- transactions

    async def write(self, work: Callable[[asyncpg.Connection[asyncpg.Record]], Awaitable[T]]) -> T:
        """Do `work` in one transaction that only the leader can commit.

        It is done again where the server gave the transaction up because of another one, or the
        connection was lost before the commit, so it must have no effect but its statements. Where
        the answer to the commit is lost the server is asked what became of it, so it is done once.

        Raises:
            StaleLeaderError: another server leads by now; nothing was written.
            StoreUnavailableError: the database gave no answer. What was written may be there.
        """
        return await self._transaction(work, fenced=True)

    async def change(self, work: Callable[[asyncpg.Connection[asyncpg.Record]], Awaitable[T]]) -> T:
        """`write`, for what no leader owns: the lock's own row, the schema."""
        return await self._transaction(work, fenced=False)

    async def _transaction(
        self,
        work: Callable[[asyncpg.Connection[asyncpg.Record]], Awaitable[T]],
        *,
        fenced: bool,
    ) -> T:
        losses = 0
        for attempt in range(ATTEMPTS):
            transaction = None
            brought: list[T] = []
            try:
                async with self._acquired() as made, made.transaction():
                    if fenced:
                        transaction = await hold_fence(made, self.part, self.epoch)
                    brought.append(await work(made))
                return brought[0]
            except StaleLeaderError:
                self.refused()
                raise
            except (*_OF_DRIVER, OSError, TimeoutError) as error:
                lost = is_lost(error)
                if lost and brought:
                    # The commit was sent.
                    if transaction is None:
                        raise unavailable(error) from error
                    if await self._committed(transaction):
                        return brought[0]
                losses += lost
                again = state_of(error) in RETRIED or state_of(error) == _CACHED
                again = again or (lost and losses < LOSSES)
                if not again or attempt == ATTEMPTS - 1:
                    raise unavailable(error) from error
            await asyncio.sleep(PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _committed(self, transaction: str) -> bool:
        """What became of a transaction whose connection was lost.

        Raises:
            StoreUnavailableError: it goes on for a long time, or nobody knows any more.
        """
        for attempt in range(ATTEMPTS):
            state = await self.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction)
            if state in ("committed", "aborted"):
                return bool(state == "committed")
            await asyncio.sleep(PAUSE * 2**attempt)
        raise StoreUnavailableError(
            f"the database does not say whether a transaction was committed: {state}",
            store="postgres",
        )

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """A connection whose reads all see the same moment; for cursors."""
        with failing():
            async with (
                self._acquired() as made,
                made.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield made

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Any]:
        if self._pool is None:
            raise StoreUnavailableError("the database is not open", store="postgres")
        self._waiting += 1
        try:
            made = await self._pool.acquire(timeout=CONNECT)
        finally:
            self._waiting -= 1
        try:
            yield made
        finally:
            await self._pool.release(made)


async def _as_it_is(_made: asyncpg.Connection[asyncpg.Record]) -> None:
    """Nothing of a session is ever changed, so a connection needs no reset, which costs a trip."""


# --- what failures mean --------------------------------------------------------------------------


def state_of(error: BaseException) -> str | None:
    """The SQLSTATE of an error, None if it has none."""
    return getattr(error, "sqlstate", None)


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that another one may work."""
    state = state_of(error) or ""
    lost = isinstance(error, (*_BROKEN, ConnectionError))
    return lost or state.startswith(("08", "57P"))


def unavailable(error: BaseException) -> BaseException:
    """What an error of the driver means for a store: that it gives no answer, or a defect."""
    state = state_of(error) or ""
    about_server = state.startswith(_UNAVAILABLE) or state in _TIMES | _REFUSED | RETRIED
    if about_server or isinstance(error, (*_BROKEN, OSError, TimeoutError)):
        said = str(error) or "no answer in time"
        return StoreUnavailableError(f"the database gives no answer: {said}", store="postgres")
    return error


class failing:
    """Turns errors of the driver into what they mean for a store."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise what it means."""
        if isinstance(error, Exception):
            meant = unavailable(error)
            if meant is not error:
                raise meant from error


def affected(status: str) -> int:
    """How many rows a statement touched, by what the driver says of it (`UPDATE 3`)."""
    last = status.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


def columns(rows: Iterable[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Rows as one list per column, as `unnest` takes them."""
    turned: list[list[Any]] = [[] for _ in range(count)]
    for row in rows:
        for place, value in enumerate(row):
            turned[place].append(value)
    return turned
