"""RowReader: rows from their places in the files, a piece at a time.  Feature: DUR-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.file._checkpoint_lines import body_of, head_of, intact
from yukta_rx.durability.file._checkpoint_scan import read_at
from yukta_rx.durability.stores.checkpoints import CheckpointRow, decode_row
from yukta_rx.durability.stores.claims import opened_row, referring_row
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from yukta_rx.durability.file._checkpoint_index import Output
    from yukta_rx.durability.stores.blobs import BlobStore
    from yukta_rx.model.codec import Blob

CHUNK: Final = 1 << 20
"""Bytes of rows that are read at a time, as long as a row is not longer."""


class RowReader:
    """Reads rows.

    Args:
        folder: where the files are.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        blobs: where payloads are that are not in their rows.
    """

    def __init__(
        self, folder: Path, offload: Callable[..., Awaitable[Any]], blobs: BlobStore | None
    ) -> None:
        self._folder = folder
        self._offload = offload
        self._blobs = blobs

    async def lines_of(self, output: Output, nth: int, rows: int) -> list[bytes]:
        """Lines of the first `rows` rows, from one on, about a chunk of them.

        Raises:
            StoreUnavailableError: they are not kept any more, or cannot be read.
        """
        missing: FileNotFoundError | None = None
        for _ in range(2):
            # A file may be given up between the look and the reading; then they are elsewhere.
            if output.rows < rows:
                raise StoreUnavailableError(f"{_of(output)} is not kept any more")
            places = output.from_row(nth, rows, CHUNK)
            try:
                lines: list[bytes] = await self._offload(read_at, self._folder, places)
            except FileNotFoundError as error:
                missing = error
                continue
            return lines
        where = missing.filename if missing is not None else self._folder
        raise StoreUnavailableError(f"{where}: is missing, with a part of {_of(output)}")

    def row_in(self, output: Output, nth: int, line: bytes) -> CheckpointRow:
        """The row in a line; payloads that are kept apart are still `Blob`.

        Raises:
            StoreUnavailableError: it is damaged.
        """
        body = body_of(line)
        if body is None or not intact(line):
            raise StoreUnavailableError(f"row {nth} of {_of(output)} is damaged")
        return decode_row(body, output.node_id)

    async def opened(self, row: CheckpointRow, line: bytes) -> CheckpointRow:
        """The row with all payloads.

        Raises:
            StoreUnavailableError: one is missing or damaged; names it.
        """
        head = head_of(line)
        return await opened_row(row, () if head is None else head.blobs, self._blobs)

    def referring(
        self,
        row: CheckpointRow,
        line: bytes,
        run: str,
        reader: Callable[[Blob], Awaitable[Any]],
    ) -> CheckpointRow:
        """The row with a reference for each payload that is kept apart."""
        head = head_of(line)
        return referring_row(row, () if head is None else head.blobs, run, reader)


def _of(output: Output) -> str:
    return f"the output of node {output.node_id} of run {output.run.id}"
