"""Rows of the execution log that cannot be read: moved aside, counted, logged and shown.

Feature: DUR-05.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yukta_rx.durability.postgres._log_statements import (
    FORGET_MARKS,
    MARK_AGAIN,
    SET_ENTRY_ASIDE,
    SET_KEY_ASIDE,
)
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.errors import StaleLeaderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.metrics import Meters

MOST_SHOWN: Final = 1000
"""Rows that are listed; all are counted, and kept in the table."""

log = logging.getLogger(__name__)


class Unreadable(NamedTuple):
    """A row, by its table and place there, and what is wrong with it."""

    table: str
    execution_id: str
    seq: int
    reason: str


class LogQuarantine:
    """What was found unreadable since this server started.

    Args:
        database: where the rows are.
        meters: where they are counted.
    """

    def __init__(self, database: Database, meters: Meters | None) -> None:
        self._database = database
        self._count = None
        if meters is not None:
            self._count = meters.counter("yukta.store.quarantined", store="execution-log")
        self._known: set[tuple[str, int]] = set()
        self.found: list[Quarantined] = []

    async def set_aside(self, rows: Sequence[Unreadable]) -> bool:
        """Move rows to `execution_log_quarantine`.

        Returns:
            False if another server leads; then they stay where they are, and are left out.

        Raises:
            StoreUnavailableError: the database gives no answer.
        """
        moved = True
        try:
            await self._database.write(lambda made: self._move(made, rows))
        except StaleLeaderError:
            moved = False
        for row in rows:
            self._tell(row, moved)
        return moved

    def _tell(self, row: Unreadable, moved: bool) -> None:
        if (row.execution_id, row.seq) in self._known:
            return
        self._known.add((row.execution_id, row.seq))
        place = f"{row.table}, run {row.execution_id}, seq {row.seq}"
        about = Quarantined(place=place, reason=row.reason)
        if len(self.found) < MOST_SHOWN:
            self.found.append(about)
        what = "the row was moved to execution_log_quarantine" if moved else "the row is left out"
        log.error("%s; %s", about, what)
        if self._count is not None:
            self._count.add(1)

    async def _move(self, made: Any, rows: Sequence[Unreadable]) -> None:
        part, epoch = self._database.part, self._database.epoch
        for row in rows:
            move = SET_KEY_ASIDE if row.table == "idempotency_key" else SET_ENTRY_ASIDE
            await made.execute(move, part, epoch, row.execution_id, row.seq, row.reason)
        for run in sorted({row.execution_id for row in rows if row.table == "execution_log"}):
            # Whoever writes to that run meanwhile waits, and adds to what is marked here.
            await made.execute(FORGET_MARKS, part, run)
            await made.execute(MARK_AGAIN, part, epoch, run)
