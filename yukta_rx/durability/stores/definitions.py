"""WorkflowDefinitionStore: the workflows of every session. Feature: DEF-01."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from yukta_rx.model.times import rfc3339
from yukta_rx.model.workflow import WorkflowDefinition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class WorkflowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored workflow.

    Attributes:
        session_id: the session that it belongs to.
        definition: the workflow, parsed.
        version: grows by one with every change of this workflow, from 1.
        created_at: when its first version was saved, aware.
        updated_at: when this version was saved, aware.
        base_dir: folder that relative paths in it start from; None is the server's own.
    """

    session_id: str
    definition: WorkflowDefinition
    version: int
    created_at: datetime
    updated_at: datetime
    base_dir: Path | None = None

    @property
    def workflow_id(self) -> str:
        """Unique in the session."""
        return self.definition.workflow_id

    @property
    def definition_version(self) -> str:
        """The content hash."""
        return self.definition.version

    @property
    def document(self) -> dict[str, Any]:
        """The document as it was written."""
        return self.definition.as_document()

    def same_as(self, other: WorkflowRecord) -> bool:
        """Whether both mean the same: the content, and the folder of its paths."""
        return (self.definition_version, self.base_dir) == (
            other.definition_version,
            other.base_dir,
        )

    def as_dict(self) -> dict[str, Any]:
        """The record without its document: camelCase."""
        return {
            "sessionId": self.session_id,
            "workflowId": self.workflow_id,
            "description": self.definition.description,
            "version": self.version,
            "definitionVersion": self.definition_version,
            "createdAt": rfc3339(self.created_at),
            "updatedAt": rfc3339(self.updated_at),
        }


class WorkflowDefinitionStore(Protocol):
    """Keeps the current definition of each workflow.

    Guarantees:
        D1. `get` and `list` show a write as soon as its `write` has returned.
        D2. `write` is all or nothing: either every put and removal of the call is visible or none.
        D3. `list` is ordered by workflow id.
        D4. A failure raises; no answer is never taken for "there is none".

    Not guaranteed: any check that a write is based on the newest version; the service does that.
    """

    async def get(self, session_id: str, workflow_id: str) -> WorkflowRecord | None:
        """The current record, None if there is none."""

    async def list(self, session_id: str) -> Sequence[WorkflowRecord]:
        """Every workflow of a session."""

    async def write(
        self, session_id: str, put: Iterable[WorkflowRecord], remove: Iterable[str]
    ) -> None:
        """Store records and remove workflows of one session, together."""
