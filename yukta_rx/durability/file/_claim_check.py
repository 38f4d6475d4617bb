"""ClaimCheck: payloads that are too large for the lines of one store, kept apart run by run.

Feature: DUR-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.stores.claim_check import ClaimsApart

if TYPE_CHECKING:
    from collections.abc import Collection


class ClaimCheck(ClaimsApart[FileBlobStore]):
    """The blobs of one store in files."""

    async def start(self, runs: Collection[str]) -> None:
        """Get ready; what is kept for other runs than these was left behind by a crash.

        Raises:
            StoreUnavailableError: the blobs cannot be used.
        """
        if self._blobs is not None:
            await self._blobs.start()
            self._limit *= self._blobs.usable
            await self._blobs.keep(self._store, runs)
