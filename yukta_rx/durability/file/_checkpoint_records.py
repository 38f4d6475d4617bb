"""Records: what is handed over to be written to the checkpoint log, one line each.

Feature: DUR-02.
"""

from __future__ import annotations

import logging
from sys import getsizeof
from typing import TYPE_CHECKING

from yukta_rx.durability.file._checkpoint_lines import (
    DONE,
    body_of,
    clear_line,
    head_of,
    incomplete_line,
    intact,
    row_line,
)
from yukta_rx.durability.stores.blobs import Owner, blob_of
from yukta_rx.durability.stores.checkpoints import CheckpointRow, encode_row
from yukta_rx.durability.stores.claims import STORE, Claims, References, with_payloads
from yukta_rx.durability.stores.writing import Writing
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from yukta_rx.durability.file._checkpoint_index import Output, Place, Run
    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.model.claim import Claim
    from yukta_rx.model.codec import Blob

log = logging.getLogger(__name__)


class Record(Writing):
    """A line on its way to the disk."""

    __slots__ = ("_line", "weight")

    def __init__(self, line: bytes) -> None:
        super().__init__()
        self._line = line
        self.weight = len(line)
        """Bytes that it holds while it waits."""

    def line(self) -> bytes:
        """The line; called in the thread."""
        return self._line


class RowRecord(Record):
    """A row, an end marker, or both."""

    __slots__ = ("done", "has_row", "inputs", "messages", "output")

    def __init__(
        self,
        output: Output,
        line: bytes,
        sizes: tuple[int, int] | None = None,
        *,
        done: bool = False,
    ) -> None:
        super().__init__(line)
        self.output = output
        self.has_row = sizes is not None
        self.messages, self.inputs = sizes or (0, 0)
        self.done = done


class LargeRowRecord(RowRecord):
    """A row with payloads that are kept apart; they are stored before it."""

    __slots__ = ("_blobs", "_claims", "_nth", "_references", "_row")

    def __init__(
        self,
        output: Output,
        row: CheckpointRow,
        claims: Claims,
        references: References,
        blobs: FileBlobStore,
        *,
        done: bool,
    ) -> None:
        super().__init__(output, b"", (len(row), len(row.inputs)), done=done)
        self.weight = sum(map(len, claims.values())) + sum(map(getsizeof, references.values()))
        self._nth = output.taken
        self._row = row
        self._claims = claims
        self._references = references
        self._blobs = blobs

    def line(self) -> bytes:
        """Store the payloads, then say where they are."""
        owner = Owner(STORE, self.output.run.id)
        blobs: dict[int, Blob] = {}
        for place, data in self._claims.items():
            blobs[place] = blob_of(data)
            self._blobs.write(owner, blobs[place].sha256, data)
        for place, claim in self._references.items():
            blobs[place] = claim.__blob__
            if (text := claim.text) is not None:
                self._blobs.write(owner, claim.sha256, text)
            elif claim.owner != owner.run:
                self._share(owner, claim)
            claim.kept(owner.run)
        self._claims = {}
        self._references = {}
        return row_line(
            self.output.about,
            self._nth,
            (self.messages, self.inputs),
            encode_row(with_payloads(self._row, blobs)),
            done=self.done,
            blobs=sorted({blob.sha256 for blob in blobs.values()}),
        )

    def _share(self, owner: Owner, claim: Claim) -> None:
        try:
            self._blobs.share_now(owner, (claim.sha256,))
        except StoreUnavailableError as error:
            # Who opens it is told. What else is written with this has nothing to do with it.
            log.error("run %s, node %s: %s", owner.run, self.output.node_id, error)


class CarryRecord(RowRecord):
    """A row of one run, for another run."""

    __slots__ = ("blobs",)

    def __init__(self, output: Output, line: bytes) -> None:
        head, body = head_of(line), body_of(line)
        if head is None or body is None or not intact(line):
            raise StoreUnavailableError(
                f"a row of node {output.node_id} is damaged and cannot be carried over"
            )
        sizes = head.n, head.inputs
        done = head.kind == DONE
        text = row_line(output.about, output.taken, sizes, body, done=done, blobs=head.blobs)
        super().__init__(output, text, sizes, done=done)
        self.blobs = head.blobs
        """They have to be kept for the other run as well, before this is written."""


class IncompleteRecord(Record):
    """A node's output is given up."""

    __slots__ = ("output",)

    def __init__(self, output: Output) -> None:
        super().__init__(incomplete_line(output.about, output.reason or ""))
        self.output = output


class ClearRecord(Record):
    """A run is forgotten."""

    __slots__ = ("run",)

    def __init__(self, run: Run) -> None:
        super().__init__(clear_line(run.about))
        self.run = run


class CopyRecord(Record):
    """A line that is still needed, on its way out of a file that mostly is not."""

    __slots__ = ("nth", "old", "output", "run")

    def __init__(self, line: bytes, run: Run, output: Output | None, nth: int, old: Place) -> None:
        super().__init__(line + b"\n")
        self.run = run
        self.output = output
        """None: it is the line that the run is gone."""
        self.nth = nth
        self.old = old

    @property
    def wanted(self) -> bool:
        """Whether the line is still needed, and still where it was."""
        if self.output is None:
            return self.run.cleared == self.old
        if self.run.gone:
            return False
        if self.nth < 0:
            return self.output.end == self.old
        return self.nth < self.output.rows and self.output.place(self.nth) == self.old
