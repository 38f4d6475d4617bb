"""ClaimCheck: payloads that are too large for the lines of one store, kept apart run by run.

Feature: DUR-02.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from yukta_rx.durability.stores.blobs import Owner, claim, opened_as
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.codec import Blob

if TYPE_CHECKING:
    from collections.abc import Collection

    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.model.claim import Claim

log = logging.getLogger(__name__)


class ClaimCheck:
    """The blobs of one store.

    A line that refers to a blob has to say so beside the payload: a payload may be a `Blob` itself.

    Args:
        store: its name as an owner.
        blobs: where they are kept; None keeps every payload in its line.
        limit: size from which on a payload is kept apart; 0 for none.
    """

    __slots__ = ("_blobs", "_limit", "_store")

    def __init__(self, store: str, blobs: FileBlobStore | None, limit: int) -> None:
        self._store = store
        self._blobs = blobs
        self._limit = limit if blobs is not None else 0

    async def start(self, runs: Collection[str]) -> None:
        """Get ready; what is kept for other runs than these was left behind by a crash.

        Raises:
            StoreUnavailableError: the blobs cannot be used.
        """
        if self._blobs is not None:
            await self._blobs.start()
            self._limit *= self._blobs.usable
            await self._blobs.keep(self._store, runs)

    def text_of(self, payload: Any, line: int) -> bytes | None:
        """The text of a payload that has to be kept apart; None for others.

        Args:
            payload: the payload; it can be written.
            line: bytes of the line with it.
        """
        if not self._limit or (line <= self._limit and not isinstance(payload, Blob)):
            return None
        return claim(payload, self._limit)

    async def put(self, run: str, text: bytes) -> Blob:
        """Keep a text for a run, before it is referred to.

        Raises:
            StoreUnavailableError: it could not be written.
        """
        if self._blobs is None:
            raise StoreUnavailableError("there is no store of blobs")
        return await self._blobs.put(Owner(self._store, run), text)

    async def refer(self, run: str, claim: Claim) -> None:
        """Keep for a run what a reference stands for, before it is written down.

        Raises:
            StoreUnavailableError: that could not be done.
        """
        if self._blobs is None:
            raise StoreUnavailableError("there is no store of blobs")
        owner, text = Owner(self._store, run), claim.text
        if text is not None:
            await self._blobs.put(owner, text)
            return
        try:
            await self._blobs.share(owner, (claim.sha256,))
        except StoreUnavailableError as error:
            if "sha256" not in error.members:
                raise
            # It is gone; who wants to read it is told, and all others are served.
            log.error("%s of %s: %s", self._store, run, error)

    async def opened(self, payload: Any, what: str) -> Any:
        """The payload that a line refers to; `what` names it where that fails.

        Raises:
            StoreUnavailableError: it is missing or damaged, or cannot be read; names the blob.
        """
        return await opened_as(self._blobs, payload, what)

    async def forget(self, run: str) -> None:
        """A run needs nothing any more. What cannot be removed goes at the next start."""
        if self._blobs is None:
            return
        try:
            await self._blobs.forget(Owner(self._store, run))
        except StoreUnavailableError as error:
            log.warning("large payloads of run %s are removed later: %s", run, error)
