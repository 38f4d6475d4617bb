"""Recent runs in a table.  Features: CTL-04, DUR-02, DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from yukta_rx.durability.postgres._quarantine import Quarantine
from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres._together import Together
from yukta_rx.durability.postgres.fence import FENCE
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.durability.stores.blobs import Owner
from yukta_rx.durability.stores.claim_check import ClaimsApart
from yukta_rx.durability.stores.rows import from_row, to_row
from yukta_rx.errors import StoreUnavailableError, YuktaError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

STORE: Final = "archive"
"""As the owner of blobs."""

_UNREADABLE: Final = (
    *(YuktaError, KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError),
)
"""What is raised about text that is no run."""

# A statement does not see what it writes itself, so what has to go is of those that were there.
_PUT: Final = f"""
WITH fence AS ({FENCE}), put AS (
    INSERT INTO execution_archive (part, epoch, execution_id, run)
    SELECT $1, $2, given.id, given.run
    FROM fence, unnest($3::text[], $4::text[]) WITH ORDINALITY AS given (id, run, nth) ORDER BY nth
    ON CONFLICT (part, execution_id) DO UPDATE SET
        epoch = excluded.epoch, run = excluded.run, place = DEFAULT
), gone AS (
    DELETE FROM execution_archive AS old USING fence
    WHERE part = $1 AND execution_id <> ALL ($3::text[]) AND place <= (
        SELECT place FROM execution_archive WHERE part = $1 AND execution_id <> ALL ($3::text[])
        ORDER BY place DESC OFFSET $5 LIMIT 1)
    RETURNING execution_id, place
)
SELECT count(fence.epoch) AS fence,
    array_agg(execution_id ORDER BY place) FILTER (WHERE execution_id IS NOT NULL) AS gone,
    array_agg(execution_id) FILTER (WHERE EXISTS (
        SELECT FROM blob_owner WHERE part = $1 AND store = $6 AND run = gone.execution_id)) AS apart
