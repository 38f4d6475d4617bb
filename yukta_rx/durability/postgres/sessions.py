"""Session configurations in PostgreSQL, changed together with workflows in one transaction.

Features: DUR-04, DUR-05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.durability.postgres._definition_rows import session_place
from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.postgres._together import Together
from yukta_rx.durability.postgres.definitions import refused
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.durability.stores.sessions import SessionRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.sessions import SessionChange

SOME: Final = (
    "SELECT session_id, record FROM session_config "
    "WHERE part = $1 AND session_id = ANY ($2::text[])"
)
ALL: Final = "SELECT session_id, record FROM session_config WHERE part = $1"


class PostgresSessionConfigStore:
    """See `SessionConfigStore`; open while its definition store is.

    Args:
        definitions: where the workflows of a commit go.
    """

    durable = True

    def __init__(self, definitions: PostgresWorkflowDefinitionStore) -> None:
        self._definitions = definitions
        self._database = definitions.database
        self._rows = definitions.rows
        # Every start reads one, and many start at the same time.
        self._text_of: Together[str, str | None] = Together(self._some)

    async def _some(self, ids: Sequence[str]) -> Sequence[str | None]:
        rows = await self._database.fetch(SOME, self._database.part, list(ids))
        found: dict[str, str] = {row["session_id"]: row["record"] for row in rows}
        return [found.get(one) for one in ids]

    async def get(self, session_id: str) -> SessionRecord | None:
        """The session, None if there is none.

        Raises:
            StoreUnavailableError: it is there and cannot be read; names the row and the place.
        """
        text = await self._text_of(stored(session_id))
        if text is None:
            self._rows.faults.pop(session_place(session_id), None)
            return None
        found = self._rows.session(session_id, text)
        if isinstance(found, Quarantined):
            raise refused(found)
        return found

    async def list(self) -> Sequence[SessionRecord]:
        """Every session, by id; without what is quarantined."""
        rows = await self._database.fetch(ALL, self._database.part)
        made = [self._rows.session(*row) for row in sorted(rows, key=lambda row: row[0])]
        return [one for one in made if isinstance(one, SessionRecord)]

    async def commit(self, changes: Sequence[SessionChange]) -> Sequence[WorkflowRecord]:
        """Carry out all changes, each about another session."""
        return await self._definitions.commit(changes)
