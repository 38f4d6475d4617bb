"""Rows that cannot be read: left out, counted, logged once, shown.  Feature: DUR-05."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from yukta_rx.durability.stores.quarantine import Quarantined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.metrics import Meters

MOST: Final = 1000
"""Rows that are listed; all are counted."""

log = logging.getLogger(__name__)


class Quarantine:
    """What a store found since this server started; the rows stay where they are.

    Args:
        store: as its setting calls it.
        meters: where they are counted.
    """

    def __init__(self, store: str, meters: Meters | None = None) -> None:
        self._found: dict[str, Quarantined] = {}
        self._count = None
        if meters is not None:
            self._count = meters.counter("yukta.store.quarantined", store=store)

    @property
    def found(self) -> Sequence[Quarantined]:
        """All of them."""
        return tuple(self._found.values())

    def add(self, place: str, reason: str) -> None:
        """A row cannot be read; it may be told again."""
        if place in self._found:
            return
        about = Quarantined(place=place, reason=reason)
        if len(self._found) < MOST:
            self._found[place] = about
        if self._count is not None:
            self._count.add()
        log.error("%s", about)
