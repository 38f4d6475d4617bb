"""ClaimsApart: payloads that are too large for what one store writes, kept apart run by run.

A payload is kept before anything refers to it, so what a crash leaves in between is needed by
nothing; the store finds that out when it is opened.

Feature: DUR-02.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from yukta_rx.durability.stores.blobs import BlobStore, Owner, claim, opened_as
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.model.codec import Blob

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yukta_rx.model.claim import Claim

log = logging.getLogger(__name__)


class SharingBlobStore(BlobStore, Protocol):
    """A store of blobs in which one that is there may get one more owner."""

    async def share(self, owner: Owner, hashes: Iterable[str]) -> None:
        """Keep what is kept already for one more owner.

        Raises:
            StoreUnavailableError: it is missing, and named by `sha256`; or the store gives no
                answer.
        """


B = TypeVar("B", bound=SharingBlobStore)


class ClaimsApart(Generic[B]):
    """The blobs of one store.

    What refers to a blob has to say so beside the payload: a payload may be a `Blob` itself.

    Args:
        store: its name as an owner.
        blobs: where they are kept; None keeps every payload where it is.
        limit: size from which on a payload is kept apart; 0 for none.
    """

    def __init__(self, store: str, blobs: B | None, limit: int) -> None:
        self._store = store
        self._blobs = blobs
        self._limit = limit if blobs is not None else 0

    def text_of(self, payload: Any, line: int) -> bytes | None:
        """The text of a payload that has to be kept apart; None for others.

        Args:
            payload: the payload; it can be written.
            line: bytes of the line, or row, with it.
        """
        if not self._limit or (line <= self._limit and not isinstance(payload, Blob)):
            return None
        return claim(payload, self._limit)

    async def put(self, run: str, text: bytes) -> Blob:
        """Keep a text for a run, before it is referred to.

        Raises:
            StoreUnavailableError: it could not be written.
        """
        return await self._kept().put(Owner(self._store, run), text)

    async def refer(self, run: str, claim: Claim) -> None:
        """Keep for a run what a reference stands for, before it is written down.

        Raises:
            StoreUnavailableError: that could not be done.
        """
        blobs, owner, text = self._kept(), Owner(self._store, run), claim.text
        if text is not None:
            await blobs.put(owner, text)
            return
        try:
            await blobs.share(owner, (claim.sha256,))
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

    async def forget(self, *runs: str) -> None:
        """They need nothing any more. What cannot be removed goes at the next start."""
        if self._blobs is None:
            return
        for run in runs:
            try:
                await self._blobs.forget(Owner(self._store, run))
            except (StoreUnavailableError, StaleLeaderError) as error:
                log.warning("large payloads of run %s are removed later: %s", run, error)

    def _kept(self) -> B:
        if self._blobs is None:
            raise StoreUnavailableError("there is no store of blobs")
        return self._blobs
