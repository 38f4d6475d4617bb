"""What is known of an execution log without its lines: which are kept, and where they are.

Feature: DUR-01.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import chain
from typing import TYPE_CHECKING, Final

from yukta_rx.durability.stores.execution_log import (
    StreamMark,
    entries_to_drop,
    streams_to_drop,
)
from yukta_rx.durability.stores.families import CrowdedOut
from yukta_rx.model.execution_log import (
    STREAMS,
    IdempotencyKey,
    RunAborted,
    RunFinished,
    RunResumed,
    RunStarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from yukta_rx.metrics import Meters

    Scope = tuple[str, str, str]
    Span = tuple[int, int]
    """Where a line begins, and a place behind it, at the most a few bytes."""
    ReadSpans = Callable[[Iterable[Span]], Iterator[bytes]]

_ENDS: Final = frozenset({RunFinished.TYPE, RunAborted.TYPE})


class Places:
    """Where lines are in the file, by their `seq`, which grows as the lines follow one another."""

    __slots__ = ("_end", "_seqs", "_starts")

    def __init__(self) -> None:
        self._seqs = array("q")
        self._starts = array("q")
        self._end = 0

    def __len__(self) -> int:
        return len(self._seqs)

    def __contains__(self, seq: int) -> bool:
        at = bisect_left(self._seqs, seq)
        return at < len(self._seqs) and self._seqs[at] == seq

    def add(self, seq: int, start: int, size: int) -> None:
        """A line behind all others."""
        self._seqs.append(seq)
        self._starts.append(start)
        # And what follows a line: at most a blank and a newline byte.
        self._end = start + size + 2

    def spans(self, seqs: Iterable[int]) -> Iterator[Span]:
        """Where lines are that are there, given in their order."""
        at = 0
        for seq in seqs:
            at = bisect_left(self._seqs, seq, at)
            behind = at + 1
            yield (
                self._starts[at],
                self._starts[behind] if behind < len(self._starts) else self._end,
            )

    def follow(self, other: Places, first: int, shift: int) -> None:
        """Add the lines of another one from the `first` on, each so many bytes further on."""
        if first < len(other):
            self._seqs.extend(other._seqs[first:])
            self._starts.extend(array("q", [start + shift for start in other._starts[first:]]))
            self._end = other._end + shift


class Stream:
    """The lines of one stream by their `seq`, and which of them say what it has come to."""

    __slots__ = ("end", "parent", "resumed", "seqs", "start")

    def __init__(self) -> None:
        self.seqs = array("q")
        self.start = 0
        """That of its start; 0 for none."""
        self.end = 0
        self.resumed = 0
        self.parent: str | None = None

    @property
    def unfinished(self) -> bool:
        """Whether it is a run that started and has no end."""
        return self.start > 0 and not self.end


class Copy:
    """A new file with the lines that are kept, made in a thread, and where they are in it.

    Args:
        index: what is kept, as it is now.
        size: bytes of the file now.
    """

    def __init__(self, index: LogIndex, size: int) -> None:
        self.size = size
        self.old = index.places
        self.count = len(self.old)
        self.places = Places()
        self.end = 0
        self._seqs = [array("q", kept.seqs) for kept in index.streams.values()]
        self._seqs.append(array("q", index.key_seqs.values()))

    def lines(self, read: ReadSpans) -> Iterator[bytes]:
        """The lines in their order; in the thread."""
        seqs = sorted(set(chain.from_iterable(self._seqs)))
        for seq, line in zip(seqs, read(self.old.spans(seqs)), strict=True):
            self.places.add(seq, self.end, len(line))
            self.end += len(line) + 1
            yield line


class LogIndex:
    """See the module.

    Args:
        retained: runs that are kept at least.
        compact_after: events after which older runs are dropped.
        children: runs that others started and that are kept beside those.
        meters: where children are counted that went for their number.
    """

    def __init__(
        self, retained: int, compact_after: int, children: int, meters: Meters | None
    ) -> None:
        self._retained = retained
        self._children = children
        self._compact_after = compact_after
        self._crowded_out = CrowdedOut("execution-log", meters)
        self._appended = 0
        self.places = Places()
        self.newest = 0
        """The place of the newest entry."""
        self.streams: dict[str, Stream] = {}
        self.keys: dict[Scope, IdempotencyKey] = {}
        self.key_seqs: dict[Scope, int] = {}
        """Of the newest line of each key."""
        self.dropped = False
        """Whether lines of the file are no longer needed."""
        self.apart: set[str] = set()
        """Runs whose start payload is kept apart."""
        self.gone: list[str] = []
        """Such runs that were dropped, and that the file still has."""

    @property
    def lines(self) -> int:
        """How many lines are kept, keys without their runs apart."""
        return sum(len(kept.seqs) for kept in self.streams.values())

    # -- what comes

    def put(self, seq: int, kind: str, name: str, start: int, size: int) -> Stream:
        """A line is in the file, of an event that is known by its type and stream."""
        self.newest = seq
        self.places.add(seq, start, size)
        kept = self.streams.get(name)
        if kept is None:
            kept = self.streams[name] = Stream()
        kept.seqs.append(seq)
        if kind == RunStarted.TYPE:
            kept.start = seq
        elif kind in _ENDS:
            kept.end = seq
        elif kind == RunResumed.TYPE:
            kept.resumed += 1
        return kept

    def remember(self, key: IdempotencyKey) -> None:
        """Keep a key, or let it go, as its newest line says, which was put last."""
        known = self.keys.get(key.scope)
        if key.time < key.expires_at:
            self.keys[key.scope], self.key_seqs[key.scope] = key, self.newest
        elif known is not None and known.execution_id == key.execution_id:
            del self.keys[key.scope], self.key_seqs[key.scope]

    def in_force(self, scope: Scope, at: datetime) -> IdempotencyKey | None:
        """The key that stands for a run at a time."""
        known = self.keys.get(scope)
        return known if known is not None and at < known.expires_at else None

    def moved(self, copy: Copy) -> None:
        """A new file is in the place of the old one; what came meanwhile is at its end."""
        copy.places.follow(copy.old, copy.count, copy.end - copy.size)
        self.places = copy.places

    # -- what goes

    def grown(self, by: int, now: datetime) -> None:
        """So many lines were put; drops what is too old, now and then."""
        self._appended += by
        if self._appended >= self._compact_after:
            self._appended = 0
            self._compact(now)

    def _compact(self, now: datetime) -> None:
        before = self.lines
        marks = (
            StreamMark(
                stream=name,
                last_seq=kept.seqs[-1],
                unfinished=kept.unfinished,
                parent=kept.parent,
            )
            for name, kept in self.streams.items()
        )
        gone = streams_to_drop(marks, self._retained, self._children)
        for name in gone.names:
            del self.streams[name]
        self._crowded_out.add(gone.crowded)
        for name in STREAMS & self.streams.keys():
            seqs = self.streams[name].seqs
            del seqs[: entries_to_drop(len(seqs), self._retained)]
        self.keys = {scope: key for scope, key in self.keys.items() if now < key.expires_at}
        self.key_seqs = {scope: self.key_seqs[scope] for scope in self.keys}
        without = self.apart.difference(self.streams)
        self.apart -= without
        self.gone += without
        self.dropped = self.dropped or self.lines < before

    def lose(self, name: str, seq: int) -> None:
        """A line cannot be read, and was set aside."""
        kept = self.streams.get(name)
        if kept is None or seq not in kept.seqs:
            return
        kept.seqs.remove(seq)
        kept.start = 0 if kept.start == seq else kept.start
        kept.end = 0 if kept.end == seq else kept.end
        self.dropped = True
        if not kept.seqs:
            del self.streams[name]

    # -- what is there

    def behind(self, name: str, after: int, limit: int) -> Sequence[int]:
        """The lines of a stream behind a place, at most so many."""
        kept = self.streams.get(name)
        if kept is None:
            return ()
        first = bisect_right(kept.seqs, after)
        return kept.seqs[first : first + limit]
