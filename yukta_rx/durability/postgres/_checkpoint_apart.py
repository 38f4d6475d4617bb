"""Payloads of recorded outputs that are kept apart from their rows.  Features: DUR-02, DUR-04."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from yukta_rx.durability.stores.blobs import Owner
from yukta_rx.durability.stores.checkpoints import CheckpointRow, encode_row
from yukta_rx.durability.stores.claims import STORE, with_payloads
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from yukta_rx.durability.postgres._checkpoint_outputs import Record
    from yukta_rx.durability.postgres.blobs import PostgresBlobStore

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

log = logging.getLogger(__name__)


async def keep_apart(record: Record, row: CheckpointRow, blobs: PostgresBlobStore) -> None:
    """Make the text of a row whose large payloads are kept apart."""
    claims = record.claims
    places = await blobs.named(claims)
    record.keep(encode_row(with_payloads(row, places)))
    record.blobs = {places[at].sha256: data for at, data in claims.items()}
    for claim in record.references.values():
        record.blobs[claim.sha256] = claim.text
    record.claims, record.row = {}, None


async def put_apart(
    made: Connection, blobs: PostgresBlobStore | None, records: Sequence[Record]
) -> int:
    """Keep what is apart from rows, in the transaction that writes them; bytes that are new."""
    if blobs is None or not records:
        return 0
    given: dict[Owner, dict[str, bytes]] = {}
    known: dict[Owner, set[str]] = {}
    for record in records:
        owner = Owner(STORE, record.output.run.id)
        shared = {one.sha256 for one in record.references.values() if one.owner != owner.run}
        for sha256, data in record.blobs.items():
            if data is not None:
                given.setdefault(owner, {})[sha256] = data
            elif sha256 in shared:
                known.setdefault(owner, set()).add(sha256)
    fresh = await blobs.put_with(made, given) if given else 0
    for owner, hashes in known.items():
        try:
            await blobs.share_with(made, owner, hashes)
        except StoreUnavailableError as error:
            # Who opens it is told. The rows have nothing to do with it.
            log.error("run %s: %s", owner.run, error)
    return fresh
