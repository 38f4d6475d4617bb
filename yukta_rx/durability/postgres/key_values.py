"""Values of sessions in PostgreSQL: each change is one transaction with its effect.

A change of a key that is there locks that key; one that adds or removes a key locks the number of
its session's keys before, always in this order, so the cap is exact. Feature: DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.durability.memory.key_values import NOTHING, value_of
from yukta_rx.durability.postgres._plugin_effects import PluginEffects
from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.stores.key_values import Value, full, summed
from yukta_rx.errors import StoreUnavailableError, YuktaError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.effects import EffectKey

GET: Final = "SELECT value FROM kv_entry WHERE part = $1 AND session_id = $2 AND key = $3"
LOCK: Final = f"{GET} FOR UPDATE"
LOCK_COUNT: Final = (
    "INSERT INTO kv_count (part, epoch, session_id) VALUES ($1, $2, $3) "
    "ON CONFLICT (part, session_id) DO UPDATE SET epoch = excluded.epoch RETURNING entries"
)
CHANGE: Final = (
    "UPDATE kv_entry SET value = $5, epoch = $4 WHERE part = $1 AND session_id = $2 AND key = $3"
)
ADD: Final = (
    "WITH counted AS ("
    "UPDATE kv_count SET entries = entries + 1 WHERE part = $1 AND session_id = $2) "
    "INSERT INTO kv_entry (part, epoch, session_id, key, value) VALUES ($1, $4, $2, $3, $5)"
)
REMOVE: Final = (
    "WITH counted AS ("
    "UPDATE kv_count SET entries = entries - 1 WHERE part = $1 AND session_id = $2) "
    "DELETE FROM kv_entry WHERE part = $1 AND session_id = $2 AND key = $3"
)
CLEAR: Final = (
    "WITH gone AS (DELETE FROM kv_entry WHERE part = $1 AND session_id = $2) "
    "DELETE FROM kv_count WHERE part = $1 AND session_id = $2 RETURNING entries"
)
KEPT: Final = "SELECT coalesce(sum(entries), 0)::bigint FROM kv_count WHERE part = $1"


class PostgresKeyValueStore:
    """See `KeyValueStore`; an async context.

    Args:
        database: open as long as the store is.
    """

    durable = True
    dropped = 0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._effects = PluginEffects(database, "key_values")
        self._kept = 0

    async def __aenter__(self) -> Self:
        """See how many keys there are.

        Raises:
            StoreUnavailableError: the database gives no answer.
        """
        self._kept = await self._database.fetchval(KEPT, self._database.part)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing waits to be written."""

    @property
    def kept(self) -> int:
        """Keys of all sessions, as far as this server changed them."""
        return self._kept

    async def get(self, session_id: str, key: str) -> Value | None:
        """What stands under a key, None if nothing does.

        Raises:
            StoreUnavailableError: no answer; or what is there cannot be read, which is named.
        """
        found = await self._database.fetchval(GET, *self._key(session_id, key))
        return None if found is None else _read(session_id, key, found)

    async def put(
        self, session_id: str, key: str, value: Any, *, cap: int, effect: EffectKey | None = None
    ) -> None:
        """Put a value in the place of what stands under a key."""
        text = codec.encode(value).decode()

        async def work(made: Any) -> int:
            found = await self._lock(made, session_id, key)
            if await self._effects.find(made, effect) is not None:
                return 0
            new = await self._put(made, session_id, key, found, text, cap)
            await self._effects.note(made, effect, NOTHING)
            return new

        new = await self._database.write(work)
        self._kept += new

    async def incr(
        self, session_id: str, key: str, by: int, *, cap: int, effect: EffectKey | None = None
    ) -> int:
        """Add to a whole number; the sum."""

        async def work(made: Any) -> tuple[bytes, int]:
            found = await self._lock(made, session_id, key)
            known = await self._effects.find(made, effect)
            if known is not None:
                return known, 0
            before = None if found[0] is None else _read(session_id, key, found[0])
            known = codec.encode(summed(key, before, by))
            new = await self._put(made, session_id, key, found, known.decode(), cap)
            await self._effects.note(made, effect, known)
            return known, new

        known, new = await self._database.write(work)
        self._kept += new
        return int(known)

    async def remove(
        self, session_id: str, key: str, *, effect: EffectKey | None = None
    ) -> Value | None:
        """Remove a key; what stood there."""
        name = self._key(session_id, key)

        async def work(made: Any) -> tuple[bytes, int]:
            await made.fetchval(LOCK_COUNT, name[0], self._database.epoch, name[1])
            found = await made.fetchval(LOCK, *name)
            known = await self._effects.find(made, effect)
            if known is not None:
                return known, 0
            if found is not None:
                # What cannot be read is refused here, and stays.
                _read(session_id, key, found)
                await made.execute(REMOVE, *name)
            known = NOTHING if found is None else found.encode()
            await self._effects.note(made, effect, known)
            return known, int(found is not None)

        known, gone = await self._database.write(work)
        self._kept -= gone
        return value_of(known)

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages."""
        await self._effects.forget(*lineages)

    async def clear(self, session_id: str) -> None:
        """Remove every value of a session."""
        part, epoch, session = self._database.part, self._database.epoch, stored(session_id)

        async def work(made: Any) -> int:
            # Who is adding a key has this row.
            await made.fetchval(LOCK_COUNT, part, epoch, session)
            return int(await made.fetchval(CLEAR, part, session))

        gone = await self._database.write(work)
        self._kept -= gone

    # -- parts

    def _key(self, session_id: str, key: str) -> tuple[int, str, str]:
        return self._database.part, stored(session_id), stored(key)

    async def _lock(self, made: Any, session_id: str, key: str) -> tuple[str | None, int]:
        """Let nobody else change a key: what stands there, and if nothing, the session's keys."""
        name = self._key(session_id, key)
        found = await made.fetchval(LOCK, *name)
        if found is not None:
            return found, 0
        entries = await made.fetchval(LOCK_COUNT, name[0], self._database.epoch, name[1])
        # Somebody may have added it meanwhile.
        return await made.fetchval(LOCK, *name), entries

    async def _put(
        self,
        made: Any,
        session_id: str,
        key: str,
        found: tuple[str | None, int],
        text: str,
        cap: int,
    ) -> int:
        """Put a text under a key that is locked; 1 if that is new."""
        before, entries = found
        name = self._key(session_id, key)
        if before is None and entries >= cap:
            raise full(key, cap)
        await made.execute(CHANGE if before is not None else ADD, *name, self._database.epoch, text)
        return int(before is None)


def _read(session_id: str, key: str, text: str) -> Value | None:
    try:
        return value_of(text.encode())
    except YuktaError as error:
        raise StoreUnavailableError(
            f"kv_entry, session {session_id}, key {key[:100]}: cannot be read: {error.detail}; "
            "put another value in its place",
            store="postgres",
        ) from error
