"""ClaimCheck: payloads that are too large for the rows of one store, kept apart run by run.

The twin of that in files: a payload is kept before a row refers to it, and what a crash left in
between is needed by no row, which the next start finds out.

Features: DUR-02, DUR-04.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.stores.blobs import Owner, claim, opened_as
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.model.codec import Blob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.model.claim import Claim

log = logging.getLogger(__name__)

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


class ClaimCheck:
    """The blobs of one store.

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
        self._store = store
        self._database = database
        self._blobs = blobs
        self._limit = limit if blobs is not None else 0
        self._run = needed.run
        self._orphans = f"""
        SELECT DISTINCT owner.run FROM blob_owner AS owner WHERE part = $1 AND store = $2
            AND NOT EXISTS (SELECT FROM {needed.table} AS kept
                WHERE kept.part = $1 AND kept.execution_id = {needed.run})
        """
        self._writing: set[str] = set()
        """Owners whose rows are on their way."""

    def text_of(self, payload: Any, line: int) -> bytes | None:
        """The text of a payload that has to be kept apart; None for others.

        Args:
            payload: the payload; it can be written.
            line: bytes of the row with it.
        """
        if not self._limit or (line <= self._limit and not isinstance(payload, Blob)):
            return None
        return claim(payload, self._limit)

    @contextmanager
    def writing(self, run: str) -> Iterator[None]:
        """What is kept for a run meanwhile is needed, though no row says so yet."""
        self._writing.add(run)
        try:
            yield
        finally:
            self._writing.discard(run)

    async def put(self, run: str, text: bytes) -> Blob:
        """Keep a text for a run, before it is referred to.

        Raises:
            StoreUnavailableError: it could not be written.
        """
        return await self._kept().put(Owner(self._store, run), text)

    async def refer(self, run: str, claim: Claim) -> None:
        """Keep for a run what a reference stands for, before it is written down.

        Raises:
            StoreUnavailableError: that could not be done.
        """
        blobs, owner, text = self._kept(), Owner(self._store, run), claim.text
        if text is not None:
            await blobs.put(owner, text)
            return
        try:
            await self._database.write(lambda made: blobs.share_with(made, owner, (claim.sha256,)))
        except StoreUnavailableError as error:
            if "sha256" not in error.members:
                raise
            # It is gone; who wants to read it is told, and all others are served.
            log.error("%s of %s: %s", self._store, run, error)

    async def opened(self, payload: Any, what: str) -> Any:
        """The payload that a row refers to; `what` names it where that fails.

        Raises:
            StoreUnavailableError: it is missing or damaged, or cannot be read; names the blob.
        """
        return await opened_as(self._blobs, payload, what)

    async def forget(self, owners: Iterable[str]) -> None:
        """They need nothing any more. What cannot be removed goes at the next start."""
        if self._blobs is None:
            return
        for run in owners:
            try:
                await self._blobs.forget(Owner(self._store, run))
            except (StoreUnavailableError, StaleLeaderError) as error:
                log.warning("large payloads of run %s are removed later: %s", run, error)

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
        found = await self._database.fetch(self._orphans, self._database.part, self._store)
        gone = [named(row["run"]) for row in found]
        await self.forget([run for run in gone if run not in self._writing])

    def _kept(self) -> PostgresBlobStore:
        if self._blobs is None:
            raise StoreUnavailableError("there is no store of blobs")
        return self._blobs
