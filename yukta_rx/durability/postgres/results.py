"""Results of runs: a row for each, and one for what is known of the run.  Features: OBS-03, DUR-04.

What several runs write at the same time is one statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from yukta_rx.durability.postgres._arrays import (
    arrays,
    long_texts,
    numbers,
    texts,
    texts_or_none,
    times,
)
from yukta_rx.durability.postgres._claim_check import MARK, ClaimCheck, Needed
from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres._writer import Writer
from yukta_rx.durability.postgres.fence import FENCE, stale
from yukta_rx.durability.stores.families import CrowdedOut
from yukta_rx.durability.stores.results import (
    ResultPart,
    StoredResults,
    results_to_drop,
)
from yukta_rx.errors import BadRequestError, StoreUnavailableError
from yukta_rx.model.opened_results import with_payload
from yukta_rx.model.result_lines import claim_in, decode_result, encode_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.metrics import Meters
    from yukta_rx.model.results import ResultEvent

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

STEP: Final = 1000
"""Rows that are removed in one transaction."""

STORE: Final = "results"
"""As the owner of blobs."""

PART: Final = 1000
"""Cursors whose blobs go together, as the run is cut."""

_NEEDED: Final = Needed("execution_results", r"regexp_replace(owner.run, '\.\d+$', '')")

# A run that is on its way out ended at -infinity.
_WRITE: Final = f"""
WITH fence AS ({FENCE}), put AS (
    INSERT INTO execution_result (part, epoch, execution_id, cursor, result)
    SELECT $1, $2, given.id, given.cursor, given.result
    FROM fence, unnest($3::text::text[], $4::text::bigint[], $5::text[])
        AS given (id, cursor, result)
    WHERE given.cursor > coalesce((
        SELECT CASE WHEN ended_at IS NULL THEN last_cursor ELSE 9223372036854775807 END
        FROM execution_results WHERE part = $1 AND execution_id = given.id), 0)
    ON CONFLICT DO NOTHING
), told AS (
    INSERT INTO execution_results AS known
        (part, epoch, execution_id, last_cursor, ended_at, parent)
    SELECT $1, $2, given.* FROM fence,
        unnest($6::text::text[], $7::text::bigint[], $8::text::timestamptz[], $9::text::text[])
        AS given
    ON CONFLICT (part, execution_id) DO UPDATE SET epoch = excluded.epoch,
        last_cursor = greatest(known.last_cursor, excluded.last_cursor),
        ended_at = excluded.ended_at, parent = excluded.parent
    WHERE known.ended_at IS NULL
)
SELECT count(*) AS fence FROM fence
"""

_ROW_COLUMNS: Final = (texts, numbers, long_texts)
_RUN_COLUMNS: Final = (texts, numbers, times, texts_or_none)
"""What the columns are of the rows, and of the runs, that `_WRITE` gets."""

_RUN: Final = """
SELECT last_cursor, ended_at IS NOT NULL AS ended FROM execution_results
WHERE part = $1 AND execution_id = $2 AND ended_at IS DISTINCT FROM '-infinity'
"""

_READ: Final = """
SELECT result FROM execution_result
WHERE part = $1 AND execution_id = $2 AND cursor > $3 AND cursor <= $4
ORDER BY cursor LIMIT $5
"""

_CUT: Final = """
SELECT cut, least($3::bigint, last_cursor - 1) AS goal FROM execution_results
WHERE part = $1 AND execution_id = $2 AND ended_at IS DISTINCT FROM '-infinity' FOR UPDATE
"""

_REACH: Final = """
SELECT max(cursor) AS cursor, count(*) AS count FROM (
    SELECT cursor FROM execution_result WHERE part = $1 AND execution_id = $2 AND cursor <= $3
    ORDER BY cursor LIMIT $4) AS oldest
"""

_CUT_ROWS: Final = """
DELETE FROM execution_result WHERE part = $1 AND execution_id = $2 AND cursor <= $3
"""

_CUT_RUN: Final = """
UPDATE execution_results SET cut = $3 WHERE part = $1 AND execution_id = $2
"""

_ENDED: Final = """
SELECT execution_id, ended_at, parent FROM execution_results
WHERE part = $1 AND ended_at > '-infinity'
"""

_GOING: Final = """
SELECT execution_id FROM execution_results WHERE part = $1 AND ended_at = '-infinity'
"""

_LEAVE: Final = """
UPDATE execution_results SET ended_at = '-infinity'
WHERE part = $1 AND execution_id = ANY ($2::text[])
"""

_REMOVE_ROWS: Final = """
DELETE FROM execution_result WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM execution_result
    WHERE part = $1 AND execution_id = ANY ($2::text[]) LIMIT $3))
