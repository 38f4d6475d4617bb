"""FeedSubscription: one subscriber of the feed: what it has to get yet, and what it lost.

Feature: OBS-01.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.observe.frames import Frame, closing
from yukta_rx.observe.journal import Gap
from yukta_rx.observe.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yukta_rx.observe.circle import Circle, Outlet
    from yukta_rx.observe.feed import Entry, EventFeed, SampleKey
    from yukta_rx.observe.filters import EventFilter
    from yukta_rx.observe.replay import PastEvents
    from yukta_rx.streams.clock import Timer

log = logging.getLogger(__name__)

MAX_SAMPLES: Final = 10_000
"""Samples of different keys that may wait; only who never reads comes near it."""

_NONE: Final[deque[int]] = deque(maxlen=0)
"""What waits for who has everything; a queue of its own costs each of them 700 bytes."""


class FeedSubscription(Reader[Frame]):
    """The frames of the feed for one subscriber; made by `EventFeed.subscribe`.

    Attributes:
        filters: what it wants.
        heartbeat: whether it wants heartbeats.
        wants_all: whether that is everything.
        dropped: events that it lost because it read too slowly.
        circle: with whom it waits, while it has everything and its frames need no task.
        past: where it reads what memory no longer holds, before it takes part.
    """

    __slots__ = (
        "_capacity",
        "_coalesce",
        "_due",
        "_feed",
        "_first",
        "_flush_timer",
        "_flushed_at",
        "_last",
        "_lost",
        "_lost_from",
        "_lost_to",
        "_outlet",
        "_over_now",
        "_pending",
        "_room",
        "_samples",
        "_ticked",
        "circle",
        "dropped",
        "filters",
        "heartbeat",
        "past",
        "wants_all",
    )

    def __init__(
        self,
        feed: EventFeed,
        filters: EventFilter,
        *,
        coalesce_ms: int,
        capacity: int,
        heartbeat: bool,
    ) -> None:
        super().__init__()
        self.filters = filters
        self.wants_all = filters.everything
        self.dropped = 0
        self._feed = feed
        self._coalesce = coalesce_ms / 1000
        self._capacity = capacity
        self._pending = _NONE
        self._room = capacity
        self._lost = 0
        self._lost_from = self._lost_to = 0
        self._first: list[Frame] = []
        self._last: Frame | None = None
        self._over_now = False
        self._samples: dict[SampleKey, Entry] = {}
        self._due = False
        self._flushed_at = float("-inf")
        self._flush_timer: Timer | None = None
        self._ticked = False
        self._outlet: Outlet | None = None
        self.circle: Circle | None = None
        self.past: PastEvents | None = None
        self.heartbeat = heartbeat
        if heartbeat:
            feed.heart.add(self)

    # -- told by the feed

    def begin(self, after: int, *, reset: str | None = None) -> None:
        """Begin behind an event; say so."""
        coalesce_ms = round(self._coalesce * 1000)
        self._first += self._feed.greeting(
            self.filters, after, coalesce_ms=coalesce_ms, reset=reset
        )

    def catch_up(self, backlog: Iterable[int]) -> None:
        """Get the events that the subscriber has missed, and take part from here on."""
        self._pending = deque(backlog)
        self._room = self._capacity + len(self._pending)

    def offer(self, seq: int) -> None:
        """A wanted event happened."""
        pending = self._pending
        if pending is _NONE:
            pending = self._pending = deque()
        pending.append(seq)
        if len(pending) > self._room:
            self._lose(pending.popleft())
        # `wake`, written out: this is done for every event and every subscriber.
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def let_go(self, flushed_at: float, unwritten: Iterable[int] = ()) -> None:
        """It is in no circle any more and goes on by itself.

        Args:
            flushed_at: when it got samples there.
            unwritten: numbers of events that it could not take there.
        """
        self._feed.alone(self)
        self._flushed_at = max(self._flushed_at, flushed_at)
        for seq in unwritten:
            self.offer(seq)

    def offer_sample(self, key: SampleKey, entry: Entry) -> None:
        """A wanted sample was taken; it takes the place of the one before."""
        samples = self._samples
        if key not in samples and len(samples) >= MAX_SAMPLES:
            del samples[next(iter(samples))]
            self._feed.lost_samples.add()
        samples[key] = entry
        if self._flush_timer is None and not self._due:
            clock = self._feed.clock
            when = max(clock.now(), self._flushed_at + self._coalesce)
            self._flush_timer = clock.call_at(when, self._flush)

    def drop_samples(self, newer: Iterable[tuple[SampleKey, Entry]]) -> None:
        """It got these, so older ones of the same keys are not wanted any more."""
        for key, _ in newer:
            self._samples.pop(key, None)

    def tick(self) -> None:
        """A heartbeat is due."""
        self._ticked = True
        self.wake()

    def finish(self, last: Frame) -> None:
        """Nothing follows what waits but this frame."""
        self._last = last
        self._feed.detach(self)
        self.wake()

    # -- reading

    async def _next(self, limit: int) -> list[Frame]:
        while (past := self.past) is not None and not self.closed:
            if self._first:
                return self._pull(limit)
            ends = self._last is not None or self._over_now
            frames = [] if ends else await self._of_the_past(past, limit)
            if frames:
                return frames
            self.past = None
            if not ends and self._last is None:
                self._feed.join(self, past.behind)
        return await super()._next(limit)

    async def _of_the_past(self, past: PastEvents, limit: int) -> list[Frame]:
        try:
            return await past.frames(limit)
        except StoreUnavailableError as error:
            log.warning("a stream ends, since events cannot be read: %s", error)
            self.finish(closing("store_unavailable"))
            return []

    @property
    def has_samples(self) -> bool:
        """Whether samples wait."""
        return bool(self._samples)

    @property
    def position(self) -> str:
        """The id up to which everything was handed out: what to resume behind."""
        if self.past is not None:
            return self._feed.id_of(self.past.behind)
        if self.circle is not None and self.circle.first is not None:
            return self._feed.id_of(self.circle.first - 1)
        if self._lost:
            return self._feed.id_of(self._lost_from - 1)
        return self._feed.id_of(self._pending[0] - 1 if self._pending else self._feed.head_seq)

    def _pull(self, limit: int) -> list[Frame]:
        out = self._first[:limit]
        del self._first[:limit]
        self._pull_facts(out, limit)
        if self._pending or self._lost:
            return out
        self._room = self._capacity
        if self._due or (self._last is not None and self._samples):
            self._pull_samples(out, limit)
        if self._ticked and len(out) < limit:
            self._ticked = False
            out.append(self._feed.heart.frame(self.position))
        if self._last is not None and not self._samples and len(out) < limit:
            out.append(self._last)
            self._last = None
            self._over_now = True
        return out

    def _pull_facts(self, out: list[Frame], limit: int) -> None:
        feed, pending = self._feed, self._pending
        while pending and len(out) < limit:
            entry = feed.entry(pending[0])
            if entry is None:
                self._lose(pending.popleft())
            elif self._lost:
                out.append(self._told())
            elif self._samples and entry.event.type == "execution.finished":
                # Nothing of a run comes behind its end, so the last samples go before it.
                run = entry.event.execution_id
                keys = [key for key in self._samples if key[0] == run]
                out += [self._samples.pop(key).frame for key in keys[: limit - len(out)]]
                if len(out) < limit:
                    pending.popleft()
                    out.append(entry.frame)
            else:
                pending.popleft()
                out.append(entry.frame)
        if self._lost and not pending and len(out) < limit:
            out.append(self._told())

    def _pull_samples(self, out: list[Frame], limit: int) -> None:
        samples = self._samples
        out += [samples.pop(key).frame for key in list(samples)[: limit - len(out)]]
        if not samples:
            self._due = False
            self._flushed_at = self._feed.clock.now()

    def _over(self) -> bool:
        return self._over_now

    def _item(self, kept: Frame) -> Frame:
        return kept

    def _frame(self, kept: Frame) -> Frame:
        return kept

    def connect(self, outlet: Outlet) -> None:
        """Wait in the circle of those who want the same, from the next wait on."""
        self._outlet = outlet

    def _parked(self) -> None:
        self._pending = _NONE
        if self._outlet is not None:
            self._feed.meet(self, self._outlet, self._coalesce)

    def _resumed(self) -> None:
        self._feed.part(self)

    def _let_go(self) -> None:
        self._feed.forget(self)
        self._feed.heart.discard(self)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._pending = _NONE
        self._samples.clear()

    # -- losses and timers

    def _lose(self, seq: int) -> None:
        if not self._lost:
            self._lost_from = seq
        self._lost_to = seq
        self._lost += 1
        self.dropped += 1
        self._feed.lost_events.value += 1

    def _told(self) -> Frame:
        gap = Gap(self._lost_from, self._lost_to, self._lost, "slow-consumer")
        self._lost = 0
        return Frame.of("stream.gap", gap.as_dict(), id=self._feed.id_of(gap.stop))

    def _flush(self) -> None:
        self._flush_timer = None
        self._due = True
        self.wake()
