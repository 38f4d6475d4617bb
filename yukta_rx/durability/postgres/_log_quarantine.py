"""Rows of the execution log that cannot be read: moved aside, counted, logged and shown.

Feature: DUR-05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from yukta_rx.durability.postgres._left_out import LeftOut
from yukta_rx.durability.postgres._log_statements import (
    FORGET_MARKS,
    MARK_AGAIN,
    SET_ENTRY_ASIDE,
    SET_KEY_ASIDE,
)
from yukta_rx.errors import StaleLeaderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters


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
        self._left_out = LeftOut("execution-log", meters)

    @property
    def found(self) -> Sequence[Quarantined]:
        """The rows, as they are listed."""
        return self._left_out.found

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
        what = "the row was moved to execution_log_quarantine" if moved else "the row is left out"
        for row in rows:
            place = f"{row.table}, run {row.execution_id}, seq {row.seq}"
            self._left_out.add(place, row.reason, what)
        return moved

    async def _move(self, made: Any, rows: Sequence[Unreadable]) -> None:
        part, epoch = self._database.part, self._database.epoch
        for row in rows:
            move = SET_KEY_ASIDE if row.table == "idempotency_key" else SET_ENTRY_ASIDE
            await made.execute(move, part, epoch, row.execution_id, row.seq, row.reason)
        for run in sorted({row.execution_id for row in rows if row.table == "execution_log"}):
            # Whoever writes to that run meanwhile waits, and adds to what is marked here.
            parent = await made.fetchval(FORGET_MARKS, part, run)
            await made.execute(MARK_AGAIN, part, epoch, run, parent)
