"""RunState: what is known of one run from its events; it only ever moves forward.

Pure: it looks at events and tells nobody.

Features: OBS-01, ENG-06.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.status import TaskStatus, advance, status_of
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.errors import YuktaError
    from yukta_rx.model.execution_log import RunFinished, RunStarted

OWN: Final = ("execution.", "node.", "edge.")
"""Families of what a run itself does; nothing of these comes after its end."""


_NO_LABELS: Final[dict[str, str]] = {}


class NodeMark(msgspec.Struct, gc=False, eq=False):
    """One node: its type, its status, and when it began and ended."""

    module: str = "unknown"
    status: TaskStatus = TaskStatus.PENDING
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """From first activity to the end; None before the end, or without activity."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


class RunState:
    """One run as its events tell it.

    Args:
        execution_id: the run.
        session_id: its session.
        workflow_id: its workflow.
        now: the time of day, for the duration of a run that goes on.

    Attributes:
        status: its status; a terminal one is final.
        version: grows with each change of the status.
        ended: whether `execution.finished` came; nothing of the run's own follows.
        nodes: every node that is known, by id.
    """

    __slots__ = (
        "_now",
        "actor",
        "definition_version",
        "depth",
        "end_time",
        "ended",
        "error",
        "execution_id",
        "labels",
        "nodes",
        "parent_execution_id",
        "queued_time",
        "restarted_from",
        "resumed_from",
        "session_id",
        "start_time",
        "status",
        "totals",
        "version",
        "workflow_id",
    )

    def __init__(
        self, execution_id: str, session_id: str, workflow_id: str, now: Callable[[], datetime]
    ) -> None:
        self.execution_id = execution_id
        self.session_id = session_id
        self.workflow_id = workflow_id
        self._now = now
        self.definition_version = ""
        self.status = TaskStatus.PENDING
        self.version = 0
        self.ended = False
        self.start_time: datetime | None = None
        self.end_time: datetime | None = None
        self.queued_time: datetime | None = None
        self.parent_execution_id: str | None = None
        self.restarted_from: str | None = None
        self.resumed_from: str | None = None
        self.depth = 0
        self.actor = "anonymous"
        self.labels: Mapping[str, str] = _NO_LABELS
        self.error: Mapping[str, Any] | None = None
        self.totals: Mapping[str, int] | None = None
        self.nodes: dict[str, NodeMark] = {}

    def describe(self, about: Mapping[str, Any]) -> None:
        """Take over what the starter of the run says.

        Args:
            about: any of actor, labels, depth, parentExecutionId, restartedFrom, resumedFrom,
                definitionVersion.
        """
        self.definition_version = about.get("definitionVersion", self.definition_version)
        self.actor = about.get("actor", self.actor)
        self.labels = about.get("labels") or self.labels
        self.depth = about.get("depth", self.depth)
        self.parent_execution_id = about.get("parentExecutionId", self.parent_execution_id)
        self.restarted_from = about.get("restartedFrom", self.restarted_from)
        self.resumed_from = about.get("resumedFrom", self.resumed_from)

    def restore(self, started: RunStarted, ended: RunFinished | None) -> None:
        """Take over what the execution log says of a run of an earlier server."""
        self.describe(
            {
                "actor": started.actor,
                "labels": started.labels,
                "depth": started.depth,
                "parentExecutionId": started.parent_execution_id,
                "restartedFrom": started.restarted_from,
                "resumedFrom": started.resumed_from,
                "definitionVersion": started.definition_version,
            }
        )
        self.start_time = started.time
        self.status, self.version = TaskStatus.RUNNING, 1
        if ended is not None:
            self.status, self.version = ended.status, 2
            self.ended, self.end_time = True, ended.time
            self.error, self.totals = ended.error, ended.totals

    def apply(self, event: ExecutionEvent) -> bool:
        """Take an event in.

        Returns:
            False if it comes too late, or would move something back; then nothing changed.

        Raises:
            ValueError: it names a status that there is not.
        """
        if self.ended:
            return not event.type.startswith(OWN)
        change = _CHANGES.get(event.type)
        return True if change is None else change(self, event)

    def end(self, status: TaskStatus, error: YuktaError, now: datetime) -> ExecutionEvent:
        """The event of an end that the run does not say itself; a cancelled one has no error."""
        totals = {"in": 0, "out": 0, "failed": 0, "dropped": 0}
        data: dict[str, Any] = {"status": str(status), "totals": totals}
        if status is not TaskStatus.CANCELLED:
            data["error"] = {"code": error.code, "detail": error.detail}
        return ExecutionEvent(
            type="execution.finished",
            time=now,
            session_id=self.session_id,
            workflow_id=self.workflow_id,
            execution_id=self.execution_id,
            data=data,
        )

    def counts(self) -> dict[str, int]:
        """How many nodes have which status."""
        found: dict[str, int] = {}
        for node in self.nodes.values():
            found[str(node.status)] = found.get(str(node.status), 0) + 1
        return found

    def as_dict(self, *, paused: bool = False) -> dict[str, Any]:
        """Return the run as API.md's `ExecutionSummary`."""
        shown: dict[str, Any] = {
            "executionId": self.execution_id,
            "sessionId": self.session_id,
            "workflowId": self.workflow_id,
            "definitionVersion": self.definition_version,
            "status": str(self.status),
        }
        if self.start_time is not None:
            shown["startTime"] = rfc3339(self.start_time)
        if self.end_time is not None:
            shown["endTime"] = rfc3339(self.end_time)
        if self.queued_time is not None:
            shown["queuedTime"] = rfc3339(self.queued_time)
        if self.start_time is not None:
            end = self.end_time or self._now()
            shown["durationMs"] = round((end - self.start_time).total_seconds() * 1000)
        if self.parent_execution_id is not None:
            shown["parentExecutionId"] = self.parent_execution_id
        shown |= {"depth": self.depth, "actor": self.actor, "labels": self.labels}
        shown["paused"] = paused
        if self.error is not None:
            shown["error"] = self.error
        shown["recorded"] = True
        return shown

    # -- the changes that events bring

    def _forward(self, status: TaskStatus) -> bool:
        moved = advance(self.status, status) is not self.status
        if moved:
            self.status = status
            self.version += 1
        return moved

    def _queued(self, event: ExecutionEvent) -> bool:
        if self.queued_time is not None or not self._forward(TaskStatus.QUEUED):
            return False
        self.queued_time = event.time
        return True

    def _started(self, event: ExecutionEvent) -> bool:
        if self.start_time is not None:
            return False
        self.start_time = event.time
        self.definition_version = event.data.get("definitionVersion", self.definition_version)
        return True

    def _status(self, event: ExecutionEvent) -> bool:
        return self._forward(status_of(event.data["status"]))

    def _finished(self, event: ExecutionEvent) -> bool:
        # A status event before it has moved the status already, as a rule.
        self._forward(status_of(event.data["status"]))
        self.ended = True
        self.end_time = event.time
        self.error = event.data.get("error")
        self.totals = event.data.get("totals")
        return True

    def _aborted(self, _event: ExecutionEvent) -> bool:
        return self._forward(TaskStatus.ABORTED)

    def _node(self, event: ExecutionEvent) -> bool:
        node_id = event.node_id or ""
        node = self.nodes.get(node_id)
        if node is None:
            node = self.nodes[node_id] = NodeMark()
        status = status_of(event.data["status"])
        if advance(node.status, status) is node.status:
            return False
        node.status = status
        if status is TaskStatus.RUNNING:
            node.started_at = event.time
        elif status.terminal:
            node.ended_at = event.time
        return True


_CHANGES: Final[dict[str, Callable[[RunState, ExecutionEvent], bool]]] = {
    "execution.queued": RunState._queued,
    "execution.started": RunState._started,
    "execution.status": RunState._status,
    "execution.finished": RunState._finished,
    "execution.aborted": RunState._aborted,
    "node.status": RunState._node,
}
