"""Journal: what one run has said so far, read by cursor by any number of readers.

Readers pull from the one buffer and have no queues of their own: one that is slow falls behind
there, holds nobody up, and is told what retention took. What is not read yet is kept beyond the
usual bound while somebody follows, so that who keeps up on the whole misses nothing.

Features: OBS-02, OBS-03.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar
from weakref import ref

import msgspec

from yukta_rx.observe.frames import Frame
from yukta_rx.observe.reader import Reader
from yukta_rx.observe.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

HELD: Final = 65_536
"""Results or lines kept for followers who have not read them; the bound of bytes holds too."""


_NOBODY: Final[list[Any]] = []
"""Who follows a journal that nobody has followed yet, as most."""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Where items are missing that were there once.

    Attributes:
        start: number of the first that is missing.
        stop: number of the last.
        dropped: how many are, of those that the reader wants as far as that is known.
        reason: `retention`: no longer kept; `slow-consumer`: not read in time.
    """

    start: int
    stop: int
    dropped: int
    reason: str = "retention"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "from": self.start,
            "to": self.stop,
            "dropped": self.dropped,
            "reason": self.reason,
        }


class Page(NamedTuple):
    """Some items of a journal.

    Attributes:
        items: oldest first.
        next_cursor: where to read on; None once nothing can follow any more.
        gap: what is no longer kept before the first of the items.
    """

    items: list[Any]
    next_cursor: int | None
    gap: Gap | None


class Kept(msgspec.Struct, Generic[T], gc=False, eq=False):
    """One item with its place, and its frame once somebody wanted it."""

    cursor: int
    item: T
    at: float
    counted: bool
    frame: Frame | None = None


class Budget:
    """Bytes that all journals of a store may hold together; `relieve` frees some when spent."""

    __slots__ = ("limit", "relieve", "used")

    def __init__(self, limit: int, relieve: Callable[[], None]) -> None:
        self.limit = limit
        self.relieve = relieve
        self.used = 0


