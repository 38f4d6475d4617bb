"""Session configurations in memory. Feature: DUR-05."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.sessions import SessionChange, SessionRecord


class MemorySessionConfigStore:
    """See `SessionConfigStore`; lost with the process.

    Args:
        definitions: where the workflows of a commit go.
    """

    durable = False

    def __init__(self, definitions: MemoryWorkflowDefinitionStore) -> None:
        self._definitions = definitions
        self._sessions: dict[str, SessionRecord] = {}

    async def get(self, session_id: str) -> SessionRecord | None:
        """The session, None if there is none."""
        return self._sessions.get(session_id)

    async def list(self) -> Sequence[SessionRecord]:
        """Every session, by id."""
        return [record for _, record in sorted(self._sessions.items())]

    async def commit(self, changes: Sequence[SessionChange]) -> Sequence[WorkflowRecord]:
        """Carry out all changes, each about another session."""
        sessions = dict(self._sessions)
        for change in changes:
            if change.gone:
                sessions.pop(change.session_id, None)
            elif change.record is not None:
                sessions[change.session_id] = change.record
        current = self._definitions.write_all(
            (change.session_id, change.put, change.remove) for change in changes
        )
        self._sessions = sessions
        return current
