"""What can be found out about a database without changing it.  Features: DUR-04, DUR-05."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.opening import OLDEST, step
from yukta_rx.durability.postgres.partition import LOCK
from yukta_rx.durability.postgres.steps import newest

if TYPE_CHECKING:
    import asyncpg

WRITES: Final = 20
"""Commits that are measured."""

# Written ahead and made durable like any other change, and leaves nothing behind.
_WRITE: Final = "SELECT pg_logical_emit_message(true, 'yukta', 'doctor')"

_FACTS: Final = """
SELECT clock_timestamp() AS now, pg_is_in_recovery() AS replica,
    current_setting('server_version') AS version,
    current_setting('server_version_num')::int AS number,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('synchronous_commit') AS commits,
    current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int AS connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int AS used
"""

_HOLDER: Final = """
SELECT holder, taken_at FROM leader_epoch WHERE part = $1 AND EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = $2::oid AND objid = $1::oid AND objsubid = 2)
"""


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found out.

    Attributes:
        version: of PostgreSQL.
        too_old: whether it is.
        step: that the schema is at; None if it was never made.
        wanted: the step that this version needs.
        skew: seconds that the clock of the database is ahead of ours.
        commit: seconds of a transaction with one write.
        worst: seconds of the slowest one.
        forced: whether a commit is on disk when it is answered.
        replica: whether it is a copy that nobody may write.
        connections: that it has for everybody.
        free: of these.
        holder: the server that leads, with when it began; None if none does.
    """

    version: str
    too_old: bool
    step: str | None
    wanted: str
    skew: float
    commit: float
    worst: float
    forced: bool
    replica: bool
    connections: int
    free: int
    holder: str | None


async def examine(url: str) -> Examined:
    """Look at a database.

    Raises:
        StoreUnavailableError: it does not answer, or lets us not do this.
    """
    wanted = await asyncio.to_thread(newest)
    async with Database(url, size=1) as database:
        facts, skew = await _facts(database)
        at = None if facts["replica"] else await step(database)
        times = [0.0] if facts["replica"] else await _commits(database)
        holder = await _holder(database) if at == wanted else None
    return Examined(
        version=facts["version"],
        too_old=facts["number"] // 10_000 < OLDEST,
        step=at,
        wanted=wanted,
        skew=skew,
        commit=median(times),
        worst=max(times),
        forced=facts["fsync"] and facts["commits"] != "off",
        replica=facts["replica"],
        connections=facts["connections"],
        free=facts["connections"] - facts["used"] + 1,
        holder=holder,
    )


async def _facts(database: Database) -> tuple[asyncpg.Record, float]:
    await database.fetchrow(_FACTS)
    before = datetime.now(UTC)
    row = await database.fetchrow(_FACTS)
    after = datetime.now(UTC)
    assert row is not None
    middle = before + (after - before) / 2
    return row, (row["now"] - middle).total_seconds()


async def _commits(database: Database) -> list[float]:
    async def write(made: Any) -> None:
        await made.fetchval(_WRITE)

    times = []
    for _ in range(WRITES):
        began = time.perf_counter()
        await database.change(write)
        times.append(time.perf_counter() - began)
    return times


async def _holder(database: Database) -> str | None:
    row = await database.fetchrow(_HOLDER, database.part, LOCK)
    return None if row is None else f"{row['holder']}, since {row['taken_at']:%Y-%m-%d %H:%M:%S}"
