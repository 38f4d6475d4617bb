"""Workflow definitions in files that people can read, and may change while no server runs.

    workflows/<session>/<workflow>/current.json         the document, as it is in force
    workflows/<session>/<workflow>/history/<n>.json     each version, with what is known about it
    removed.json                                        last numbers of what was removed
    quarantine/...                                      what could not be read and was replaced
    .commit/                                            a change that is under way

Names are ids, URL-encoded (`_names`). A `current.json` that a person changed or put there is taken
as a new version when the store is opened; one that cannot be read is left alone, noted, and
refused when somebody asks for it. The folder holds the sessions as well (`sessions`).

Feature: DEF-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from yukta_rx.durability.file._catalog import Catalog
from yukta_rx.durability.stores.definitions import RETAINED_VERSIONS
from yukta_rx.durability.stores.sessions import SessionChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from yukta_rx.durability.file._folder import Folder
    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

T = TypeVar("T")


class FileWorkflowDefinitionStore:
    """See `WorkflowDefinitionStore`; what was written outlives the process.

    Args:
        folder: where the files are; open as long as the store is.
        keep: how many of the newest versions stay.
        meters: where what cannot be read is counted.
    """

    durable = True

    def __init__(
        self, folder: Folder, keep: int = RETAINED_VERSIONS, meters: Meters | None = None
    ) -> None:
        self.folder = folder
        self.catalog = Catalog(folder.path, keep)
        self._counter = (
            None if meters is None else meters.counter("yukta.store.quarantined", store="session")
        )
        self._counted: set[str] = set()

    async def open(self) -> None:
        """Complete what a crash interrupted, and read what is there.

        Raises:
            StoreUnavailableError: the folder cannot be used; names the file and the reason.
        """
        await self.call(self.catalog.open)

    async def close(self) -> None:
        """Give no more answers; nothing waits to be written."""
        self.catalog.close()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """What is in the folder and cannot be read, of sessions too."""
        return tuple(self.catalog.found.faults.values())

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Await what blocks, and count what it found unreadable."""
        try:
            return await self.folder.call(fn, *args)
        finally:
            new = self.catalog.found.faults.keys() - self._counted
            self._counted |= new
            if self._counter is not None and new:
                self._counter.add(len(new))

    async def get(self, session_id: str, workflow_id: str) -> WorkflowRecord | None:
        """The current form, None if there is none.

        Raises:
            StoreUnavailableError: it is there and cannot be read; names the file and the place.
        """
        return self.catalog.current(session_id, workflow_id)

    async def list(self, session_id: str) -> Sequence[WorkflowRecord]:
        """The current form of every workflow of a session, by id; without what is quarantined."""
        return self.catalog.currents(session_id)

    async def versions(self, session_id: str, workflow_id: str) -> Sequence[WorkflowRecord]:
        """Every version that is kept, newest first; without what is quarantined."""
        return await self.call(self.catalog.versions, session_id, workflow_id)

    async def version(
        self, session_id: str, workflow_id: str, version: int
    ) -> WorkflowRecord | None:
        """One version, None if it is not kept (any more)."""
        return await self.call(self.catalog.version, session_id, workflow_id, version)

    async def write(
        self, session_id: str, put: Iterable[WorkflowRecord], remove: Iterable[str] = ()
    ) -> Sequence[WorkflowRecord]:
        """Store records and remove workflows of one session, together."""
        change = SessionChange(session_id=session_id, put=tuple(put), remove=tuple(remove))
        return await self.call(self.catalog.change, (change,))

    async def annotate(
        self, session_id: str, workflow_id: str, version: int, note: str | None
    ) -> WorkflowRecord | None:
        """Set or take away the note of a version; None if it is not kept (any more)."""
        return await self.call(self.catalog.annotate, session_id, workflow_id, version, note)
