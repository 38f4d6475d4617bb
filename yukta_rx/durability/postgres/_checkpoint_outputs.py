"""Outputs that are being written, and the records that are on their way.

Features: DUR-02, DUR-04.
"""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING

from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.stores.writing import Writing
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from yukta_rx.durability.stores.checkpoints import CheckpointRow
    from yukta_rx.durability.stores.claims import Claims, References


class Run:
    """A run that this process writes, or has looked at."""

    __slots__ = ("column", "gone", "id", "last", "outputs")

    def __init__(self, execution_id: str) -> None:
        self.id = execution_id
        self.column = stored(execution_id)
        self.outputs: dict[str, Output] = {}
        self.gone = False
        """Forgotten: what still waits is not written."""
        self.last: Record | None = None
        """The newest of its records."""

    def output(self, node_id: str) -> Output:
        """A node's output; made if nothing is known of it."""
        found = self.outputs.get(node_id)
        if found is None:
            found = self.outputs[node_id] = Output(self, node_id)
        return found


class Output:
    """What a node emits, as far as this process knows."""

    __slots__ = ("column", "complete", "ending", "failed", "last", "node_id", "reason", "run")

    def __init__(self, run: Run, node_id: str) -> None:
        self.run = run
        self.node_id = node_id
        self.column = stored(node_id)
        self.complete = False
        self.ending: Record | None = None
        """The end marker, while it is on its way."""
        self.reason: str | None = None
        self.failed = False
        """A row could not be written, so none behind it may be."""
        self.last: Record | None = None
        """The newest of its records."""

    @property
    def lost(self) -> bool:
        """Whether nothing more of it is written."""
        return self.failed or self.run.gone

    def unwritten(self) -> StoreUnavailableError:
        """Return the error of what could not be written."""
        return StoreUnavailableError(
            f"the output of node {self.node_id} of run {self.run.id} could not be written"
        )


class Record(Writing):
    """Something said of an output: a row, its end, that it is given up."""

    __slots__ = (
        *("apart", "blobs", "claims", "done", "inputs", "messages", "output", "reason"),
        *("references", "row", "seq", "size", "text"),
    )

    def __init__(self, output: Output, seq: int, *, done: bool = False) -> None:
        super().__init__()
        self.output = output
        self.seq = seq
        self.done = done
        self.reason: str | None = None
        self.text: str | None = None
        """The row."""
        self.size = 0
        """Its bytes."""
        self.messages = 0
        self.inputs = 0
        self.apart = 0
        """Bytes of payloads that are kept apart."""
        self.row: CheckpointRow | None = None
        """With such payloads: its text is not made yet."""
        self.claims: Claims = {}
        self.references: References = {}
        self.blobs: dict[str, bytes | None] = {}
        """By their hashes, once its text is made; None for what is kept already."""

    def keep(self, text: bytes) -> None:
        """The row is this."""
        self.text, self.size = text.decode(), len(text)

    def keep_later(self, row: CheckpointRow, claims: Claims, references: References) -> None:
        """The row is this, with payloads that are kept apart; some travel as references already."""
        self.row, self.claims, self.references = row, claims, references
        self.apart = sum(map(len, claims.values())) + sum(map(getsizeof, references.values()))

    @property
    def keeps(self) -> bool:
        """Whether something has to be kept apart for its run, before it is written."""
        run = self.output.run.id
        return any(data is not None for data in self.blobs.values()) or any(
            claim.owner != run for claim in self.references.values()
        )


class Told:
    """What a batch says of the state of one output."""

    __slots__ = ("bytes", "done", "inputs", "messages", "reason", "seq")

    def __init__(self) -> None:
        self.done = False
        self.reason: str | None = None
        self.messages = self.inputs = self.bytes = self.seq = 0

    def add(self, record: Record) -> None:
        """Take over what a record says."""
        self.done = self.done or record.done
        self.reason = record.reason or self.reason
        self.messages += record.messages
        self.inputs += record.inputs
        self.bytes += record.size
        self.seq = record.seq
