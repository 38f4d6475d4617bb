"""SessionConfigStore: the configuration of every session. Feature: DUR-05."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from yukta_rx.durability.stores.definitions import WorkflowRecord
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


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changes in one session.

    Attributes:
        session_id: the session.
        record: its new configuration; None leaves it as it is, or with `gone` removes it.
        put: workflows to store.
        remove: ids of workflows to remove.
        gone: remove the session itself; its workflows are named in `remove`.
    """

    session_id: str
    record: SessionRecord | None = None
    put: tuple[WorkflowRecord, ...] = ()
    remove: tuple[str, ...] = ()
    gone: bool = False


class SessionConfigStore(Protocol):
    """Keeps the configuration of each session, beside the definition store of the same backend.

    Guarantees:
        S1. `get` and `list` show a commit as soon as it has returned, and so do the reads of the
            definition store.
        S2. `list` is ordered by session id.
        S3. A failure raises; no answer is never taken for "there is none".
        S4. `commit` is all or nothing: every change of every session in it, workflows included, is
            visible, or none.
        S5. What was stored comes back equal, also text and tags in any script, and times.
        S6. A session that is gone is not listed; removing one that is not there does nothing.
        S7. Workflows in a commit follow the guarantees of the definition store: numbers grow, what
            is the same adds no version.
    """

    async def get(self, session_id: str) -> SessionRecord | None:
        """The session, None if there is none."""

    async def list(self) -> Sequence[SessionRecord]:
        """Every session."""

    async def commit(self, changes: Sequence[SessionChange]) -> Sequence[WorkflowRecord]:
        """Carry out all changes, each about another session.

        Returns:
            What is current now of each workflow that was put, numbered, in their order.
        """