class Journal(ABC, Generic[T]):
    """The items of one run, numbered from 1.

    Args:
        budget: shared with the other journals of the store.
        keep: counted items kept for who comes late.
        hold: counted items kept for followers who have not read them yet.
        ring: where they are kept; a ring of its own if None.
    """

    __slots__ = ("_budget", "_counted", "_hold", "_keep", "_readers", "_ring", "ended")

    def __init__(
        self, budget: Budget, keep: int, hold: int, ring: Ring[Kept[T]] | None = None
    ) -> None:
        self._budget = budget
        self._ring: Ring[Kept[T]] = Ring() if ring is None else ring
        self._counted = 0
        # Weak, since a reader that was only forgotten must not keep anything.
        self._readers: list[ref[JournalReader[T]]] = _NOBODY
        self._keep = keep
        self._hold = hold
        self.ended = False

    @property
    def last(self) -> int:
        """Cursor of the newest item, 0 if there was none yet."""
        return self._ring.last

    @property
    def weight(self) -> int:
        """Bytes that the items occupy, roughly."""
        return self._ring.weight

    @property
    def trimmed(self) -> bool:
        """Whether the oldest items are gone."""
        return self._ring.first > 1

    @property
    def lost(self) -> int:
        """How many items were here and are gone."""
        return self._ring.first - 1

    @property
    def in_use(self) -> bool:
        """Whether somebody follows."""
        return bool(self._readers)

    @abstractmethod
    def show(self, kept: Kept[T]) -> Any:
        """Return an item in the form that readers get."""

    @abstractmethod
    def render(self, kept: Kept[T]) -> Frame:
        """Make the frame of an item."""

    # -- writing

    def add(self, item: T, at: float, weight: int, *, counted: bool = True) -> Kept[T]:
        """Add an item that happened at `at`; `counted` if `keep` is about it."""
        kept = Kept(self._ring.last + 1, item, at, counted)
        self._ring.append(kept, weight)
        self._counted += counted
        self._budget.used += weight
        if self._counted > self._keep:
            self.trim()
        if self._budget.used > self._budget.limit:
            self._budget.relieve()
        if self._readers:
            self._wake()
        return kept

    def end(self) -> None:
        """Nothing follows: readers end once they have read what is there."""
        self.ended = True
        if self._readers:
            self._wake()

    def trim(self) -> None:
        """Let go what is beyond the bound, as far as every follower has read it."""
        ring = self._ring
        if self._counted <= self._keep:
            return
        read = self._read()
        first = ring.first
        while self._counted > self._keep and (ring.first <= read or self._counted > self._hold):
            self._pop()
        if ring.first > first:
            self.lost_some()

    def halve(self) -> bool:
        """Let go the older half of the bytes, read or not, but never the newest item.

        Returns:
            False if nothing could go.
        """
        first = self._ring.first
        target = self._ring.weight // 2
        while self._ring.weight > target and len(self._ring) > 1:
            self._pop()
        if self._ring.first > first:
            self.lost_some()
        return self._ring.first > first

    def expire(self, before: float) -> None:
        """Let go what happened before a time of the clock."""
        first = self._ring.first
        while self._ring and self._ring.oldest().at < before:
            self._pop()
        if self._ring.first > first:
            self.lost_some()

    def clear(self) -> None:
        """Let go everything; readers come to their end."""
        self._budget.used -= self._ring.weight
        self._counted = 0
        self._ring.clear()
        self.end()

    def lost_some(self) -> None:
        """The oldest items have just gone; here for who wants to know."""

    def _pop(self) -> None:
        kept, weight = self._ring.pop()
        self._counted -= kept.counted
        self._budget.used -= weight

    # -- reading

    def find(
        self, after: int | None, wanted: Callable[[T], bool] | None, limit: int
    ) -> tuple[Gap | None, list[Kept[T]], int]:
        """Look behind a cursor; None is the beginning.

        Returns:
            What is missing there, the items, and the cursor up to which all were looked at.
        """
        ring = self._ring
        cursor = min(after or 0, ring.last)
        gap = None
        if cursor + 1 < ring.first:
            gap = Gap(cursor + 1, ring.first - 1, ring.first - 1 - cursor)
        if wanted is None:
            items = ring.after(cursor, limit)
            return gap, items, items[-1].cursor if items else max(cursor, ring.first - 1)
        items, cursor = ring.find(cursor, lambda kept: wanted(kept.item), limit)
        return gap, items, cursor

    def page(self, after: int | None, wanted: Callable[[T], bool] | None, limit: int) -> Page:
        """Return the items behind a cursor, at most `limit`."""
        gap, items, cursor = self.find(after, wanted, limit)
        over = self.ended and cursor >= self._ring.last
        return Page([self.show(kept) for kept in items], None if over else cursor, gap)

    def joined(self, reader: JournalReader[T]) -> None:
        """Keep for this reader what it has not read."""
        if self._readers is _NOBODY:
            self._readers = []
        self._readers.append(ref(reader, self._readers.remove))

    def left(self, reader: JournalReader[T]) -> None:
        """Keep nothing for this reader any more."""
        self._readers[:] = [one for one in self._readers if one() is not reader]
        self.trim()

    def _read(self) -> int:
        """The cursor up to which every follower has read."""
        return min((reader.cursor for reader in self._followers()), default=self._ring.last)

    def _followers(self) -> Iterator[JournalReader[T]]:
        for one in self._readers:
            reader = one()
            if reader is not None:
                yield reader

    def _wake(self) -> None:
        for reader in self._followers():
            reader.wake()


class JournalReader(Reader[Any], Generic[T]):
    """Follows a journal from a cursor to its end; gives items and, where some are missing, `Gap`.

    Attributes:
        cursor: everything up to here was read.
    """

    __slots__ = ("_journal", "_wanted", "cursor")

    _tells_gaps: ClassVar[bool] = True

    def __init__(
        self,
        journal: Journal[T],
        after: int | None = None,
        wanted: Callable[[T], bool] | None = None,
    ) -> None:
        super().__init__()
        self._journal = journal
        self._wanted = wanted
        self.cursor = max(0, min(after or 0, journal.last))
        journal.joined(self)

    def _pull(self, limit: int) -> list[Kept[T] | Gap]:
        gap, items, cursor = self._journal.find(self.cursor, self._wanted, limit)
        if not self._tells_gaps:
            gap = None
        if gap is not None and len(items) >= limit:
            # What is missing is an item itself; one who asked for one would lose the other.
            self.cursor = gap.stop
            return [gap]
        self.cursor = cursor
        return [*items] if gap is None else [gap, *items]

    def _over(self) -> bool:
        return self._journal.ended and self.cursor >= self._journal.last

    def _item(self, kept: Kept[T] | Gap) -> Any:
        return kept if isinstance(kept, Gap) else self._journal.show(kept)

    def _frame(self, kept: Kept[T] | Gap) -> Frame:
        if isinstance(kept, Gap):
            return Frame.of("stream.gap", kept.as_dict(), id=str(kept.stop))
        if kept.frame is None:
            kept.frame = self._journal.render(kept)
        return kept.frame

    def _let_go(self) -> None:
        self._journal.left(self)
