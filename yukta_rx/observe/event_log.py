"""EventLog: the events of the feed on their way to a durable store, and back from there.

Numbers go on over restarts. Each life of the feed is an epoch with a name of its own, so an id is
never given twice: those that were told and not written before a crash are of an epoch that is known
to have ended before them.

Feature: OBS-01.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Self

import msgspec

from yukta_rx.durability.stores.events import StoredEvent, known_epochs
from yukta_rx.errors import UnserialisablePayloadError, YuktaError
from yukta_rx.observe.event_ids import base36
from yukta_rx.observe.frames import showable
from yukta_rx.observe.write_behind import WriteBehind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.stores.events import Epoch, EventStore
    from yukta_rx.metrics import Meters
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.observe.event_ids import Place
    from yukta_rx.streams.clock import LoopClock

WAITING: Final = 32 << 20
"""Bytes of events that may wait to be written before runs are held back."""

RECENT: Final = 1000
"""Events of earlier lives that the feed holds in memory from its start on."""

TRIM_EVERY: Final = 60.0
"""Seconds between two looks at what is too old, if anything can be."""

log = logging.getLogger(__name__)


class EventLog:
    """Owns a store of events, as an async context. Belongs to the loop.

    Args:
        store: where they are kept.
        clock: tells the time.
        settings: how much is kept.
        meters: where failed writes are counted.
        linger: seconds that a write waits for more events.

    Attributes:
        epoch: the name of this life.
        newest: number of the newest event of earlier lives.
        oldest: number of the oldest event that is stored.
        recent: the newest events of earlier lives, with no number missing.
        on_full: told whether so much waits to be written that runs have to be held back.
    """

    def __init__(
        self,
        store: EventStore,
        clock: LoopClock,
        settings: Settings,
        meters: Meters,
        linger: float = 0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._kept = settings.streaming
        self._behind: WriteBehind[StoredEvent] = WriteBehind(
            "events", self._write, clock, meters, WAITING, linger
        )
        self._behind.on_full = lambda: self.on_full(True)
        self._behind.on_room = lambda: self.on_full(False)
        self._trimmed_at = float("-inf")
        self._epochs: tuple[Epoch, ...] = ()
        self.epoch = ""
        self.newest = 0
        self.oldest = 1
        self.recent: Sequence[StoredEvent] = ()
        self.on_full: Callable[[bool], None] = lambda _full: None

    async def __aenter__(self) -> Self:
        """Begin an epoch, and start to write.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """
        known = {epoch.name for epoch in (await self._store.span()).epochs}
        now = int(self._clock.wall().timestamp() * 1000)
        while base36(now) in known:
            now += 1
        self.epoch = base36(now)
        span = await self._store.begin(self.epoch)
        self.newest, self.oldest, self._epochs = span.newest, span.oldest, span.epochs
        recent = list(await self._store.read(max(0, span.newest - RECENT), RECENT))
        whole = len(recent)
        while whole and recent[whole - 1].seq == span.newest - len(recent) + whole:
            whole -= 1
        self.recent = recent[whole:]
        await self._behind.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Write what waits, for a few seconds at the most."""
        await self._behind.__aexit__(*exc)

    # -- places

    def id_of(self, seq: int) -> str:
        """The id of an event by its number."""
        index = bisect_left(self._epochs, seq, key=lambda epoch: epoch.behind)
        return f"{self._epochs[max(0, index - 1)].name}:{seq}"

    def unknown(self, place: Place, head: int) -> str | None:
        """Why one cannot go on behind a place, in the words of `stream.reset`; None if one can.

        Args:
            place: where.
            head: number of the newest event.
        """
        ends = [*(epoch.behind for epoch in self._epochs[1:]), head]
        for epoch, end in zip(self._epochs, ends, strict=True):
            if epoch.name == place.epoch:
                if place.seq > end:
                    # It was told, and not written before the crash that ended its epoch.
                    return "epoch"
                return "evicted" if place.seq + 1 < self.oldest else None
        return "epoch"

    # -- writing

    def add(self, seq: int, event: ExecutionEvent, weight: int) -> None:
        """Have an event written."""
        self._behind.put(StoredEvent(seq, event), weight)

    async def written(self) -> None:
        """Return once all that happened so far is written; at once while writes fail."""
        await self._behind.written()

    def fault(self) -> str | None:
        """Why nothing can be written; None if it can, as far as is known."""
        return self._behind.fault()

    async def _write(self, batch: list[StoredEvent]) -> None:
        try:
            await self._store.append(batch)
        except UnserialisablePayloadError:
            # The same marks as those that live readers have seen.
            await self._store.append([_writable(one) for one in batch])
        retained, aging = self._kept.stored_events, self._kept.stored_for is not None
        many = batch[-1].seq - self.oldest >= retained + retained // 4
        if many or (aging and self._clock.now() - self._trimmed_at >= TRIM_EVERY):
            await self._trim()

    async def _trim(self) -> None:
        self._trimmed_at = self._clock.now()
        kept = self._kept
        before = None if kept.stored_for is None else self._clock.wall() - kept.stored_for
        try:
            self.oldest = await self._store.trim(kept.stored_events, before)
        except Exception as error:
            told = "old events are not removed, it is tried again later: %s"
            log.warning(told, error, exc_info=not isinstance(error, YuktaError))
            return
        self._epochs = known_epochs(self._epochs, self.oldest)

    # -- back again

    async def read(self, after: int, limit: int) -> Sequence[StoredEvent]:
        """The oldest events behind a number, written or not.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """
        # First, since what waits now may be written by the time that the store answers.
        waiting = [one for one, _ in self._behind.waiting if one.seq > after][:limit]
        return await self._store.read(after, limit) or waiting


def _writable(one: StoredEvent) -> StoredEvent:
    data = showable(one.event.data)
    return StoredEvent(one.seq, msgspec.structs.replace(one.event, data=data))
