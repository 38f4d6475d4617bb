"""Resumes: runs that a crash ended go on, as new runs, from what their nodes had finished.

Features: DUR-03, CTL-04.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from yukta_rx.control.continuation import Continuation
from yukta_rx.control.restart import CURRENT, SAME
from yukta_rx.control.resume_plan import ResumePlan, not_recoverable, plan_resume
from yukta_rx.control.start_request import StartRequest
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.engine.replay import Replay
from yukta_rx.errors import NotFoundError
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.execution_log import RunAborted, RunFinished, RunResumed
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from yukta_rx.control.pending_start import PendingStart
    from yukta_rx.control.starter import Starter
    from yukta_rx.definitions.prepare import PreparedWorkflow, Preparer
    from yukta_rx.definitions.service import DefinitionService
    from yukta_rx.durability.archive import ExecutionArchive
    from yukta_rx.durability.stores.checkpoints import NodeCheckpoint
    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.execution_log import ExecutionLogStore, LoggedRun
    from yukta_rx.model.execution_log import RunStarted
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.streams.clock import LoopClock

log = logging.getLogger(__name__)


@dataclass(slots=True)
class AbortedRun:
    """A run that was found without an end; a command's `Target`.

    Attributes:
        lineage: what the ids of its messages derive from.
        depth: runs above it.
        definition_version: content hash of what it ran.
    """

    execution_id: str
    session_id: str
    workflow_id: str
    lineage: str
    depth: int
    definition_version: str
    status: TaskStatus = TaskStatus.ABORTED


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A resume, looked up and checked."""

    start: RunStarted
    definition: WorkflowDefinition
    base_dir: Path | None
    prepared: PreparedWorkflow
    states: Mapping[str, NodeCheckpoint]
    plan: ResumePlan


