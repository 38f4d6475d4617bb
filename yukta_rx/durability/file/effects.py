"""Effects in a file: a line for each, all of them in memory.  Feature: DUR-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

from yukta_rx.durability.file._operations import Begin, Operations, Turns
from yukta_rx.durability.memory.effects import EffectTable, MemoryEffectStore
from yukta_rx.durability.stores.effects import EffectKey

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "effects.jsonl"


class Effect(msgspec.Struct, frozen=True, tag="effect", tag_field="op", omit_defaults=True):
    """Something was done.

    Attributes:
        effect: what: lineage, node, message, name.
        result: what it gave; nothing where that is not kept.
    """

    effect: EffectKey
    result: msgspec.Raw = msgspec.Raw(b"null")


class Forget(msgspec.Struct, frozen=True, tag="forget", tag_field="op", omit_defaults=True):
    """The effects of a lineage are forgotten."""

    lineage: str


Known: TypeAlias = Begin | Effect | Forget


class FileEffectStore(MemoryEffectStore):
    """See `EffectStore`; an async context.

    Args:
        folder: where the file is; made if it is missing.
        table: the bounds; the usual ones if None.
    """

    durable = True

    def __init__(self, folder: Path, table: EffectTable | None = None) -> None:
        super().__init__(table)
        self._turns = Turns()
        self._log = Operations(
            folder / FILE,
            kind="effects",
            known=Known,
            apply=self._apply,
            needed=lambda: [
                Effect(key, msgspec.Raw(result)) for key, result in self._table.items()
            ],
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

    async def record(self, key: EffectKey, result: bytes) -> bytes:
        """Record what an effect gave, unless it is recorded; what stands."""
        async with self._turns.of(key):
            found = self._table.find(key)
            if found is not None:
                return found
            await self._log.write(Effect(key, msgspec.Raw(result)))
        return result

    async def forget(self, *lineages: str) -> None:
        """Remove all effects of some lineages."""
        for lineage in lineages:
            if self._table.knows(lineage):
                await self._log.write(Forget(lineage))

    def _apply(self, operation: Effect | Forget) -> None:
        if isinstance(operation, Forget):
            self._table.forget(operation.lineage)
        else:
            self._table.put(operation.effect, bytes(operation.result))
