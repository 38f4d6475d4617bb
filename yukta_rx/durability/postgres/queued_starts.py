"""Starts that wait for a slot, in PostgreSQL. Features: ADM-01, DUR-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec.structs import replace

from yukta_rx.durability.postgres._claim_check import MARK, ClaimCheck, Needed
from yukta_rx.durability.postgres._left_out import LeftOut
from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.postgres.database import affected
from yukta_rx.durability.stores.queued_starts import QueuedStart
from yukta_rx.durability.stores.rows import from_row, to_row
from yukta_rx.errors import BadRequestError, StoreUnavailableError, YuktaError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

STORE: Final = "queued-starts"
"""As the owner of blobs."""

_PAYLOAD: Final = "payload"
"""The member of a request that may be kept apart."""

_PUT: Final = """
INSERT INTO queued_start (part, epoch, execution_id, priority, queued_at, start)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (part, execution_id) DO UPDATE SET epoch = excluded.epoch,
    priority = excluded.priority, queued_at = excluded.queued_at, start = excluded.start
"""

_TAKE: Final = """
DELETE FROM queued_start WHERE part = $1 AND execution_id = $2
RETURNING execution_id, priority, start
"""

_MOVE: Final = """
UPDATE queued_start SET epoch = $2, priority = $4 WHERE part = $1 AND execution_id = $3
"""

_LIST: Final = """
SELECT execution_id, priority, start FROM queued_start WHERE part = $1 ORDER BY queued_at, seq
"""


class PostgresQueuedStartStore:
    """See `QueuedStartStore`; a row for each start, which goes with whoever takes it.

    Args:
        database: where it is, and whose.
        meters: where rows are counted that cannot be read.
        blobs: keeps payloads that are too large for a row; None keeps all in their rows.
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
        kept = Needed("queued_start")
        self._payloads = ClaimCheck(STORE, database, blobs, claim_bytes, kept)
        self._apart: set[str] = set()
        """Those whose payload is kept apart, as far as they were looked at."""
        self._left_out = LeftOut("queued-starts", meters)

    async def start(self) -> None:
        """Forget what a crash left behind of starts that do not wait."""
        await self._payloads.sweep()

    async def close(self) -> None:
        """Nothing waits here."""

    async def __aenter__(self) -> Self:
        """Start it."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Rows that could not be read since this server started."""
        return self._left_out.found

    async def put(self, start: QueuedStart) -> None:
        """Let a start wait."""
        run, text = start.execution_id, codec.encode(to_row(start)).decode()
        payload = self._payloads.text_of(start.request.get(_PAYLOAD), len(text))
        if payload is None:
            await self._put(start, text)
            return
        blob = await self._payloads.put(run, payload)
        apart = replace(start, request={**start.request, _PAYLOAD: blob})
        try:
            await self._put(apart, MARK + codec.encode(to_row(apart)).decode()[1:])
        except YuktaError:
            await self._payloads.forget(run)
            raise
        self._apart.add(run)

    async def _put(self, start: QueuedStart, text: str) -> None:
        database, priority = self._database, codec.encode(start.priority).decode()
        row = (stored(start.execution_id), priority, start.queued_at, text)
        await database.write(lambda made: made.execute(_PUT, database.part, database.epoch, *row))

    async def claim(self, execution_id: str) -> QueuedStart | None:
        """Take a start that got a slot; None if it does not wait."""

        async def take(made: Any) -> tuple[QueuedStart | None, bool]:
            row = await made.fetchrow(_TAKE, self._database.part, stored(execution_id))
            # One that cannot be read stays where it is.
            return (None, False) if row is None else (_read(row), row["start"].startswith(MARK))

        try:
            taken, apart = await self._database.write(take)
            await self._taken(execution_id, apart)
            return taken
        except (BadRequestError, msgspec.ValidationError) as error:
            about = self._left_out.add(_place(stored(execution_id)), _reason(error))
            raise StoreUnavailableError(str(about), store="queued-starts") from error

    async def remove(self, execution_id: str) -> bool:
        """Take a start back; False if it does not wait."""
        args = (self._database.part, stored(execution_id))
        row = await self._database.write(lambda made: made.fetchrow(_TAKE, *args))
        await self._taken(execution_id, row is not None and row["start"].startswith(MARK))
        return row is not None

    async def _taken(self, execution_id: str, apart: bool) -> None:
        """It waits no more."""
        self._apart.discard(execution_id)
        if apart:
            await self._payloads.forget(execution_id)

    async def set_priority(self, execution_id: str, priority: float) -> bool:
        """Change the priority; False if the start does not wait."""
        database, value = self._database, codec.encode(priority).decode()
        args = (database.part, database.epoch, stored(execution_id), value)
        status = await database.write(lambda made: made.execute(_MOVE, *args))
        return affected(status) > 0

    async def list(self) -> Sequence[QueuedStart]:
        """Every start that waits, the earliest first."""
        found = []
        for row in await self._database.fetch(_LIST, self._database.part):
            try:
                found.append(_read(row))
                if row["start"].startswith(MARK):
                    self._apart.add(found[-1].execution_id)
            except (BadRequestError, msgspec.ValidationError) as error:
                self._left_out.add(_place(row["execution_id"]), _reason(error))
        return found

    async def opened(self, start: QueuedStart) -> QueuedStart:
        """A start that waits, with its payload."""
        if start.execution_id not in self._apart:
            return start
        what = f"the payload of queued start {start.execution_id}"
        payload = await self._payloads.opened(start.request.get(_PAYLOAD), what)
        return replace(start, request={**start.request, _PAYLOAD: payload})


def _read(row: Any) -> QueuedStart:
    """The start of a row.

    Raises:
        BadRequestError: it is no JSON.
        msgspec.ValidationError: it is no start.
    """
    start = codec.decode(row["start"].encode())
    if not isinstance(start, dict):
        raise msgspec.ValidationError("a start is an object")
    start.pop("apart", None)
    start["priority"] = codec.decode(row["priority"].encode())
    return from_row(QueuedStart, start)


def _place(name: str) -> str:
    return f"queued_start, run {name}"


def _reason(error: Exception) -> str:
    return error.detail if isinstance(error, BadRequestError) else str(error)
