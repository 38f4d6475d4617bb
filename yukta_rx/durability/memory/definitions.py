"""Workflow definitions in memory. Feature: DEF-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from yukta_rx.durability.stores.definitions import WorkflowRecord


class MemoryWorkflowDefinitionStore:
    """See `WorkflowDefinitionStore`; lost with the process."""

    durable = False

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, WorkflowRecord]] = {}

    async def get(self, session_id: str, workflow_id: str) -> WorkflowRecord | None:
        """The current record, None if there is none."""
        return self._sessions.get(session_id, {}).get(workflow_id)

    async def list(self, session_id: str) -> Sequence[WorkflowRecord]:
        """Every workflow of a session, by id."""
        return [record for _, record in sorted(self._sessions.get(session_id, {}).items())]

    async def write(
        self, session_id: str, put: Iterable[WorkflowRecord], remove: Iterable[str]
    ) -> None:
        """Store records and remove workflows of one session, together."""
        workflows = dict(self._sessions.get(session_id, {}))
        for workflow_id in remove:
            workflows.pop(workflow_id, None)
        workflows.update((record.workflow_id, record) for record in put)
        if workflows:
            self._sessions[session_id] = workflows
        else:
            self._sessions.pop(session_id, None)
