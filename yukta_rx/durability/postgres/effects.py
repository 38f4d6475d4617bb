"""Effects in a table; what several messages did at the same time is one statement.

Features: DUR-02, DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeAlias

from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.postgres._writer import Writer
from yukta_rx.durability.postgres.database import columns
from yukta_rx.durability.postgres.fence import FENCE, stale
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.effects import EffectKey

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Columns: TypeAlias = tuple[str, str, str, str]

STORE: Final = "effects"
"""In the table, which is shared with what other stores did once."""

STEP: Final = 1000
"""Effects that are removed in one transaction."""

# What was there before is read as it was, and what is new is what was given: an effect is in
# exactly one of the two.
_RECORD: Final = f"""
WITH fence AS ({FENCE}), given AS (
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[])
        WITH ORDINALITY AS given (lineage, node_id, message_id, name, result, nth)
), put AS (
    INSERT INTO effect (part, epoch, store, lineage, node_id, message_id, name, result)
    SELECT $1, $2, '{STORE}', lineage, node_id, message_id, name, result FROM fence, given
    ON CONFLICT DO NOTHING RETURNING lineage, node_id, message_id, name
)
SELECT (SELECT count(*) FROM fence) AS fence, put.lineage IS NOT NULL AS fresh, effect.result
FROM given
LEFT JOIN put USING (lineage, node_id, message_id, name)
LEFT JOIN effect ON effect.part = $1 AND effect.store = '{STORE}'
    AND effect.lineage = given.lineage AND effect.node_id = given.node_id
    AND effect.message_id = given.message_id AND effect.name = given.name
ORDER BY given.nth
"""

_FIND: Final = f"""
SELECT result FROM effect WHERE part = $1 AND store = '{STORE}'
    AND lineage = $2 AND node_id = $3 AND message_id = $4 AND name = $5
"""

_COUNT: Final = f"SELECT count(*) FROM effect WHERE part = $1 AND store = '{STORE}'"

_OF_LINEAGES: Final = f"""
SELECT FROM effect WHERE part = $1 AND store = '{STORE}' AND lineage = ANY ($2::text[])
"""

_FORGET: Final = f"""
DELETE FROM effect WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM effect WHERE part = $1 AND store = '{STORE}' AND lineage = ANY ($2::text[])
    LIMIT $3))
RETURNING 1
"""


class _Asked:
    """A record on its way, and then what stands."""

    __slots__ = ("columns", "result", "said")

    def __init__(self, key: Columns, result: bytes) -> None:
        self.columns = key
        self.result = result
        self.said = False
        """Said before, and nobody heard whether it was written."""


class PostgresEffectStore:
    """See `EffectStore`; an async context. Nothing is forgotten for want of room.

    Args:
        database: where they are.
    """

    durable = True
    dropped = 0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer: Writer[_Asked] | None = None
        self.kept = 0
        """Effects that are kept."""

    async def __aenter__(self) -> Self:
        """Count what is there."""
        self.kept = await self._database.fetchval(_COUNT, self._database.part)
        writer: Writer[_Asked] = Writer(self._database, STORE, self._write)
        self._writer = await writer.__aenter__()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Write what waits."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.__aexit__()

    async def find(self, key: EffectKey) -> bytes | None:
        """What was recorded, None if nothing was."""
        found: bytes | None = await self._database.fetchval(
            _FIND, self._database.part, *_columns(key)
        )
        return found

    async def record(self, key: EffectKey, result: bytes) -> bytes:
        """Record what an effect gave, unless it is recorded; what stands."""
        if self._writer is None:
            raise StoreUnavailableError("the store of effects is not open", store=STORE)
        asked = _Asked(_columns(key), result)
        await self._writer.put(asked, len(result) + 400)
        return asked.result

    async def _write(self, made: Connection, asked: Sequence[_Asked]) -> None:
        database = self._database
        firsts: dict[Columns, _Asked] = {}
        for one in asked:
            firsts.setdefault(one.columns, one)
        given = columns([(*one.columns, one.result) for one in firsts.values()], 5)
        said = [one.said for one in firsts.values()]
        for one in firsts.values():
            one.said = True
        rows = await made.fetch(_RECORD, database.part, database.epoch, *given)
        if not rows[0]["fence"]:
            raise stale(database.part, database.epoch)
        stands: dict[Columns, bytes] = {}
        for one, before, row in zip(firsts.values(), said, rows, strict=True):
            result = one.result if row["fresh"] else row["result"]
            if result is None:
                # Written by a statement that was thought lost, at the same moment.
                result = await made.fetchval(_FIND, database.part, *one.columns)
            stands[one.columns] = result
            self.kept += row["fresh"] or (before and result == one.result)
        for one in asked:
            one.result = stands[one.columns]

    async def forget(self, *lineages: str) -> None:
        """Remove all effects of some lineages."""
        if self._writer is None:
            raise StoreUnavailableError("the store of effects is not open", store=STORE)
        await self._writer.flushed()
        part, gone, given = self._database.part, STEP, list(map(stored, lineages))
        # Most lineages have none, and to look costs no commit.
        there = await self._database.any(_OF_LINEAGES, given)
        while there and gone == STEP:
            gone = await self._database.write(lambda made: _forget(made, part, given))
            self.kept -= gone


async def _forget(made: Connection, part: int, lineages: list[str]) -> int:
    return len(await made.fetch(_FORGET, part, lineages, STEP))


def _columns(key: EffectKey) -> Columns:
    return stored(key.lineage), stored(key.node_id), stored(key.message_id), stored(key.name)
