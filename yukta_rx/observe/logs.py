"""LogStore: the lines that plugins and the engine wrote in each run, by cursor.

Feature: OBS-02.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec

from yukta_rx.errors import BadRequestError
from yukta_rx.model.ids import check_id
from yukta_rx.model.times import rfc3339
from yukta_rx.observe.frames import Frame
from yukta_rx.observe.journal import HELD, Journal, JournalReader, Kept, Page
from yukta_rx.observe.ring import OVERHEAD
from yukta_rx.observe.stores import JournalStore
from yukta_rx.plugins.logs import STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.config.settings import Settings
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.streams.clock import Clock

ALL_STREAMS = (*STREAMS, "engine")
"""Where a line can come from."""


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line of a run's log, without its cursor."""

    time: datetime
    node_id: str | None
    stream: str
    level: str
    line: str
    attempt: int | None

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
        return lambda line: (
            (node_id is None or line.node_id == node_id)
            and (stream is None or line.stream == stream)
            and (text is None or text in line.line.casefold())
        )


EVERYTHING = LogFilter()


class LogChannel(Journal[LogLine]):
    """The lines of one run, numbered from 1.

    Attributes:
        execution_id: the run.
        session_id: its session.
    """

    __slots__ = ("_store", "execution_id", "session_id")

    def __init__(self, execution_id: str, session_id: str, store: LogStore, keep: int) -> None:
        super().__init__(store.budget, keep, HELD)
        self.execution_id = execution_id
        self.session_id = session_id
        self._store = store

    def append(self, event: ExecutionEvent) -> int:
        """Add the line of a `node.log` event; returns its cursor."""
        now = self._store.clock.now()
        self.expire(now - self._store.ttl)
        line = LogLine.of(event)
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

    def channel(self, execution_id: str, session_id: str) -> LogChannel:
        """Return the channel of a run, made if it is new."""
        known = self.get(execution_id)
        if known is not None:
            return known
        return self.keep(execution_id, LogChannel(execution_id, session_id, self, self._max_lines))

    def end(self, execution_id: str) -> None:
        """The run ended: its readers end, and its lines go in a while."""
        channel = self.get(execution_id)
        if channel is not None:
            channel.end()
            self.retire(execution_id)
