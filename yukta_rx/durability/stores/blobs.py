"""BlobStore: payloads too large for the lines of a store, by hash, and what stands for them there.

A store that writes a payload above `yukta.payload.claim-check-bytes` puts it here first and writes
a `Blob` in its place; what it reads back is opened when somebody asks for it.

Feature: DUR-02.
"""

from __future__ import annotations

from hashlib import sha256 as hash_of
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.model.codec import Blob

if TYPE_CHECKING:
    from collections.abc import Collection


class Owner(NamedTuple):
    """Who needs a blob.

    Attributes:
        store: the store that refers to it, one word.
        run: id of the run that it refers to it for.
    """

    store: str
    run: str


class BlobStore(Protocol):
    """Keeps bytes under their hash as long as somebody needs them.

    Guarantees:
        B1. `get` gives the bytes that `put` was given, on a durable store also after a restart, as
            soon as `put` has come to its end.
        B2. The same bytes are kept once, whoever puts them and however often.
        B3. A blob is kept until every owner that put it was forgotten; `forget` takes away no
            other, and may be called again.
        B4. `keep` forgets the owners of one store whose runs it does not name, and no others.
        B5. A failure raises and names the blob: bytes that are missing, or are not those of the
            hash, are never given for what was put.
    """

    async def start(self) -> None:
        """Get ready; called before anything else.

        Raises:
            StoreUnavailableError: it cannot be used.
        """

    async def close(self) -> None:
        """Finish what is under way; called after everything else."""

    @property
    def size(self) -> int:
        """Bytes that are held."""

    async def put(self, owner: Owner, data: bytes) -> Blob:
        """Keep bytes for an owner.

        Raises:
            StoreUnavailableError: they could not be written.
        """

    async def get(self, blob: Blob) -> bytes:
        """The bytes of a blob.

        Raises:
            StoreUnavailableError: they are missing or damaged, or cannot be read.
        """

    async def forget(self, owner: Owner) -> None:
        """An owner needs nothing any more."""

    async def keep(self, store: str, runs: Collection[str]) -> None:
        """No other runs of a store need anything any more: what a crash left behind goes."""


def checked(blob: Blob, data: bytes | None) -> bytes:
    """The bytes of a blob, if they are what was put.

    Raises:
        StoreUnavailableError: they are not there, or are others.
    """
    named = f"blob {blob.sha256} of {blob.size} bytes"
    if data is None:
        raise StoreUnavailableError(f"{named} is missing", sha256=blob.sha256)
    if len(data) != blob.size or hash_of(data).hexdigest() != blob.sha256:
        raise StoreUnavailableError(f"{named} is damaged", sha256=blob.sha256)
    return data


def blob_of(data: bytes) -> Blob:
    """What stands for bytes. Takes a while for many: better in a thread."""
    return Blob(hash_of(data).hexdigest(), len(data))


# --- the claim check -----------------------------------------------------------------------------


def claim(payload: Any, limit: int) -> bytes | None:
    """The text of a payload that has to be kept apart: it is longer than `limit`; None for others.

    A payload that is a `Blob` itself is kept apart whatever its size, so that what stands in its
    place cannot be mistaken for it. With a limit of 0 nothing is kept apart.

    Raises:
        UnserialisablePayloadError: it cannot be stored; `pointer` names the place.
    """
    if not limit:
        return None
    text = codec.encode(payload)
    return text if len(text) > limit or isinstance(payload, Blob) else None


async def opened(blobs: BlobStore, blob: Blob) -> Any:
    """The payload that a blob stands for.

    Raises:
        StoreUnavailableError: it is missing or damaged, or cannot be read.
    """
    return codec.decode(await blobs.get(blob))


async def opened_as(blobs: BlobStore | None, payload: Any, what: str) -> Any:
    """The payload that stands for itself somewhere as a `Blob`; `what` names it where that fails.

    Raises:
        StoreUnavailableError: it is missing or damaged, or cannot be read; names the blob.
    """
    if not isinstance(payload, Blob):
        raise StoreUnavailableError(f"{what} is kept apart, and its line does not say where")
    if blobs is None:
        told = f"{what} is blob {payload.sha256}, and there is no store of blobs"
        raise StoreUnavailableError(told, sha256=payload.sha256)
    try:
        return await opened(blobs, payload)
    except StoreUnavailableError as error:
        raise StoreUnavailableError(f"{what}: {error.detail}", **error.members) from error
