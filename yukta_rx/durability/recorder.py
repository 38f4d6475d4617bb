"""RunRecorder: gathers in rows what the nodes of a run emit, and which inputs they have finished.

Where the store is durable a row covers whole inputs, so what is written says how far a node is. Of
one input with more outputs than a row holds, rows are written early; they count only once the row
that lists the input is there too (`CheckpointRow.group`).

Features: DUR-02, DUR-03.
"""

from __future__ import annotations

import asyncio
import logging
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yukta_rx.durability.stores.checkpoints import (
    ROW_BYTES,
    ROW_MESSAGES,
    WRITE_FAILED,
    CheckpointRow,
)
from yukta_rx.durability.stores.writing import Writing
from yukta_rx.errors import YuktaError
from yukta_rx.model.weight import weigh

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from yukta_rx.durability.stores.checkpoints import NodeCheckpointStore
    from yukta_rx.model.message import Message
    from yukta_rx.streams.aio import Tasks

    Batch = tuple[str | None, tuple[Message, ...]]
    Listed = tuple[tuple[str, int], ...]

log = logging.getLogger(__name__)

ROW_INPUTS: Final = 1000
"""Inputs that a row lists at most, if they have no outputs."""

DELAY: Final = 0.05
"""Seconds that a finished input waits for others to share its row."""


class RunRecorder:
    """Records the nodes of one run; the engine's `Recorder`.

    Args:
        store: gets the rows.
        execution_id: the run.
        tasks: owner of what waits for the store.
        failed: told of each node that could not be written.
        row_messages: messages that a row holds.
    """

    __slots__ = (
        "_failed",
        "_late",
        "_timer",
        "execution_id",
        "loop",
        "nodes",
        "row_messages",
        "store",
        "tasks",
    )

    def __init__(
        self,
        store: NodeCheckpointStore,
        execution_id: str,
        tasks: Tasks,
        failed: Callable[[], None],
        row_messages: int = ROW_MESSAGES,
    ) -> None:
        self.store = store
        self.execution_id = execution_id
        self.tasks = tasks
        self.nodes: list[NodeRecorder] = []
        self.row_messages = row_messages
        self._failed = failed
        self._late: set[InputRecorder] = set()
        """Those with finished inputs that are in no row yet."""
        self.loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def durable(self) -> bool:
        """Whether what is recorded outlives the process."""
        return self.store.durable

    @property
    def claims(self) -> NodeCheckpointStore | None:
        """The store, where it keeps large payloads apart."""
        return self.store if self.durable and self.store.claim_bytes else None

    def node(
        self,
        node_id: str,
        hold: Callable[[bool], None],
        *,
        by_input: bool = False,
    ) -> NodeRecorder:
        """What records one node; it calls `hold(True)` to have the node held back.

        Args:
            node_id: the node; those that feed it come before it.
            hold: holds the node back, or lets it go on.
            by_input: whether the inputs that it has finished are told.
        """
        kind = InputRecorder if by_input and self.durable else NodeRecorder
        recorder = kind(self, len(self.nodes), node_id, hold)
        if not self.store.synchronous:
            recorder.barrier = recorder.marked
        self.nodes.append(recorder)
        return recorder

    def rests(self) -> bool:
        """Whether nothing is on its way to a row."""
        return not self._late

    def failed(self, node_id: str, error: BaseException) -> None:
        """Give up the output of a node that could not be written."""
        defect = None if isinstance(error, YuktaError) else error
        log.warning("the output of node %s cannot be replayed: %s", node_id, error, exc_info=defect)
        self._failed()
        self.store.mark_incomplete(self.execution_id, node_id, WRITE_FAILED)

    def late(self, recorder: InputRecorder) -> None:
        """A node has finished inputs: see to it that they are written soon."""
        self._late.add(recorder)
        if self._timer is None:
            self._timer = self.loop.call_later(DELAY, self._due)

    def written(self, recorder: InputRecorder) -> None:
        """A node has written all that it has finished."""
        self._late.discard(recorder)

    def write_before(self, place: int = 1 << 30) -> None:
        """Have those in front of a node written: what a node has worked off is there before it."""
        for recorder in sorted(self._late, key=lambda one: one.place):
            if recorder.place < place:
                recorder.write()

    def _due(self) -> None:
        self._timer = None
        self.write_before()

    def close(self) -> None:
        """The run has ended: nothing is written later."""
        if self._timer is not None:
            self._timer.cancel()
        self._late.clear()
        # They know their run, and what waits for them themselves: nothing is left in a circle.
        for recorder in self.nodes:
            recorder.barrier = None
        self.nodes = []


