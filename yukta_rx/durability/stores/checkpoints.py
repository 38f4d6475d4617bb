"""NodeCheckpointStore: what each node of a run emitted, and the mark that it was all.

Features: DUR-02, DUR-03.
"""

from __future__ import annotations

from contextlib import aclosing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

import msgspec

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.model.message import NO_HEADERS, Message, Several

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
    )

    from yukta_rx.model.codec import Blob

ROW_MESSAGES: Final = 100
"""Messages that a row holds at most, unless one input alone gave more."""

ROW_BYTES: Final = 256 * 1024
"""Bytes that a row holds at most, unless one input alone gave more."""

OVER_CAP: Final = "output_over_cap"
"""Reason of an incomplete output: more than the store keeps."""

UNSERIALISABLE: Final = "output_unserialisable"
"""Reason of an incomplete output: a message cannot be written."""

UNFINISHED: Final = "node_unfinished"
"""Reason of an incomplete output: the run has ended, and the node had not emitted all."""

LEFT_ALONE: Final = "left_alone"
"""Reason of an incomplete output: the run began behind the node, which did nothing."""

WRITE_FAILED: Final = "write_failed"
"""Reason of an incomplete output: the store could not write."""

DAMAGED: Final = "output_damaged"
"""Reason of an incomplete output: a row of it cannot be read."""


class CheckpointRow(msgspec.Struct, frozen=True):
    """A part of what a node emitted; it covers whole inputs, or belongs to one that is not over.

    Attributes:
        batches: messages in the order in which they were emitted, with the port of each batch.
        inputs: the inputs that were finished, as (message id, number of outputs), those without
            an output too. Empty where only whole outputs are read: the end marker says it then.
        group: what ties the rows of an input together whose outputs fill several of them; "" for
            a row that stands alone. Those without `inputs` count only if the one that lists the
            input, the last of the group, is there too; `counting_rows` leaves the others out.
    """

    batches: tuple[tuple[str | None, tuple[Message, ...]], ...] = ()
    inputs: tuple[tuple[str, int], ...] = ()
    group: str = ""

    @classmethod
    def of(
        cls,
        messages: Iterable[tuple[str | None, Message]],
        inputs: Iterable[tuple[str, int]] = (),
        group: str = "",
    ) -> Self:
        """Make one of messages, each with its port."""
        return cls(tuple((port, (msg,)) for port, msg in messages), tuple(inputs), group)

    @property
    def messages(self) -> Iterator[tuple[str | None, Message]]:
        """Every message with its port."""
        return ((port, msg) for port, batch in self.batches for msg in batch)

    def __len__(self) -> int:
        return sum(len(batch) for _, batch in self.batches)


class NodeCheckpoint(msgspec.Struct, frozen=True):
    """What is known of a node's recorded output.

    Attributes:
        complete: whether the end marker is there: this is all that the node emitted.
        reason: why it can never be complete; None if it can.
        messages: how many are recorded, those of an input that is not over too.
        inputs: how many finished inputs are listed.
    """

    complete: bool = False
    reason: str | None = None
    messages: int = 0
    inputs: int = 0


Rows: TypeAlias = "Callable[[], AsyncGenerator[CheckpointRow, None]]"
"""Opens a recorded output, from its beginning."""


