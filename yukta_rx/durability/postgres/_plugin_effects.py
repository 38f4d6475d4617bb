"""Effects that are one write with the change that they belong to, in the table of all effects.

Feature: DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.postgres._texts import stored

if TYPE_CHECKING:
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.effects import EffectKey

FIND: Final = (
    "SELECT result FROM effect WHERE part = $1 AND store = $2 AND lineage = $3 "
    "AND node_id = $4 AND message_id = $5 AND name = $6"
)
NOTE: Final = (
    "INSERT INTO effect (part, epoch, store, lineage, node_id, message_id, name, result) "
    "VALUES ($1, $7, $2, $3, $4, $5, $6, $8) ON CONFLICT DO NOTHING"
)
OF_LINEAGES: Final = (
    "SELECT FROM effect WHERE part = $1 AND store = $2 AND lineage = ANY ($3::text[])"
)
FORGET: Final = "DELETE FROM effect WHERE part = $1 AND store = $2 AND lineage = ANY ($3::text[])"


class PluginEffects:
    """The effects of one store.

    Args:
        database: where.
        store: the word that they stand under.
    """

    def __init__(self, database: Database, store: str) -> None:
        self._database = database
        self._store = store

    async def find(self, made: Any, effect: EffectKey | None) -> bytes | None:
        """What an effect gave, None if it is not known; in a transaction."""
        if effect is None:
            return None
        found: bytes | None = await made.fetchval(FIND, *self._key(effect))
        return found

    async def note(self, made: Any, effect: EffectKey | None, result: bytes) -> None:
        """Note what an effect gave; in the transaction that does it."""
        if effect is not None:
            await made.execute(NOTE, *self._key(effect), self._database.epoch, result)

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages."""
        whose = self._store, list(map(stored, lineages))
        # Most lineages have none, and to look costs no commit.
        if await self._database.any(OF_LINEAGES, *whose):
            part = self._database.part
            await self._database.write(lambda made: made.execute(FORGET, part, *whose))

    def _key(self, effect: EffectKey) -> tuple[Any, ...]:
        return self._database.part, self._store, *map(stored, effect)
