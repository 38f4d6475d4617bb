"""ClaimCheck: payloads that are too large for the rows of one store, kept apart run by run.

Features: DUR-02, DUR-04.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres.blobs import PostgresBlobStore
from yukta_rx.durability.stores.claim_check import ClaimsApart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from yukta_rx.durability.postgres.database import Database

MARK: Final = '{"apart":true,'
"""How the text of a row begins whose payload is kept apart."""


class Needed(NamedTuple):
    """Whose rows a store has.

    Attributes:
        table: the table that has one row for each run.
        run: the run of an owner, as it stands in that table.
    """

    table: str
    run: str = "owner.run"


class ClaimCheck(ClaimsApart[PostgresBlobStore]):
    """The blobs of one store in the database.

    Args:
        store: its name as an owner.
        database: where it is.
        blobs: where they are kept; None keeps every payload in its row.
        limit: size from which on a payload is kept apart; 0 for none.
        needed: where to look who is gone.
    """

    def __init__(
        self,
        store: str,
        database: Database,
        blobs: PostgresBlobStore | None,
        limit: int,
        needed: Needed,
    ) -> None:
        super().__init__(store, blobs, limit)
        self._database = database
        self._run = needed.run
        self._orphans = f"""
        SELECT DISTINCT owner.run FROM blob_owner AS owner WHERE part = $1 AND store = $2
            AND NOT EXISTS (SELECT FROM {needed.table} AS kept
                WHERE kept.part = $1 AND kept.execution_id = {needed.run})
        """
        self._writing: Counter[str] = Counter()
        """Owners whose rows are on their way."""
        self._spared: set[str] = set()
        """Those that were so at any time since the last `sweep` began."""

    @contextmanager
    def writing(self, run: str) -> Iterator[None]:
        """What is kept for a run meanwhile is needed, though no row says so yet."""
        self.begin(run)
        try:
            yield
        finally:
            self.done(run)

    def begin(self, run: str) -> None:
        """The same, until `done` was called as often."""
        self._writing[run] += 1
        self._spared.add(run)

    def done(self, run: str) -> None:
        """The row is there, or never will be."""
        self._writing[run] -= 1
        if not self._writing[run]:
            del self._writing[run]

    async def owned(self, runs: Iterable[str]) -> list[str]:
        """The owners that have something apart for some runs."""
        if self._blobs is None:
            return []
        sql = f"""
        SELECT DISTINCT owner.run FROM blob_owner AS owner
        WHERE part = $1 AND store = $2 AND {self._run} = ANY ($3::text[])
        """
        names = list(map(stored, runs))
        found = await self._database.fetch(sql, self._database.part, self._store, names)
        return [named(row["run"]) for row in found]

    async def sweep(self) -> None:
        """Forget owners of which no row is there.

        Raises:
            StoreUnavailableError: the database gives no answer.
        """
        if self._blobs is None:
            return
        # Rows that come once the database has looked are not in what it answers.
        self._spared = set(self._writing)
        found = await self._database.fetch(self._orphans, self._database.part, self._store)
        gone = [named(row["run"]) for row in found]
        await self.forget(*(run for run in gone if run not in self._spared))