class Resumes:
    """Knows the runs that were aborted, and resumes them. Belongs to the loop.

    A run may be resumed again once its resume has failed. While that goes on, or has succeeded,
    it may not, and one whose resume was aborted itself goes on in that.

    Args:
        starter: starts, and owns the live runs.
        archive: what the nodes of runs emitted.
        definitions: versions of what they ran.
        preparer: makes them ready, or refuses them.
        events: the execution log.
        clock: tells the time.
        emit: gets `execution.recovered`.
    """

    def __init__(
        self,
        starter: Starter,
        archive: ExecutionArchive,
        definitions: DefinitionService,
        preparer: Preparer,
        events: ExecutionLogStore,
        clock: LoopClock,
        emit: Callable[[ExecutionEvent], None],
    ) -> None:
        self._starter = starter
        self._archive = archive
        self._definitions = definitions
        self._preparer = preparer
        self._events = events
        self._clock = clock
        self._emit = emit
        self._aborted: dict[str, AbortedRun] = {}
        self._newest: dict[str, str] = {}
        """The resume of a run that counts: one that goes on or has succeeded, else any."""
        self._sources: dict[str, str] = {}
        """What a resume goes on with."""
        self._attempts: dict[str, int] = {}
        """Resumes so far, by lineage."""
        self._ends: dict[str, TaskStatus] = {}
        """How resumes ended."""

    def learn(self, runs: Iterable[LoggedRun]) -> None:
        """Take in what the log says of the runs that are kept, in their order."""
        for run in runs:
            start, end = run.started, run.ended
            if isinstance(end, RunAborted):
                self._aborted[start.execution_id] = AbortedRun(
                    start.execution_id,
                    start.session_id,
                    start.workflow_id,
                    start.lineage,
                    start.depth,
                    start.definition_version,
                )
            if start.resumed_from is not None:
                self._resumed(start)
                if isinstance(end, RunFinished):
                    self._ends[start.execution_id] = end.status

    def waits(self, start: RunStarted) -> None:
        """A start that waits resumes another run, if it is such a one."""
        if start.resumed_from is not None:
            self._resumed(start)

    def begun(self, start: RunStarted) -> None:
        """A start is written; it resumes another run, if it is such a one.

        From here on no other one does, whoever asked for it and whether he still waits.
        """
        if start.resumed_from is None:
            return
        attempt = self._resumed(start)
        self._starter.history.note(
            RunResumed(
                execution_id=start.resumed_from,
                time=start.time,
                new_execution_id=start.execution_id,
                attempt=attempt,
                actor=start.actor,
            )
        )

    def _resumed(self, start: RunStarted) -> int:
        """A run resumes another one: which attempt that is."""
        source = start.resumed_from or ""
        known = self._newest.get(source)
        if known is None or self._ends.get(known, TaskStatus.SUCCESS) is not TaskStatus.SUCCESS:
            # Of several at most one has not failed, whatever their ids say: clocks step back.
            self._newest[source] = start.execution_id
        self._sources[start.execution_id] = source
        self._attempts[start.lineage] = attempt = self._attempts.get(start.lineage, 0) + 1
        return attempt

    def ended(self, execution_id: str, status: TaskStatus) -> str | None:
        """A run has ended; the run that it resumed, if what that emitted is not needed any more."""
        source = self._sources.get(execution_id)
        if source is None:
            return None
        self._ends[execution_id] = status
        return source if status is TaskStatus.SUCCESS else None

    # -- what is known at once

    def target(self, execution_id: str) -> AbortedRun | None:
        """An aborted run, None if there is none of that id."""
        return self._aborted.get(execution_id)

    def waiting(self) -> list[str]:
        """Ids of the runs that may be resumed and never were, the oldest first."""
        return sorted(
            name
            for name, run in self._aborted.items()
            if name not in self._newest and not run.depth
        )

    def needed(self) -> dict[str, str]:
        """Ids and lineages of the runs whose recorded outputs must stay: they may be resumed."""
        return {
            name: run.lineage for name, run in self._aborted.items() if self.refusal(name) is None
        }

    def attempts(self, execution_id: str) -> int:
        """How often the work of an aborted run was resumed so far."""
        run = self._aborted.get(execution_id)
        return 0 if run is None else self._attempts.get(run.lineage, 0)

    def refusal(self, execution_id: str) -> tuple[str, str] | None:
        """Why a run cannot be resumed, as far as that is known at once: reason and sentence."""
        run = self._aborted.get(execution_id)
        if run is None:
            detail = f"run {execution_id} cannot be recovered: only one that a crash ended can"
            return "not_aborted", detail
        if run.depth:
            return "child_run", f"run {execution_id} belongs to another run; recover that"
        if not self._archive.durable:
            kept = f"what the nodes of run {execution_id} emitted was not kept durably"
            return "no_checkpoints", kept
        newest = self._newest.get(execution_id)
        if newest is None:
            return None
        if newest in self._aborted:
            return "already_resumed", f"its resume {newest} was aborted as well; recover that"
        end = self._ends.get(newest)
        if end is None:
            return "already_resumed", f"run {newest} resumes it already"
        if end is TaskStatus.SUCCESS:
            return "already_resumed", f"run {newest} has resumed it to its end"
        return None

    def check(self, execution_id: str) -> None:
        """Raise ConflictError `not_recoverable` if that is known at once."""
        refused = self.refusal(execution_id)
        if refused is not None:
            reason, detail = refused
            newest = self._newest.get(execution_id)
            more = {} if newest is None else {"resumedBy": newest}
            raise not_recoverable(reason, detail, executionId=execution_id, **more)

    async def ran(self, execution_id: str) -> WorkflowDefinition:
        """What an aborted run ran.

        Raises:
            NotFoundError: there is no such run, or that is not kept any more.
        """
        run = self._aborted.get(execution_id)
        if run is None:
            raise NotFoundError(
                f"there is no aborted run {execution_id}",
                code="execution_not_found",
                executionId=execution_id,
            )
        ids = run.session_id, run.workflow_id
        return (await self._definitions.of_content(*ids, run.definition_version)).definition

    async def archived(self, execution_id: str) -> ArchivedRun:
        """An aborted run as one that can be run again.

        Raises:
            ConflictError: `not_recoverable`: what it ran, or its start, is not kept.
            StoreUnavailableError: its start payload cannot be read.
        """
        start = await self._start_of(execution_id)
        record = await self._recorded(start)
        return ArchivedRun(
            execution_id=execution_id,
            session_id=start.session_id,
            definition=record.definition,
            lineage=start.lineage,
            base_dir=record.base_dir or self._definitions.base_dir,
            payload=start.payload,
            options=start.options,
            labels=start.labels,
            status=TaskStatus.ABORTED,
        )

    # -- resuming

    async def plan(self, execution_id: str, version: str = SAME, rerun: bool = False) -> Any:
        """What a resume would do: `{executionId, attempt, definitionVersion, nodes}`.

        Raises:
            NotFoundError: its session or workflow is gone, or there is no such version.
            ConflictError: `not_recoverable`.
            StoreUnavailableError: what is recorded cannot be read.
        """
        self.check(execution_id)
        found = await self._prepare(execution_id, version, rerun)
        return {
            "executionId": execution_id,
            "attempt": self.attempts(execution_id) + 1,
            "definitionVersion": found.prepared.version,
            "nodes": found.plan.as_rows(found.prepared.order, found.states),
        }

    async def resume(
        self, execution_id: str, *, version: str, rerun: bool, actor: str, via: str
    ) -> PendingStart:
        """Start the run that goes on with an aborted one.

        Its messages have the ids that they had, it has the start payload, labels and options of
        the aborted run, and it is not paused.

        Args:
            execution_id: the aborted run.
            version: what it runs: `same` as the aborted run, `current`, or a number.
            rerun: begin nodes that have changed anew.
            actor: who asks.
            via: where.

        Raises:
            NotFoundError: its session or workflow is gone, or there is no such version.
            ConflictError: `not_recoverable`, with the reason.
            RejectedError: there is no room.
            StoreUnavailableError: what is recorded cannot be read.
        """
        self.check(execution_id)
        # From here on what is recorded stays; a start that waits sees to that itself.
        self._archive.pin(execution_id)
        try:
            found = await self._prepare(execution_id, version, rerun)
            asked = {"type": "Recover", "rerun": rerun}
            request = replace(
                request_of(found.start),
                actor=actor,
                via=via,
                continuation=self._continuation(found, asked),
            )
            pending = await self._starter.admitted(request)
            self._say(found.start, pending.execution_id)
            return pending
        finally:
            await self._archive.unpin(execution_id)

    async def again(
        self, execution_id: str, definition: WorkflowDefinition, base_dir: Path | None, rerun: bool
    ) -> Continuation:
        """Plan a resume once more, for a start that has waited longer than its server lived."""
        start = await self._start_of(execution_id)
        found = await self._planned(start, definition, base_dir, rerun)
        return self._continuation(found, {"type": "Recover", "rerun": rerun})

    def _say(self, old: RunStarted, new_id: str) -> None:
        self._emit(
            ExecutionEvent(
                type="execution.recovered",
                time=self._clock.wall(),
                session_id=old.session_id,
                workflow_id=old.workflow_id,
                execution_id=new_id,
                data={
                    "resumedFrom": old.execution_id,
                    "attempt": self._attempts.get(old.lineage, 0),
                },
            )
        )

    async def _prepare(self, execution_id: str, version: str, rerun: bool) -> _Prepared:
        start = await self._start_of(execution_id)
        ids = start.session_id, start.workflow_id
        if version == SAME:
            record = await self._recorded(start)
        elif version == CURRENT:
            record = await self._definitions.get(*ids)
        else:
            record = await self._definitions.pinned(*ids, version)
        folder = record.base_dir or self._definitions.base_dir
        return await self._planned(start, record.definition, folder, rerun)

    async def _planned(
        self, start: RunStarted, definition: WorkflowDefinition, base_dir: Path | None, rerun: bool
    ) -> _Prepared:
        prepared = await self._preparer.prepare(definition, base_dir)
        states = await self._archive.states(start.execution_id)
        recorded = None
        if definition.version != start.definition_version:
            recorded = (await self._recorded(start)).definition
        plan = plan_resume(prepared, states, recorded, rerun=rerun)
        return _Prepared(start, definition, base_dir, prepared, states, plan)

    async def _recorded(self, start: RunStarted) -> WorkflowRecord:
        """What the aborted run ran."""
        ids = start.session_id, start.workflow_id
        try:
            return await self._definitions.of_content(*ids, start.definition_version)
        except NotFoundError as error:
            if error.code != "version_not_found":
                raise
            raise not_recoverable(
                "definition_changed",
                f"the version {start.definition_version} that run {start.execution_id} ran is not "
                "kept any more",
                executionId=start.execution_id,
            ) from error

    async def _start_of(self, execution_id: str) -> RunStarted:
        """The start of a run as it was written."""
        start = await self._events.start_of(execution_id)
        if start is not None:
            return start
        raise not_recoverable(
            "evicted",
            f"the execution log does not keep run {execution_id} any more",
            executionId=execution_id,
        )

    def _continuation(self, found: _Prepared, asked: Mapping[str, Any]) -> Continuation:
        source, plan = found.start.execution_id, found.plan
        return Continuation(
            source=source,
            resumes=True,
            definition=found.definition,
            base_dir=found.base_dir,
            lineage=found.start.lineage,
            replay=Replay(
                outputs={name: self._archive.reader(source, name) for name in plan.replayed},
                partial={name: self._archive.partial_reader(source, name) for name in plan.partial},
                alone=plan.alone,
                finished=plan.finished,
                passed=plan.passed,
            ),
            carried=plan.replayed | plan.finished | plan.passed | plan.partial,
            asked=asked,
        )


def request_of(start: RunStarted) -> StartRequest:
    """What a run was started with, to start one like it."""
    return StartRequest(
        session_id=start.session_id,
        workflow_id=start.workflow_id,
        payload=start.payload,
        labels=start.labels,
        options=start.options,
    )
