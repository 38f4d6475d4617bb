"""What a run's plugins keep where nobody gave it stores: in memory, gone with the run.

Features: DUR-02, DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.durability.memory.effects import MemoryEffectStore
from yukta_rx.durability.memory.histories import MemoryHistoryStore
from yukta_rx.durability.memory.key_values import MemoryKeyValueStore
from yukta_rx.plugins.keeping import Keeping

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings
    from yukta_rx.streams.clock import LoopClock

__all__ = ["Keeping", "keeping_in_memory"]


def keeping_in_memory(settings: Settings, clock: LoopClock) -> Keeping:
    """Return stores that go with whoever has them."""
    stores = MemoryEffectStore(), MemoryKeyValueStore(), MemoryHistoryStore()
    return Keeping(*stores, clock, ttl=settings.session_memory.ttl)
