"""JournalStore: one journal per run, within a budget of bytes for all together.

Features: OBS-02, OBS-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yukta_rx.observe.journal import Budget, Journal
from yukta_rx.observe.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.streams.clock import Clock

J = TypeVar("J", bound=Journal[Any])


class JournalStore(Generic[J]):
    """Journals by execution id.

    When the budget is spent, journals of ended runs go first, least lately used first; then the
    largest journal of a run that goes on gives up its older half.

    Args:
        clock: tells the time.
        ttl: seconds that the journal of an ended run is kept.
        capacity: how many journals are kept, and how many beside them of runs that others started.
        max_bytes: what they may hold together, roughly.
        renew: whether reading begins the time anew.

    Attributes:
        on_clear: called with a journal that was let go, and is empty by now.
    """

    def __init__(
        self, clock: Clock, *, ttl: float, capacity: int, max_bytes: int, renew: bool
    ) -> None:
        self.clock = clock
        self.budget = Budget(max_bytes, self._relieve)
        self._shelf: Shelf[J] = Shelf(
            clock, ttl=ttl, capacity=capacity, gone=self._clear, renew=renew
        )
        self.on_clear: Callable[[J], None] = lambda _journal: None

    def __len__(self) -> int:
        return len(self._shelf)

    def get(self, execution_id: str) -> J | None:
        """Return the journal of a run, None if there is none (any more)."""
        return self._shelf.get(execution_id)

    def retire(self, execution_id: str) -> None:
        """The run ended: its journal is kept for a while."""
        self._shelf.retire(execution_id)

    def forget(self, execution_id: str) -> None:
        """Let go the journal of a run, if there is one; who reads it comes to its end."""
        self._shelf.forget(execution_id)

    def close(self) -> None:
        """Watch no time any more."""
        self._shelf.close()

    def keep(self, execution_id: str, journal: J, parent: str | None = None) -> J:
        """Keep a new journal; `parent` is the run that started its run, if one did."""
        self._shelf.put(execution_id, journal, parent)
        return journal

    def _clear(self, journal: J) -> None:
        journal.clear()
        self.on_clear(journal)

    def _relieve(self) -> None:
        budget = self.budget
        while budget.used > budget.limit and self._shelf.drop_oldest():
            pass
        # Searching is fine here: each time an eighth or more of the budget comes free.
        while budget.used > budget.limit - budget.limit // 8:
            largest = max(self._shelf.values(), key=lambda journal: journal.weight, default=None)
            if largest is None or not largest.halve():
                return
