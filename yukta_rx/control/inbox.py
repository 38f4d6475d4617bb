"""Inbox: the events that wait for one supervisor, bounded, with what it lost.

The host hands every event to every inbox; an inbox keeps the newest 256 that are wanted. So one
that reads slowly, or not at all, costs its own events and nobody's time. Of samples only the newest
of each key waits.

Feature: CTL-07.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.events import SAMPLE_TYPES
from yukta_rx.observe.feed import CAPACITY, COALESCE_MS, Entry, sample_key
from yukta_rx.observe.frames import Frame, closing
from yukta_rx.observe.journal import Gap
from yukta_rx.observe.reader import Reader
from yukta_rx.observe.replay import PastEvents

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.observe.feed import EventFeed, SampleKey
    from yukta_rx.observe.filters import EventFilter

log = logging.getLogger(__name__)

MAX_SAMPLES: Final = 10_000
"""Samples of different keys that may wait."""


class Inbox(Reader[Entry]):
    """What waits for a supervisor. Facts come in order, each once, or their loss is counted.

    Args:
        feed: where the events are kept.
        filters: which events.
        wants: further says which, such as none of one's own commands.
        lost: told of each loss, with the event if it is still known, and how many.
        framed: for an event stream: begin with `stream.hello`, and say losses as `stream.gap`.
        capacity: events that may wait.

    Attributes:
        last: number of the newest fact that was handed out or was behind it from the begin.
    """

    def __init__(
        self,
        feed: EventFeed,
        filters: EventFilter,
        wants: Callable[[ExecutionEvent], bool],
        lost: Callable[[ExecutionEvent | None, int], None],
        *,
        framed: bool = False,
        capacity: int = CAPACITY,
    ) -> None:
        super().__init__()
        self.filters = filters
        self.last = feed.head_seq
        self._feed = feed
        self._wants = wants
        self._tell_lost = lost
        self._framed = framed
        self._capacity = self._room = capacity
        self._seen = feed.head_seq
        self._first: list[Frame] = []
        self._facts: deque[tuple[int | None, Entry]] = deque()
        self._samples: dict[SampleKey, Entry] = {}
        self._past: PastEvents | None = None
        """Where it reads what memory no longer holds, before it takes part."""
        self._gap: Gap | None = None
        self._end: Frame | None = None
        self._ended = False

    @property
    def takes_samples(self) -> bool:
        """Whether samples are wanted."""
        return self.filters.takes_samples

    def begin(self, after: str | None) -> None:
        """Begin an event stream, behind an event if one is named.

        Args:
            after: the id of an event; None begins with what happens from now on.
        """
        reason, behind = self._feed.place(after, stored=True)
        self._first += self._feed.greeting(
            self.filters, behind, coalesce_ms=COALESCE_MS, reset=reason
        )
        self._go_on(behind)

    def resume(self, behind: int) -> None:
        """Begin behind the event of this number; what is no longer kept is lost, and told."""
        self._go_on(self._missed(behind, self._feed.oldest_seq))

    def _missed(self, behind: int, oldest: int) -> int:
        """Tell that events behind a number are lost, if `oldest` is not the next one."""
        missing = oldest - 1 - behind
        if missing > 0:
            self._tell_lost(None, missing)
        return max(behind, oldest - 1)

    def _go_on(self, behind: int) -> None:
        stored = self._feed.log
        if stored is None or self._feed.holds(behind):
            self._catch_up(behind)
        else:
            self.last = behind
            self._past = PastEvents(self._feed, stored, self.filters, behind)

    def _catch_up(self, behind: int) -> None:
        feed = self._feed
        self.last = behind
        for seq in range(behind + 1, feed.head_seq + 1):
            entry = feed.entry(seq)
            if entry is not None and self._accepts(entry.event):
                self._facts.append((seq, entry))
        # What happened before it began is no sign of slowness.
        self._room = self._capacity + len(self._facts)
        self._seen = feed.head_seq

    # -- told by the host

    def offer(self, seq: int | None, entry: Entry) -> None:
        """Something happened; a sample has no number."""
        event = entry.event
        if seq is not None:
            if self._past is not None or seq <= self._seen:
                # It gets there by reading.
                return
            self._seen = seq
        if not self._accepts(event):
            return
        if event.type in SAMPLE_TYPES:
            self._samples[sample_key(event)] = entry
            if len(self._samples) > MAX_SAMPLES:
                self._tell_lost(self._samples.pop(next(iter(self._samples))).event, 1)
            self.wake()
            return
        self.tell(entry, seq)

    def tell(self, entry: Entry, seq: int | None = None) -> None:
        """Hand over an event whatever the filters are; without a number it is for this one only."""
        if len(self._facts) >= self._room and entry.event.type == "supervisor.dropped":
            # A note of losses pushes nothing out, or each would lead to the next.
            self._tell_lost(entry.event, 1)
            return
        self._facts.append((seq, entry))
        if len(self._facts) > self._room:
            number, dropped = self._facts.popleft()
            self._lose(number, dropped.event)
        self.wake()

    def skipped(self, start: int, stop: int, count: int) -> None:
        """The host itself missed events."""
        if self._past is not None:
            return
        self._seen = max(self._seen, stop)
        self._widen(start, stop, count)
        self._tell_lost(None, count)
        self.wake()

    def finish(self, reason: str) -> None:
        """Nothing follows what waits."""
        self._ended = True
        self._end = closing(reason) if self._framed else None
        self.wake()

    # -- reading

    async def _next(self, limit: int) -> list[Entry | Frame]:
        while (past := self._past) is not None and not self.closed:
            if self._first:
                out: list[Entry | Frame] = [*self._first[:limit]]
                del self._first[:limit]
                return out
            if self._ended:
                self._past = None
            elif found := await self._read(past, limit):
                return found
        return await super()._next(limit)

    async def _read(self, past: PastEvents, limit: int) -> list[Entry | Frame]:
        """What is wanted of the next events that are stored; behind the last one, take part."""
        out: list[Entry | Frame] = []
        try:
            found = await past.entries(limit)
        except StoreUnavailableError as error:
            log.warning("events for a supervisor cannot be read: %s", error)
            self._past = None
            if self._framed:
                self.finish("store_unavailable")
            else:
                self._catch_up(self._missed(past.behind, self._feed.oldest_held))
            return out
        for one in found:
            if isinstance(one, Gap):
                self._tell_lost(None, one.dropped)
                if self._framed:
                    gap = Frame.of("stream.gap", one.as_dict(), id=self._feed.id_of(one.stop))
                    out.append(gap)
            elif self._wants(one.event):
                out.append(one)
        self.last = past.behind
        if not found:
            self._past = None
            self._catch_up(past.behind)
        return out

    def _pull(self, limit: int) -> list[Entry | Frame]:
        out: list[Entry | Frame] = [*self._first[:limit]]
        del self._first[:limit]
        if self._gap is not None and self._framed and len(out) < limit:
            gap, self._gap = self._gap, None
            out.append(Frame.of("stream.gap", gap.as_dict(), id=self._feed.id_of(gap.stop)))
        while self._facts and len(out) < limit:
            self._pull_fact(out, limit)
        if self._facts:
            return out
        self._room = self._capacity
        keys = list(self._samples)[: max(0, limit - len(out))]
        out += [self._samples.pop(key) for key in keys]
        if self._end is not None and not self._samples and len(out) < limit:
            out.append(self._end)
            self._end = None
        return out

    def _pull_fact(self, out: list[Entry | Frame], limit: int) -> None:
        seq, entry = self._facts[0]
        if self._samples and entry.event.type == "execution.finished":
            # Nothing of a run comes behind its end, so the last samples go before it.
            run = entry.event.execution_id
            keys = [key for key in self._samples if key[0] == run][: limit - len(out)]
            out += [self._samples.pop(key) for key in keys]
            if len(out) >= limit:
                return
        self._facts.popleft()
        out.append(entry)
        if seq is not None:
            self.last = seq

    def _over(self) -> bool:
        return self._ended

    def _item(self, kept: Entry) -> Entry:
        return kept

    def _frame(self, kept: Entry | Frame) -> Frame:
        return kept if isinstance(kept, Frame) else kept.frame

    def _let_go(self) -> None:
        self._facts.clear()
        self._samples.clear()

    # -- inside

    def _accepts(self, event: ExecutionEvent) -> bool:
        return self.filters.matches(event) and self._wants(event)

    def _lose(self, seq: int | None, event: ExecutionEvent) -> None:
        if seq is not None:
            self._widen(seq, seq, 1)
            self.last = max(self.last, seq)
        self._tell_lost(event, 1)

    def _widen(self, start: int, stop: int, count: int) -> None:
        gap = self._gap
        first, lost = (start, 0) if gap is None else (gap.start, gap.dropped)
        self._gap = Gap(first, stop, lost + count, "slow-consumer")
