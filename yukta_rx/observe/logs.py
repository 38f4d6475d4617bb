"""LogStore: the lines that plugins and the engine wrote in each run, by cursor.

What one node writes never pushes out the newest lines of another: where room has to be made, the
nodes that have most give up their oldest lines, and one line in their place says how many.

Feature: OBS-02.
"""

from __future__ import annotations

from datetime import datetime
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from yukta_rx.errors import BadRequestError
from yukta_rx.model.ids import check_id
from yukta_rx.model.times import rfc3339
from yukta_rx.observe.frames import Frame
from yukta_rx.observe.journal import HELD, Journal, JournalReader, Kept, Page
from yukta_rx.observe.ring import OVERHEAD
from yukta_rx.observe.sparse_ring import SparseRing
from yukta_rx.observe.stores import JournalStore
from yukta_rx.plugins.logs import STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from yukta_rx.config.settings import Settings
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.streams.clock import Clock

ALL_STREAMS = (*STREAMS, "engine")
"""Where a line can come from."""

_SPARE: Final = 4
"""Where room is made among all lines of a run, it is made for this part of them at once."""


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line of a run's log, without its cursor."""

    time: datetime
    node_id: str | None
    stream: str
    level: str
    line: str
    attempt: int | None
    dropped: int = 0
    """How many lines it stands for; 0 for one that was written."""

    @classmethod
    def of(cls, event: ExecutionEvent) -> Self:
        """Read a `node.log` event."""
        data = event.data
        return cls(
            event.time,
            event.node_id,
            data.get("stream", "engine"),
            data.get("level", "INFO"),
            data.get("line", ""),
            data.get("attempt"),
        )

    def as_dict(self, cursor: int) -> dict[str, Any]:
        """Return the JSON form of the line at a cursor."""
        shown: dict[str, Any] = {"cursor": str(cursor), "time": rfc3339(self.time)}
        if self.node_id is not None:
            shown["nodeId"] = self.node_id
        shown |= {"stream": self.stream, "level": self.level, "line": self.line}
        if self.attempt is not None:
            shown["attempt"] = self.attempt
        return shown


class LogFilter(msgspec.Struct, frozen=True):
    """Which lines a reader wants; None is all.

    Attributes:
        node_id: lines of this node.
        stream: `stdout`, `stderr` or `engine`.
        q: lines that hold this text, upper and lower case alike.
    """

    node_id: str | None = None
    stream: str | None = None
    q: str | None = None

    @classmethod
    def parse(
        cls, *, node_id: str | None = None, stream: str | None = None, q: str | None = None
    ) -> Self:
        """Read the filter as a client wrote it.

        Raises:
            BadRequestError: code `invalid_parameter`: no node id, or no stream.
        """
        if node_id is not None:
            check_id("nodeId", node_id)
        if stream is not None and stream not in ALL_STREAMS:
            detail = f"no log stream {stream!a}: one of {', '.join(ALL_STREAMS)}"
            raise BadRequestError(detail, code="invalid_parameter", parameter="stream")
        return cls(node_id, stream, q or None)

    def test(self) -> Callable[[LogLine], bool] | None:
        """Return what tells whether a line is wanted; None if all are."""
        node_id, stream = self.node_id, self.stream
        text = self.q.casefold() if self.q is not None else None
        if node_id is None and stream is None and text is None:
            return None
        # That lines of the node are missing is shown whatever they may have held.
        return lambda line: (
            (node_id is None or line.node_id == node_id)
            and (stream is None or line.stream == stream or line.dropped > 0)
            and (text is None or text in line.line.casefold() or line.dropped > 0)
        )


EVERYTHING = LogFilter()


