"""Conversations in memory.  Feature: DUR-04."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from yukta_rx.durability.memory.effects import EffectTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from yukta_rx.durability.stores.effects import EffectKey
    from yukta_rx.durability.stores.histories import HistoryKey, Turn

DONE = b"true"


class MemoryHistoryStore:
    """See `HistoryStore`; lost with the process. Nothing here waits, so each call is a step."""

    durable = False

    def __init__(self, table: EffectTable | None = None) -> None:
        self._histories: dict[HistoryKey, deque[Turn]] = {}
        """None of them is empty."""
        self._effects = EffectTable() if table is None else table

    @property
    def kept(self) -> int:
        """Histories of all sessions."""
        return len(self._histories)

    @property
    def dropped(self) -> int:
        """Effects that were forgotten for want of room."""
        return self._effects.dropped

    async def load(
        self, key: HistoryKey, most: int, since: datetime | None = None
    ) -> Sequence[Turn]:
        """The newest turns."""
        turns = self._histories.get(key)
        if turns is None or (since is not None and turns[-1].at <= since):
            return []
        return list(turns)[-most:]

    async def append(
        self,
        key: HistoryKey,
        turn: Turn,
        most: int,
        since: datetime | None = None,
        effect: EffectKey | None = None,
    ) -> None:
        """Add a turn."""
        if self._effects.find(effect) is None:
            self._append(key, turn, most, since, effect)

    async def clear(self, key: HistoryKey, effect: EffectKey | None = None) -> None:
        """Remove a history."""
        if self._effects.find(effect) is None:
            self._clear(key, effect)

    async def sweep(self, until: datetime) -> int:
        """Remove every history whose newest turn is not after `until`."""
        gone = self._overdue(until)
        for key in gone:
            del self._histories[key]
        return len(gone)

    async def drop(self, session_id: str) -> None:
        """Remove every history of a session."""
        for key in self._of_session(session_id):
            del self._histories[key]

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages."""
        self._effects.forget(*lineages)

    # -- parts

    def _append(
        self,
        key: HistoryKey,
        turn: Turn,
        most: int,
        since: datetime | None,
        effect: EffectKey | None,
    ) -> None:
        turns = self._histories.pop(key, None)
        if turns is None or (since is not None and turns[-1].at <= since):
            turns = deque()
        turns.append(turn)
        while len(turns) > most:
            turns.popleft()
        self._histories[key] = turns
        if effect is not None:
            self._effects.put(effect, DONE)

    def _clear(self, key: HistoryKey, effect: EffectKey | None) -> None:
        self._histories.pop(key, None)
        if effect is not None:
            self._effects.put(effect, DONE)

    def _overdue(self, until: datetime) -> list[HistoryKey]:
        return [key for key, turns in self._histories.items() if turns[-1].at <= until]

    def _of_session(self, session_id: str) -> list[HistoryKey]:
        return [key for key in self._histories if key.session_id == session_id]
