"""Conversations in PostgreSQL: a row per turn, found by its history, swept by its time.

Changes of one history wait for each other by an advisory lock, since there may be no row to lock.
Feature: DUR-04.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.durability.memory.histories import DONE
from yukta_rx.durability.postgres._plugin_effects import PluginEffects
from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.postgres.database import affected, columns
from yukta_rx.durability.stores.histories import Turn
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.errors import BadRequestError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.effects import EffectKey
    from yukta_rx.durability.stores.histories import HistoryKey
    from yukta_rx.metrics import Meters

SWEPT_AT_ONCE: Final = 500
"""Histories that one transaction of a sweep removes."""

LOCK: Final = "SELECT pg_advisory_xact_lock($1)"
LOCKS: Final = "SELECT pg_advisory_xact_lock(name) FROM unnest($1::bigint[]) AS given (name)"

# Whether a history has a newer turn is asked of its own turns: EXISTS would let the planner walk
# through the newer turns of all histories.
LOAD: Final = """
SELECT turn, at, text FROM session_history
WHERE part = $1 AND session_id = $2 AND key = $3 AND ($5::timestamptz IS NULL OR (
    SELECT bool_or(at > $5) FROM session_history
    WHERE part = $1 AND session_id = $2 AND key = $3))
ORDER BY turn DESC LIMIT $4
"""

APPEND: Final = """
WITH before AS (
    SELECT turn, row_number() OVER (ORDER BY turn DESC) AS place, max(at) OVER () AS newest
    FROM session_history WHERE part = $1 AND session_id = $2 AND key = $3
), gone AS (
    DELETE FROM session_history h USING before
    WHERE h.part = $1 AND h.session_id = $2 AND h.key = $3 AND h.turn = before.turn
      AND (before.place >= $4 OR before.newest <= $5)
), added AS (
    INSERT INTO session_history (part, epoch, session_id, key, at, text)
    VALUES ($1, $6, $2, $3, $7, $8)
)
SELECT count(*) FROM before
"""

CLEAR: Final = "DELETE FROM session_history WHERE part = $1 AND session_id = $2 AND key = $3"
OF_SESSION: Final = "SELECT DISTINCT key FROM session_history WHERE part = $1 AND session_id = $2"

OVERDUE: Final = """
SELECT session_id, key FROM (
    SELECT DISTINCT session_id, key FROM session_history WHERE part = $1 AND at <= $2) AS old
WHERE NOT (
    SELECT bool_or(own.at > $2) FROM session_history own
    WHERE own.part = $1 AND own.session_id = old.session_id AND own.key = old.key)
