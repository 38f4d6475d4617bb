"""ExecutionArchive: records what runs emit, and keeps the newest that ended restartable.

Features: CTL-04, DUR-02.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from yukta_rx.durability.stores.checkpoints import (
    ROW_BYTES,
    ROW_MESSAGES,
    UNFINISHED,
    WRITE_FAILED,
    CheckpointRow,
)
from yukta_rx.errors import StoreUnavailableError, YuktaError
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.weight import weigh
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Collection,
        Mapping,
        Sequence,
    )
    from datetime import datetime

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.stores.archive import ArchivedRun, ExecutionArchiveStore
    from yukta_rx.durability.stores.checkpoints import NodeCheckpoint, NodeCheckpointStore, Rows
    from yukta_rx.metrics import Meters
    from yukta_rx.model.message import Message

_WHOLE = {TaskStatus.SUCCESS, TaskStatus.SKIPPED}

log = logging.getLogger(__name__)


class ExecutionArchive:
    """Live runs with their recorders, and the runs that ended last.

    A run that is being replayed is not forgotten before that is over, even if it is no longer
    among the newest.

    Args:
        store: keeps runs.
        checkpoints: keeps what their nodes emitted.
        settings: how many that ended are kept; with 0 nothing is recorded at all.
        meters: count what is held, and end markers that could not be written.
    """

    def __init__(
        self,
        store: ExecutionArchiveStore,
        checkpoints: NodeCheckpointStore,
        settings: Settings,
        meters: Meters,
    ) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self._retained = settings.restart.retained_executions
        self._errors = meters.counter("yukta.checkpoint.errors")
        meters.watch("yukta.checkpoint.bytes", lambda: checkpoints.bytes)
        self._live: dict[str, ArchivedRun] = {}
        self._kept: set[str] = set()
        self._reading: dict[str, str] = {}
        self._pins: Counter[str] = Counter()
        self._doomed: set[str] = set()
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)

    async def __aenter__(self) -> Self:
        """Open the stores, and learn which runs are kept already."""
        await self._checkpoints.start()
        self._kept.update(await self._store.ids())
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Wait for what is under way."""
        await self._tasks.ended()
        await self._checkpoints.close()

    def _failed(self) -> None:
        self._errors.add()

    # -- recording

    def recorder(self, execution_id: str) -> RunRecorder | None:
        """What records a run that is about to begin; None if nothing is recorded."""
        if not self._retained:
            return None
        return RunRecorder(self._checkpoints, execution_id, self._tasks, self._failed)

    def begin(self, run: ArchivedRun, reads_from: str | None = None) -> None:
        """A run has been made; it replays outputs of the run `reads_from`."""
        if self._retained:
            self._live[run.execution_id] = run
            if reads_from is not None:
                self._reading[run.execution_id] = reads_from
                self.pin(reads_from)

    async def end(
        self,
        execution_id: str,
        status: TaskStatus,
        nodes: Mapping[str, TaskStatus],
        ended_at: datetime | None,
    ) -> None:
        """Keep a run that has ended; those that are too old by now are forgotten."""
        run = self._live.get(execution_id)
        if run is None:
            return
        ended = replace(run, status=status, nodes=dict(nodes), ended_at=ended_at)
        gone: Sequence[str] = (execution_id,)
        try:
            gone = await self._store.put(ended, self._retained)
            self._kept.add(execution_id)
        except YuktaError as error:
            log.warning("run %s cannot be restarted: %s", execution_id, error)
        finally:
            del self._live[execution_id]
        for old in gone:
            self._kept.discard(old)
            await self._clear(old)
        if execution_id in self._kept and not set(nodes.values()) <= _WHOLE:
            await self._let_go(execution_id)
        if (source := self._reading.pop(execution_id, None)) is not None:
            await self.unpin(source)

    async def _let_go(self, execution_id: str) -> None:
        """Give up what nodes emitted that did not come to their end, and never will."""
        try:
            states = await self._checkpoints.states(execution_id)
        except YuktaError as error:
            log.warning("unfinished outputs of run %s stay: %s", execution_id, error)
            return
        for node_id, state in states.items():
            if not state.complete and state.reason is None:
                self._checkpoints.mark_incomplete(execution_id, node_id, UNFINISHED)

    async def _clear(self, execution_id: str) -> None:
        if execution_id in self._pins:
            self._doomed.add(execution_id)
            return
        try:
            await self._checkpoints.clear(execution_id)
        except YuktaError as error:
            log.warning("the outputs of run %s are left behind: %s", execution_id, error)

    # -- what restarts need

    def has(self, execution_id: str) -> bool:
        """Whether a run, live or ended, can be run again."""
        return execution_id in self._live or execution_id in self._kept

    async def find(self, execution_id: str) -> ArchivedRun | None:
        """A run, live or ended; None if it is not kept."""
        return self._live.get(execution_id) or await self._store.get(execution_id)

    async def states(self, execution_id: str) -> Mapping[str, NodeCheckpoint]:
        """What is recorded of each node of a run."""
        return await self._checkpoints.states(execution_id)

    def reader(self, execution_id: str, node_id: str) -> Rows:
        """What opens the recorded output of a node, and fails if that is not whole any more."""

        async def rows() -> AsyncGenerator[CheckpointRow, None]:
            state = (await self._checkpoints.states(execution_id)).get(node_id)
            if state is None or not state.complete:
                raise StoreUnavailableError(
                    f"the output of node {node_id} of run {execution_id} is not kept any more"
                )
            async with aclosing(self._checkpoints.read(execution_id, node_id)) as stored:
                async for row in stored:
                    yield row

        return rows

    @property
    def durable(self) -> bool:
        """Whether what is recorded outlives the process."""
        return bool(self._retained) and self._checkpoints.durable

    def partial_reader(self, execution_id: str, node_id: str) -> Rows:
        """What opens the recorded part of the output of a node that had not finished."""
        return lambda: self._checkpoints.read(execution_id, node_id)

    async def drop(self, execution_id: str) -> None:
        """Forget what the nodes of an aborted run emitted: nobody goes on with it any more."""
        if not self.has(execution_id):
            await self._clear(execution_id)

    async def sweep(self, needed: Collection[str]) -> None:
        """Forget what is recorded of runs that are neither kept nor `needed`; before any begins."""
        for execution_id in await self._checkpoints.runs():
            if execution_id not in needed and execution_id not in self._kept:
                await self._clear(execution_id)

    def pin(self, execution_id: str) -> None:
        """Keep the outputs of a run until `unpin`."""
        self._pins[execution_id] += 1

    async def unpin(self, execution_id: str) -> None:
        """Undo one `pin`."""
        self._pins[execution_id] -= 1
        if self._pins[execution_id] < 1:
            del self._pins[execution_id]
            if execution_id in self._doomed:
                self._doomed.remove(execution_id)
                await self._clear(execution_id)


