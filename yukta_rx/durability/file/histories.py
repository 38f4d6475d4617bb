"""Conversations in a file: a line for each turn, all of them in memory.  Feature: DUR-04."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

from yukta_rx.durability.file._operations import Begin, Operations, Turns
from yukta_rx.durability.file.effects import Effect, Forget
from yukta_rx.durability.memory.histories import DONE, MemoryHistoryStore
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.histories import HistoryKey, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from yukta_rx.durability.memory.effects import EffectTable

FILE: Final = "histories.jsonl"


class Append(msgspec.Struct, frozen=True, tag="append", tag_field="op", omit_defaults=True):
    """Somebody said something.

    Attributes:
        history: session and key.
        turn: what was said.
        most: so many turns stay.
        since: turns before it count only if there is one behind it.
        effect: what it was done for, if it is not to be done again.
    """

    history: HistoryKey
    turn: Turn
    most: int
    since: datetime | None = None
    effect: EffectKey | None = None


class Whole(msgspec.Struct, frozen=True, tag="history", tag_field="op", omit_defaults=True):
    """All that is kept of a history."""

    history: HistoryKey
    turns: tuple[Turn, ...]


class Clear(msgspec.Struct, frozen=True, tag="clear", tag_field="op", omit_defaults=True):
    """A history went."""

    history: HistoryKey
    effect: EffectKey | None = None


class Sweep(msgspec.Struct, frozen=True, tag="sweep", tag_field="op", omit_defaults=True):
    """The histories without a turn behind a time went."""

    until: datetime


class Drop(msgspec.Struct, frozen=True, tag="drop", tag_field="op", omit_defaults=True):
    """The histories of a session went."""

    session: str


Known: TypeAlias = Begin | Append | Whole | Clear | Sweep | Drop | Effect | Forget


class FileHistoryStore(MemoryHistoryStore):
    """See `HistoryStore`; an async context. Changes of one history wait for each other.

    Args:
        folder: where the file is; made if it is missing.
        table: the bounds of the effects; the usual ones if None.
    """

    durable = True

    def __init__(self, folder: Path, table: EffectTable | None = None) -> None:
        super().__init__(table)
        self._turns = Turns()
        self._log = Operations(
            folder / FILE,
            kind="histories",
            known=Known,
            apply=self._apply,
            needed=self._needed,
        )

    async def __aenter__(self) -> Self:
        """Open the file.

        Raises:
            StoreUnavailableError: it cannot be used; names it and the reason.
        """
        await self._log.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the file."""
        await self._log.close()

    async def append(
        self,
        key: HistoryKey,
        turn: Turn,
        most: int,
        since: datetime | None = None,
        effect: EffectKey | None = None,
    ) -> None:
        """Add a turn."""
        async with self._turns.of(key):
            if self._effects.find(effect) is None:
                await self._log.write(Append(key, turn, most, since, effect))

    async def clear(self, key: HistoryKey, effect: EffectKey | None = None) -> None:
        """Remove a history."""
        async with self._turns.of(key):
            known = self._effects.find(effect) is not None
            if not known and (effect is not None or key in self._histories):
                await self._log.write(Clear(key, effect))

    async def sweep(self, until: datetime) -> int:
        """Remove every history whose newest turn is not after `until`."""
        count = len(self._overdue(until))
        if count:
            await self._log.write(Sweep(until))
        return count

    async def drop(self, session_id: str) -> None:
        """Remove every history of a session."""
        if self._of_session(session_id):
            await self._log.write(Drop(session_id))

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages."""
        for lineage in lineages:
            if self._effects.knows(lineage):
                await self._log.write(Forget(lineage))

    # -- parts

    def _apply(self, operation: Append | Whole | Clear | Sweep | Drop | Effect | Forget) -> None:
        match operation:
            case Append(history, turn, most, since, effect):
                self._append(history, turn, most, since, effect)
            case Whole(history, turns):
                self._histories[history] = deque(turns)
            case Clear(history, effect):
                self._clear(history, effect)
            case Sweep(until):
                self._remove(self._overdue(until))
            case Drop(session):
                self._remove(self._of_session(session))
            case Effect(effect):
                self._effects.put(effect, DONE)
            case Forget(lineage):
                self._effects.forget(lineage)

    def _remove(self, keys: Iterable[HistoryKey]) -> None:
        for key in keys:
            del self._histories[key]

    def _needed(self) -> Iterable[msgspec.Struct]:
        histories: list[msgspec.Struct] = [
            Whole(key, tuple(turns)) for key, turns in self._histories.items()
        ]
        return [*histories, *(Effect(key) for key, _ in self._effects.items())]
