"""SessionConfigStore: the configuration of every session. Feature: DUR-05."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from yukta_rx.model.session import SessionConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session; its workflows are in the definition store.

    Attributes:
        config: the configuration, with no workflows.
        created_at: when it was first stored, aware.
        updated_at: when this form was stored, aware.
    """

    config: SessionConfig
    created_at: datetime
    updated_at: datetime

    @property
    def session_id(self) -> str:
        """Unique on the server."""
        return self.config.session_id


class SessionConfigStore(Protocol):
    """Keeps the configuration of each session.

    Guarantees:
        S1. `get` and `list` show a write as soon as it has returned.
        S2. `list` is ordered by session id.
        S3. A failure raises; no answer is never taken for "there is none".
    """

    async def get(self, session_id: str) -> SessionRecord | None:
        """The session, None if there is none."""

    async def list(self) -> Sequence[SessionRecord]:
        """Every session."""

    async def put(self, record: SessionRecord) -> None:
        """Store a session in place of an earlier form."""

    async def remove(self, session_id: str) -> None:
        """Forget a session; nothing happens if there is none."""
