"""Heart: `stream.heartbeat` for all streams that want it, with one timer and one frame.

Those that wait in a circle get it in one write; the others with what they have to get besides.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.observe.frames import Frame

if TYPE_CHECKING:
    from yukta_rx.observe.circle import Circle
    from yukta_rx.observe.feed import EventFeed
    from yukta_rx.observe.subscription import FeedSubscription
    from yukta_rx.streams.clock import Timer

HEARTBEAT: Final = 5.0
"""Seconds between two `stream.heartbeat`."""


class Heart:
    """Beats while somebody wants it.

    Args:
        feed: whose streams these are.
    """

    __slots__ = ("_feed", "_members", "_timer")

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed
        self._members: set[FeedSubscription] = set()
        self._timer: Timer | None = None

    @property
    def beating(self) -> bool:
        """Whether anybody wants it."""
        return self._timer is not None

    def add(self, member: FeedSubscription) -> None:
        """A subscription wants heartbeats."""
        self._members.add(member)
        if self._timer is None:
            self._beat_later()

    def discard(self, member: FeedSubscription) -> None:
        """A subscription is closed."""
        self._members.discard(member)
        if not self._members and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat_later(self) -> None:
        clock = self._feed.clock
        self._timer = clock.call_at(clock.now() + HEARTBEAT, self._beat)

    def _beat(self) -> None:
        self._beat_later()
        circles: set[Circle] = set()
        for member in tuple(self._members):
            if member.circle is None:
                member.tick()
            else:
                # All of a circle want the same, this included.
                circles.add(member.circle)
        for circle in circles:
            circle.beat(self.frame(self._feed.last_id))

    def frame(self, place: str) -> Frame:
        """A heartbeat for who has everything up to a place."""
        return Frame.of("stream.heartbeat", {"headSeq": self._feed.head_seq}, id=place)