class NodeRecorder:
    """Gathers what a node emits in rows; see the engine's `NodeRecorder`."""

    __slots__ = (
        "_complete",
        "_count",
        "_guess",
        "_hold",
        "_holding",
        "_lost",
        "_marker",
        "_waiting",
        "barrier",
        "node_id",
        "place",
        "run",
        "wanted",
    )

    wants_inputs = False

    def __init__(
        self, run: RunRecorder, place: int, node_id: str, hold: Callable[[bool], None]
    ) -> None:
        self.run = run
        self.place = place
        self.node_id = node_id
        self.wanted = True
        self._hold = hold
        self._waiting: list[Batch] = []
        self._count = 0
        self._guess = 0
        self._holding = False
        self._complete = False
        self._marker: asyncio.Future[None] | None = None
        self._lost = False
        self.barrier: Callable[[], asyncio.Future[None] | None] | None = None

    def add(self, port: str | None, messages: Sequence[Message]) -> bool:
        """Take a batch over; False if no more of this node is wanted."""
        self._waiting.append((port, tuple(messages)))
        self._count += len(messages)
        # Good enough to bound what waits here; the store weighs.
        self._guess += weigh(messages[0].payload) * len(messages)
        if self._count >= self.run.row_messages or self._guess >= ROW_BYTES:
            self._append(self._row())
        return self.wanted

    def finished(self, inputs: Sequence[Message]) -> None:
        """Nobody looks at inputs here."""

    def aside(self, port: str | None, messages: Sequence[Message]) -> None:
        """Take over what did not go through the node."""
        if port is not None:
            self.add(port, messages)

    def _append(self, row: CheckpointRow) -> None:
        run = self.run
        self.wanted = self.wanted and run.store.append(run.execution_id, self.node_id, row)
        if self.wanted and run.store.full and not self._holding:
            self._holding = True
            self._hold(True)
            run.tasks.spawn(self._room(), f"yukta record {self.node_id}")

    async def _room(self) -> None:
        await self.run.store.room()
        self._holding = False
        self._hold(False)

    def _row(self) -> CheckpointRow:
        waiting, self._waiting = self._waiting, []
        self._count = self._guess = 0
        return CheckpointRow(tuple(waiting))

    def _rest(self) -> CheckpointRow | None:
        return self._row() if self._waiting else None

    def written(self) -> asyncio.Future[None] | None:
        """Have all that was taken over written, None if it is; done when that is, or failed."""
        if self._waiting:
            self._append(self._row())
        if not self.wanted:
            return None
        run = self.run
        try:
            written = run.store.written(run.execution_id, self.node_id)
        except YuktaError as error:
            self.not_written(error)
            return None
        return None if written is None else self._over(written)

    def rests(self) -> bool:
        """Hand on what waits for a row to be full; whether another recorder could go on."""
        if self._waiting:
            self._append(self._row())
        return self.wanted and not self._holding

    def _over(self, writing: Awaitable[None]) -> asyncio.Future[None]:
        """Done when a write is, also if that failed; who gives up waiting leaves it as it is."""
        if not isinstance(writing, Writing):
            writing = Writing.by(writing, self.run.tasks, f"yukta record {self.node_id}")
        writing.tell(self.not_written)
        return writing.over()

    def not_written(self, error: BaseException | None) -> None:
        """If something of it could not be written, give its output up, once."""
        if error is None:
            return
        self.wanted = False
        if not self._lost:
            self._lost = True
            self.run.failed(self.node_id, error)

    def complete(self) -> None:
        """Have the output marked as whole, once; `marked` waits for it."""
        if self._complete:
            return
        self._complete = True
        if (marking := self._mark()) is not None:
            self._marker = self._over(marking)

    def marked(self) -> asyncio.Future[None] | None:
        """Mark the output as whole, unless that was done; done when that is over, None if it is."""
        self.complete()
        return None if self._marker is None or self._marker.done() else self._marker

    def _mark(self) -> Awaitable[None] | None:
        run = self.run
        run.write_before(self.place)
        try:
            return run.store.mark_complete(run.execution_id, self.node_id, self._rest())
        except YuktaError as error:
            self.not_written(error)
            return None