class LogChannel(Journal[LogLine]):
    """The lines of one run, numbered from 1.

    Attributes:
        execution_id: the run.
        session_id: its session.
    """

    __slots__ = ("_lines", "_next", "_places", "_store", "execution_id", "session_id")

    def __init__(self, execution_id: str, session_id: str, store: LogStore, keep: int) -> None:
        self._places: SparseRing[Kept[LogLine]] = SparseRing()
        super().__init__(store.budget, keep, HELD, self._places)
        self.execution_id = execution_id
        self.session_id = session_id
        self._store = store
        self._lines: dict[str | None, int] = {}
        """How many lines of each node are kept."""
        self._next = 0
        """Not before this cursor is it worth looking for room among all lines again."""

    def append(self, event: ExecutionEvent) -> int:
        """Add the line of a `node.log` event; returns its cursor."""
        now = self._store.clock.now()
        self.expire(now - self._store.ttl)
        line = LogLine.of(event)
        self._lines[line.node_id] = self._lines.get(line.node_id, 0) + 1
        return self.add(line, now, OVERHEAD + len(line.line)).cursor

    def read(
        self, after: int | None = None, limit: int = 50, filters: LogFilter = EVERYTHING
    ) -> Page:
        """Return the lines behind a cursor in their JSON form; None is the beginning."""
        self._expire()
        return self.page(after, filters.test(), limit)

    def follow(
        self, after: int | None = None, filters: LogFilter = EVERYTHING
    ) -> JournalReader[LogLine]:
        """Read on from a cursor until the run ends; gives JSON forms and `Gap`.

        Its frames are named `node.log` and `stream.gap`.
        """
        self._expire()
        return JournalReader(self, after, filters.test())

    def show(self, kept: Kept[LogLine]) -> dict[str, Any]:
        """The line with its cursor."""
        return kept.item.as_dict(kept.cursor)

    def render(self, kept: Kept[LogLine]) -> Frame:
        """The line as JSON."""
        return Frame.of("node.log", self.show(kept), id=str(kept.cursor))

    def _expire(self) -> None:
        self.expire(self._store.clock.now() - self._store.ttl)

    @property
    def lost(self) -> int:
        """How many lines were here and are gone, from among those that are kept too."""
        return self._places.last - self._counted

    # -- making room

    def trim(self) -> None:
        """Let go what is beyond the bound, as far as every follower has read it.

        A node keeps its share of the bound, whatever the others write.
        """
        if self._counted <= self._keep:
            return
        self._make_room(self._keep, self._read() if self._readers else self._places.last)
        if self._counted > self._keep:
            self._make_room(max(self._keep, self._hold), self._places.last)

    def _make_room(self, limit: int, upto: int) -> None:
        places = self._places
        while self._counted > limit and places.first <= upto:
            lines = self._lines[places.oldest().item.node_id]
            if (lines - 1) * len(self._lines) < limit:
                break
            # Whoever wrote it has more than its share, so nothing has to be looked for.
            self._pop()
        if self._counted <= limit or places.first > upto or places.last < self._next:
            return
        spare = limit // _SPARE
        self._next = places.last + spare
        self._thin(lambda kept, _weight: int(kept.counted), limit - spare, upto)

    def halve(self) -> bool:
        """Let go half of the bytes, read or not, but never the newest line.

        Returns:
            False if nothing could go.
        """
        weight = self._places.weight
        self._thin(lambda _kept, weight: weight, weight // 2, self._places.last - 1)
        return self._places.weight < weight

    def clear(self) -> None:
        """Let go everything; readers come to their end."""
        self._lines.clear()
        super().clear()

    def _pop(self) -> None:
        places = self._places
        self._forget(places.oldest())
        super()._pop()
        # What was dropped before all that is kept is told as a gap.
        while len(places) and not places.oldest().counted:
            super()._pop()

    def _forget(self, kept: Kept[LogLine]) -> None:
        if not kept.counted:
            return
        node_id = kept.item.node_id
        left = self._lines[node_id] - 1
        if left:
            self._lines[node_id] = left
        else:
            del self._lines[node_id]

    def _thin(self, size: Callable[[Kept[LogLine], int], int], target: int, upto: int) -> None:
        """Let go the oldest lines of the nodes that have most, until `target` is left of all.

        Args:
            size: of a line of some weight.
            target: what all that is left may come to.
            upto: cursor of the last line that may go.
        """
        items = self._places.items()
        sizes: dict[str | None, int] = {}
        for kept, weight in items:
            node_id = kept.item.node_id
            sizes[node_id] = sizes.get(node_id, 0) + size(kept, weight)
        excess = sum(sizes.values()) - target
        level = _level(sizes.values(), target)
        over = {node_id: n - level for node_id, n in sizes.items() if n > level}
        left: list[tuple[Kept[LogLine], int]] = []
        gone: dict[str | None, tuple[int, Kept[LogLine]]] = {}
        for one in items:
            kept, weight = one
            node_id = kept.item.node_id
            if kept.cursor > upto or over.get(node_id, 0) <= 0 or excess <= 0:
                left.append(one)
                continue
            freed = size(kept, weight)
            over[node_id] -= freed
            excess -= freed
            gone[node_id] = (gone.get(node_id, (0, kept))[0] + (kept.item.dropped or 1), kept)
            self._counted -= kept.counted
            self._forget(kept)
        left += [_marker(n, kept) for n, kept in gone.values()]
        left.sort(key=lambda one: one[0].cursor)
        self._budget.used -= self._places.weight
        self._places.replace(list(dropwhile(lambda one: not one[0].counted, left)))
        self._budget.used += self._places.weight


def _level(sizes: Collection[int], target: int) -> int:
    """What each may have at most, so that all together have no more than `target`."""
    rest, level = target, 0
    for place, size in enumerate(ordered := sorted(sizes)):
        level = rest // (len(ordered) - place)
        if size > level:
            return level
        rest -= size
    return max(sizes, default=level)


def _marker(n: int, last: Kept[LogLine]) -> tuple[Kept[LogLine], int]:
    """What stands in the place of `n` lines of a node, of which `last` was the last."""
    lost = last.item
    text = f"{n} lines dropped here"
    line = LogLine(lost.time, lost.node_id, "engine", "WARNING", text, None, n)
    return Kept(last.cursor, line, last.at, counted=False), OVERHEAD + len(text)


class LogStore(JournalStore[LogChannel]):
    """The log lines of all runs.

    Args:
        settings: the settings in force.
        clock: tells the time.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        group = settings.logs.store
        self.ttl = group.retention.default_period_minutes * 60.0
        self._max_lines = group.max_lines
        super().__init__(
            clock,
            ttl=self.ttl,
            capacity=settings.tracker.max_executions,
            max_bytes=group.max_bytes,
            renew=False,
        )

    def channel(self, execution_id: str, session_id: str, parent: str | None = None) -> LogChannel:
        """Return the channel of a run, made if it is new; `parent` is who started it."""
        known = self.get(execution_id)
        if known is not None:
            return known
        made = LogChannel(execution_id, session_id, self, self._max_lines)
        return self.keep(execution_id, made, parent)

    def end(self, execution_id: str) -> None:
        """The run ended: its readers end, and its lines go in a while."""
        channel = self.get(execution_id)
        if channel is not None:
            channel.end()
            self.retire(execution_id)
