"""Workflow definitions in memory. Feature: DEF-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from yukta_rx.durability.stores.definitions import RETAINED_VERSIONS, retained

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from yukta_rx.durability.stores.definitions import WorkflowRecord

    Workflows = dict[str, tuple[WorkflowRecord, ...]]

REMEMBERED: Final = 10_000
"""Removed workflows whose last number is known; the others go on above the highest of them."""


class MemoryWorkflowDefinitionStore:
    """See `WorkflowDefinitionStore`; lost with the process.

    Args:
        keep: how many of the newest versions stay.
    """

    durable = False

    def __init__(self, keep: int = RETAINED_VERSIONS) -> None:
        self._keep = keep
        # By session, then by workflow: every version, oldest first.
        self._sessions: dict[str, Workflows] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._floor = 0

    async def get(self, session_id: str, workflow_id: str) -> WorkflowRecord | None:
        """The current form, None if there is none."""
        versions = self._sessions.get(session_id, {}).get(workflow_id)
        return versions[-1] if versions else None

    async def list(self, session_id: str) -> Sequence[WorkflowRecord]:
        """The current form of every workflow of a session, by id."""
        return [versions[-1] for _, versions in sorted(self._sessions.get(session_id, {}).items())]

    async def versions(self, session_id: str, workflow_id: str) -> Sequence[WorkflowRecord]:
        """Every version that is kept, newest first."""
        return self._sessions.get(session_id, {}).get(workflow_id, ())[::-1]

    async def version(
        self, session_id: str, workflow_id: str, version: int
    ) -> WorkflowRecord | None:
        """One version, None if it is not kept (any more)."""
        versions = self._sessions.get(session_id, {}).get(workflow_id, ())
        return next((record for record in versions if record.version == version), None)

    async def write(
        self, session_id: str, put: Iterable[WorkflowRecord], remove: Iterable[str] = ()
    ) -> Sequence[WorkflowRecord]:
        """Store records and remove workflows of one session, together."""
        return self.write_all(((session_id, put, remove),))

    def write_all(
        self, changes: Iterable[tuple[str, Iterable[WorkflowRecord], Iterable[str]]]
    ) -> Sequence[WorkflowRecord]:
        """Do for several sessions what `write` does for one, at once.

        Args:
            changes: session, what is put, what is removed.
        """
        made: dict[str, Workflows] = {}
        removed: dict[tuple[str, str], int] = {}
        current: list[WorkflowRecord] = []
        for session_id, put, remove in changes:
            workflows = made.setdefault(session_id, dict(self._sessions.get(session_id, {})))
            for workflow_id in remove:
                gone = workflows.pop(workflow_id, None)
                if gone:
                    removed[session_id, workflow_id] = gone[-1].version
            for record in put:
                known = max(removed.get((session_id, record.workflow_id), 0), self._floor)
                current.append(self._added(session_id, workflows, record, known))
        # Nothing below fails, so either all of it is in force or none.
        for place, version in removed.items():
            self._remember(place, version)
        for session_id, workflows in made.items():
            if workflows:
                self._sessions[session_id] = workflows
            else:
                self._sessions.pop(session_id, None)
        return current

    def _added(
        self, session_id: str, workflows: Workflows, record: WorkflowRecord, known: int
    ) -> WorkflowRecord:
        versions = workflows.get(record.workflow_id, ())
        if versions and record.same_as(versions[-1]):
            return versions[-1]
        last = max(known, self._last.get((session_id, record.workflow_id), 0))
        if versions:
            last = versions[-1].version
        numbered = replace(record, session_id=session_id, version=last + 1)
        workflows[record.workflow_id] = tuple(retained((*versions, numbered), self._keep))
        return numbered

    def _remember(self, place: tuple[str, str], version: int) -> None:
        self._last.pop(place, None)
        self._last[place] = version
        if len(self._last) > REMEMBERED:
            self._floor = max(self._floor, self._last.pop(next(iter(self._last))))

    async def annotate(
        self, session_id: str, workflow_id: str, version: int, note: str | None
    ) -> WorkflowRecord | None:
        """Set or take away the note of a version; None if it is not kept (any more)."""
        versions = self._sessions.get(session_id, {}).get(workflow_id, ())
        for at, record in enumerate(versions):
            if record.version == version:
                noted = replace(record, note=note or None)
                left = retained((*versions[:at], noted, *versions[at + 1 :]), self._keep)
                self._sessions[session_id][workflow_id] = tuple(left)
                return noted
        return None
