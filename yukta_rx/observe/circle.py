"""Circle: subscribers who want the same and have all of it so far get what is new in one write.

Waking a task for each of a thousand streams costs more than writing to them. So a stream that has
nothing to get waits in a circle: what is published in one turn of the loop is encoded once, and the
same bytes go to every member at its end. Who cannot take them leaves, and goes on by its own task.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from yukta_rx.observe.feed import Entry
    from yukta_rx.observe.filters import EventFilter
    from yukta_rx.observe.frames import Frame
    from yukta_rx.observe.subscription import FeedSubscription

    Pack = Callable[[Sequence[Frame]], bytes]

MOST: Final = 64
"""Events that wait for the end of the turn; with more, they are written at once."""

MOST_WEIGHT: Final = 64 * 1024
"""The same for their weight in bytes."""


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


class Circle:
    """The subscribers of one filter and one form that have everything that was published.

    Args:
        loop: whose turns count.
        filters: what they want.
        pack: makes the bytes of frames.

    Attributes:
        filters: what they want.
        members: who they are, and where each gets its bytes.
        pack: makes the bytes of frames.
    """

    __slots__ = ("_due", "_entries", "_loop", "_weight", "filters", "members", "pack")

    def __init__(self, loop: asyncio.AbstractEventLoop, filters: EventFilter, pack: Pack) -> None:
        self.filters = filters
        self.members: dict[FeedSubscription, Outlet] = {}
        self._loop = loop
        self.pack = pack
        self._entries: list[tuple[int, Entry]] = []
        self._weight = 0
        self._due = False

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
        """Let a subscriber go; it has everything, or was told by `fell_behind` what it lacks."""
        self.flush()
        self.members.pop(member, None)

    def add(self, seq: int, entry: Entry, weight: int) -> None:
        """A wanted event happened; it is written at the end of the turn."""
        self._entries.append((seq, entry))
        self._weight += weight
        if len(self._entries) >= MOST or self._weight >= MOST_WEIGHT:
            self.flush()
        elif not self._due:
            self._due = True
            self._loop.call_soon(self._turn_ends)

    def flush(self) -> None:
        """Write what waits to all members."""
        entries = self._entries
        if not entries:
            return
        self._entries, self._weight = [], 0
        data = self.pack([entry.frame for _, entry in entries])
        late = [member for member, outlet in self.members.items() if not outlet.take(data)]
        for member in late:
            del self.members[member]
            member.fell_behind([seq for seq, _ in entries])

    def _turn_ends(self) -> None:
        self._due = False
        self.flush()
