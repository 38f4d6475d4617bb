"""Keeping: what plugins leave behind for later messages and runs.  Features: DUR-02, DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.plugins.effects import Effects
from yukta_rx.plugins.histories import Histories

if TYPE_CHECKING:
    from datetime import timedelta

    from yukta_rx.durability.stores.effects import EffectStore
    from yukta_rx.durability.stores.histories import HistoryStore
    from yukta_rx.durability.stores.key_values import KeyValueStore
    from yukta_rx.metrics import Meters
    from yukta_rx.streams.clock import LoopClock


class Keeping:
    """The stores behind `ctx.once`, `ctx.kv` and `ctx.histories`. Belongs to the loop.

    Args:
        effects: what was done.
        key_values: values of sessions.
        histories: conversations of sessions.
        clock: tells the time.
        ttl: time without a new turn after which a conversation is none; None for no limit.

    Attributes:
        effects: does things once.
        key_values: the store of values.
        histories: the conversations.
    """

    def __init__(
        self,
        effects: EffectStore,
        key_values: KeyValueStore,
        histories: HistoryStore,
        clock: LoopClock,
        *,
        ttl: timedelta | None = None,
    ) -> None:
        self.effects = Effects(effects)
        self.key_values = key_values
        self.histories = Histories(histories, clock, ttl)

    def start(self, meters: Meters) -> None:
        """Look after the stores, and have them measured, until `close`."""
        stores = (self.effects.store, self.key_values, self.histories.store)
        meters.watch("yukta.effects.dropped", lambda: sum(one.dropped for one in stores))
        meters.watch("yukta.effects.kept", lambda: self.effects.store.kept)
        meters.watch("yukta.kv.entries", lambda: self.key_values.kept)
        meters.watch("yukta.histories", lambda: self.histories.store.kept)
        meters.watch("yukta.histories.unsaved", lambda: self.histories.unsaved)
        self.histories.start()

    async def forget(self, *lineages: str) -> None:
        """Forget what was done for some lineages; what they changed stays.

        Raises:
            StoreUnavailableError: a store cannot be written; it may be called again.
        """
        await self.effects.forget(*lineages)
        await self.key_values.forget(*lineages)
        await self.histories.store.forget(*lineages)

    async def drop_session(self, session_id: str) -> None:
        """Remove the values and conversations of a session that is gone.

        Raises:
            StoreUnavailableError: a store cannot be written; it may be called again.
        """
        await self.key_values.clear(session_id)
        await self.histories.store.drop(session_id)

    async def close(self) -> None:
        """Save what waits; the stores themselves are closed by whoever opened them."""
        await self.effects.close()
        await self.histories.close()
