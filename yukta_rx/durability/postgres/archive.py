"""Recent runs in a table.  Features: CTL-04, DUR-02, DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

from yukta_rx.durability.postgres._quarantine import Quarantine
from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres._together import Together
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.durability.stores.rows import from_row, to_row
from yukta_rx.errors import YuktaError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

_UNREADABLE: Final = (
    *(YuktaError, KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError),
)
"""What is raised about text that is no run."""

_TURN: Final = 1_937_077_061
"""The lock of those who put a run, as PostgreSQL knows it."""

_PUT: Final = """
INSERT INTO execution_archive (part, epoch, execution_id, run)
SELECT $1, $2, given.id, given.run
FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS given (id, run, nth) ORDER BY nth
ON CONFLICT (part, execution_id) DO UPDATE SET
    epoch = excluded.epoch, run = excluded.run, place = DEFAULT
"""

_TRIM: Final = """
WITH gone AS (
    DELETE FROM execution_archive WHERE part = $1 AND place <= (
        SELECT place FROM execution_archive WHERE part = $1
        ORDER BY place DESC OFFSET $2 LIMIT 1)
    RETURNING execution_id, place)
SELECT execution_id FROM gone ORDER BY place
"""

_GET: Final = "SELECT run FROM execution_archive WHERE part = $1 AND execution_id = $2"

_IDS: Final = "SELECT execution_id FROM execution_archive WHERE part = $1 ORDER BY place"

_REMOVE: Final = "DELETE FROM execution_archive WHERE part = $1 AND execution_id = $2"


class PostgresExecutionArchiveStore:
    """See `ExecutionArchiveStore`.

    Args:
        database: where they are.
        meters: where rows are counted that cannot be read.
    """

    durable = True

    def __init__(self, database: Database, *, meters: Meters | None = None) -> None:
        self._database = database
        self._quarantine = Quarantine("archive", meters)
        self._put: Together[tuple[str, str, int], Sequence[str]] = Together(self._put_all)

    async def start(self) -> None:
        """Nothing to read."""

    async def close(self) -> None:
        """Write what waits."""
        await self._put.ended()

    async def __aenter__(self) -> Self:
        """`start`."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """`close`."""
        await self.close()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Rows that could not be read, since this server started."""
        return self._quarantine.found

    async def put(self, run: ArchivedRun, retain: int) -> Sequence[str]:
        """Keep a run among the newest `retain`; the ids of those that had to go."""
        text = codec.encode(to_row(run)).decode()
        return await self._put((stored(run.execution_id), text, max(0, retain)))

    async def _put_all(self, asked: Sequence[tuple[str, str, int]]) -> Sequence[Sequence[str]]:
        database = self._database
        runs: dict[str, str] = {}
        for column, text, _ in asked:
            # The last one counts, also as to its place.
            runs.pop(column, None)
            runs[column] = text
        given = (database.part, database.epoch, list(runs), list(runs.values()))
        retain = asked[-1][2]

        async def work(made: Connection) -> list[str]:
            # Two that look at once for what has to go would each miss the other's.
            await made.execute("SELECT pg_advisory_xact_lock($1, $2)", _TURN, database.part)
            await made.execute(_PUT, *given)
            gone = await made.fetch(_TRIM, database.part, retain)
            return [named(row["execution_id"]) for row in gone]

        gone = await database.write(work)
        return [*((),) * (len(asked) - 1), gone]

    async def get(self, execution_id: str) -> ArchivedRun | None:
        """A run, None if it is not kept, or cannot be read."""
        text = await self._database.fetchval(_GET, self._database.part, stored(execution_id))
        if text is None:
            return None
        try:
            return from_row(ArchivedRun, codec.decode(text.encode()))
        except _UNREADABLE as error:
            self._quarantine.add(f"execution_archive, run {execution_id}", str(error))
            return None

    async def ids(self) -> Sequence[str]:
        """The ids of all that are kept, the oldest first."""
        rows = await self._database.fetch(_IDS, self._database.part)
        return [named(row["execution_id"]) for row in rows]

    async def remove(self, execution_id: str) -> None:
        """Forget a run."""
        whose = (self._database.part, stored(execution_id))
        await self._database.write(lambda made: made.execute(_REMOVE, *whose))
