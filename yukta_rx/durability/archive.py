"""ExecutionArchive: records what runs emit, and keeps the newest that ended restartable.

Features: CTL-04, DUR-02.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from yukta_rx.durability.recorder import RunRecorder
from yukta_rx.durability.stores.checkpoints import LEFT_ALONE, UNFINISHED, counting_rows
from yukta_rx.errors import StoreUnavailableError, YuktaError
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Collection,
        Coroutine,
        Mapping,
        Sequence,
    )
    from datetime import datetime

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.stores.archive import ArchivedRun, ExecutionArchiveStore
    from yukta_rx.durability.stores.checkpoints import (
        CheckpointRow,
        NodeCheckpoint,
        NodeCheckpointStore,
        Rows,
    )
    from yukta_rx.metrics import Meters

_WHOLE = {TaskStatus.SUCCESS, TaskStatus.SKIPPED}

FORGET_AFTER: Final = 0.1
"""Seconds that a run which has to go waits for others, where forgetting it is a write."""

LOOK_AGAIN: Final = 1.0
"""Seconds until one is looked at again that has to stay for what is not written yet."""

FORGET_AT_ONCE: Final = 100
"""Runs that are forgotten together."""

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
        forget: told of lineages that no run that may go on or be repeated has any more.
    """

    def __init__(
        self,
        store: ExecutionArchiveStore,
        checkpoints: NodeCheckpointStore,
        settings: Settings,
        meters: Meters,
        forget: Callable[..., Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._forget = forget
        self._lineages: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        """Runs that may go on or be repeated, by lineage."""
        self._checkpoints = checkpoints
        self._retained = settings.restart.retained_executions
        self._errors = meters.counter("yukta.checkpoint.errors")
        meters.watch("yukta.checkpoint.bytes", lambda: checkpoints.bytes)
        self._live: dict[str, ArchivedRun] = {}
        self._recorders: dict[str, RunRecorder] = {}
        self._kept: set[str] = set()
        self._reading: dict[str, str] = {}
        self._pins: Counter[str] = Counter()
        self._doomed: set[str] = set()
        self._going: list[str] = []
        """Runs that are to be forgotten, but wait for others."""
        self.referring: Callable[[], Collection[str]] = tuple
        """Runs of which something is not written yet that refers to what their nodes emitted; they
        are forgotten later, where that costs a write."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._loop, lambda: None)

    async def __aenter__(self) -> Self:
        """Open the stores, and learn which runs are kept already."""
        await self._checkpoints.start()
        for execution_id in await self._store.ids():
            self._kept.add(execution_id)
            run = await self._store.get(execution_id, whole=False)
            if run is not None:
                self._uses_lineage(execution_id, run.lineage)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Wait for what is under way."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._forget_later()
        await self._tasks.ended()
        await self._checkpoints.close()

    def _failed(self) -> None:
        self._errors.add()

    # -- recording

    def recorder(self, execution_id: str) -> RunRecorder | None:
        """What records a run that is about to begin; None if nothing is recorded."""
        if not self._retained:
            return None
        made = RunRecorder(self._checkpoints, execution_id, self._tasks, self._failed)
        self._recorders[execution_id] = made
        return made

    def put_aside(self, execution_id: str) -> None:
        """Nothing more of a live run is recorded, until it asks for another recorder."""
        if (recorder := self._recorders.pop(execution_id, None)) is not None:
            recorder.close()

    def begin(self, run: ArchivedRun, reads_from: str | None = None) -> None:
        """A run has been made; it replays outputs of the run `reads_from`."""
        self._uses_lineage(run.execution_id, run.lineage)
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
        if (recorder := self._recorders.pop(execution_id, None)) is not None:
            recorder.close()
        run = self._live.get(execution_id)
        if run is None:
            await self._clear(execution_id)
            return
        if status is TaskStatus.ABORTED:
            # Interrupted: what is recorded of it is for the server that goes on with it.
            del self._live[execution_id]
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
        if gone:
            self._kept.difference_update(gone)
            await self._clear_soon(*gone)
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

    async def _clear(self, *execution_ids: str) -> None:
        """Forget runs, those that are pinned once they are not."""
        going = [name for name in execution_ids if name not in self._pins]
        self._doomed.update(name for name in execution_ids if name in self._pins)
        if not going:
            return
        try:
            await self._checkpoints.clear(*going)
        except YuktaError as error:
            log.warning("the outputs of runs %s are left behind: %s", ", ".join(going), error)
        await self._unuse_lineages(going)

    async def _clear_soon(self, *execution_ids: str) -> None:
        """Forget runs, together with others where it costs a write."""
        if not self._checkpoints.durable:
            await self._clear(*execution_ids)
            return
        self._going += execution_ids
        self._forget_in(FORGET_AFTER)

    def _forget_in(self, seconds: float) -> None:
        # What has to stay at the end goes when the next server starts.
        if self._going and self._timer is None and not self._closing:
            self._timer = self._loop.call_later(seconds, self._forget_later)

    def _forget_later(self) -> None:
        self._timer = None
        self._tasks.spawn(self._forget_going(), "yukta forget runs")

    async def _forget_going(self) -> None:
        staying: list[str] = []
        while self._going:
            going, self._going = self._going[:FORGET_AT_ONCE], self._going[FORGET_AT_ONCE:]
            referring = set(self.referring())
            staying += referring.intersection(going)
            await self._clear(*(name for name in going if name not in referring))
        self._going += staying
        self._forget_in(LOOK_AGAIN)

    def _uses_lineage(self, execution_id: str, lineage: str) -> None:
        if execution_id not in self._lineages:
            self._lineages[execution_id] = lineage
            self._uses[lineage] += 1

    async def _unuse_lineages(self, execution_ids: Sequence[str]) -> None:
        unused: list[str] = []
        for execution_id in execution_ids:
            lineage = self._lineages.pop(execution_id, None)
            if lineage is not None:
                self._uses[lineage] -= 1
                if self._uses[lineage] < 1:
                    del self._uses[lineage]
                    unused.append(lineage)
        if unused and self._forget is not None:
            try:
                await self._forget(*unused)
            except YuktaError as error:
                told = "what was done for lineages %s is not forgotten: %s"
                log.warning(told, ", ".join(unused), error)

    # -- what restarts need

    def has(self, execution_id: str) -> bool:
        """Whether a run, live or ended, can be run again."""
        return execution_id in self._live or execution_id in self._kept

    async def find(self, execution_id: str, *, whole: bool = True) -> ArchivedRun | None:
        """A run, live or ended, None if it is not kept; without `whole` any payload.

        Raises:
            StoreUnavailableError: it cannot be read; names the payload if that is missing.
        """
        return self._live.get(execution_id) or await self._store.get(execution_id, whole=whole)

    async def states(self, execution_id: str) -> Mapping[str, NodeCheckpoint]:
        """What is recorded of each node of a run."""
        return await self._checkpoints.states(execution_id)

    async def gathered(self, execution_id: str, node_id: str) -> None:
        """Have written what waits for a row of a live node to be full, as far as that may be."""
        live = self._recorders.get(execution_id)
        for recorder in live.nodes if live is not None else ():
            # Where inputs count, a row waits for them, and not for long.
            if recorder.node_id == node_id and not recorder.wants_inputs:
                written = recorder.written()
                if written is not None:
                    await written

    def rows(self, execution_id: str, node_id: str) -> AsyncGenerator[CheckpointRow, None]:
        """All that is recorded of a node, also of inputs that are not over.

        Each payload that is kept apart is a `Claim`, and is not read.
        """
        return self._checkpoints.read(execution_id, node_id, whole=False)

    def reader(self, execution_id: str, node_id: str) -> Rows:
        """What opens the recorded output of a node, and fails if that is not whole any more."""

        async def rows() -> AsyncGenerator[CheckpointRow, None]:
            state = (await self._checkpoints.states(execution_id)).get(node_id)
            if state is None or not state.complete:
                raise StoreUnavailableError(
                    f"the output of node {node_id} of run {execution_id} is not kept any more"
                )
            async with aclosing(self.partial_reader(execution_id, node_id)()) as stored:
                async for row in stored:
                    yield row

        return rows

    @property
    def durable(self) -> bool:
        """Whether what is recorded outlives the process."""
        return bool(self._retained) and self._checkpoints.durable

    def partial_reader(self, execution_id: str, node_id: str) -> Rows:
        """What opens the recorded part of the output of a node that had not finished."""
        # A run whose large payloads travel as references has no need for them here.
        whole = not self._checkpoints.claim_bytes
        return lambda: counting_rows(
            lambda: self._checkpoints.read(execution_id, node_id, whole=whole)
        )

    async def carry_over(self, execution_id: str, into: str, nodes: Collection[str]) -> None:
        """Let a run that goes on with another one begin with what is recorded of its nodes.

        Raises:
            StoreUnavailableError: it could not be written; nothing is recorded of `into`.
        """
        await self._checkpoints.carry_over(execution_id, into, nodes)

    async def leave_alone(self, execution_id: str, nodes: Collection[str]) -> None:
        """Write down which nodes do nothing in a run, so that a resume of it knows.

        Raises:
            StoreUnavailableError: it could not be written.
        """
        for node_id in nodes:
            self._checkpoints.mark_incomplete(execution_id, node_id, LEFT_ALONE)
        for node_id in nodes:
            if (written := self._checkpoints.written(execution_id, node_id)) is not None:
                await written

    async def drop(self, execution_id: str) -> None:
        """Forget what the nodes of an aborted run emitted: nobody goes on with it any more."""
        if not self.has(execution_id):
            await self._clear(execution_id)

    async def sweep(self, needed: Mapping[str, str]) -> None:
        """Forget what is recorded of runs that are neither kept nor needed; before any begins.

        Args:
            needed: ids and lineages of runs that ended without an end, and may go on.
        """
        for execution_id, lineage in needed.items():
            self._uses_lineage(execution_id, lineage)
        found = await self._checkpoints.runs()
        gone = [name for name in found if name not in needed and name not in self._kept]
        for first in range(0, len(gone), FORGET_AT_ONCE):
            await self._clear(*gone[first : first + FORGET_AT_ONCE])

    def pin(self, execution_id: str) -> None:
        """Keep the outputs of a run until `unpin`."""
        self._pins[execution_id] += 1

    def keeping(self, execution_id: str, work: Awaitable[None]) -> Coroutine[Any, Any, None]:
        """Keep the outputs of a run until some work is done: from now on, not when it begins."""
        self.pin(execution_id)

        async def done() -> None:
            try:
                await work
            finally:
                await self.unpin(execution_id)

        return done()

    async def unpin(self, execution_id: str) -> None:
        """Undo one `pin`."""
        self._pins[execution_id] -= 1
        if self._pins[execution_id] < 1:
            del self._pins[execution_id]
            if execution_id in self._doomed:
                self._doomed.remove(execution_id)
                waits = execution_id in self.referring()
                await (self._clear_soon if waits else self._clear)(execution_id)
