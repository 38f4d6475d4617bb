"""Session configurations in files, changed together with workflows.

    sessions/<session>.json     the configuration, and when it was made and changed

They are in the folder of the definition store (`definitions`), so that one commit covers both.

Feature: DUR-05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.sessions import SessionChange, SessionRecord


class FileSessionConfigStore:
    """See `SessionConfigStore`; open while its definition store is.

    Args:
        definitions: where the workflows of a commit go.
    """

    durable = True

    def __init__(self, definitions: FileWorkflowDefinitionStore) -> None:
        self._definitions = definitions
        self._catalog = definitions.catalog

    async def get(self, session_id: str) -> SessionRecord | None:
        """The session, None if there is none.

        Raises:
            StoreUnavailableError: it is there and cannot be read; names the file and the place.
        """
        return self._catalog.session(session_id)

    async def list(self) -> Sequence[SessionRecord]:
        """Every session, by id; without what is quarantined."""
        return self._catalog.sessions()

    async def commit(self, changes: Sequence[SessionChange]) -> Sequence[WorkflowRecord]:
        """Carry out all changes, each about another session."""
        return await self._definitions.call(self._catalog.change, changes)
