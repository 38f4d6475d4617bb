"""Values of sessions in a file: a line for each change, all of them in memory.  Feature: DUR-04."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import msgspec

from yukta_rx.durability.file._operations import Begin, Operations, Turns
from yukta_rx.durability.file.effects import Effect, Forget
from yukta_rx.durability.memory.key_values import NOTHING, MemoryKeyValueStore, value_of
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.key_values import Value, full, summed
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from pathlib import Path

    from yukta_rx.durability.memory.effects import EffectTable

FILE: Final = "key-values.jsonl"


class Put(msgspec.Struct, frozen=True, tag="put", tag_field="op", omit_defaults=True):
    """A value stands under a key.

    Attributes:
        session: the session.
        key: the key.
        value: the value.
        effect: what it was done for, if it is not to be done again.
        counted: whether the value is also what the effect gave.
    """

    session: str
    key: str
    value: msgspec.Raw
    effect: EffectKey | None = None
    counted: bool = False


# `Raw | None` would read nothing but null.
_NO_RESULT: Final = msgspec.Raw()


class Remove(msgspec.Struct, frozen=True, tag="remove", tag_field="op", omit_defaults=True):
    """Nothing stands under a key any more; `result` is what stood there."""

    session: str
    key: str
    effect: EffectKey | None = None
    result: msgspec.Raw = _NO_RESULT


class Done(msgspec.Struct, frozen=True, tag="done", tag_field="op", omit_defaults=True):
    """An effect that gave nothing; with a result it is an `Effect`."""

    effect: EffectKey


class Clear(msgspec.Struct, frozen=True, tag="clear", tag_field="op", omit_defaults=True):
    """All values of a session went."""

    session: str


Known: TypeAlias = Begin | Put | Remove | Effect | Done | Forget | Clear


class FileKeyValueStore(MemoryKeyValueStore):
    """See `KeyValueStore`; an async context. Changes of one key wait for each other.

    Args:
        folder: where the file is; made if it is missing.
        table: the bounds of the effects; the usual ones if None.
    """

    durable = True

    def __init__(self, folder: Path, table: EffectTable | None = None) -> None:
        super().__init__(table)
        self._turns = Turns()
        self._clearing = Turns()
        """Sessions whose values are about to go."""
        self._coming: dict[str, set[str]] = {}
        """By session: new keys that are being written."""
        self._log = Operations(
            folder / FILE,
            kind="key-values",
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

    async def put(
        self, session_id: str, key: str, value: Any, *, cap: int, effect: EffectKey | None = None
    ) -> None:
        """Put a value in the place of what stands under a key."""
        data = msgspec.Raw(codec.encode(value))
        async with self._turn(session_id, key):
            if self._effects.find(effect) is None:
                with self._room(session_id, key, cap):
                    await self._log.write(Put(session_id, key, data, effect))

    async def incr(
        self, session_id: str, key: str, by: int, *, cap: int, effect: EffectKey | None = None
    ) -> int:
        """Add to a whole number; the sum."""
        async with self._turn(session_id, key):
            known = self._effects.find(effect)
            if known is None:
                known = codec.encode(summed(key, await self.get(session_id, key), by))
                with self._room(session_id, key, cap):
                    counted = effect is not None
                    await self._log.write(Put(session_id, key, msgspec.Raw(known), effect, counted))
        return int(known)

    async def remove(
        self, session_id: str, key: str, *, effect: EffectKey | None = None
    ) -> Value | None:
        """Remove a key; what stood there."""
        async with self._turn(session_id, key):
            known = self._effects.find(effect)
            if known is None:
                known = self._find(session_id, key) or NOTHING
                if known or effect is not None:
                    result = msgspec.Raw(known) if known and effect is not None else _NO_RESULT
                    await self._log.write(Remove(session_id, key, effect, result))
        return value_of(known)

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages."""
        for lineage in lineages:
            if self._effects.knows(lineage):
                await self._log.write(Forget(lineage))

    async def clear(self, session_id: str) -> None:
        """Remove every value of a session."""
        if session_id in self._sessions or session_id in self._coming:
            async with self._clearing.of(session_id):
                await self._log.write(Clear(session_id))

    # -- parts

    @asynccontextmanager
    async def _turn(self, session_id: str, key: str) -> AsyncIterator[None]:
        """The turn of a key, of which nothing is known that is about to go with its session."""
        async with self._turns.of((session_id, key)):
            if self._clearing.taken(session_id):
                # Whoever clears it next comes behind what is written in this turn of the loop.
                async with self._clearing.of(session_id):
                    pass
            yield

    @contextmanager
    def _room(self, session_id: str, key: str, cap: int) -> Iterator[None]:
        """Keep room for a key while it is written, if it is new."""
        values = self._sessions.get(session_id, {})
        if key in values:
            yield
            return
        coming = self._coming.setdefault(session_id, set())
        if len(values) + sum(one not in values for one in coming) >= cap:
            self._leave(session_id)
            raise full(key, cap)
        coming.add(key)
        try:
            yield
        finally:
            coming.discard(key)
            self._leave(session_id)

    def _leave(self, session_id: str) -> None:
        if not self._coming[session_id]:
            del self._coming[session_id]

    def _apply(self, operation: Known) -> None:
        match operation:
            case Put(session, key, value, effect, counted):
                data = bytes(value)
                self._change(session, key, data, effect, data if counted else NOTHING)
            case Remove(session, key, effect, result):
                self._change(session, key, None, effect, bytes(result))
            case Effect(effect, result):
                self._effects.put(effect, bytes(result))
            case Done(effect):
                self._effects.put(effect, NOTHING)
            case Forget(lineage):
                self._effects.forget(lineage)
            case Clear(session):
                self._sessions.pop(session, None)

    def _needed(self) -> Iterable[msgspec.Struct]:
        values: list[msgspec.Struct] = [
            Put(session, key, msgspec.Raw(data))
            for session, values in self._sessions.items()
            for key, data in values.items()
        ]
        effects = (
            Effect(key, msgspec.Raw(result)) if result else Done(key)
            for key, result in self._effects.items()
        )
        return [*values, *effects]
