"""Workflow definitions in PostgreSQL: each read asks the database, each write is one transaction.

A row that cannot be read is left alone, noted, and refused when somebody asks for it; where a new
one takes its place, it goes to `quarantined_row`. Features: DEF-01, DUR-04.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from yukta_rx.durability.postgres._definition_commit import Commit
from yukta_rx.durability.postgres._definition_rows import Rows, current_place, version_place
from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres._together import Together
from yukta_rx.durability.stores.definitions import DAMAGED, RETAINED_VERSIONS, WorkflowRecord
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.durability.stores.sessions import SessionChange
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.metrics import Meters

READ_AT_ONCE: Final = 20
"""Texts that are read before others have their turn on the loop."""

# The note is looked up by its key: a join without statistics reads all versions for each of them.
CURRENT: Final = """
SELECT d.session_id, d.workflow_id, d.version, d.record, (
    SELECT r.note FROM workflow_definition_revision r
    WHERE r.part = d.part AND r.session_id = d.session_id AND r.workflow_id = d.workflow_id
      AND r.version = d.version) AS note
FROM workflow_definition d WHERE d.part = $1
"""
SOME: Final = f"""{CURRENT} AND (d.session_id, d.workflow_id) IN (
    SELECT * FROM unnest($2::text[], $3::text[]))"""
OF_SESSION: Final = f"{CURRENT} AND d.session_id = $2"

VERSIONS: Final = (
    "SELECT version, record, note FROM workflow_definition_revision "
    "WHERE part = $1 AND session_id = $2 AND workflow_id = $3 ORDER BY version DESC"
)
VERSION: Final = (
    "SELECT version, record, note FROM workflow_definition_revision "
    "WHERE part = $1 AND session_id = $2 AND workflow_id = $3 AND version = $4"
)

LOCK: Final = (
    "SELECT 1 FROM workflow_number "
    "WHERE part = $1 AND session_id = $2 AND workflow_id = $3 FOR UPDATE"
)
TO_NOTE: Final = (
    "SELECT record, place FROM (SELECT version, record, row_number() OVER (ORDER BY version DESC) "
    "AS place FROM workflow_definition_revision "
    "WHERE part = $1 AND session_id = $2 AND workflow_id = $3) AS kept WHERE version = $4"
)
NOTE: Final = (
    "UPDATE workflow_definition_revision SET note = $6, epoch = $5 "
    "WHERE part = $1 AND session_id = $2 AND workflow_id = $3 AND version = $4"
)
DROP: Final = (
    "DELETE FROM workflow_definition_revision "
    "WHERE part = $1 AND session_id = $2 AND workflow_id = $3 AND version = $4"
)


class PostgresWorkflowDefinitionStore:
    """See `WorkflowDefinitionStore`; what was written outlives the process and its server.

    Args:
        database: open as long as the store is.
        keep: how many of the newest versions stay.
        meters: where what cannot be read is counted.
    """

    durable = True

    def __init__(
        self, database: Database, keep: int = RETAINED_VERSIONS, meters: Meters | None = None
    ) -> None:
        self.database = database
        self.keep = keep
        self.rows = Rows(meters)
        # Every start reads one, and many start at the same time.
        self._rows_of: Together[tuple[str, str], Any] = Together(self._some)

    async def _some(self, keys: Sequence[tuple[str, str]]) -> Sequence[Any]:
        given = map(list, zip(*keys, strict=True))
        rows = await self.database.fetch(SOME, self.database.part, *given)
        found = {(row["session_id"], row["workflow_id"]): row for row in rows}
        return [found.get(key) for key in keys]

    async def open(self) -> None:
        """Look at every current form once, so that it is known what cannot be read.

        Raises:
            StoreUnavailableError: the database gives no answer.
        """
        async with self.database.snapshot() as made:
            async for row in made.cursor(CURRENT, self.database.part, prefetch=READ_AT_ONCE):
                self._current(row)
            sessions = "SELECT session_id, record FROM session_config WHERE part = $1"
            async for row in made.cursor(sessions, self.database.part, prefetch=READ_AT_ONCE):
                self.rows.session(row["session_id"], row["record"])

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """What is in the database and cannot be read, of sessions too."""
        return tuple(self.rows.faults.values())

    async def get(self, session_id: str, workflow_id: str) -> WorkflowRecord | None:
        """The current form, None if there is none.

        Raises:
            StoreUnavailableError: it is there and cannot be read; names the row and the place.
        """
        row = await self._rows_of((stored(session_id), stored(workflow_id)))
        if row is None:
            self.rows.faults.pop(current_place(session_id, workflow_id), None)
            return None
        found = self._current(row)
        if isinstance(found, Quarantined):
            raise refused(found)
        return found

    async def list(self, session_id: str) -> Sequence[WorkflowRecord]:
        """The current form of every workflow of a session, by id; without what is quarantined."""
        rows = await self.database.fetch(OF_SESSION, self.database.part, stored(session_id))
        made = [await self._in_turn(row) for row in sorted(rows, key=lambda row: row[1])]
        return [one for one in made if isinstance(one, WorkflowRecord)]

    async def versions(self, session_id: str, workflow_id: str) -> Sequence[WorkflowRecord]:
        """Every version that is kept, newest first; without what is quarantined."""
        rows = await self.database.fetch(VERSIONS, *self._key(session_id, workflow_id))
        made = [self._version(session_id, workflow_id, row) for row in rows]
        return [one for one in made if isinstance(one, WorkflowRecord)]

    async def version(
        self, session_id: str, workflow_id: str, version: int
    ) -> WorkflowRecord | None:
        """One version, None if it is not kept (any more)."""
        if not is_number(version):
            return None
        key = self._key(session_id, workflow_id)
        row = await self.database.fetchrow(VERSION, *key, version)
        if row is None:
            return None
        found = self._version(session_id, workflow_id, row)
        if isinstance(found, Quarantined):
            raise StoreUnavailableError(str(found), store="postgres")
        return found

    async def write(
        self, session_id: str, put: Iterable[WorkflowRecord], remove: Iterable[str] = ()
    ) -> Sequence[WorkflowRecord]:
        """Store records and remove workflows of one session, together."""
        change = SessionChange(session_id=session_id, put=tuple(put), remove=tuple(remove))
        return await self.commit((change,))

    async def commit(self, changes: Sequence[SessionChange]) -> Sequence[WorkflowRecord]:
        """Carry out all changes of workflows and sessions, or none."""
        return await Commit(self.database, self.rows, self.keep, changes).carry_out()

    async def annotate(
        self, session_id: str, workflow_id: str, version: int, note: str | None
    ) -> WorkflowRecord | None:
        """Set or take away the note of a version; None if it is not kept (any more)."""
        if not is_number(version):
            return None
        key = self._key(session_id, workflow_id)
        kept_note = None if not note else stored(note)

        async def work(made: Any) -> WorkflowRecord | None:
            await made.fetchval(LOCK, *key)
            row = await made.fetchrow(TO_NOTE, *key, version)
            if row is None:
                return None
            place = version_place(session_id, workflow_id, version)
            found = self.rows.version(place, session_id, workflow_id, version, row["record"])
            if isinstance(found, Quarantined):
                raise StoreUnavailableError(str(found), store="postgres")
            if kept_note is None and row["place"] > self.keep:
                await made.execute(DROP, *key, version)
            else:
                await made.execute(NOTE, *key, version, self.database.epoch, kept_note)
            return replace(found, note=note or None)

        return await self.database.write(work)

    # -- parts

    def _key(self, session_id: str, workflow_id: str) -> tuple[int, str, str]:
        return self.database.part, stored(session_id), stored(workflow_id)

    async def _in_turn(self, row: Any) -> WorkflowRecord | Quarantined:
        before = self.rows.read
        made = self._current(row)
        if self.rows.read != before and self.rows.read % READ_AT_ONCE == 0:
            await asyncio.sleep(0)
        return made

    def _current(self, row: Any) -> WorkflowRecord | Quarantined:
        place = current_place(row["session_id"], row["workflow_id"])
        return _noted(self.rows.version(place, *row[:4]), row["note"])

    def _version(self, session_id: str, workflow_id: str, row: Any) -> WorkflowRecord | Quarantined:
        place = version_place(session_id, workflow_id, row["version"])
        found = self.rows.version(place, session_id, workflow_id, row["version"], row["record"])
        return _noted(found, row["note"])


def refused(fault: Quarantined) -> StoreUnavailableError:
    """Return the error of what is there and cannot be read."""
    members: dict[str, Any] = {DAMAGED: fault.place}
    detail = f"{fault}; correct the row, or save it anew"
    return StoreUnavailableError(detail, store="postgres", **members)


def is_number(version: int) -> bool:
    """Whether a version can be that of a row."""
    return 0 < version < 2**63


def _noted(found: WorkflowRecord | Quarantined, note: str | None) -> WorkflowRecord | Quarantined:
    if isinstance(found, Quarantined) or note is None:
        return found
    return replace(found, note=named(note))