RETURNING 1
"""

_REMOVE_RUNS: Final = """
DELETE FROM execution_results WHERE part = $1 AND execution_id = ANY ($2::text[])
"""


class _Part(NamedTuple):
    """Results that one call gave."""

    run: str
    lines: list[tuple[int, str]]
    ended_at: datetime | None
    parent: str | None

    @property
    def size(self) -> int:
        """Bytes of the lines, roughly."""
        return sum([len(line) for _, line in self.lines])


class _Known:
    """What a batch says of a run, so far."""

    __slots__ = ("ended_at", "last", "parent")

    def __init__(self) -> None:
        self.last = 0
        self.ended_at: datetime | None = None
        self.parent: str | None = None


def _owner(execution_id: str, part: int) -> str:
    """Under which name blobs of a part of a run are kept."""
    return f"{execution_id}.{part}"


def _part(owner: str) -> int:
    return int(owner.rpartition(".")[2])


class PostgresResultStore:
    """See `ResultStore`; an async context.

    Args:
        database: where they are.
        step: rows that are removed in one transaction.
        meters: where children are counted that went for their number.
        blobs: keeps payloads that are too large for a row; None keeps all in their rows.
        claim_bytes: size from which on a payload is; 0 for none.
    """

    durable = True

    def __init__(
        self,
        database: Database,
        *,
        step: int = STEP,
        meters: Meters | None = None,
        blobs: PostgresBlobStore | None = None,
        claim_bytes: int = 0,
    ) -> None:
        self._payloads = ClaimCheck(STORE, database, blobs, claim_bytes, _NEEDED)
        self._crowded_out = CrowdedOut("results", meters)
        self._database = database
        self._step = step
        self._writer: Writer[_Part] | None = None

    async def __aenter__(self) -> Self:
        """Get ready, and forget what a crash left behind."""
        await self._payloads.sweep()
        writer: Writer[_Part] = Writer(self._database, "results", self._write)
        self._writer = await writer.__aenter__()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Write what waits."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.__aexit__()

    async def append(self, execution_id: str, results: Sequence[ResultEvent]) -> None:
        """Write results in one write."""
        await self.write([ResultPart(execution_id, results, None, None)])

    async def end(
        self,
        execution_id: str,
        results: Sequence[ResultEvent],
        ended_at: datetime,
        parent: str | None = None,
    ) -> None:
        """Write the last results and close the run, in one write."""
        await self.write([ResultPart(execution_id, results, ended_at, parent)])

    async def write(self, parts: Sequence[ResultPart]) -> None:
        """Write results of several runs, in one commit as a rule."""
        made = [await self._made(part) for part in parts]
        if self._writer is None:
            raise StoreUnavailableError("the store of results is not open", store="results")
        put = self._writer.put
        # They are written in this order, so whoever waits for one seldom waits for the next.
        for written in [put(one, one.size) for one in made if one.lines or one.ended_at]:
            await written

    async def read(
        self, execution_id: str, after: int = 0, limit: int = 100
    ) -> StoredResults | None:
        """Results behind a place."""
        whose = (self._database.part, stored(execution_id))
        while (run := await self._database.fetchrow(_RUN, *whose)) is not None:
            # Only what was there when the run was looked at: an end is told with the last of them.
            asked = (*whose, after, run["last_cursor"], limit)
            rows = await self._database.fetch(_READ, *asked)
            try:
                items = tuple([await self._opened(execution_id, row["result"]) for row in rows])
            except BadRequestError as error:
                raise StoreUnavailableError(
                    f"a result of run {execution_id} behind {after} cannot be read: {error.detail}",
                    store="results",
                ) from error
            except StoreUnavailableError:
                if await self._database.fetch(_READ, *asked) == rows:
                    raise
                # They had to go meanwhile, with what is kept apart of them.
                continue
            return StoredResults(items, run["ended"])
        return None

    async def _opened(self, execution_id: str, line: str) -> ResultEvent:
        result = decode_result(line.encode())
        if not line.startswith(MARK) or result.message is None:
            return result
        what = f"the payload of result {result.cursor} of run {execution_id}"
        return with_payload(result, await self._payloads.opened(result.payload, what))

    async def last(self, execution_id: str) -> int | None:
        """The cursor of the newest result of a run."""
        run = await self._database.fetchrow(_RUN, self._database.part, stored(execution_id))
        return None if run is None else run["last_cursor"]

    async def cut(self, execution_id: str, upto: int) -> int:
        """Remove the oldest results of a run, in steps."""
        whose = (self._database.part, stored(execution_id))

        async def step(made: Connection) -> tuple[int, bool]:
            run = await made.fetchrow(_CUT, *whose, upto)
            if run is None or run["goal"] <= run["cut"]:
                return (0 if run is None else run["cut"]), False
            reach = await made.fetchrow(_REACH, *whose, run["goal"], self._step)
            more = reach is not None and reach["count"] == self._step
            gone = reach["cursor"] if more and reach is not None else run["goal"]
            await made.execute(_CUT_ROWS, *whose, gone)
            await made.execute(_CUT_RUN, *whose, gone)
            return gone, more

        more = True
        while more:
            gone, more = await self._database.write(step)
        if gone + 1 >= PART:
            owners = await self._payloads.owned((execution_id,))
            last = _owner(execution_id, (gone + 1) // PART)
            await self._payloads.forget(*(one for one in owners if _part(one) < _part(last)))
        return gone

    async def trim(
        self, retained: int, ended_before: datetime | None = None, children: int = 0
    ) -> Sequence[str]:
        """Remove what is no longer kept."""
        part = self._database.part
        ended = [
            (
                named(row["execution_id"]),
                row["ended_at"],
                None if row["parent"] is None else named(row["parent"]),
            )
            for row in await self._database.fetch(_ENDED, part)
        ]
        dropped, crowded = results_to_drop(ended, retained, ended_before, children)
        going = [row["execution_id"] for row in await self._database.fetch(_GOING, part)]
        if dropped or going:
            await self._remove([*map(stored, dropped), *going])
            await self._payloads.forget(*await self._payloads.owned([*dropped, *map(named, going)]))
        self._crowded_out.add(crowded)
        return dropped

    async def _remove(self, ids: list[str]) -> None:
        """Remove runs in steps; from the first one on nobody sees them any more."""
        part, most = self._database.part, self._step
        gone = most

        async def step(made: Connection) -> int:
            await made.execute(_LEAVE, part, ids)
            rows = await made.fetch(_REMOVE_ROWS, part, ids, most)
            if len(rows) < most:
                await made.execute(_REMOVE_RUNS, part, ids)
            return len(rows)

        while gone == most:
            gone = await self._database.write(step)

    # -- writing

    async def _made(self, part: ResultPart) -> _Part:
        """What is written of a part; all of it is made before any is written."""
        execution_id, results, ended_at, parent = part
        made = [(result, encode_result(result).decode()) for result in results]
        lines = [
            (one.cursor, text if one.message is None else await self._line(execution_id, one, text))
            for one, text in made
        ]
        above = None if parent is None else stored(parent)
        return _Part(stored(execution_id), lines, ended_at, above)

    async def _line(self, execution_id: str, result: ResultEvent, line: str) -> str:
        """The line of a result; a payload that is too large for it is kept before it is written."""
        owner = _owner(execution_id, result.cursor // PART)
        if (claim := claim_in(result)) is not None:
            await self._payloads.refer(owner, claim)
        elif (text := self._payloads.text_of(result.payload, len(line))) is not None:
            blob = await self._payloads.put(owner, text)
            line = encode_result(with_payload(result, blob)).decode()
        else:
            return line
        return MARK + line[1:]

    async def _write(self, made: Connection, parts: Sequence[_Part]) -> None:
        rows: list[tuple[Any, ...]] = []
        runs: dict[str, _Known] = {}
        for part in parts:
            known = runs.setdefault(part.run, _Known())
            if known.ended_at is not None:
                continue
            for cursor, line in part.lines:
                if cursor > known.last:
                    rows.append((part.run, cursor, line))
                    known.last = cursor
            known.ended_at, known.parent = part.ended_at, part.parent
        told = [(run, known.last, known.ended_at, known.parent) for run, known in runs.items()]
        database = self._database
        given = (*arrays(rows, *_ROW_COLUMNS), *arrays(told, *_RUN_COLUMNS))
        if not await made.fetchval(_WRITE, database.part, database.epoch, *given):
            raise stale(database.part, database.epoch)
