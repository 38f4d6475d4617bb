"""Reopening: what a server does with what it found in its stores, before and after it admits.

Before: runs without an end are ABORTED, the newest runs are shown again, the starts that waited
wait again in their order, and outputs that nobody can need are forgotten. After: interrupted runs
are resumed, if that is set.

Features: DUR-01, DUR-03, ADM-01.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.continuation import Continuation
from yukta_rx.control.start_request import StartRequest, asked_in
from yukta_rx.durability.recovery import recover
from yukta_rx.errors import RejectedError, StoreUnavailableError, YuktaError
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.execution_log import ControlApplied, RunAborted, RunFinished, RunStarted
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from yukta_rx.control.restart import Restarts
    from yukta_rx.control.resume import Resumes
    from yukta_rx.control.start_request import TakenUp
    from yukta_rx.control.starter import Starter
    from yukta_rx.definitions.service import DefinitionService
    from yukta_rx.durability.recovery import Recovered
    from yukta_rx.durability.stores.execution_log import ExecutionLogStore, LoggedRun
    from yukta_rx.durability.stores.queued_starts import QueuedStart, QueuedStartStore
    from yukta_rx.model.execution_log import IdempotencyKey
    from yukta_rx.observe.results import ResultStore
    from yukta_rx.observe.tracker import Tracker
    from yukta_rx.streams.clock import LoopClock

AT_ONCE: Final = 8
"""Runs that are being resumed at the same time; more of them wait for their turn."""

MOST: Final = 10
"""Resumes of one piece of work that are made without being asked: it may be what crashes."""

LONGEST_PAUSE: Final = 60.0
"""Seconds until the next attempt at a resume: doubled up to this while a store gives no answer."""

_ABORTED: Final = TaskStatus.ABORTED

_NONE: Final[Mapping[str, int]] = {"in": 0, "out": 0, "failed": 0, "dropped": 0}
"""The totals of a run of which no more is known."""

log = logging.getLogger(__name__)


class Reopening:
    """Puts the stores in order and goes on with what they hold. Belongs to the loop.

    Args:
        events: the execution log.
        queue: the starts that wait.
        starter: starts runs.
        restarts: plans restarts that wait.
        resumes: plans resumes, and knows what may be resumed.
        definitions: what waiting starts run.
        tracker: shows runs.
        results: what reached the terminals of runs.
        clock: tells the time.
    """

    def __init__(
        self,
        *,
        events: ExecutionLogStore,
        queue: QueuedStartStore,
        starter: Starter,
        restarts: Restarts,
        resumes: Resumes,
        definitions: DefinitionService,
        tracker: Tracker,
        results: ResultStore,
        clock: LoopClock,
    ) -> None:
        self._events = events
        self._queue = queue
        self._starter = starter
        self._restarts = restarts
        self._resumes = resumes
        self._definitions = definitions
        self._tracker = tracker
        self._results = results
        self._clock = clock
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)

    async def run(self) -> None:
        """Put everything in order; the server may admit when this returns.

        Raises:
            StoreUnavailableError: a store gives no answer.
        """
        found = await recover(self._events, self._queue, self._clock.wall(), self._close_results)
        self._resumes.learn(found.ended)
        await self._starter.archive.sweep(self._resumes.needed())
        self._show(found)
        before = [run for run in found.ended if run.started.execution_id not in found.aborted]
        await self._close_results(before, known=False)
        await self._take_all_back(found)
        self._starter.scheduler.refill()
        if found.aborted or found.queued:
            log.warning(
                "runs that were interrupted, now ABORTED: %d; starts that go on waiting: %d",
                len(found.aborted),
                len(found.queued),
            )

    def _show(self, found: Recovered) -> None:
        lineages = {run.started.lineage for run in found.ended}
        self._starter.approvals.restore(lineages.difference(self._resumes.needed().values()))
        for run in found.ended:
            start, end = run.started, run.ended
            if isinstance(end, RunFinished):
                self._tracker.restore(start, end)
            elif start.execution_id in found.aborted:
                self._tracker.restore(start, None)
                self._say_aborted(start, end)
            elif end is not None:
                over = RunFinished(execution_id=start.execution_id, time=end.time, status=_ABORTED)
                self._tracker.restore(start, over)

    async def _close_results(self, runs: Iterable[LoggedRun], *, known: bool = True) -> None:
        """Give the results of runs their end that a crash kept from being written.

        Those of a run that was closed before may have gone since, so they are only `known` to be
        there where some are.
        """
        recorder = self._results.recorder
        if recorder is None:
            return
        for run in runs:
            start, end = run.started, run.ended
            status, totals, time = _ABORTED, _NONE, self._clock.wall()
            if isinstance(end, RunFinished):
                status, totals, time = end.status, end.totals, end.time
            name, parent = start.execution_id, start.parent_execution_id
            await recorder.close_run(name, status, time, totals, known=known, parent=parent)

    def _say_aborted(self, start: RunStarted, end: RunAborted | None) -> None:
        error = {"code": "aborted", "detail": "" if end is None else end.reason}
        data = {"status": str(_ABORTED), "error": error, "totals": dict(_NONE)}
        for kind in ("execution.aborted", "execution.finished"):
            self._tracker.emit(
                ExecutionEvent(
                    type=kind,
                    time=self._clock.wall(),
                    session_id=start.session_id,
                    workflow_id=start.workflow_id,
                    execution_id=start.execution_id,
                    data=data,
                )
            )

    # -- starts that waited

    async def _take_all_back(self, found: Recovered) -> None:
        if not found.queued:
            return
        known = await self._events.idempotency_keys(self._clock.wall())
        keys = {key.execution_id: key for key in known}
        try:
            for start, run in found.queued:
                # First, so that a start which cannot wait any more is known to have ended.
                self._resumes.waits(run.started)
                await self._take_back(start, run.started, keys.get(start.execution_id))
        except BaseException:
            # Those that wait already do so in the store, for the next attempt to open it.
            self._starter.scheduler.close()
            raise

    async def _take_back(
        self, start: QueuedStart, run: RunStarted, key: IdempotencyKey | None
    ) -> None:
        execution_id, history = start.execution_id, self._starter.history
        history.reopen(execution_id, key)
        try:
            await self._starter.take_back(start, await self._request(start))
        except YuktaError as error:
            if _passes(error):
                raise
            log.warning("start %s cannot go on waiting: %s", execution_id, error)
            self._tracker.restore(run, None)
            self._results.channel(execution_id, run.session_id)
            self._tracker.dismiss(execution_id, TaskStatus.ERROR, error)
            history.ended(execution_id, TaskStatus.ERROR, error)
            history.release(execution_id)
            # With neither a row nor an end it would be a run that a crash cut off.
            await history.settled()
            if history.recorded(execution_id):
                await self._queue.remove(execution_id)

    async def _request(self, start: QueuedStart) -> StartRequest:
        """What was asked for, pinned to the form of the workflow that it was asked of."""
        asked = asked_in(await self._queue.opened(start))
        return StartRequest(
            session_id=start.session_id,
            workflow_id=start.workflow_id,
            payload=asked.payload,
            labels=asked.labels,
            step_mode=asked.step_mode,
            breakpoints=asked.breakpoints,
            options=asked.options,
            idempotency_key=asked.idempotency_key,
            actor=asked.actor,
            via=asked.via,
            traceparent=asked.traceparent,
            continuation=await self._continuation(start, asked.continuation),
        )

    async def _continuation(self, start: QueuedStart, asked: TakenUp | None) -> Continuation:
        ids = start.session_id, start.workflow_id
        record = await self._definitions.of_content(*ids, start.definition_version)
        definition, folder = record.definition, record.base_dir or self._definitions.base_dir
        if asked is None:
            return Continuation(source=None, definition=definition, base_dir=folder)
        source = asked.source
        if asked.type == "Recover":
            return await self._resumes.again(source, definition, folder, asked.rerun)
        if asked.type == "RestartFromNode":
            return await self._restarts.again(source, asked.node_id, definition, folder)
        again = {"type": asked.type}
        return Continuation(source=source, definition=definition, base_dir=folder, asked=again)

    # -- interrupted runs

    def resume(self, recover_one: Callable[[str], Awaitable[Any]]) -> None:
        """Resume what may be resumed and never was, in the background, as slots allow.

        Args:
            recover_one: gives the command for a run.
        """
        waiting = []
        for execution_id in self._resumes.waiting():
            attempts = self._resumes.attempts(execution_id)
            if attempts >= MOST:
                told = "run %s is not resumed: it was aborted after %d resumes; recover it by hand"
                log.error(told, execution_id, attempts)
            else:
                waiting.append(execution_id)
        turns = asyncio.Semaphore(AT_ONCE)
        for execution_id in waiting:
            work = self._resume(execution_id, recover_one, turns)
            self._tasks.spawn(work, f"yukta resume {execution_id}")

    async def _resume(
        self,
        execution_id: str,
        recover_one: Callable[[str], Awaitable[Any]],
        turns: asyncio.Semaphore,
    ) -> None:
        pause = 1.0
        while True:
            async with turns:
                try:
                    if await self._was_stopped(execution_id):
                        told = "run %s is not resumed: it was being stopped; recover it by hand"
                        log.warning(told, execution_id)
                        return
                    await recover_one(execution_id)
                except RejectedError as error:
                    # There is no room yet, and no queue to wait in.
                    wait = max(1.0, error.retry_after or 1.0)
                except YuktaError as error:
                    if not _passes(error):
                        log.warning("run %s is not resumed: %s", execution_id, error)
                        return
                    log.warning("run %s is resumed later: %s", execution_id, error)
                    wait, pause = pause, pause * 2
                else:
                    return
            await self._clock.sleep(min(LONGEST_PAUSE, wait))

    async def _was_stopped(self, execution_id: str) -> bool:
        """Whether a stop was acknowledged that the run did not come to the end of."""
        after = 0
        while entries := await self._events.read(execution_id, after):
            after = entries[-1].seq
            for entry in entries:
                event = entry.event
                if type(event) is ControlApplied and event.command == "StopWorkflow":
                    return True
        return False

    def ended(self, execution_id: str, status: TaskStatus) -> None:
        """A run has ended: what the run emitted that it resumed may be forgotten."""
        source = self._resumes.ended(execution_id, status)
        if source is not None:
            self._tasks.spawn(self._starter.archive.drop(source), f"yukta forget {source}")

    async def close(self) -> None:
        """Resume nothing more."""
        self._tasks.cancel()
        await self._tasks.ended()


def _passes(error: YuktaError) -> bool:
    """Whether a store gave no answer; one that names a blob knows that it is gone or damaged."""
    return isinstance(error, StoreUnavailableError) and "sha256" not in error.members
