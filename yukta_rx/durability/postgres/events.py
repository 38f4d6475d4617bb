"""Events of all runs in a table, with one row for what is there.  Features: OBS-01, DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from yukta_rx.durability.postgres._arrays import arrays, numbers, texts, times
from yukta_rx.durability.postgres._quarantine import Quarantine
from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres._writer import Writer
from yukta_rx.durability.postgres.fence import FENCE, stale
from yukta_rx.durability.stores.events import Epoch, EventSpan, StoredEvent, known_epochs
from yukta_rx.errors import BadRequestError, StoreUnavailableError
from yukta_rx.model.event_lines import decode_event, encode_event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Line: TypeAlias = tuple[int, datetime, str]

STEP: Final = 5000
"""Events that are removed in one transaction."""

_WRITE: Final = f"""
WITH fence AS ({FENCE}), put AS (
    INSERT INTO event (part, epoch, seq, time, event)
    SELECT $1, $2, given.seq, given.time, given.event
    FROM fence, unnest($3::text::bigint[], $4::text::timestamptz[], $5::text::text[])
        AS given (seq, time, event)
    WHERE given.seq > coalesce((SELECT newest FROM event_span WHERE part = $1), 0)
    ON CONFLICT DO NOTHING
), told AS (
    INSERT INTO event_span AS known (part, epoch, newest) SELECT $1, $2, $6::bigint FROM fence
    ON CONFLICT (part) DO UPDATE SET epoch = excluded.epoch, newest = excluded.newest
    WHERE known.newest < excluded.newest
)
SELECT count(*) AS fence FROM fence
"""

# One row at least, so that all of it is of one moment.
_SPAN: Final = """
SELECT span.oldest, span.newest, epoch.name, epoch.behind
FROM (SELECT $1::int AS part) AS mine
LEFT JOIN event_span AS span USING (part) LEFT JOIN event_epoch AS epoch USING (part)
ORDER BY epoch.place
"""

_READ: Final = """
SELECT seq, event FROM event WHERE part = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""

_BEGIN: Final = """
INSERT INTO event_epoch (part, epoch, name, behind)
SELECT $1, $2, $3, coalesce((SELECT newest FROM event_span WHERE part = $1), 0)
ON CONFLICT DO NOTHING RETURNING name
"""

_YOUNG: Final = """
SELECT seq FROM event WHERE part = $1 AND seq > $2 AND time >= $3 ORDER BY seq LIMIT 1
"""

_REACH: Final = """
SELECT max(seq) AS seq, count(*) AS count FROM (
    SELECT seq FROM event WHERE part = $1 AND seq <= $2 ORDER BY seq LIMIT $3) AS oldest
"""

_REMOVE: Final = "DELETE FROM event WHERE part = $1 AND seq <= $2"

_OLDEST: Final = """
INSERT INTO event_span AS known (part, epoch, oldest) VALUES ($1, $2, $3)
ON CONFLICT (part) DO UPDATE SET epoch = excluded.epoch,
    oldest = greatest(known.oldest, excluded.oldest)
"""

_FORGET: Final = "DELETE FROM event_epoch WHERE part = $1 AND name <> ALL ($2::text[])"


class PostgresEventStore:
    """See `EventStore`; an async context.

    Args:
        database: where they are.
        step: events that are removed in one transaction.
        meters: where events are counted that cannot be read; a reader finds their numbers missing.
    """

    durable = True

    def __init__(
        self, database: Database, *, step: int = STEP, meters: Meters | None = None
    ) -> None:
        self._database = database
        self._step = step
        self._quarantine = Quarantine("events", meters)
        self._writer: Writer[list[Line]] | None = None

    async def __aenter__(self) -> Self:
        """Get ready."""
        writer: Writer[list[Line]] = Writer(self._database, "events", self._write)
        self._writer = await writer.__aenter__()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Write what waits."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.__aexit__()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Events that could not be read, since this server started."""
        return self._quarantine.found

    async def begin(self, epoch: str) -> EventSpan:
        """Begin an epoch."""
        database, name = self._database, stored(epoch)

        async def work(made: Connection) -> EventSpan | None:
            given = (database.part, database.epoch, name)
            if await made.fetchval(_BEGIN, *given) is None:
                return None
            return _span(await made.fetch(_SPAN, database.part))

        if self._writer is not None:
            await self._writer.flushed()
        span = await database.write(work)
        if span is None:
            raise ValueError(f"epoch {epoch} has begun before")
        return span

    async def append(self, events: Sequence[StoredEvent]) -> None:
        """Write events in one write."""
        # All are made before any is written.
        lines = [(seq, event.time, encode_event(event).decode()) for seq, event in events]
        if self._writer is None:
            raise StoreUnavailableError("the store of events is not open", store="events")
        if lines:
            await self._writer.put(lines, sum(len(line) for _, _, line in lines))

    async def _write(self, made: Connection, parts: Sequence[list[Line]]) -> None:
        rows: list[tuple[Any, ...]] = []
        newest = 0
        for lines in parts:
            for line in lines:
                if line[0] > newest:
                    rows.append(line)
                    newest = line[0]
        database = self._database
        given = (*arrays(rows, numbers, times, texts), newest)
        if not await made.fetchval(_WRITE, database.part, database.epoch, *given):
            raise stale(database.part, database.epoch)

    async def span(self) -> EventSpan:
        """What is there."""
        return _span(await self._database.fetch(_SPAN, self._database.part))

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        """The oldest events behind a number."""
        found: list[StoredEvent] = []
        more = True
        while more:
            asked = limit - len(found)
            rows = await self._database.fetch(_READ, self._database.part, after, asked)
            for row in rows:
                after = row["seq"]
                try:
                    found.append(StoredEvent(after, decode_event(row["event"].encode())))
                except BadRequestError as error:
                    self._quarantine.add(f"event {after}", str(error))
            # Others take the places of those that were passed over.
            more = len(rows) == asked and len(found) < limit
        return found

    async def trim(self, retained: int, before: datetime | None = None) -> int:
        """Remove the oldest, in steps of their range."""
        part = self._database.part
        span = await self.span()
        end = span.newest - retained
        if before is not None:
            young = await self._database.fetchval(_YOUNG, part, end, before)
            end = span.newest if young is None else young - 1
        more = end >= span.oldest
        while more:
            more = await self._database.write(lambda made: self._remove(made, end))
        return (await self.span()).oldest

    async def _remove(self, made: Connection, end: int) -> bool:
        """Remove some events up to a number; whether there are more."""
        part, epoch = self._database.part, self._database.epoch
        reach = await made.fetchrow(_REACH, part, end, self._step)
        more = reach is not None and reach["count"] == self._step
        upto = reach["seq"] if more and reach is not None else end
        await made.execute(_REMOVE, part, upto)
        await made.execute(_OLDEST, part, epoch, upto + 1)
        span = _span(await made.fetch(_SPAN, part))
        known = [stored(one.name) for one in known_epochs(span.epochs, span.oldest)]
        await made.execute(_FORGET, part, known)
        return more


def _span(rows: Sequence[asyncpg.Record]) -> EventSpan:
    oldest, newest = rows[0]["oldest"], rows[0]["newest"]
    epochs = tuple(
        Epoch(named(row["name"]), row["behind"]) for row in rows if row["name"] is not None
    )
    return EventSpan(1 if oldest is None else oldest, newest or 0, epochs)