class InputRecorder(NodeRecorder):
    """Gathers finished inputs too: a row is written only where all that it lists is whole.

    What waits is what whole inputs gave; what is open was given by inputs that are not over.
    """

    __slots__ = ("_given", "_group", "_inputs", "_open", "_open_count", "_open_guess")

    wants_inputs = True

    def __init__(
        self, run: RunRecorder, place: int, node_id: str, hold: Callable[[bool], None]
    ) -> None:
        super().__init__(run, place, node_id, hold)
        self._inputs: list[_Input] = []
        self._open: list[Batch] = []
        self._open_count = 0
        self._open_guess = 0
        self._group = ""
        """Under which rows were written of the inputs that are not over."""
        self._given: dict[str, int] = {}
        """Messages in those rows, by what they came from."""

    def add(self, port: str | None, messages: Sequence[Message]) -> bool:
        """Take over what inputs gave that are not over."""
        self._open.append((port, tuple(messages)))
        self._open_count += len(messages)
        self._open_guess += weigh(messages[0].payload) * len(messages)
        if self._open_count >= self.run.row_messages or self._open_guess >= ROW_BYTES:
            self.write()
            self._group = self._group or token_hex(4)
            opened = self._opened()
            for _, some in opened:
                for cause in [cause for msg in some for cause in msg.causes]:
                    self._given[cause] = self._given.get(cause, 0) + 1
            self._append(CheckpointRow(opened, (), self._group))
        return self.wanted

    def finished(self, inputs: Sequence[Message]) -> None:
        """These inputs are over: all that is open is what they gave."""
        if not self.wanted:
            self._open = []
            return
        ids = [_input(msg) for msg in inputs]
        if self._group:
            self.write()
            group, self._group = self._group, ""
            self.run.write_before(self.place)
            opened, given = self._opened(), self._given
            listed = [(made, n + given.get(made, 0)) for made, n in _counted(ids, opened)]
            self._given = {}
            self._append(CheckpointRow(opened, tuple(listed), group))
            return
        self._count += self._open_count
        self._guess += self._open_guess
        self._waiting += self._opened()
        self._inputs += ids
        self._wait()

    def aside(self, port: str | None, messages: Sequence[Message]) -> None:
        """These inputs are over, and went out by a port as they came; by none if it is None."""
        if port is not None:
            self._waiting.append((port, tuple(messages)))
            self._count += len(messages)
            self._guess += weigh(messages[0].payload) * len(messages)
        self._inputs += [_input(msg) for msg in messages]
        self._wait()

    def _wait(self) -> None:
        full = self._count >= self.run.row_messages or self._guess >= ROW_BYTES
        if full or len(self._inputs) >= ROW_INPUTS:
            self.run.write_before(self.place)
            self.write()
        else:
            self.run.late(self)

    def rests(self) -> bool:
        """Whether another recorder could go on; what is finished is written soon by itself."""
        open_ = self._open or self._group or self._waiting or self._inputs
        return self.wanted and not self._holding and not open_

    def write(self) -> None:
        """Write what whole inputs gave."""
        if (row := self._rest()) is not None:
            self._append(row)

    def _opened(self) -> tuple[Batch, ...]:
        opened, self._open = tuple(self._open), []
        self._open_count = self._open_guess = 0
        return opened

    def _rest(self) -> CheckpointRow | None:
        self.run.written(self)
        if not self._inputs and not self._waiting:
            return None
        inputs, self._inputs = self._inputs, []
        batches = self._row().batches
        return CheckpointRow(batches, _counted(inputs, batches))


class _Input(NamedTuple):
    """A finished input, without its payload."""

    message_id: str
    origin: Any
    trail: Any

    def gave(self, msg: Message) -> bool:
        """Whether a message is known to come of it, without working out an id."""
        return msg.trail is not None and msg.trail[0] is self.trail and msg.origin is self.origin


def _input(msg: Message) -> _Input:
    return _Input(msg.id, msg.origin, msg.trail)


def _counted(inputs: Sequence[_Input], batches: Iterable[Batch]) -> Listed:
    """The inputs with the number of messages that name one of them as what they came from."""
    counts = dict.fromkeys([one.message_id for one in inputs], 0)
    places = iter(inputs)
    at = next(places, None)
    for _, messages in batches:
        for msg in messages:
            # Mostly outputs come in the order of their inputs.
            if at is not None and not at.gave(msg):
                at = next(places, None)
            if at is not None and at.gave(msg):
                counts[at.message_id] += 1
                continue
            for known in (msg.id, *msg.causes):
                if known in counts:
                    counts[known] += 1
                    break
    return tuple((one.message_id, counts[one.message_id]) for one in inputs)
