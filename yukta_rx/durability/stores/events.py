"""EventStore: the events of all runs, in order, beyond the life of the process.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from yukta_rx.model.events import ExecutionEvent


class StoredEvent(NamedTuple):
    """An event with its number, counted from 1 over all epochs."""

    seq: int
    event: ExecutionEvent


class Epoch(NamedTuple):
    """A life of the feed.

    Attributes:
        name: the first half of its ids.
        behind: number of the newest event that was stored when it began; its own come after that.
    """

    name: str
    behind: int


class EventSpan(NamedTuple):
    """What a store holds.

    Attributes:
        oldest: number of the oldest event; one more than `newest` if there is none.
        newest: number of the newest event ever stored; 0 before the first.
        epochs: the oldest first. The last event of one is the one that the next begins behind.
    """

    oldest: int
    newest: int
    epochs: tuple[Epoch, ...]


class EventStore(Protocol):
    """Keeps the newest events.

    Guarantees:
        E1. `read` gives events in the order of their numbers, each once, from any place on.
        E2. When a write has returned, `read` and `span` show it; on a durable store it also
            survives the process, and never without what was written before it.
        E3. An event whose number is not above the newest is passed over, so a write whose answer
            was lost can be repeated.
        E4. An epoch that has begun is known as long as an event behind the last one of it is, or
            could come. One that is known does not begin again: ValueError.
        E5. `trim` removes only the oldest, and never one of the newest `retained` that is not too
            old. `newest` stays what it was.
        E6. A failure raises; "nothing there" is an empty part.
        E7. Values come back as they were, of the same types; what cannot be written exactly is
            refused with the place.
        E8. A write is all or nothing.

    Not guaranteed: that numbers have no gaps, and that all that may go is removed at once.
    """

    durable: bool
    """Whether what is written survives the process."""

    async def begin(self, epoch: str) -> EventSpan:
        """Begin an epoch; what is there by then, with it.

        Raises:
            ValueError: it has begun before.
            StoreUnavailableError: the store gives no answer.
        """

    async def append(self, events: Sequence[StoredEvent]) -> None:
        """Write events of the newest epoch, in order, in one write.

        Raises:
            UnserialisablePayloadError: one cannot be written exactly; none was.
            StoreUnavailableError: the store gives no answer.
        """

    async def span(self) -> EventSpan:
        """What is there."""

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        """The oldest events behind a number, at most `limit`."""

    async def trim(self, retained: int, before: datetime | None = None) -> int:
        """Remove what is no longer kept.

        Args:
            retained: so many of the newest numbers stay, at least 1.
            before: what happened earlier goes in any case; None for no such limit.

        Returns:
            The number of the oldest event that is left, see `EventSpan`.
        """


def known_epochs(epochs: Sequence[Epoch], oldest: int) -> tuple[Epoch, ...]:
    """Return the epochs of which a place is one that something is kept behind.

    Args:
        epochs: all, the oldest first.
        oldest: number of the oldest event that is kept.
    """
    ends = [epoch.behind for epoch in epochs[1:]]
    gone = sum(end + 1 < oldest for end in ends)
    return tuple(epochs[gone:])
