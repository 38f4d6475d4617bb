"""Restarts: a run again, from its beginning or from one of its nodes. Feature: CTL-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.continuation import Continuation
from yukta_rx.control.start_request import StartRequest
from yukta_rx.durability.restart_plan import not_restartable, plan_restart
from yukta_rx.engine.replay import Replay
from yukta_rx.errors import ConflictError, NotFoundError
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.control.pending_start import PendingStart
    from yukta_rx.control.resume import Resumes
    from yukta_rx.control.starter import Starter
    from yukta_rx.definitions.prepare import Preparer
    from yukta_rx.definitions.service import DefinitionService
    from yukta_rx.durability.archive import ExecutionArchive
    from yukta_rx.durability.stores.archive import ArchivedRun
    from yukta_rx.model.workflow import WorkflowDefinition

SAME: Final = "same"
CURRENT: Final = "current"

RETRIED: Final = (TaskStatus.FAILURE, TaskStatus.TIMED_OUT)
"""How a node has to have ended for a retry."""


class Restarts:
    """Runs runs again; what it starts is admitted like any start.

    Args:
        starter: starts, and owns the live runs.
        archive: what is kept of runs, and what their nodes emitted.
        definitions: other versions of what they ran.
        preparer: makes them ready, or refuses them.
    """

    def __init__(
        self,
        starter: Starter,
        archive: ExecutionArchive,
        definitions: DefinitionService,
        preparer: Preparer,
    ) -> None:
        self._starter = starter
        self._archive = archive
        self._definitions = definitions
        self._preparer = preparer
        self.resumes: Resumes | None = None
        """Knows the runs that a crash ended, which can be run again as well."""

    def check(self, execution_id: str) -> None:
        """Raise ConflictError if a run cannot be run again, as far as that is known at once."""
        if self._archive.has(execution_id) or self._is_aborted(execution_id):
            return
        live = self._starter.live.peek(execution_id)
        if live is not None and live.borrowed:
            raise not_restartable(
                "child_run",
                f"run {execution_id} belongs to another run; restart that, or the node of it",
            )
        raise _evicted(execution_id)

    async def whole(
        self, execution_id: str, *, version: str, payload: Any, actor: str, via: str
    ) -> PendingStart:
        """Run a run again from its beginning; a live one is cancelled and has ended first.

        The new run has a lineage of its own, so none of its messages has the id of an old one.

        Args:
            execution_id: the run.
            version: of its workflow: `same`, `current`, or a number.
            payload: the start payload; the run's own if None.
            actor: who asks.
            via: where.

        Raises:
            NotFoundError: there is no such version, or its session is gone.
            ConflictError: it is not kept.
            RejectedError: there is no room; a live run is stopped all the same.
        """
        old = await self._find(execution_id)
        definition, base_dir = await self._version(old, version)
        # What is refused anyhow should not have cost the live run.
        await self._preparer.prepare(definition, base_dir)
        run = self._starter.live.get(execution_id)
        if run is not None:
            run.stop(StopMode.CANCEL)
            await self._starter.ended(execution_id)
        return await self._start(
            old,
            Continuation(
                source=execution_id,
                definition=definition,
                base_dir=base_dir,
                asked={"type": "RestartWorkflow"},
            ),
            actor=actor,
            via=via,
            payload=payload,
        )

    async def from_node(
        self, execution_id: str, node_id: str, *, version: str, actor: str, via: str
    ) -> PendingStart:
        """Run one node of a run and all behind it again, with what was recorded before it.

        A live run goes on; only of its nodes that have finished there is a record.

        Raises:
            NotFoundError: there is no such node or version, or its session is gone.
            ConflictError: the run is not kept, or not all that the node needs is.
            RejectedError: there is no room.
        """
        old = await self._find(execution_id)
        definition, base_dir = await self._version(old, version)
        # From here on what is recorded stays; a start that waits sees to that itself.
        self._archive.pin(execution_id)
        try:
            taken_up = await self._behind(old, node_id, definition, base_dir)
            return await self._start(old, taken_up, actor=actor, via=via)
        finally:
            await self._archive.unpin(execution_id)

    async def again(
        self, execution_id: str, node_id: str, definition: WorkflowDefinition, base_dir: Path | None
    ) -> Continuation:
        """Plan `from_node` once more, for a start that has waited longer than its server lived.

        Raises:
            NotFoundError: there is no such node.
            ConflictError: the run is not kept, or not all that the node needs is.
        """
        return await self._behind(await self._find(execution_id), node_id, definition, base_dir)

    async def _behind(
        self, old: ArchivedRun, node_id: str, definition: WorkflowDefinition, base_dir: Path | None
    ) -> Continuation:
        """The run of a node and all behind it, on what is recorded of the old run."""
        execution_id = old.execution_id
        same = definition.version == old.definition.version
        plan = plan_restart(
            definition,
            node_id,
            await self._archive.states(execution_id),
            None if same else old.definition,
        )
        outputs = {name: self._archive.reader(execution_id, name) for name in plan.replayed}
        return Continuation(
            source=execution_id,
            definition=definition,
            base_dir=base_dir,
            lineage=old.lineage,
            replay=Replay(outputs, plan.alone),
            carried=plan.replayed,
            asked={"type": "RestartFromNode", "nodeId": node_id},
        )

    async def retry(self, execution_id: str, node_id: str, *, actor: str, via: str) -> PendingStart:
        """Do `from_node` for a node that ended FAILURE or TIMED_OUT.

        Raises:
            NotFoundError: there is no such node, or its session is gone.
            ConflictError: it has not failed, the run is not kept, or not all that it needs is.
            RejectedError: there is no room.
        """
        old = await self._find(execution_id)
        run = self._starter.live.get(execution_id)
        if run is not None:
            status = run.node(node_id).status
        elif node_id in old.nodes:
            status = old.nodes[node_id]
        else:
            raise NotFoundError(
                f"run {execution_id} has no node {node_id}",
                code="node_not_found",
                executionId=execution_id,
                nodeId=node_id,
            )
        check_failed(node_id, status)
        return await self.from_node(execution_id, node_id, version=SAME, actor=actor, via=via)

    def _is_aborted(self, execution_id: str) -> bool:
        target = None if self.resumes is None else self.resumes.target(execution_id)
        return target is not None and not target.depth

    async def _find(self, execution_id: str) -> ArchivedRun:
        self.check(execution_id)
        found = await self._archive.find(execution_id)
        if found is None and self.resumes is not None and self._is_aborted(execution_id):
            found = await self.resumes.archived(execution_id)
        if found is None:
            raise _evicted(execution_id)
        return found

    async def _version(
        self, old: ArchivedRun, version: str
    ) -> tuple[WorkflowDefinition, Path | None]:
        if version == SAME:
            return old.definition, old.base_dir
        workflow_id = old.definition.workflow_id
        if version == CURRENT:
            record = await self._definitions.get(old.session_id, workflow_id)
        else:
            record = await self._definitions.pinned(old.session_id, workflow_id, version)
        return record.definition, record.base_dir or self._definitions.base_dir

    async def _start(
        self,
        old: ArchivedRun,
        continuation: Continuation,
        *,
        payload: Any = None,
        actor: str,
        via: str,
    ) -> PendingStart:
        return await self._starter.admitted(
            StartRequest(
                session_id=old.session_id,
                workflow_id=continuation.definition.workflow_id,
                payload=old.payload if payload is None else payload,
                labels=old.labels,
                options=old.options,
                continuation=continuation,
                actor=actor,
                via=via,
            )
        )


def _evicted(execution_id: str) -> ConflictError:
    return not_restartable(
        "evicted",
        f"run {execution_id} is not among the newest that are kept to be restarted",
        executionId=execution_id,
    )


def check_failed(node_id: str, status: TaskStatus) -> None:
    """Raise ConflictError unless a node ended in a way that a retry is for."""
    if status not in RETRIED:
        raise ConflictError(
            f"node {node_id} is {status}; only one that ended FAILURE or TIMED_OUT is retried",
            code="node_not_failed",
            nodeId=node_id,
            status=str(status),
        )
