"""Rows that cannot be read: left out, counted, logged and shown; everything else is in use.

Feature: DUR-05.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from yukta_rx.durability.stores.quarantine import Quarantined

if TYPE_CHECKING:
    from yukta_rx.metrics import Meters

MOST_SHOWN: Final = 1000
"""Rows that are listed; all are counted."""

log = logging.getLogger(__name__)


class LeftOut:
    """What was found unreadable since this server started, each once.

    Args:
        store: the store, as its setting calls it.
        meters: where the rows are counted.
    """

    def __init__(self, store: str, meters: Meters | None) -> None:
        self._count = None
        if meters is not None:
            self._count = meters.counter("yukta.store.quarantined", store=store)
        self._known: set[str] = set()
        self.found: list[Quarantined] = []

    def add(self, place: str, reason: str, what: str = "the row is left out") -> Quarantined:
        """Say that a row cannot be read.

        Args:
            place: table and key.
            reason: what is wrong with it.
            what: what is done about it.
        """
        about = Quarantined(place=place, reason=reason)
        if place not in self._known:
            self._known.add(place)
            if len(self.found) < MOST_SHOWN:
                self.found.append(about)
            log.error("%s; %s", about, what)
            if self._count is not None:
                self._count.add(1)
        return about
