"""The guarantees of `BlobStore`, one test each, for every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.durability.stores.blobs import Owner
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from yukta_rx.durability.stores.blobs import BlobStore
    from yukta_rx.model.codec import Blob

ONE, TWO = Owner("outputs", "one"), Owner("outputs", "two")
OTHER = Owner("results", "one")
TEXT = b'{"a": "\x00\n"}' * 10


class BlobContract:
    """Subclass it with a fixture `store`, and say how bytes go bad."""

    async def restarted(self, store: Any) -> Any:
        """The store as the next process finds it; itself where nothing outlives the process."""
        return store

    async def damage(self, store: Any, blob: Blob, data: bytes | None) -> None:
        """From here on the backend holds other bytes for a blob, or none."""
        if data is None:
            del store._kept[blob.sha256]
        else:
            store._kept[blob.sha256] = data

    async def test_B1_what_was_put_comes_back(self, store: BlobStore) -> None:
        blobs = [await store.put(ONE, data) for data in (TEXT, b"", bytes(range(256)))]
        store = await self.restarted(store)

        assert [await store.get(blob) for blob in blobs] == [TEXT, b"", bytes(range(256))]
        assert blobs[0].size == len(TEXT)
        assert store.size == len(TEXT) + 256

    async def test_B2_the_same_bytes_are_kept_once(self, store: BlobStore) -> None:
        blobs = {
            (await store.put(owner, TEXT)).sha256 for owner in (ONE, ONE, TWO, OTHER) for _ in "ab"
        }

        assert len(blobs) == 1
        assert store.size == len(TEXT)

    async def test_B3_a_blob_goes_with_the_last_that_needs_it(self, store: BlobStore) -> None:
        shared = await store.put(ONE, TEXT)
        own = await store.put(ONE, b"own")
        for owner in (TWO, OTHER):
            await store.put(owner, TEXT)

        for owner in (ONE, ONE, TWO):
            await store.forget(owner)
            store = await self.restarted(store)
            assert await store.get(shared) == TEXT
            assert store.size == len(TEXT)
        with pytest.raises(StoreUnavailableError, match=own.sha256):
            await store.get(own)
        await store.forget(OTHER)
        with pytest.raises(StoreUnavailableError, match=shared.sha256):
            await store.get(shared)
        assert store.size == 0

    async def test_B4_what_no_run_needs_any_more_goes(self, store: BlobStore) -> None:
        kept = await store.put(ONE, b"kept")
        left = await store.put(TWO, b"left")
        others = await store.put(Owner("results", "gone"), b"others")
        await store.keep("outputs", ["one", "unknown"])

        assert await store.get(kept) == b"kept"
        assert await store.get(others) == b"others"
        with pytest.raises(StoreUnavailableError, match="missing"):
            await store.get(left)

    async def test_B5_other_bytes_are_never_given(self, store: BlobStore) -> None:
        blob = await store.put(ONE, TEXT)
        other = await store.put(ONE, b"other")
        for bad in (None, b"", TEXT[:-1], b"X" + TEXT[1:]):
            await self.damage(store, blob, bad)
            with pytest.raises(StoreUnavailableError, match=blob.sha256):
                await store.get(blob)

        assert await store.get(other) == b"other"
