"""Rows of outputs whose large payloads are kept apart: what is, and how a row is whole again.

Feature: DUR-02.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from yukta_rx.durability.stores.blobs import claim, opened
from yukta_rx.durability.stores.checkpoints import CheckpointRow
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.claim import Claim
from yukta_rx.model.codec import Blob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from yukta_rx.durability.stores.blobs import BlobStore

STORE: Final = "checkpoints"
"""As the owner of blobs."""

Claims: TypeAlias = Mapping[int, bytes]
"""Texts of payloads, by the place of their messages in a row."""

References: TypeAlias = Mapping[int, Claim]
"""What stands for payloads already, by the same places."""


def claims_of(row: CheckpointRow, limit: int) -> Claims:
    """The payloads of a row that are too large for it, by their place among the messages.

    Raises:
        UnserialisablePayloadError: one cannot be stored.
    """
    # What travels as a reference is kept by that: its own text may be longer than a low limit.
    found = {
        at: claim(msg.payload, limit)
        for at, (_, msg) in enumerate(row.messages)
        if type(msg.payload) is not Claim
    }
    return {at: data for at, data in found.items() if data is not None}


def references_in(row: CheckpointRow) -> References:
    """The payloads of a row that travel as references, by their place among the messages."""
    if not any(type(msg.payload) is Claim for _, batch in row.batches for msg in batch):
        return {}
    return {
        at: msg.payload for at, (_, msg) in enumerate(row.messages) if type(msg.payload) is Claim
    }


def without(row: CheckpointRow, references: References) -> CheckpointRow:
    """A row as far as it has to be written: nothing in place of what travels as references.

    So it takes the fast way through the codec, whose slow one is for what is written in a thread.
    """
    return with_payloads(row, dict.fromkeys(references)) if references else row


def with_payloads(row: CheckpointRow, payloads: Mapping[int, Any]) -> CheckpointRow:
    """A row with other payloads at some places."""
    messages = [
        (port, replace(msg, payload=payloads[at]) if at in payloads else msg)
        for at, (port, msg) in enumerate(row.messages)
    ]
    return CheckpointRow.of(messages, row.inputs, row.group)


def referring_row(
    row: CheckpointRow,
    hashes: Sequence[str],
    run: str,
    reader: Callable[[Blob], Awaitable[Any]],
) -> CheckpointRow:
    """A row with references in place of the payloads that were kept apart.

    Args:
        row: as it is stored.
        hashes: of what it refers to.
        run: whose row it is.
        reader: reads what is kept.
    """
    if not hashes:
        return row
    claims = {
        at: Claim(msg.payload.sha256, msg.payload.size, owner=run, reader=reader)
        for at, (_, msg) in enumerate(row.messages)
        if isinstance(msg.payload, Blob)
    }
    return with_payloads(row, claims)


async def opened_row(
    row: CheckpointRow, hashes: Sequence[str], blobs: BlobStore | None
) -> CheckpointRow:
    """A row with the payloads that were kept apart.

    Args:
        row: as it is stored.
        hashes: of what it refers to.
        blobs: where that is.

    Raises:
        StoreUnavailableError: one is missing or damaged; names it.
    """
    if not hashes:
        return row
    if blobs is None:
        raise StoreUnavailableError(
            f"blob {hashes[0]} is a part of this output, and there is no store of blobs"
        )
    payloads = {
        at: await opened(blobs, msg.payload)
        for at, (_, msg) in enumerate(row.messages)
        if isinstance(msg.payload, Blob)
    }
    return with_payloads(row, payloads)
