"""Commit: one transaction over sessions and workflows, locked in one order of tables and names.

Sessions first, then the numbers of workflows, whose rows make writers of one workflow wait for
each other, then definitions and versions. Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from yukta_rx.durability.postgres._definition_rows import (
    current_place,
    session_place,
    session_row,
    version_place,
    version_row,
)
from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres.database import columns
from yukta_rx.durability.stores.definitions import WorkflowRecord, retained
from yukta_rx.durability.stores.quarantine import Quarantined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from yukta_rx.durability.postgres._definition_rows import Rows
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.sessions import SessionChange

    Name = tuple[str, str]

WRITTEN_AT_ONCE: Final = 20
"""Workflows whose texts are written before others have their turn on the loop."""

LOCK_SESSIONS: Final = (
    "SELECT session_id, record FROM session_config WHERE part = $1 AND session_id = ANY($2) "
    "ORDER BY session_id FOR UPDATE"
)
PUT_SESSIONS: Final = (
    "INSERT INTO session_config (part, epoch, session_id, record, updated_at) "
    "SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::timestamptz[]) "
    "ON CONFLICT (part, session_id) DO UPDATE "
    "SET epoch = excluded.epoch, record = excluded.record, updated_at = excluded.updated_at"
)
REMOVE_SESSIONS: Final = "DELETE FROM session_config WHERE part = $1 AND session_id = ANY($2)"

OF_SESSIONS: Final = (
    "SELECT session_id, workflow_id, version, record FROM workflow_definition "
    "WHERE part = $1 AND session_id = ANY($2)"
)

# Names come in one order, so that two writers wait for each other and not both.
NEW_NUMBERS: Final = (
    "INSERT INTO workflow_number (part, epoch, session_id, workflow_id, last_version) "
    "SELECT $1, $2, session_id, workflow_id, 0 "
    "FROM unnest($3::text[], $4::text[]) AS given (session_id, workflow_id) ON CONFLICT DO NOTHING"
)
LOCK_NUMBERS: Final = """
SELECT n.session_id, n.workflow_id, n.last_version
FROM unnest($2::text[], $3::text[]) AS given (session_id, workflow_id)
JOIN LATERAL (
    SELECT * FROM workflow_number n
    WHERE n.part = $1 AND n.session_id = given.session_id AND n.workflow_id = given.workflow_id
    LIMIT 1 FOR UPDATE) AS n ON true
"""

# The text of a current form is only needed where it may be the same, or is kept nowhere else. Each
# is looked up by its key: a join without statistics reads all versions for each of them.
CURRENTS: Final = """
SELECT d.session_id, d.workflow_id, d.version, r.note,
       d.record IS DISTINCT FROM r.record AS strange,
       CASE WHEN d.definition_version = ANY($4) OR given.suspect
                 OR d.record IS DISTINCT FROM r.record
            THEN d.record END AS record
FROM unnest($2::text[], $3::text[], $5::bool[]) AS given (session_id, workflow_id, suspect)
JOIN LATERAL (
    SELECT * FROM workflow_definition d
    WHERE d.part = $1 AND d.session_id = given.session_id AND d.workflow_id = given.workflow_id
    LIMIT 1) AS d ON true
LEFT JOIN LATERAL (
    SELECT r.note, r.record FROM workflow_definition_revision r
    WHERE r.part = $1 AND r.session_id = d.session_id AND r.workflow_id = d.workflow_id
      AND r.version = d.version LIMIT 1) AS r ON true
"""

REMOVE: Final = """
WITH currents AS (
    DELETE FROM workflow_definition WHERE part = $1 AND session_id = $2 AND workflow_id = ANY($3)
)
DELETE FROM workflow_definition_revision
WHERE part = $1 AND session_id = $2 AND workflow_id = ANY($3)
"""

# What is new and what goes for it are one statement: nobody ever sees more versions than are kept.
PUT: Final = """
WITH given AS (
    SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[],
                         $8::timestamptz[], $9::text[], $10::bool[])
    AS given (session_id, workflow_id, version, definition_version, record, updated_at, note,
              newest)
), room AS (
    SELECT session_id, workflow_id, $11 - count(*) AS places, max(version) AS last_version
    FROM given GROUP BY session_id, workflow_id
), numbers AS (
    INSERT INTO workflow_number (part, epoch, session_id, workflow_id, last_version)
    SELECT $1, $2, session_id, workflow_id, last_version FROM room
    ON CONFLICT (part, session_id, workflow_id) DO UPDATE
    SET epoch = excluded.epoch, last_version = excluded.last_version
), currents AS (
    INSERT INTO workflow_definition
        (part, epoch, session_id, workflow_id, version, definition_version, record, updated_at)
    SELECT $1, $2, session_id, workflow_id, version, definition_version, record, updated_at
    FROM given WHERE newest
    ON CONFLICT (part, session_id, workflow_id) DO UPDATE
    SET epoch = excluded.epoch, version = excluded.version, record = excluded.record,
        definition_version = excluded.definition_version, updated_at = excluded.updated_at
), added AS (
    INSERT INTO workflow_definition_revision
        (part, epoch, session_id, workflow_id, version, definition_version, record, updated_at,
         note)
    SELECT $1, $2, session_id, workflow_id, version, definition_version, record, updated_at, note
    FROM given
), aged AS MATERIALIZED (
    SELECT room.session_id, room.workflow_id, r.version FROM room JOIN LATERAL (
        SELECT version, note, row_number() OVER (ORDER BY version DESC) AS place
        FROM workflow_definition_revision r
        WHERE r.part = $1 AND r.session_id = room.session_id AND r.workflow_id = room.workflow_id
    ) AS r ON r.note IS NULL AND r.place > room.places
)
DELETE FROM workflow_definition_revision r USING aged
WHERE r.part = $1 AND r.session_id = aged.session_id AND r.workflow_id = aged.workflow_id
  AND r.version = aged.version
