"""Reads recorded outputs page by page: never one as a whole.  Features: DUR-02, DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.postgres._checkpoint_statements import PAGE, STATE
from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.stores.checkpoints import CheckpointRow, decode_row
from yukta_rx.durability.stores.claims import opened_row, referring_row
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.model.codec import Blob

FIRST: Final = 16
MOST: Final = 1000
BYTES: Final = 1 << 20
"""Rows of a page: few at first, then as many as make about so many bytes."""


class DamagedRowError(StoreUnavailableError):
    """A row is not one. `place` says where it is."""

    def __init__(self, place: str, error: StoreUnavailableError) -> None:
        super().__init__(f"{place}: {error.detail}")
        self.place = place


async def pages(
    database: Database,
    blobs: PostgresBlobStore | None,
    execution_id: str,
    node_id: str,
    reader: Callable[[Blob], Awaitable[Any]] | None = None,
) -> AsyncGenerator[CheckpointRow, None]:
    """The rows of a node that is not given up; with a reader, what is kept apart is not read.

    Raises:
        DamagedRowError: one cannot be read.
        StoreUnavailableError: the database gives no answer, or rows are missing.
    """
    whose = (database.part, stored(execution_id), stored(node_id))
    state = await database.fetchrow(STATE, *whose)
    if state is None or state["reason"] is not None:
        return
    after, limit, messages = 0, FIRST, 0
    while True:
        page = await database.fetch(PAGE, *whose, after, state["last_seq"], limit)
        for row in page:
            after = row["seq"]
            try:
                read = decode_row(row["row"].encode(), node_id)
            except StoreUnavailableError as error:
                place = f"node_checkpoint, run {execution_id}, node {node_id}, seq {after}"
                raise DamagedRowError(place, error) from error
            messages += len(read)
            hashes = (row["blobs"] or "").split()
            if reader is None:
                yield await opened_row(read, hashes, blobs)
            else:
                yield referring_row(read, hashes, execution_id, reader)
        if len(page) < limit:
            break
        each = sum(len(row["row"]) for row in page) // len(page) + 1
        limit = max(1, min(MOST, BYTES // each))
    if messages != state["messages"]:
        raise StoreUnavailableError(
            f"the output of node {node_id} has {state['messages']} messages, and {messages}"
            " are there: its run was forgotten meanwhile, or rows are missing"
        )