LIMIT $3
"""
REMOVE: Final = """
WITH old AS MATERIALIZED (
    SELECT given.session_id, given.key, own.turn
    FROM unnest($2::text[], $3::text[]) AS given (session_id, key)
    JOIN LATERAL (
        SELECT turn, bool_or(at > $4) OVER () AS is_used FROM session_history own
        WHERE own.part = $1 AND own.session_id = given.session_id AND own.key = given.key
    ) AS own ON own.is_used IS NOT TRUE
), gone AS (
    DELETE FROM session_history h USING old
    WHERE h.part = $1 AND h.session_id = old.session_id AND h.key = old.key AND h.turn = old.turn
)
SELECT count(*) FROM (SELECT DISTINCT session_id, key FROM old) AS histories
"""
KEPT: Final = (
    "SELECT count(*) FROM (SELECT DISTINCT session_id, key FROM session_history WHERE part = $1) "
    "AS histories"
)

log = logging.getLogger(__name__)


class PostgresHistoryStore:
    """See `HistoryStore`; an async context.

    Args:
        database: open as long as the store is.
        meters: where turns that cannot be read are counted.
    """

    durable = True
    dropped = 0

    def __init__(self, database: Database, meters: Meters | None = None) -> None:
        self._database = database
        self._effects = PluginEffects(database, "histories")
        self._kept = 0
        self._faults: dict[str, Quarantined] = {}
        self._counter = None
        if meters is not None:
            self._counter = meters.counter("yukta.store.quarantined", store="session-memory")

    async def __aenter__(self) -> Self:
        """See how many histories there are.

        Raises:
            StoreUnavailableError: the database gives no answer.
        """
        self._kept = await self._database.fetchval(KEPT, self._database.part)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing waits to be written."""

    @property
    def kept(self) -> int:
        """Histories of all sessions, as far as this server changed them."""
        return self._kept

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Turns that were found unreadable since the start; their conversations go on."""
        return tuple(self._faults.values())

    async def load(
        self, key: HistoryKey, most: int, since: datetime | None = None
    ) -> Sequence[Turn]:
        """The newest turns."""
        rows = await self._database.fetch(LOAD, *self._key(key), most, since)
        made = [self._turn(key, *row) for row in reversed(rows)]
        return [turn for turn in made if turn is not None]

    async def append(
        self,
        key: HistoryKey,
        turn: Turn,
        most: int,
        since: datetime | None = None,
        effect: EffectKey | None = None,
    ) -> None:
        """Add a turn."""
        text = codec.encode({"role": turn.role, "text": turn.text}).decode()
        name, epoch = self._key(key), self._database.epoch

        async def work(made: Any) -> int:
            await made.execute(LOCK, _lock(name))
            if await self._effects.find(made, effect) is not None:
                return 0
            before = await made.fetchval(APPEND, *name, most, since, epoch, turn.at, text)
            await self._effects.note(made, effect, DONE)
            return int(before == 0)

        new = await self._database.write(work)
        self._kept += new

    async def clear(self, key: HistoryKey, effect: EffectKey | None = None) -> None:
        """Remove a history; with an effect that is known, nothing."""
        name = self._key(key)

        async def work(made: Any) -> int:
            await made.execute(LOCK, _lock(name))
            if await self._effects.find(made, effect) is not None:
                return 0
            gone = affected(await made.execute(CLEAR, *name))
            await self._effects.note(made, effect, DONE)
            return int(gone > 0)

        gone = await self._database.write(work)
        self._kept -= gone

    async def sweep(self, until: datetime) -> int:
        """Remove every history whose newest turn is not after `until`; how many went."""
        part, went = self._database.part, 0
        while True:
            rows = await self._database.fetch(OVERDUE, part, until, SWEPT_AT_ONCE)
            if rows:
                went += await self._remove([(part, *row) for row in rows], until)
            if len(rows) < SWEPT_AT_ONCE:
                return went

    async def drop(self, session_id: str) -> None:
        """Remove every history of a session."""
        part, session = self._database.part, stored(session_id)
        rows = await self._database.fetch(OF_SESSION, part, session)
        for at in range(0, len(rows), SWEPT_AT_ONCE):
            names = [(part, session, row["key"]) for row in rows[at : at + SWEPT_AT_ONCE]]
            await self._remove(names, None)

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages."""
        await self._effects.forget(*lineages)

    # -- parts

    def _key(self, key: HistoryKey) -> tuple[int, str, str]:
        return self._database.part, stored(key.session_id), stored(key.key)

    async def _remove(self, names: Sequence[tuple[int, str, str]], until: datetime | None) -> int:
        """Remove histories; with a time only those that have no turn after it by then."""
        locks = sorted(set(map(_lock, names)))
        sessions, keys = columns((name[1:] for name in names), 2)

        async def work(made: Any) -> int:
            await made.execute(LOCKS, locks)
            return int(await made.fetchval(REMOVE, self._database.part, sessions, keys, until))

        gone = await self._database.write(work)
        self._kept -= gone
        return gone

    def _turn(self, key: HistoryKey, turn: int, at: datetime, text: str) -> Turn | None:
        """A turn; None if it cannot be read, which is logged and counted once."""
        try:
            said = codec.decode(text.encode())
            return Turn(str(said["role"]), str(said["text"]), at)
        except (BadRequestError, KeyError, TypeError) as error:
            place = f"session_history, session {key.session_id}, key {key.key[:100]}, turn {turn}"
            fault = Quarantined(place=place, reason=f"is no turn: {error}")
        if fault.place not in self._faults:
            self._faults[fault.place] = fault
            log.error("not in use: %s", fault)
            if self._counter is not None:
                self._counter.add(1)
        return None


def _lock(name: tuple[int, str, str]) -> int:
    """The advisory lock of a history."""
    digest = sha256(b"\0".join(str(part).encode() for part in ("history", *name))).digest()
    return int.from_bytes(digest[:8], signed=True)
