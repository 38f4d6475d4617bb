"""Lines of a store that cannot be read: set aside in a file beside it, counted and logged.

Feature: DUR-05.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from yukta_rx.durability.file._journal import Journal
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)


class Quarantine:
    """What was found unreadable in a journal when it was opened.

    The lines go to `<name>.quarantine.jsonl`, each as `{"place", "reason", "line"}`; what is there
    already is not written again, in case a crash comes before the journal is rewritten without it.

    Args:
        path: the journal.
        store: the store that it belongs to, as its setting calls it.
        meters: where the lines are counted.
    """

    def __init__(self, path: Path, store: str, meters: Meters | None = None) -> None:
        self.path = path.with_suffix(f".quarantine{path.suffix}")
        self._name = path.name
        self._count = None
        if meters is not None:
            self._count = meters.counter("yukta.store.quarantined", store=store)
        self._found: list[tuple[Quarantined, bytes]] = []
        self._kept = 0

    @property
    def found(self) -> Sequence[Quarantined]:
        """What was set aside since this server started."""
        return [one for one, _ in self._found]

    def add(self, place: str, line: bytes, reason: object) -> None:
        """Set a line aside, from a place of the journal; in any thread, before `keep`."""
        about = Quarantined(place=f"{self._name}, {place}", reason=str(reason))
        self._found.append((about, line))

    async def keep(self) -> None:
        """Write what was set aside, before the journal loses it.

        Raises:
            StoreUnavailableError: it cannot be written.
        """
        new = self._found[self._kept :]
        self._kept = len(self._found)
        if not new:
            return
        for one, _ in new:
            log.error("%s; the line was moved to %s", one, self.path.name)
        if self._count is not None:
            self._count.add(len(new))
        journal = Journal(self.path)
        try:
            known = set(await journal.open())
            rows = [codec.encode(_row(one, line)) for one, line in new]
            await journal.append([row for row in rows if row not in known])
        finally:
            await journal.close()


def _row(about: Quarantined, line: bytes) -> dict[str, Any]:
    shown: str | bytes
    try:
        shown = line.decode()
    except UnicodeDecodeError:
        shown = line
    return {"place": about.place, "reason": about.reason, "line": shown}
