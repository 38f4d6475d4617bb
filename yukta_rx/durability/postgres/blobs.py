"""Blobs in a table, with a row for each that needs one.  Features: DUR-02, DUR-04.

A blob's own row is locked before its owners are written or counted, so that one that comes and the
last one that goes wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.postgres._together import Together
from yukta_rx.durability.stores.blobs import Owner, blob_of, checked
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    import asyncpg

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.model.codec import Blob

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

STEP: Final = 1000
"""Owners that are removed in one transaction."""

_SIZE: Final = "SELECT coalesce(sum(size), 0)::bigint FROM blob WHERE part = $1"

_PUT: Final = """
INSERT INTO blob (part, epoch, sha256, data, size) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING size
"""

# What is there is written again only where it is not what it should be.
_PUT_AGAIN: Final = """
UPDATE blob SET epoch = $2, size = $5,
    data = CASE WHEN octet_length(data)::bigint = $5 THEN data ELSE $4 END
WHERE part = $1 AND sha256 = $3 RETURNING size
"""

_OWN: Final = """
INSERT INTO blob_owner (part, epoch, store, run, sha256)
SELECT $1, $2, $3, $4, unnest($5::text[]) ON CONFLICT DO NOTHING
"""

_GET: Final = "SELECT data FROM blob WHERE part = $1 AND sha256 = $2"

_LOCK: Final = """
SELECT sha256 FROM blob WHERE part = $1 AND sha256 = ANY ($2::text[]) ORDER BY sha256 FOR UPDATE
"""

_DISOWN: Final = """
DELETE FROM blob_owner WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM blob_owner WHERE part = $1 AND store = $2 AND run = $3 LIMIT $4))
RETURNING sha256
"""

_DROP: Final = """
DELETE FROM blob WHERE part = $1 AND sha256 = ANY ($2::text[]) AND NOT EXISTS (
    SELECT FROM blob_owner WHERE blob_owner.part = $1 AND blob_owner.sha256 = blob.sha256)
RETURNING size
"""

_OF_OWNERS: Final = """
SELECT FROM blob_owner JOIN unnest($2::text[], $3::text[]) AS given (store, run) USING (store, run)
WHERE part = $1
"""

_OWNERS: Final = "SELECT DISTINCT run FROM blob_owner WHERE part = $1 AND store = $2"


class PostgresBlobStore:
    """See `BlobStore`.

    Args:
        database: where they are.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
    """

    def __init__(self, database: Database, offload: Callable[..., Awaitable[Any]]) -> None:
        self._database = database
        self._offload = offload
        self._owns: Together[tuple[str, str], bool] = Together(self._which_own)
        self.size = 0
        """Bytes that are held."""

    async def start(self) -> None:
        """Count what is there."""
        self.size = await self._database.fetchval(_SIZE, self._database.part)

    async def close(self) -> None:
        """Nothing is under way."""

    async def put(self, owner: Owner, data: bytes) -> Blob:
        """Keep bytes for an owner."""
        blob: Blob = await self._offload(blob_of, data)
        given = {owner: {blob.sha256: data}}
        fresh = await self._database.write(lambda made: self.put_with(made, given))
        self.size += fresh
        return blob

    async def get(self, blob: Blob) -> bytes:
        """The bytes of a blob."""
        data = await self._database.fetchval(_GET, self._database.part, blob.sha256)
        kept: bytes = await self._offload(checked, blob, data)
        return kept

    async def forget(self, owner: Owner) -> None:
        """An owner needs nothing any more."""
        if await self._owns((owner.store, stored(owner.run))):
            await self._forget(owner.store, stored(owner.run))

    async def _which_own(self, owners: Sequence[tuple[str, str]]) -> Sequence[bool]:
        """Which of several have anything at all: most runs have not, and to look is no commit."""
        return [await self._database.any(_OF_OWNERS, *map(list, zip(*owners, strict=True)))] * len(
            owners
        )

    async def keep(self, store: str, runs: Collection[str]) -> None:
        """No other runs of a store need anything any more."""
        kept = set(map(stored, runs))
        for row in await self._database.fetch(_OWNERS, self._database.part, store):
            if row["run"] not in kept:
                await self._forget(store, row["run"])

    async def _forget(self, store: str, run: str) -> None:
        part, gone = self._database.part, STEP

        async def step(made: Connection) -> tuple[int, int]:
            rows = await made.fetch(_DISOWN, part, store, run, STEP)
            hashes = [row["sha256"] for row in rows]
            if not hashes:
                return 0, 0
            await made.fetch(_LOCK, part, hashes)
            return len(rows), sum(row["size"] for row in await made.fetch(_DROP, part, hashes))

        while gone == STEP:
            gone, size = await self._database.write(step)
            self.size -= size

    async def named(self, texts: Mapping[int, bytes]) -> dict[int, Blob]:
        """What stands for each of several texts; nothing is kept yet."""
        found: dict[int, Blob] = await self._offload(
            lambda: {at: blob_of(data) for at, data in texts.items()}
        )
        return found

    # -- in somebody's transaction, which holds the fence

    async def put_with(self, made: Connection, given: Mapping[Owner, Mapping[str, bytes]]) -> int:
        """Keep bytes by their hashes for owners; the bytes that were not there before."""
        part, epoch = self._database.part, self._database.epoch
        texts = {sha256: data for texts in given.values() for sha256, data in texts.items()}
        fresh = 0
        for sha256 in sorted(texts):
            data = texts[sha256]
            row = (part, epoch, sha256, data, len(data))
            # It may go between the two.
            while not (new := await made.fetch(_PUT, *row)):
                if await made.fetch(_PUT_AGAIN, *row):
                    break
            fresh += len(data) if new else 0
        for owner, own in given.items():
            await made.execute(_OWN, part, epoch, *_columns(owner), sorted(own))
        return fresh

    async def share(self, owner: Owner, hashes: Iterable[str]) -> None:
        """Keep what is kept already for one more owner.

        Raises:
            StoreUnavailableError: it is missing, or the database gives no answer.
        """
        _complain(await self._database.write(lambda made: self._shared(made, owner, hashes)))

    async def share_with(self, made: Connection, owner: Owner, hashes: Iterable[str]) -> None:
        """Keep what is kept already for one more owner.

        Raises:
            StoreUnavailableError: some is missing; what is there has the owner all the same.
        """
        _complain(await self._shared(made, owner, hashes))

    async def _shared(self, made: Connection, owner: Owner, hashes: Iterable[str]) -> Sequence[str]:
        """Let what is there have one more owner; what is missing."""
        part, wanted = self._database.part, set(hashes)
        found: Sequence[Any] = await made.fetch(_LOCK, part, sorted(wanted))
        there = [row["sha256"] for row in found]
        await made.execute(_OWN, part, self._database.epoch, *_columns(owner), there)
        return sorted(wanted.difference(there))


def _columns(owner: Owner) -> tuple[str, str]:
    """How an owner stands in its table."""
    return owner.store, stored(owner.run)


def _complain(missing: Sequence[str]) -> None:
    """Raise an error that names the first of what is missing, if anything is."""
    if missing:
        raise StoreUnavailableError(f"blob {missing[0]} is missing", sha256=missing[0])
