"""Blobs in memory. Feature: DUR-02."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.durability.stores.blobs import Owner, blob_of, checked

if TYPE_CHECKING:
    from collections.abc import Collection

    from yukta_rx.model.codec import Blob


class MemoryBlobStore:
    """See `BlobStore`; lost with the process."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._owners: dict[str, set[Owner]] = {}
        self._owned: dict[Owner, set[str]] = {}
        self.size = 0
        """Bytes that are held."""

    async def start(self) -> None:
        """Nothing to get ready."""

    async def close(self) -> None:
        """Nothing is under way."""

    async def put(self, owner: Owner, data: bytes) -> Blob:
        """Keep bytes for an owner."""
        blob = blob_of(data)
        if blob.sha256 not in self._kept:
            self._kept[blob.sha256] = data
            self.size += len(data)
        self._owners.setdefault(blob.sha256, set()).add(owner)
        self._owned.setdefault(owner, set()).add(blob.sha256)
        return blob

    async def get(self, blob: Blob) -> bytes:
        """The bytes of a blob."""
        return checked(blob, self._kept.get(blob.sha256))

    async def forget(self, owner: Owner) -> None:
        """An owner needs nothing any more."""
        for sha256 in self._owned.pop(owner, ()):
            owners = self._owners[sha256]
            owners.discard(owner)
            if not owners:
                del self._owners[sha256]
                self.size -= len(self._kept.pop(sha256))

    async def keep(self, store: str, runs: Collection[str]) -> None:
        """No other runs of a store need anything any more."""
        for owner in tuple(self._owned):
            if owner.store == store and owner.run not in runs:
                await self.forget(owner)
