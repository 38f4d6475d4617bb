"""Circle: subscribers who want the same and have all of it so far get what is new in one write.

Waking a task for each of a thousand streams costs more than writing to them. So a stream that has
nothing to get waits in a circle: what is published in one turn of the loop is encoded once, and the
same bytes go to every member at its end. Samples are merged for all of them, too. Who cannot take
what is written leaves, and goes on by its own task.

Feature: OBS-01.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from yukta_rx.observe.feed import Entry, SampleKey
    from yukta_rx.observe.filters import EventFilter
    from yukta_rx.observe.frames import Frame
    from yukta_rx.observe.pace import Pace
    from yukta_rx.observe.subscription import FeedSubscription
    from yukta_rx.streams.clock import LoopClock, Timer

    Pack = Callable[[Sequence[Frame]], bytes]

MOST: Final = 64
"""Events that wait to be written; with more, they are written at once if it is time for that."""

MOST_WEIGHT: Final = 64 * 1024
"""The same for their weight in bytes."""

_AT_LAST: Final = 4
"""With so many times as much, they are written whatever the time."""


class Outlet(Protocol):
    """Where the frames of a stream go without its task.

    1. `pack` is the same function for all outlets that write the same bytes for the same frames.
    2. `take` never waits and never raises.
    3. `take` says False if it took nothing, as for a client that is behind or gone; else it took
       all, behind all that was written before.
    """

    @property
    def pack(self) -> Pack:
        """Makes the bytes of some frames."""

    def take(self, data: bytes) -> bool:
        """Write, if that can be done now."""


class CircleKey(NamedTuple):
    """What the members of a circle have in common.

    Attributes:
        filters: what they want.
        pack: makes the bytes of frames.
        coalesce: seconds between two deliveries of samples.
        heartbeat: whether they want heartbeats.
    """

    filters: EventFilter
    pack: Pack
    coalesce: float
    heartbeat: bool


class Circle:
    """The subscribers of one filter and one form that have everything that was published.

    A member that was alone before may get its first samples from here sooner than one interval
    after its own last ones.

    Args:
        pace: says when events are written.
        clock: tells when samples are due.
        key: what the members have in common.

    Attributes:
        key: the same.
        members: who they are, and where each gets its bytes.
        flushed_at: when samples were written last.
    """

    __slots__ = (
        "_clock",
        "_entries",
        "_full",
        "_pace",
        "_samples",
        "_timer",
        "_weight",
        "flushed_at",
        "key",
        "members",
    )

    def __init__(self, pace: Pace, clock: LoopClock, key: CircleKey) -> None:
        self.key = key
        self.members: dict[FeedSubscription, Outlet] = {}
        self.flushed_at = float("-inf")
        self._pace = pace
        self._clock = clock
        self._entries: list[tuple[int, Entry]] = []
        self._weight = 0
        self._full = False
        self._samples: dict[SampleKey, Entry] = {}
        self._timer: Timer | None = None

    @property
    def first(self) -> int | None:
        """Number of the oldest event that is not written yet."""
        return self._entries[0][0] if self._entries else None

    def join(self, member: FeedSubscription, outlet: Outlet) -> None:
        """Take in a subscriber that has everything."""
        # It has what the others wait for, too.
        self.flush()
        self.members[member] = outlet

    def leave(self, member: FeedSubscription) -> None:
        """Let a subscriber go; it has everything, or is told what it lacks."""
        self.flush()
        if member in self.members:
            self._dismiss(member)

    def close(self) -> None:
        """Nobody is here any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, seq: int, entry: Entry, weight: int) -> None:
        """A wanted event happened; it is written at the end of the turn, or when it is time."""
        self._entries.append((seq, entry))
        self._weight += weight
        if len(self._entries) < MOST and self._weight < MOST_WEIGHT:
            if len(self._entries) == 1:
                self._pace.due(self)
        elif not self._pace.resting or self._weight >= _AT_LAST * MOST_WEIGHT:
            self.flush()
        elif not self._full:
            self._full = True
            self._pace.full += 1

    def flush(self) -> None:
        """Write what waits to all members."""
        entries = self._entries
        if not entries:
            return
        self._entries, self._weight = [], 0
        if self._full:
            self._full = False
            self._pace.full -= 1
        began = perf_counter()
        data = self.key.pack([entry.frame for _, entry in entries])
        late = [member for member, outlet in self.members.items() if not outlet.take(data)]
        self._pace.spent(perf_counter() - began)
        for member in late:
            self._dismiss(member, [seq for seq, _ in entries])

    def beat(self, frame: Frame) -> None:
        """Write a heartbeat."""
        self.flush()
        data = self.key.pack([frame])
        for member, outlet in tuple(self.members.items()):
            if not outlet.take(data):
                self._dismiss(member)
                member.tick()

    def add_sample(self, key: SampleKey, entry: Entry) -> None:
        """A wanted sample was taken; it takes the place of the one before."""
        self._samples[key] = entry
        if self._timer is None:
            when = max(self._clock.now(), self.flushed_at + self.key.coalesce)
            self._timer = self._clock.call_at(when, self._samples_due)

    def flush_samples_of(self, execution_id: str) -> None:
        """Write the samples of a run, which ends."""
        self._write_samples([key for key in self._samples if key[0] == execution_id])

    def _samples_due(self) -> None:
        self._timer = None
        self.flushed_at = self._clock.now()
        self._write_samples(list(self._samples))

    def _write_samples(self, keys: list[SampleKey]) -> None:
        if not keys:
            return
        self.flush()
        began = perf_counter()
        left: list[FeedSubscription] = []
        for start in range(0, len(keys), MOST):
            some = [(key, self._samples.pop(key)) for key in keys[start : start + MOST]]
            data = self.key.pack([entry.frame for _, entry in some])
            for member, outlet in tuple(self.members.items()):
                if not outlet.take(data):
                    self._dismiss(member)
                    left.append(member)
                elif member.has_samples:
                    member.drop_samples(some)
            for member in left:
                self._hand_over(member, some)
        self._pace.spent(perf_counter() - began)

    def _dismiss(self, member: FeedSubscription, unwritten: Iterable[int] = ()) -> None:
        del self.members[member]
        member.let_go(self.flushed_at, unwritten)
        self._hand_over(member, self._samples.items())

    def _hand_over(
        self, member: FeedSubscription, samples: Iterable[tuple[SampleKey, Entry]]
    ) -> None:
        for key, entry in samples:
            member.offer_sample(key, entry)
