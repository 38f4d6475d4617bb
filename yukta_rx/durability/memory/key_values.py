"""Values of sessions in memory.  Feature: DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.durability.memory.effects import EffectTable
from yukta_rx.durability.stores.key_values import Value, full, summed
from yukta_rx.model import codec

if TYPE_CHECKING:
    from yukta_rx.durability.stores.effects import EffectKey

NOTHING = b""
"""What an effect gave that gave nothing."""


class MemoryKeyValueStore:
    """See `KeyValueStore`; lost with the process. Holds the written form of values.

    Nothing here waits, so each call is a step.
    """

    durable = False

    def __init__(self, table: EffectTable | None = None) -> None:
        self._sessions: dict[str, dict[str, bytes]] = {}
        self._effects = EffectTable() if table is None else table

    @property
    def kept(self) -> int:
        """Keys of all sessions."""
        return sum(map(len, self._sessions.values()))

    @property
    def dropped(self) -> int:
        """Effects that were forgotten for want of room."""
        return self._effects.dropped

    async def get(self, session_id: str, key: str) -> Value | None:
        """What stands under a key, None if nothing does."""
        return value_of(self._find(session_id, key))

    async def put(
        self, session_id: str, key: str, value: Any, *, cap: int, effect: EffectKey | None = None
    ) -> None:
        """Put a value in the place of what stands under a key."""
        data = codec.encode(value)
        if self._effects.find(effect) is None:
            self._check_room(session_id, key, cap)
            self._change(session_id, key, data, effect, NOTHING)

    async def incr(
        self, session_id: str, key: str, by: int, *, cap: int, effect: EffectKey | None = None
    ) -> int:
        """Add to a whole number; the sum."""
        known = self._effects.find(effect)
        if known is None:
            known = codec.encode(summed(key, await self.get(session_id, key), by))
            self._check_room(session_id, key, cap)
            self._change(session_id, key, known, effect, known)
        return int(known)

    async def remove(
        self, session_id: str, key: str, *, effect: EffectKey | None = None
    ) -> Value | None:
        """Remove a key; what stood there."""
        known = self._effects.find(effect)
        if known is None:
            known = self._find(session_id, key) or NOTHING
            self._change(session_id, key, None, effect, known)
        return value_of(known)

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages."""
        self._effects.forget(*lineages)

    async def clear(self, session_id: str) -> None:
        """Remove every value of a session."""
        self._sessions.pop(session_id, None)

    # -- parts

    def _find(self, session_id: str, key: str) -> bytes | None:
        return self._sessions.get(session_id, {}).get(key)

    def _check_room(self, session_id: str, key: str, cap: int) -> None:
        values = self._sessions.get(session_id, {})
        if key not in values and len(values) >= cap:
            raise full(key, cap)

    def _change(
        self,
        session_id: str,
        key: str,
        data: bytes | None,
        effect: EffectKey | None,
        result: bytes,
    ) -> None:
        """Put a value, or remove it where there is no data, and note what that gave."""
        if data is not None:
            self._sessions.setdefault(session_id, {})[key] = data
        elif (values := self._sessions.get(session_id)) is not None:
            values.pop(key, None)
            if not values:
                del self._sessions[session_id]
        if effect is not None:
            self._effects.put(effect, result)


def value_of(data: bytes | None) -> Value | None:
    """Return what a written form stands for; None if there is none."""
    return Value(codec.decode(data)) if data else None
