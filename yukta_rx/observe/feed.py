"""EventFeed: every event once, numbered, kept in a ring, for any number of subscribers.

The ring holds the events; a subscriber holds numbers. So a thousand subscribers that never read
cost a thousand short lists of integers, and an event is encoded once, when the first one reads it.
Streams that have read everything wait in a circle of those that want the same, see `Circle`.

Facts are numbered and delivered in order, each once, or their loss is told. Samples
(`execution.progress`, `node.stats`, `edge.stats`) have no number: of each key only the newest is
delivered, at most once per `coalesce_ms`.

Feature: OBS-01.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from yukta_rx.errors import BadRequestError, CursorExpiredError
from yukta_rx.model.events import SAMPLE_TYPES, ExecutionEvent
from yukta_rx.model.weight import weigh
from yukta_rx.observe.circle import Circle, CircleKey
from yukta_rx.observe.event_ids import base36, parse_id
from yukta_rx.observe.filters import EventFilter
from yukta_rx.observe.frames import RETRY_MS, Frame, closing
from yukta_rx.observe.heart import Heart
from yukta_rx.observe.journal import Gap
from yukta_rx.observe.pace import Pace
from yukta_rx.observe.replay import PastEvents
from yukta_rx.observe.ring import OVERHEAD, Ring
from yukta_rx.observe.stream_cap import StreamCap
from yukta_rx.observe.subscription import FeedSubscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.config.settings import Settings
    from yukta_rx.metrics import Meters
    from yukta_rx.observe.circle import Outlet
    from yukta_rx.observe.event_log import EventLog
    from yukta_rx.streams.clock import LoopClock

CAPACITY: Final = 256
"""Events that a subscriber may leave unread before the oldest of them are dropped."""

COALESCE_MS: Final = 500
COALESCE_RANGE: Final = (100, 10_000)

WANTS_ALL: Final = EventFilter()

SampleKey = tuple[str, str, str]
"""(execution id, type, node id or edge)."""


class Entry(msgspec.Struct, gc=False, eq=False):
    """One event in the ring, or one sample; its frame is made when somebody reads it."""

    event: ExecutionEvent
    id: str | None
    _frame: Frame | None = None

    @property
    def frame(self) -> Frame:
        """The event as every reader gets it."""
        if self._frame is None:
            self._frame = Frame.of(self.event.type, self.form(), id=self.id)
        return self._frame

    def form(self) -> dict[str, Any]:
        """The event in its JSON form."""
        shown = self.event.as_dict()
        if self.event.type == "node.log":
            # The same line as in the log of the run.
            about = {name: shown[name] for name in ("time", "nodeId") if name in shown}
            shown["data"] = about | shown["data"]
        return shown if self.id is None else {"id": self.id} | shown


class FeedPage(NamedTuple):
    """Some events of the feed.

    Attributes:
        items: JSON forms, oldest first.
        next_cursor: where to read on.
        gap: without a cursor to begin at, what the ring no longer holds.
    """

    items: list[dict[str, Any]]
    next_cursor: str
    gap: Gap | None


class EventFeed:
    """The events of all runs. Belongs to the thread of the loop.

    Args:
        clock: tells the time.
        settings: the settings in force.
        meters: where losses are counted.
        epoch: names this life of the feed; the time in base 36 unless given.
        log: writes events to a durable store, where numbers go on over restarts; None for none.

    Attributes:
        epoch: first half of the ids of this life.
        cap: counts open streams; the server's other streams count here too.
        on_listen: called when a subscriber comes who takes samples.
        lost_events: counts the events that slow subscribers lost.
        lost_samples: counts the samples that went because too many waited.
    """

    def __init__(
        self,
        clock: LoopClock,
        settings: Settings,
        meters: Meters,
        *,
        epoch: str | None = None,
        log: EventLog | None = None,
    ) -> None:
        group = settings.streaming
        self.clock = clock
        if log is not None:
            epoch = log.epoch
        self.epoch = epoch if epoch is not None else base36(int(clock.wall().timestamp() * 1000))
        self.log = log
        self.cap = StreamCap(group.max_streams)
        self.lost_events = meters.counter("yukta.tracker.dropped", type="event", kind="sse")
        self.lost_samples = meters.counter("yukta.tracker.dropped", type="sample", kind="sse")
        meters.watch("yukta.streams.open", lambda: self.cap.open)
        self.on_listen: Callable[[], None] = lambda: None
        self.closed = False
        self._size = group.replay_events
        self._max_weight = int(group.replay_max_bytes)
        self._ring: Ring[Entry] = Ring()
        if log is not None:
            self._ring = Ring(log.newest - len(log.recent))
            for seq, event in log.recent:
                self._ring.append(self.entry_of(seq, event), OVERHEAD + weigh(event.data))
        self._subscriptions: set[FeedSubscription] = set()
        self._alone: set[FeedSubscription] = set()  # those in no circle
        self._circles: dict[CircleKey, Circle] = {}
        self.heart = Heart(self)
        self.pace = Pace(asyncio.get_running_loop())
        self._sampling: set[FeedSubscription] = set()
        self._newest: dict[str, dict[SampleKey, Entry]] = {}

    @property
    def head_seq(self) -> int:
        """Number of the newest event; 0 before the first."""
        return self._ring.last

    @property
    def oldest_seq(self) -> int:
        """Number of the oldest event that is kept; one more than `head_seq` if there is none."""
        first = self._ring.first
        return first if self.log is None else min(first, self.log.oldest)

    @property
    def oldest_held(self) -> int:
        """Number of the oldest event in memory; one more than `head_seq` if there is none."""
        return self._ring.first

    def holds(self, behind: int) -> bool:
        """Whether memory has all events behind a number."""
        return behind + 1 >= self._ring.first

    @property
    def last_id(self) -> str:
        """The place behind the newest event."""
        return self.id_of(self._ring.last)

    @property
    def listening(self) -> bool:
        """Whether anybody is subscribed."""
        return bool(self._subscriptions)

    @property
    def sampling(self) -> bool:
        """Whether any subscriber takes samples."""
        return bool(self._sampling)

    def id_of(self, seq: int) -> str:
        """Return the id of an event by its number."""
        return f"{self.epoch}:{seq}" if self.log is None else self.log.id_of(seq)

    def entry_of(self, seq: int, event: ExecutionEvent) -> Entry:
        """An event as readers get it."""
        return Entry(event, self.id_of(seq))

    def samples(self, execution_id: str, session_id: str, workflow_id: str) -> bool:
        """Whether any subscriber takes samples of a run."""
        return bool(self._sampling) and any(
            subscription.filters.matches_run(execution_id, session_id, workflow_id)
            for subscription in self._sampling
        )

    # -- writing

    def publish(self, event: ExecutionEvent, weight: int = 0) -> None:
        """Number an event, keep it, and have every subscriber look who wants it.

        A sample gets no number and is not kept, but for the newest of each key. `weight` is that
        of its data, 0 if nobody has weighed them yet.
        """
        if event.type in SAMPLE_TYPES:
            self._publish_sample(event)
            return
        ring = self._ring
        seq = ring.last + 1
        weight = OVERHEAD + (weight or weigh(event.data))
        entry = Entry(event, f"{self.epoch}:{seq}")  # what happens now is of this epoch
        ring.append(entry, weight)
        if self.log is not None:
            self.log.add(seq, event, weight)
        ring.trim(self._size, self._max_weight)
        if event.type == "execution.finished":
            self._newest.pop(event.execution_id, None)
            # The last samples of a run go before its end.
            for circle in tuple(self._circles.values()):
                circle.flush_samples_of(event.execution_id)
            for subscription in self._sampling:
                if subscription.has_samples:
                    self.part(subscription)
        for subscription in self._alone:
            if subscription.wants_all or subscription.filters.matches(event):
                subscription.offer(seq)
        # After those who are alone: who leaves a circle here was offered this event already.
        for circle in tuple(self._circles.values()):
            if circle.key.filters.matches(event):
                circle.add(seq, entry, weight)

    def _publish_sample(self, event: ExecutionEvent) -> None:
        entry = Entry(event, None)
        key = sample_key(event)
        self._newest.setdefault(event.execution_id, {})[key] = entry
        for subscription in self._alone:
            if subscription.wants_all or subscription.filters.matches(event):
                subscription.offer_sample(key, entry)
        for circle in self._circles.values():
            if circle.key.filters.matches(event):
                circle.add_sample(key, entry)

    # -- reading

    def greeting(
        self, filters: EventFilter, behind: int, *, coalesce_ms: int, reset: str | None = None
    ) -> list[Frame]:
        """The frames that every stream begins with.

        Args:
            filters: what it is of.
            behind: number of the event that it begins behind.
            coalesce_ms: how often samples are delivered at most.
            reset: why it cannot begin where its client wanted; None if it can.
        """
        hello = {
            "epoch": self.epoch,
            "headSeq": self.head_seq,
            "oldestSeq": self.oldest_seq,
            "leader": True,
            "filters": filters.as_dict(),
            "retryMs": RETRY_MS,
            "coalesceMs": coalesce_ms,
        }
        place = self.id_of(behind)
        # Before a reset the hello must not move the client's place: one that leaves between the two
        # would come back behind what it was never told that it had lost.
        own = place if reset is None else None
        frames = [Frame.of("stream.hello", hello, id=own, retry=RETRY_MS)]
        if reset is not None:
            lost = {"reason": reset, "oldestSeq": self.oldest_seq}
            frames.append(Frame.of("stream.reset", lost, id=place))
        return frames

    def subscribe(
        self,
        filters: EventFilter = WANTS_ALL,
        *,
        after: str | None = None,
        coalesce_ms: int = COALESCE_MS,
        capacity: int = CAPACITY,
        heartbeat: bool = False,
        stored: bool = True,
    ) -> FeedSubscription:
        """Begin to listen, from now on or behind an event that one has.

        The first frame is `stream.hello`. Then come the events behind `after`, or, if that place
        is not known any more, one `stream.reset`; then what happens, each event once and in
        order. Close it, or use it in a `with` statement.

        Args:
            filters: which events.
            after: the id of the last event that one has, as it was sent.
            coalesce_ms: how often samples are delivered at most, 100 to 10,000 ms.
            capacity: events that may wait unread before the oldest are dropped.
            heartbeat: whether to send `stream.heartbeat` now and then.
            stored: whether events that memory no longer holds come from a durable store.

        Raises:
            TooManyStreamsError: too many streams are open.
            BadRequestError: code `invalid_parameter`: `coalesce_ms` is out of its range.
        """
        low, high = COALESCE_RANGE
        if not low <= coalesce_ms <= high:
            raise BadRequestError(
                f"coalesceMs is {coalesce_ms}, not from {low} to {high}",
                code="invalid_parameter",
                parameter="coalesceMs",
            )
        self.cap.take()
        if filters.everything:
            filters = WANTS_ALL  # one object for all, where each client brings its own
        made = FeedSubscription(
            self, filters, coalesce_ms=coalesce_ms, capacity=capacity, heartbeat=heartbeat
        )
        reason, seq = self.place(after, stored=stored)
        made.begin(seq, reset=reason)
        if self.closed:
            made.finish(closing("shutting_down"))
            return made
        self._subscriptions.add(made)
        if self.log is None or self.holds(seq):
            self.join(made, seq)
        else:
            made.past = PastEvents(self, self.log, filters, seq)
        return made

    def join(self, made: FeedSubscription, behind: int) -> None:
        """A subscription that memory has everything for takes part from here on."""
        made.catch_up(self._wanted(made.filters, behind))
        self._alone.add(made)
        if made.filters.takes_samples:
            self._sampling.add(made)
            self._catch_up(made)
            self.on_listen()

    def read(self, filters: EventFilter, after: str | None, limit: int) -> FeedPage:
        """Return events behind a place, without waiting.

        Args:
            filters: which events.
            after: where a page before ended; None is the oldest event that is kept.
            limit: how many at most.

        Raises:
            BadRequestError: code `invalid_cursor`: that is no place in a feed.
            CursorExpiredError: the place is not known any more; `oldest` is the first that is.
        """
        seq, gap = self._begin(after, self._ring.first, stored=False)
        return self._held(filters, seq, limit, gap)

    async def page(self, filters: EventFilter, after: str | None, limit: int) -> FeedPage:
        """As `read`, and what memory no longer holds comes from where it is stored, if it is.

        Raises:
            BadRequestError: see `read`.
            CursorExpiredError: see `read`.
            StoreUnavailableError: the store gives no answer.
        """
        if self.log is None:
            return self.read(filters, after, limit)
        seq, gap = self._begin(after, self.oldest_seq, stored=True)
        past = PastEvents(self, self.log, filters, seq)
        items: list[dict[str, Any]] = []
        while len(items) < limit and not past.over:
            for one in await past.entries(limit - len(items)):
                if isinstance(one, Gap):
                    gap = (
                        one if gap is None else Gap(gap.start, one.stop, gap.dropped + one.dropped)
                    )
                else:
                    items.append(one.form())
        if len(items) >= limit:
            return FeedPage(items, self.id_of(past.behind), gap)
        rest = self._held(filters, past.behind, limit - len(items), gap)
        return rest._replace(items=items + rest.items)

    def _begin(self, after: str | None, oldest: int, *, stored: bool) -> tuple[int, Gap | None]:
        """The number to begin behind, and what is missing before the first event."""
        if after is None:
            return oldest - 1, Gap(1, oldest - 1, oldest - 1) if oldest > 1 else None
        if parse_id(after) is None:
            raise BadRequestError(f"no cursor of the feed: {after!a}", code="invalid_cursor")
        reason, seq = self.place(after, stored=stored)
        if reason is not None:
            begin = self.id_of(oldest - 1)
            detail = f"the feed no longer knows {after!a}; it begins behind {begin}"
            raise CursorExpiredError(detail, oldest=begin)
        return seq, None

    def _held(self, filters: EventFilter, seq: int, limit: int, gap: Gap | None) -> FeedPage:
        entries, seq = self._ring.find(seq, lambda entry: filters.matches(entry.event), limit)
        return FeedPage([entry.form() for entry in entries], self.id_of(seq), gap)

    def entry(self, seq: int) -> Entry | None:
        """Return an event by its number, None if the ring does not hold it."""
        return self._ring.get(seq)

    def newest(self, event: ExecutionEvent) -> ExecutionEvent | None:
        """Return the sample that this one would take the place of."""
        entry = self._newest.get(event.execution_id, {}).get(sample_key(event))
        return entry.event if entry is not None else None

    def meet(self, subscription: FeedSubscription, outlet: Outlet, coalesce: float) -> None:
        """A subscription that has everything waits for more with those that want the same."""
        key = CircleKey(subscription.filters, outlet.pack, coalesce, subscription.heartbeat)
        circle = self._circles.get(key)
        if circle is None:
            circle = Circle(self.pace, self.clock, key)
        circle.join(subscription, outlet)
        self._circles[key] = circle  # again, as the last of the others may just have left
        subscription.circle = circle
        self._alone.discard(subscription)

    def part(self, subscription: FeedSubscription) -> None:
        """A subscription goes on alone, from where those of its circle are."""
        circle = subscription.circle
        if circle is not None:
            circle.leave(subscription)

    def alone(self, subscription: FeedSubscription) -> None:
        """A subscription has left its circle."""
        circle, subscription.circle = subscription.circle, None
        self._alone.add(subscription)
        if circle is not None and not circle.members:
            self._circles.pop(circle.key, None)
            circle.close()

    def detach(self, subscription: FeedSubscription) -> None:
        """A subscription gets nothing more."""
        self.part(subscription)
        self._alone.discard(subscription)
        self._subscriptions.discard(subscription)
        self._sampling.discard(subscription)
        if not self._sampling:
            # Nobody takes new ones from here on, so these grow old.
            self._newest.clear()

    def forget(self, subscription: FeedSubscription) -> None:
        """A subscription is closed."""
        self.detach(subscription)
        self.cap.give()

    def close(self, reason: str) -> None:
        """End every subscription: what waits for it, `stream.closing`, the end."""
        self.closed = True
        last = closing(reason)
        for subscription in tuple(self._subscriptions):
            subscription.finish(last)

    def place(self, after: str | None, *, stored: bool = False) -> tuple[str | None, int]:
        """Where to begin: why it cannot be behind `after`, and the number to begin behind.

        Args:
            after: an id; None is what happens from now on.
            stored: whether it is enough that the event is stored; else memory must have the next.
        """
        head = self._ring.last
        if after is None:
            return None, head
        place = parse_id(after)
        if place is None:
            return "epoch", head
        reason = None
        if self.log is not None:
            reason = self.log.unknown(place, head)
        elif place.epoch != self.epoch or place.seq > head:
            reason = "epoch"
        if reason is None and not self.holds(place.seq) and (self.log is None or not stored):
            reason = "evicted"
        return reason, head if reason is not None else place.seq

    def _wanted(self, filters: EventFilter, after: int) -> list[int]:
        ring = self._ring
        if filters.everything:
            return list(range(after + 1, ring.last + 1))
        return [
            seq
            for seq in range(after + 1, ring.last + 1)
            if (entry := ring.get(seq)) is not None and filters.matches(entry.event)
        ]

    def _catch_up(self, made: FeedSubscription) -> None:
        """Give a newcomer the samples that others have already and that are still true."""
        for newest in self._newest.values():
            for key, entry in newest.items():
                if made.filters.matches(entry.event):
                    made.offer_sample(key, entry)


def sample_key(event: ExecutionEvent) -> SampleKey:
    """What a sample is the newest of."""
    what = event.node_id or ""
    if event.type == "edge.stats":
        data = event.data
        what = f"{data.get('source')} {data.get('target')} {data.get('sourcePort', '')}"
    return event.execution_id, event.type, what
