"""Session configurations in memory. Feature: DUR-05."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.stores.sessions import SessionRecord


class MemorySessionConfigStore:
    """See `SessionConfigStore`; lost with the process."""

    durable = False

    def __init__(self) -> None:
        self._sessions: dict[str, SessionRecord] = {}

    async def get(self, session_id: str) -> SessionRecord | None:
        """The session, None if there is none."""
        return self._sessions.get(session_id)

    async def list(self) -> Sequence[SessionRecord]:
        """Every session, by id."""
        return [record for _, record in sorted(self._sessions.items())]

    async def put(self, record: SessionRecord) -> None:
        """Store a session in place of an earlier form."""
        self._sessions[record.session_id] = record

    async def remove(self, session_id: str) -> None:
        """Forget a session; nothing happens if there is none."""
        self._sessions.pop(session_id, None)
