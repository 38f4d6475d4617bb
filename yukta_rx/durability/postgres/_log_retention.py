"""Retention of the execution log: what is no longer kept goes in small steps, beside the writes.

Runs are found by a range of `run`, so that the log itself is never searched. Feature: DUR-01.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from yukta_rx.durability.postgres._log_statements import (
    DROP_CHILDREN,
    DROP_ENTRIES,
    DROP_KEYS,
    DROP_ORPHANS,
    DROP_ROOTS,
    NEWEST_CHILD,
    OLDEST_ENTRY,
    OLDEST_ROOT,
    ROWS_PER_STEP,
    RUNS_PER_STEP,
)
from yukta_rx.durability.postgres.fence import check, fenced
from yukta_rx.durability.stores.families import CrowdedOut
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.model.execution_log import STREAMS
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from typing import Any

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)


class LogRetention:
    """Drops what is no longer kept. Belongs to the loop.

    Args:
        database: where the log is.
        retained: runs that are kept at least.
        compact_after: events after which older runs are dropped.
        children: runs that others started and that are kept beside those.
        meters: where children are counted that went for their number.
        swept: forgets what is kept apart of runs that are gone.
    """

    def __init__(
        self,
        database: Database,
        retained: int,
        compact_after: int,
        children: int,
        meters: Meters | None,
        swept: Callable[[], Awaitable[None]],
    ) -> None:
        self._swept = swept
        self._children = children
        self._crowded_out = CrowdedOut("execution-log", meters)
        self._database = database
        self._retained = retained
        self._compact_after = compact_after
        self._appended = 0
        self._due: datetime | None = None
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)

    def grown(self, by: int, now: datetime) -> None:
        """Say that the log has so many events more; drops what is too old, now and then."""
        self._appended += by
        if self._appended < self._compact_after:
            return
        self._appended = 0
        self._due = now
        if not self._tasks:
            self._tasks.spawn(self._run(), "yukta execution log retention")

    async def settled(self) -> None:
        """Wait until nothing is dropped any more."""
        await self._tasks.ended()

    async def close(self) -> None:
        """Stop, wherever it is; what is left goes another time."""
        self._tasks.cancel()
        await self._tasks.ended()

    async def _run(self) -> None:
        while (now := self._due) is not None:
            self._due = None
            try:
                await self.drop(now)
            except (StoreUnavailableError, StaleLeaderError) as error:
                log.warning("the execution log is not made shorter for now: %s", error)

    async def drop(self, now: datetime) -> None:
        """Drop what is too old at a time."""
        part = self._database.part
        oldest = await self._database.fetchval(OLDEST_ROOT, part, self._retained - 1)
        if oldest is not None:
            await self._step(DROP_ROOTS, oldest, whole=RUNS_PER_STEP)
        # One by one level: those below a child go once it is gone.
        await self._step(DROP_ORPHANS, whole=1)
        crowded = await self._database.fetchval(NEWEST_CHILD, part, self._children)
        if crowded is not None:
            gone = await self._step(DROP_CHILDREN, crowded, whole=RUNS_PER_STEP)
            self._crowded_out.add(gone + await self._step(DROP_ORPHANS, whole=1))
        for stream in sorted(STREAMS):
            kept = await self._database.fetchval(OLDEST_ENTRY, part, stream, self._retained - 1)
            if kept is not None:
                await self._step(fenced(DROP_ENTRIES), stream, kept, whole=ROWS_PER_STEP)
        await self._step(fenced(DROP_KEYS), now, whole=ROWS_PER_STEP)
        await self._swept()

    async def _step(self, sql: str, *args: Any, whole: int) -> int:
        """Do a step until there is nothing left for a whole one; how many rows went."""
        part, epoch = self._database.part, self._database.epoch

        async def step(made: Any) -> int:
            # A step looks up few rows, whatever the planner believes.
            await made.execute("SET LOCAL enable_seqscan = off")
            return check(await made.fetch(sql, part, epoch, *args), part, epoch)

        total = 0
        while (gone := await self._database.write(step)) >= whole:
            total += gone
        return total + gone