class NodeCheckpointStore(Protocol):
    """Keeps the output of the nodes of runs.

    Guarantees:
        C1. `read` gives the rows of a node as they were appended: every message with its port, id,
            headers, payload, attempt and causes, and the inputs; in the order of the appends.
        C2. A node is complete from the moment that `mark_complete` has come to its end, and not
            before; its last row, given with the mark, is there if and only if the mark is.
        C3. `states` shows all nodes of a run of which anything is known, and none of another run.
        C4. `append` returns False from the first row on that is not kept. Then the node is
            incomplete for good: it is never complete, and none of its rows is read again.
        C5. `mark_incomplete` does the same to a node, whatever was appended; not to a complete one.
        C6. What comes for a complete node changes nothing: it stays as it was marked.
        C7. `clear` forgets a run whole, files too, and no other; it may be called again.
        C8. A failure raises; a node is never taken for complete, or for one without output,
            because the store could not answer.
        C9. `read` of a node that is neither complete nor given up gives the rows that are written,
            in order; on a durable store also after a restart, when nobody writes it any more. All
            that was appended before `written` was called is written once that has come to its end.
        C10. Rows and marks of a run are written in the order in which they came, whatever their
            nodes: if one is there after a crash, so is every one of that run that came before it.
        C11. After `carry_over` the run `into` has the nodes that were named as the other run has
            them, written; none if it raised. What comes later for one of the two runs, clearing
            included, changes nothing of the other.

    Not guaranteed: that runs are written in order of one another.

    Attributes:
        durable: whether what was written outlives the process. Then inputs are recorded too, and
            an aborted run can go on behind them.
        claim_bytes: size from which on payloads are kept apart; 0 for none. Where it is not 0 a
            message may have a `Claim` in place of its payload, whose text is kept before the row.
    """

    durable: bool
    claim_bytes: int

    async def start(self) -> None:
        """Get ready; called before anything else.

        Raises:
            StoreUnavailableError: it cannot be used.
        """

    async def close(self) -> None:
        """Finish what is under way; called after everything else."""

    @property
    def bytes(self) -> int:
        """What is held, estimated."""

    @property
    def synchronous(self) -> bool:
        """Whether `append` and `mark_complete` are done when they return, for every node."""

    @property
    def full(self) -> bool:
        """Whether so much waits to be written that nodes should be held back; see `room`."""

    def append(self, execution_id: str, node_id: str, row: CheckpointRow) -> bool:
        """Take a row over, to be written behind; False if the output of the node is not kept."""

    async def room(self) -> None:
        """Wait until it is not `full`."""

    def mark_complete(
        self, execution_id: str, node_id: str, row: CheckpointRow | None = None
    ) -> Awaitable[None] | None:
        """Write the last row and the end marker together; None if that is done already.

        A durable store returns a future: the two are on their way, whoever awaits it.

        Raises:
            StoreUnavailableError: it could not be written; the node is not complete.
        """

    def mark_incomplete(self, execution_id: str, node_id: str, reason: str) -> None:
        """Give up the output of a node for good."""

    def written(self, execution_id: str, node_id: str) -> Awaitable[None] | None:
        """Wait until all rows of a node that were appended are written; None if they are already.

        Raises:
            StoreUnavailableError: one could not be written; the node is incomplete for good.
        """

    async def carry_over(self, execution_id: str, into: str, nodes: Collection[str]) -> None:
        """Let a run of which nothing is known begin with what is known of nodes of another run.

        What is known of a node is its rows, its mark, or why it was given up; of a node without
        any of it nothing is known in the new run either.

        Raises:
            StoreUnavailableError: it could not be written; nothing is known of `into`.
        """

    async def states(self, execution_id: str) -> Mapping[str, NodeCheckpoint]:
        """What is known of each node of a run, by node id."""

    def read(
        self, execution_id: str, node_id: str, *, whole: bool = True
    ) -> AsyncGenerator[CheckpointRow, None]:
        """The rows of a node, drawn as they are asked for.

        Without `whole` each payload that is kept apart is a `Claim`, and is not read.

        Raises:
            StoreUnavailableError: they cannot be read.
        """

    async def payload(self, blob: Blob) -> Any:
        """A payload that is kept apart.

        Raises:
            StoreUnavailableError: it is missing or damaged, or cannot be read; names the blob.
        """

    async def runs(self) -> Collection[str]:
        """Ids of all runs of which anything is kept."""

    async def clear(self, *execution_ids: str) -> None:
        """Forget runs."""


async def counting_rows(rows: Rows) -> AsyncGenerator[CheckpointRow, None]:
    """The rows of a node without those of inputs that were not over; reads them twice if need be.

    Raises:
        StoreUnavailableError: they cannot be read.
    """
    closed: set[str] | None = None
    async with aclosing(rows()) as stored:
        async for row in stored:
            if row.group and not row.inputs:
                closed = await _closed_groups(rows) if closed is None else closed
                if row.group not in closed:
                    continue
            yield row


async def _closed_groups(rows: Rows) -> set[str]:
    async with aclosing(rows()) as stored:
        return {row.group async for row in stored if row.group and row.inputs}


# --- a row as text -------------------------------------------------------------------------------


def encode_row(row: CheckpointRow) -> bytes:
    """Return a row as one line of JSON without its end.

    Raises:
        UnserialisablePayloadError: a message cannot be stored; `pointer` names the place.
    """
    messages = [
        [
            port,
            {
                "id": msg.id,
                "causes": list(msg.causes),
                "attempt": msg.attempt,
                "headers": dict(msg.headers),
                "payload": msg.payload,
            },
        ]
        for port, batch in row.batches
        for msg in batch
    ]
    shown: dict[str, Any] = {"messages": messages, "inputs": list(map(list, row.inputs))}
    if row.group:
        shown["group"] = row.group
    return codec.encode(shown, plain=_is_plain(row))


def _is_plain(row: CheckpointRow) -> bool:
    for _, batch in row.batches:
        for msg in batch:
            if msg.headers or not codec.is_plain(msg.payload):
                return False
    return True


def decode_row(line: bytes, node_id: str) -> CheckpointRow:
    """Return the row that `encode_row` was given for a node.

    Raises:
        StoreUnavailableError: this is not such a line.
    """
    try:
        shown = codec.decode(line)
        messages = [(port, _message(one, node_id)) for port, one in shown["messages"]]
        inputs = [(made, n) for made, n in shown["inputs"]]
        return CheckpointRow.of(messages, inputs, shown.get("group", ""))
    except Exception as error:
        raise StoreUnavailableError(
            f"a recorded output of node {node_id} is damaged: {error}"
        ) from error


def _message(shown: Mapping[str, Any], node_id: str) -> Message:
    headers = MappingProxyType(shown["headers"]) if shown["headers"] else NO_HEADERS
    causes: Iterable[str] = shown["causes"]
    known = Several(causes)
    origin: tuple[Any, ...] = ()
    if known:
        origin = (known[0] if len(known) == 1 else known, node_id, 0)
    return Message(shown["payload"], headers, origin, shown["id"], shown["attempt"])