RETURNING r.session_id, r.workflow_id, r.version
"""

SET_ASIDE: Final = (
    "INSERT INTO quarantined_row (part, epoch, place, row, reason) "
    "SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::text[]) RETURNING seq, place, reason"
)


class _Workflow:
    """What becomes of one workflow.

    Attributes:
        current: its current form, None if there is none or it cannot be read.
        there: whether it has rows.
        last: the highest number that it ever had.
        new: its versions that are not written yet, oldest first.
        removed: whether its rows go before they are.
    """

    __slots__ = ("current", "last", "new", "removed", "there")

    def __init__(self, last: int) -> None:
        self.current: WorkflowRecord | None = None
        self.there = False
        self.last = last
        self.new: list[WorkflowRecord] = []
        self.removed = False


class Commit:
    """All changes of one commit.

    Args:
        database: where.
        rows: reads what is there.
        keep: how many of the newest versions of a workflow stay.
        changes: each about another session.
    """

    def __init__(
        self, database: Database, rows: Rows, keep: int, changes: Sequence[SessionChange]
    ) -> None:
        self._database = database
        self._rows = rows
        self._keep = keep
        self._changes = [change for change in changes if not _is_empty(change)]
        self._hashes = [record.definition_version for one in changes for record in one.put]
        self._begin()

    def _begin(self) -> None:
        self._found: dict[Name, _Workflow] = {}
        self._aside: list[tuple[str, str, str]] = []
        self._stray: dict[Name, tuple[str, str, str]] = {}
        """Current texts that stand in no version: kept if another one comes."""
        self._damaged: dict[Name, tuple[str, str, str]] = {}
        """Those that cannot be read: kept if their workflow goes, with its versions."""
        self._gone: list[str] = []
        self._faults: list[Quarantined] = []

    async def carry_out(self) -> list[WorkflowRecord]:
        """Do it; what is current now of each workflow that was put, numbered, in their order."""
        if not self._changes:
            return []
        current = await self._database.write(self._work)
        self._settle()
        return current

    async def _work(self, made: Any) -> list[WorkflowRecord]:
        # A transaction may be tried several times.
        self._begin()
        await self._sessions(made)
        broken = await self._broken(made)
        await self._find(made, broken)
        current = [record for change in self._changes for record in self._plan(change, broken)]
        await self._write(made)
        return current

    # -- what is there

    async def _sessions(self, made: Any) -> None:
        part, epoch = self._database.part, self._database.epoch
        put = {one.session_id: one for one in self._changes if one.record and not one.gone}
        gone = [one.session_id for one in self._changes if one.gone]
        if not put and not gone:
            return
        names = [stored(name) for name in (*put, *gone)]
        for row in await made.fetch(LOCK_SESSIONS, part, names):
            self._check(session_place(row["session_id"]), row["record"], row["session_id"])
        if gone:
            await made.execute(REMOVE_SESSIONS, part, [stored(name) for name in gone])
        if put:
            rows = [
                (stored(name), session_row(change.record), change.record.updated_at)
                for name, change in sorted(put.items())
                if change.record is not None
            ]
            await made.execute(PUT_SESSIONS, part, epoch, *columns(rows, 3))
        self._gone += [session_place(name) for name in (*put, *gone)]

    def _check(self, place: str, text: str, session_id: str) -> None:
        """Keep the text of a session that cannot be read and goes."""
        found = self._rows.session(session_id, text)
        if isinstance(found, Quarantined):
            self._aside.append((place, text, found.reason))

    async def _broken(self, made: Any) -> dict[str, list[str]]:
        """By session that goes: its workflows that cannot be read, which nobody can name."""
        gone = {one.session_id: set(one.remove) for one in self._changes if one.gone}
        broken: dict[str, list[str]] = {}
        if gone:
            rows = await made.fetch(OF_SESSIONS, self._database.part, [stored(one) for one in gone])
            for row in rows:
                session_id, workflow_id, version, text = row
                if workflow_id in gone[session_id]:
                    continue
                place = current_place(session_id, workflow_id)
                found = self._rows.version(place, session_id, workflow_id, version, text)
                if isinstance(found, Quarantined):
                    broken.setdefault(session_id, []).append(workflow_id)
        return broken

    async def _find(self, made: Any, broken: dict[str, list[str]]) -> None:
        """Lock every workflow that changes, and see what is there of it."""
        part, epoch = self._database.part, self._database.epoch
        put = sorted(
            {(one.session_id, item.workflow_id) for one in self._changes for item in one.put}
        )
        removed = {(one.session_id, name) for one in self._changes for name in one.remove}
        removed |= {(session_id, name) for session_id, names in broken.items() for name in names}
        names = sorted({*put, *removed})
        if not names:
            return
        if put:
            await made.execute(NEW_NUMBERS, part, epoch, *_names(put))
        for row in await made.fetch(LOCK_NUMBERS, part, *_names(names)):
            self._found[row["session_id"], row["workflow_id"]] = _Workflow(row["last_version"])
        suspect = [current_place(*name) in self._rows.faults for name in names]
        for row in await made.fetch(CURRENTS, part, *_names(names), self._hashes, suspect):
            self._take(row)

    def _take(self, row: Any) -> None:
        name = row["session_id"], row["workflow_id"]
        workflow = self._found.setdefault(name, _Workflow(0))
        workflow.there = True
        workflow.last = max(workflow.last, row["version"])
        if row["record"] is None:
            return
        place = current_place(*name)
        found = self._rows.version(place, *name, row["version"], row["record"])
        if isinstance(found, WorkflowRecord):
            note = row["note"]
            workflow.current = found if note is None else replace(found, note=named(note))
        unreadable = found.reason if isinstance(found, Quarantined) else None
        if row["strange"]:
            reason = unreadable or "is not the text of its version"
            self._stray[name] = (place, row["record"], reason)
        if unreadable is not None:
            self._damaged[name] = (place, row["record"], unreadable)

    # -- what becomes of it

    def _plan(self, change: SessionChange, broken: dict[str, list[str]]) -> list[WorkflowRecord]:
        session_id = change.session_id
        gone = (*change.remove, *(broken.get(session_id, ()) if change.gone else ()))
        for workflow_id in dict.fromkeys(gone):
            workflow = self._found.get((session_id, workflow_id))
            if workflow is not None:
                workflow.removed |= workflow.there
                workflow.current = None
                workflow.new.clear()
        return [self._add(session_id, record) for record in change.put]

    def _add(self, session_id: str, record: WorkflowRecord) -> WorkflowRecord:
        workflow = self._found[session_id, record.workflow_id]
        if workflow.current is not None and record.same_as(workflow.current):
            return workflow.current
        workflow.last += 1
        numbered = replace(
            record, session_id=session_id, version=workflow.last, note=record.note or None
        )
        workflow.new.append(numbered)
        workflow.current = numbered
        return numbered

    async def _write(self, made: Any) -> None:
        part, epoch = self._database.part, self._database.epoch
        removed: dict[str, list[str]] = {}
        for (session_id, workflow_id), workflow in self._found.items():
            if workflow.removed:
                removed.setdefault(stored(session_id), []).append(stored(workflow_id))
        for session_id, workflow_ids in removed.items():
            await made.execute(REMOVE, part, session_id, workflow_ids)
        rows: list[tuple[Any, ...]] = []
        for number, workflow in enumerate(self._found.values()):
            rows += self._new_rows(workflow)
            if number % WRITTEN_AT_ONCE == 0:
                await asyncio.sleep(0)
        if rows:
            for row in await made.fetch(PUT, part, epoch, *columns(rows, 8), self._keep):
                self._gone.append(version_place(*row))
        for name, workflow in self._found.items():
            kept = self._damaged if workflow.removed else self._stray if workflow.new else {}
            if name in kept:
                self._aside.append(kept[name])
        if self._aside:
            texts = [(place, stored(text), reason) for place, text, reason in self._aside]
            for row in await made.fetch(SET_ASIDE, part, epoch, *columns(texts, 3)):
                place = f"quarantined_row {row['seq']}"
                reason = (
                    f"was {row['place']}, set aside since its place was wanted: {row['reason']}"
                )
                self._faults.append(Quarantined(place=place, reason=reason))

    def _new_rows(self, workflow: _Workflow) -> Iterable[tuple[Any, ...]]:
        for record in retained(workflow.new, self._keep):
            note = None if record.note is None else stored(record.note)
            newest = record is workflow.new[-1]
            yield (
                *(stored(record.session_id), record.workflow_id, record.version),
                *(record.definition_version, version_row(record), record.updated_at, note, newest),
            )

    def _settle(self) -> None:
        """Forget what could not be read and is gone."""
        for place in self._gone:
            self._rows.faults.pop(place, None)
        for (session_id, workflow_id), workflow in self._found.items():
            if workflow.removed:
                self._rows.forget(session_id, workflow_id)
            elif workflow.new:
                self._rows.faults.pop(current_place(session_id, workflow_id), None)
        for fault in self._faults:
            self._rows.faults[fault.place] = fault


def _is_empty(change: SessionChange) -> bool:
    return not (change.put or change.remove or change.gone or change.record)


def _names(names: Iterable[Name]) -> list[list[str]]:
    return columns(((stored(session), stored(workflow)) for session, workflow in names), 2)
