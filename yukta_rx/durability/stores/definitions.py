"""WorkflowDefinitionStore: the workflows of every session, with their versions. Feature: DEF-01."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from yukta_rx.model.times import rfc3339
from yukta_rx.model.workflow import WorkflowDefinition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RETAINED_VERSIONS: Final = 20
"""Newest versions of a workflow that are kept by default."""


DAMAGED: Final = "damaged"
"""Member of the `StoreUnavailableError` of what is there and cannot be read: the place."""


class WorkflowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a stored workflow.

    Attributes:
        session_id: the session that it belongs to.
        definition: the workflow, parsed.
        version: its number, given by the store; 0 until then.
        created_at: when the first version of this workflow was saved, aware.
        updated_at: when this version was saved, aware.
        base_dir: folder that relative paths in it start from; None is the server's own.
        actor: who saved it.
        note: what somebody wrote about this version; None for nothing, never empty.
    """

    session_id: str
    definition: WorkflowDefinition
    version: int = 0
    created_at: datetime
    updated_at: datetime
    base_dir: Path | None = None
    actor: str = "anonymous"
    note: str | None = None

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

    def as_row(self, current: bool) -> dict[str, Any]:
        """The record as API.md's version row; no `note` if there is none."""
        row: dict[str, Any] = {
            "version": self.version,
            "definitionVersion": self.definition_version,
        }
        if self.note is not None:
            row["note"] = self.note
        return row | {"actor": self.actor, "time": rfc3339(self.updated_at), "current": current}


def retained(versions: Sequence[WorkflowRecord], keep: int) -> list[WorkflowRecord]:
    """Return what stays of the versions of a workflow: the rule that every backend follows.

    Args:
        versions: every version, oldest first.
        keep: how many of the newest stay, at least 1.

    Returns:
        The newest `keep`, and of the older ones those that have a note; oldest first.
    """
    newest = len(versions) - keep
    return [record for at, record in enumerate(versions) if at >= newest or record.note is not None]


class WorkflowDefinitionStore(Protocol):
    """Keeps each workflow: its current form and its versions.

    Guarantees:
        D1. Every read shows a write as soon as the write has returned.
        D2. `write` is all or nothing: every put and removal of the call is visible, or none.
        D3. `list` is ordered by workflow id, `versions` by number with the newest first.
        D4. A failure raises; no answer is never taken for "there is none". What is there and
            cannot be read is left out of lists, and refused by name with `DAMAGED`; it can be
            replaced and removed.
        D5. `write` numbers what is put: the number is greater than any that this workflow had
            before, also before it was removed, and also with writes at the same time.
        D6. The newest `RETAINED_VERSIONS` (or as many as the store was told) stay, and besides
            them every version that has a note; nothing else does (`retained`).
        D7. A put that is the same as the current form (`same_as`) adds no version.
        D8. `annotate` changes the note of that version and nothing else; empty text takes it away.
        D9. A removed workflow is gone with all its versions.
        D10. What was written comes back with the same content hash: 1 is not 1.0, integers of any
            size are exact, lists keep their order.

    Not guaranteed: any check that a write is based on the newest version; the service does that.
    """

    async def get(self, session_id: str, workflow_id: str) -> WorkflowRecord | None:
        """The current form, None if there is none."""

    async def list(self, session_id: str) -> Sequence[WorkflowRecord]:
        """The current form of every workflow of a session."""

    async def versions(self, session_id: str, workflow_id: str) -> Sequence[WorkflowRecord]:
        """Every version that is kept; empty if there is no such workflow."""

    async def version(
        self, session_id: str, workflow_id: str, version: int
    ) -> WorkflowRecord | None:
        """One version, None if it is not kept (any more)."""

    async def write(
        self, session_id: str, put: Iterable[WorkflowRecord], remove: Iterable[str] = ()
    ) -> Sequence[WorkflowRecord]:
        """Store records and remove workflows of one session, together.

        Returns:
            What is current now of each that was put, numbered, in their order.
        """

    async def annotate(
        self, session_id: str, workflow_id: str, version: int, note: str | None
    ) -> WorkflowRecord | None:
        """Set or take away the note of a version; None if it is not kept (any more)."""
