"""Effects in memory, and the bounded table that every backend keeps them in.

Features: DUR-02, DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.durability.stores.effects import EffectKey

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT: Final = 100_000
"""Effects that a table keeps."""

KEPT_BYTES: Final = 64 * 1024 * 1024
"""What they may occupy, roughly."""

_EACH: Final = 400
"""Bytes of one effect beside its result, roughly."""

_SHARE: Final = 10
"""A full table forgets so many hundredths of the effects of the lineage that has most."""

_Own = tuple[str, str, str]


class _Lineage:
    """The effects of one lineage, the oldest first."""

    __slots__ = ("results", "weight")

    def __init__(self) -> None:
        self.results: dict[_Own, bytes] = {}
        self.weight = 0


class EffectTable:
    """What effects gave, by lineage, within bounds.

    When it is full, the oldest effects of the lineage that has most go: what a repeat needs are
    the newest, those of messages that were under way.

    Attributes:
        dropped: effects that went that way.
    """

    __slots__ = ("_bytes", "_count", "_kept", "_kept_bytes", "_lineages", "dropped")

    def __init__(self, kept: int = KEPT, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._lineages: dict[str, _Lineage] = {}
        self._count = 0
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def find(self, key: EffectKey | None) -> bytes | None:
        """What an effect gave, None if it is not known."""
        lineage = None if key is None else self._lineages.get(key.lineage)
        return None if lineage is None or key is None else lineage.results.get(key[1:])

    def put(self, key: EffectKey, result: bytes) -> None:
        """Note a new effect; one that is known stays as it is."""
        lineage = self._lineages.setdefault(key.lineage, _Lineage())
        if key[1:] in lineage.results:
            return
        weight = _EACH + len(result)
        while self._count and (
            self._count >= self._kept or self._bytes + weight > self._kept_bytes
        ):
            self._make_room()
        # The lineage itself may have gone for want of room.
        lineage = self._lineages.setdefault(key.lineage, lineage)
        lineage.results[key[1:]] = result
        lineage.weight += weight
        self._count += 1
        self._bytes += weight

    def knows(self, lineage: str) -> bool:
        """Whether any effect of a lineage is known."""
        return lineage in self._lineages

    def forget(self, *lineages: str) -> None:
        """Forget some lineages."""
        for lineage in lineages:
            gone = self._lineages.pop(lineage, None)
            if gone is not None:
                self._count -= len(gone.results)
                self._bytes -= gone.weight

    def items(self) -> list[tuple[EffectKey, bytes]]:
        """Every effect, of each lineage the oldest first; a list that stays as it is."""
        return list(self._walk())

    def _walk(self) -> Iterator[tuple[EffectKey, bytes]]:
        for name, lineage in self._lineages.items():
            for own, result in lineage.results.items():
                yield EffectKey(name, *own), result

    def _make_room(self) -> None:
        name, most = max(self._lineages.items(), key=lambda item: item[1].weight)
        go = max(1, len(most.results) * _SHARE // 100)
        for own in list(most.results)[:go]:
            weight = _EACH + len(most.results.pop(own))
            most.weight -= weight
            self._bytes -= weight
        self._count -= go
        self.dropped += go
        if not most.results:
            del self._lineages[name]


class MemoryEffectStore:
    """See `EffectStore`; lost with the process. Nothing here waits, so each call is a step."""

    durable = False

    def __init__(self, table: EffectTable | None = None) -> None:
        self._table = EffectTable() if table is None else table

    @property
    def kept(self) -> int:
        """Effects that are kept."""
        return len(self._table)

    @property
    def dropped(self) -> int:
        """Effects that were forgotten for want of room."""
        return self._table.dropped

    async def find(self, key: EffectKey) -> bytes | None:
        """What was recorded, None if nothing was."""
        return self._table.find(key)

    async def record(self, key: EffectKey, result: bytes) -> bytes:
        """Record what an effect gave, unless it is recorded; what stands."""
        found = self._table.find(key)
        if found is not None:
            return found
        self._table.put(key, result)
        return result

    async def forget(self, *lineages: str) -> None:
        """Remove all effects of some lineages."""
        self._table.forget(*lineages)