class RunRecorder:
    """Records the nodes of one run; the engine's `Recorder`."""

    __slots__ = ("_execution_id", "_failed", "_store", "_tasks")

    def __init__(
        self,
        store: NodeCheckpointStore,
        execution_id: str,
        tasks: Tasks,
        failed: Callable[[], None],
    ) -> None:
        self._store = store
        self._execution_id = execution_id
        self._tasks = tasks
        self._failed = failed

    def node(self, node_id: str, hold: Callable[[bool], None]) -> NodeRecorder:
        """What records one node; it calls `hold(True)` to have the node held back."""
        return NodeRecorder(
            self._store, (self._execution_id, node_id), hold, self._tasks, self._failed
        )


class NodeRecorder:
    """Gathers what a node emits in rows; see the engine's `NodeRecorder`."""

    __slots__ = (
        "_count",
        "_failed",
        "_guess",
        "_hold",
        "_holding",
        "_place",
        "_store",
        "_tasks",
        "_waiting",
        "barrier",
    )

    def __init__(
        self,
        store: NodeCheckpointStore,
        place: tuple[str, str],
        hold: Callable[[bool], None],
        tasks: Tasks,
        failed: Callable[[], None],
    ) -> None:
        self._store = store
        self._place = place
        self._hold = hold
        self._tasks = tasks
        self._failed = failed
        self._waiting: list[tuple[str | None, tuple[Message, ...]]] = []
        self._count = 0
        self._guess = 0
        self._holding = False
        self.barrier: Callable[[], Awaitable[None]] | None = None
        if not store.synchronous:
            self.barrier = self._complete

    def add(self, port: str | None, messages: Sequence[Message]) -> bool:
        """Take a batch over; False if no more of this node is wanted."""
        self._waiting.append((port, tuple(messages)))
        self._count += len(messages)
        # Good enough to bound what waits here; the store weighs.
        self._guess += weigh(messages[0].payload) * len(messages)
        if self._count < ROW_MESSAGES and self._guess < ROW_BYTES:
            return True
        wanted = self._store.append(*self._place, self._row())
        if wanted and self._store.full and not self._holding:
            self._holding = True
            self._hold(True)
            self._tasks.spawn(self._room(), f"yukta record {self._place[1]}")
        return wanted

    async def _room(self) -> None:
        await self._store.room()
        self._holding = False
        self._hold(False)

    def _row(self) -> CheckpointRow:
        waiting, self._waiting = self._waiting, []
        self._count = self._guess = 0
        return CheckpointRow(tuple(waiting))

    def _rest(self) -> CheckpointRow | None:
        return self._row() if self._waiting else None

    def complete(self) -> None:
        """Mark the output as whole, where there is no barrier to do so."""
        try:
            self._store.mark_complete(*self._place, self._rest())
        except YuktaError as error:
            self._not_marked(error)

    async def _complete(self) -> None:
        try:
            marked = self._store.mark_complete(*self._place, self._rest())
            if marked is not None:
                await marked
        except YuktaError as error:
            self._not_marked(error)

    def _not_marked(self, error: YuktaError) -> None:
        log.warning("the output of node %s cannot be replayed: %s", self._place[1], error)
        self._failed()
        self._store.mark_incomplete(*self._place, WRITE_FAILED)
