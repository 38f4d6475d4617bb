"""PastEvents: what one subscriber of the feed wants of the events that memory no longer holds.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.observe.frames import Frame
from yukta_rx.observe.journal import Gap

if TYPE_CHECKING:
    from yukta_rx.observe.event_log import EventLog
    from yukta_rx.observe.feed import Entry, EventFeed
    from yukta_rx.observe.filters import EventFilter

PAGE: Final = 256
"""Events that are read from the store at a time."""


class PastEvents:
    """Reads on behind an event until memory has the next one.

    Args:
        feed: whose events they are.
        log: where they are stored.
        filters: which are wanted.
        behind: number of the event that the reader has.

    Attributes:
        behind: the number up to which all was looked at.
    """

    __slots__ = ("_feed", "_filters", "_log", "behind")

    def __init__(self, feed: EventFeed, log: EventLog, filters: EventFilter, behind: int) -> None:
        self._feed = feed
        self._log = log
        self._filters = filters
        self.behind = behind

    @property
    def over(self) -> bool:
        """Whether memory has all that follows."""
        return self._feed.holds(self.behind)

    async def entries(self, limit: int) -> list[Entry | Gap]:
        """What is wanted of the next events, and where some are missing; nothing once it is over.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """
        out: list[Entry | Gap] = []
        while not out and not self.over:
            before = self._feed.oldest_held
            found = await self._log.read(self.behind, PAGE)
            if not found:
                # They were removed just now, or never written.
                stop = max(self.behind, before - 1)
                out.append(Gap(self.behind + 1, stop, stop - self.behind))
                self.behind = stop
                break
            for seq, event in found:
                if len(out) >= limit:
                    break
                if seq > self.behind + 1:
                    out.append(Gap(self.behind + 1, seq - 1, seq - 1 - self.behind))
                    self.behind = seq - 1
                    if len(out) >= limit:
                        break
                self.behind = seq
                if self._filters.matches(event):
                    out.append(self._feed.entry_of(seq, event))
        return out

    async def frames(self, limit: int) -> list[Frame]:
        """The same as frames."""
        return [
            Frame.of("stream.gap", one.as_dict(), id=self._feed.id_of(one.stop))
            if isinstance(one, Gap)
            else one.frame
            for one in await self.entries(limit)
        ]