FROM fence LEFT JOIN gone ON true
"""
"""Runs, and what has to go for them; fewer runs than are kept."""

_GET: Final = "SELECT run FROM execution_archive WHERE part = $1 AND execution_id = $2"

_IDS: Final = "SELECT execution_id FROM execution_archive WHERE part = $1 ORDER BY place"

_REMOVE: Final = "DELETE FROM execution_archive WHERE part = $1 AND execution_id = $2"


class _Put(NamedTuple):
    """A run that is to be kept.

    Attributes:
        column: its id as it stands in its table.
        text: its row.
        retain: so many runs are kept.
        owner: who needs what is kept apart of it.
        apart: that, by its hash.
    """

    column: str
    text: str
    retain: int
    owner: Owner
    apart: Mapping[str, bytes]


class PostgresExecutionArchiveStore:
    """See `ExecutionArchiveStore`.

    Args:
        database: where they are.
        meters: where rows are counted that cannot be read.
        blobs: keeps start payloads that are too large for a row; None keeps all in their rows.
        claim_bytes: size from which on a payload is; 0 for none.
    """

    durable = True

    def __init__(
        self,
        database: Database,
        *,
        meters: Meters | None = None,
        blobs: PostgresBlobStore | None = None,
        claim_bytes: int = 0,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._payloads = ClaimsApart(STORE, blobs, claim_bytes)
        self._quarantine = Quarantine(STORE, meters)
        self._put: Together[_Put, Sequence[str]] = Together(self._put_all)
        self._kept: dict[str, None] = {}
        """Ids of the runs that are kept, as they stand there."""
        self._heard = True
        """Whether all were told that had to go."""

    async def start(self) -> None:
        """Forget what a crash left behind of runs that are not kept."""
        names = await self.ids()
        self._kept = dict.fromkeys(map(stored, names))
        if self._blobs is not None:
            await self._blobs.keep(STORE, names)

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
        name, text, apart = run.execution_id, _text(run), {}
        data = self._payloads.text_of(run.payload, len(text))
        if data is not None and self._blobs is not None:
            blob = (await self._blobs.named({0: data}))[0]
            text, apart = _text(replace(run, payload=blob), apart=True), {blob.sha256: data}
        asked = _Put(stored(name), text.decode(), max(0, retain), Owner(STORE, name), apart)
        return await self._put(asked)

    async def _put_all(self, asked: Sequence[_Put]) -> Sequence[Sequence[str]]:
        runs: dict[str, _Put] = {}
        for one in asked:
            # The last one counts, also as to its place.
            runs.pop(one.column, None)
            runs[one.column] = one
        retain = asked[-1].retain
        over = list(runs)[: max(0, len(runs) - retain)]
        for name in over:
            del runs[name]
        texts = [one.text for one in runs.values()]
        self._kept |= dict.fromkeys((*runs, *over))
        gone, apart = await self._written(
            {one.owner: one.apart for one in runs.values() if one.apart},
            (list(runs), texts, retain - len(runs), STORE),
        )
        gone = list(dict.fromkeys((*gone, *over)))
        for column in gone:
            self._kept.pop(column, None)
        await self._payloads.forget(*map(named, apart))
        return [*((),) * (len(asked) - 1), [named(column) for column in gone]]

    async def _written(
        self, apart: Mapping[Owner, Mapping[str, bytes]], given: Sequence[Any]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Write runs, with the payloads that are kept apart of them.

        Returns:
            The runs that had to go, and those of them that may have payloads apart.
        """
        heard, self._heard = self._heard, False
        said = await self._said(apart, given)
        if said is None or not heard:
            # What is not there any more.
            there = set(map(stored, await self.ids()))
            gone = [column for column in self._kept if column not in there]
            said = gone, gone
        self._heard = True
        return said

    async def _said(
        self, apart: Mapping[Owner, Mapping[str, bytes]], given: Sequence[Any]
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        """Write them; what the statement said, None if nobody heard it the first time."""
        database, blobs = self._database, self._blobs
        if not apart or blobs is None:
            # With nothing apart it is one statement.
            lost: list[None] = []
            row = await database.statement(_PUT, *given, lost=lambda: lost.append(None))
            return None if lost else (row["gone"] or (), row["apart"] or ())

        async def work(made: Connection) -> tuple[int, asyncpg.Record | None]:
            fresh = await blobs.put_with(made, apart)
            return fresh, await made.fetchrow(_PUT, database.part, database.epoch, *given)

        fresh, row = await database.write(work)
        blobs.size += fresh
        return ((), ()) if row is None else (row["gone"] or (), row["apart"] or ())

    async def get(self, execution_id: str, *, whole: bool = True) -> ArchivedRun | None:
        """A run, None if it is not kept, or cannot be read."""
        whose = (self._database.part, stored(execution_id))
        text = await self._database.fetchval(_GET, *whose)
        if text is None:
            return None
        try:
            row = codec.decode(text.encode())
            run = from_row(ArchivedRun, row)
        except _UNREADABLE as error:
            self._quarantine.add(f"execution_archive, run {execution_id}", str(error))
            return None
        if not whole or row.get("apart") is not True:
            return run
        what = f"the start payload of run {execution_id}"
        try:
            payload = await self._payloads.opened(run.payload, what)
        except StoreUnavailableError:
            if await self._database.fetchval(_GET, *whose) is None:
                # It had to go meanwhile.
                return None
            raise
        return replace(run, payload=payload)

    async def ids(self) -> Sequence[str]:
        """The ids of all that are kept, the oldest first."""
        rows = await self._database.fetch(_IDS, self._database.part)
        return [named(row["execution_id"]) for row in rows]

    async def remove(self, execution_id: str) -> None:
        """Forget a run."""
        whose = (self._database.part, stored(execution_id))
        await self._database.write(lambda made: made.execute(_REMOVE, *whose))
        self._kept.pop(stored(execution_id), None)
        await self._payloads.forget(execution_id)


def _text(run: ArchivedRun, **more: Any) -> bytes:
    """A run as it stands in its row; what all runs of its workflow have in common is made once."""
    rest = codec.encode({**more, **to_row(replace(run, definition=None))})
    return b'%b,"definition":%b}' % (rest[:-1], run.definition.text)
