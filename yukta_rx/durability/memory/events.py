"""Events of all runs in memory. Feature: OBS-01."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from yukta_rx.durability.stores.events import Epoch, EventSpan, StoredEvent, known_epochs
from yukta_rx.model.event_lines import decode_event, encode_event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class MemoryEventStore:
    """See `EventStore`; lost with the process. Holds the written form."""

    durable = False

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._times: list[datetime] = []
        self._lines: list[bytes] = []
        self._newest = 0
        self._epochs: tuple[Epoch, ...] = ()

    async def begin(self, epoch: str) -> EventSpan:
        """Begin an epoch."""
        if any(known.name == epoch for known in self._epochs):
            raise ValueError(f"epoch {epoch} has begun before")
        self._epochs = (*self._epochs, Epoch(epoch, self._newest))
        return await self.span()

    async def append(self, events: Sequence[StoredEvent]) -> None:
        """Write events in one write."""
        # All are written before any is kept.
        made = [(seq, event.time, encode_event(event)) for seq, event in events]
        for seq, time, line in made:
            if seq > self._newest:
                self._seqs.append(seq)
                self._times.append(time)
                self._lines.append(line)
                self._newest = seq

    async def span(self) -> EventSpan:
        """What is there."""
        oldest = self._seqs[0] if self._seqs else self._newest + 1
        return EventSpan(oldest, self._newest, self._epochs)

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        """The oldest events behind a number."""
        first = bisect_right(self._seqs, after)
        chosen = slice(first, first + limit)
        return [
            StoredEvent(seq, decode_event(line))
            for seq, line in zip(self._seqs[chosen], self._lines[chosen], strict=True)
        ]

    async def trim(self, retained: int, before: datetime | None = None) -> int:
        """Remove what is no longer kept."""
        gone = bisect_right(self._seqs, self._newest - retained)
        while before is not None and gone < len(self._times) and self._times[gone] < before:
            gone += 1
        for column in (self._seqs, self._times, self._lines):
            del column[:gone]
        oldest = (await self.span()).oldest
        self._epochs = known_epochs(self._epochs, oldest)
        return oldest
