"""Event streams over HTTP: written in batches, watched for clients that stall, ended at shutdown.

A stream writes what its reader has, all at once, and reads on when the socket took it. So a slow
client costs one batch and what its reader bounds, whatever the pace of the runs. One that takes
nothing for the send timeout is cut off; it resumes by id.

Feature: OBS-01.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp_sse import EventSourceResponse

from yukta_rx.http.state import LOG
from yukta_rx.observe.frames import closing, retry_line

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.observe.reader import Reader

RETRY_MS: Final = 2000
"""Milliseconds after which a client should come back."""

_LAST_WORDS: Final = 1.0
"""Seconds that a client gets at shutdown to take the last frame."""


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """How patient streams are.

    Attributes:
        ping: seconds between two pings.
        send: seconds that a client may take nothing before it is cut off.
    """

    ping: float = 15.0
    send: float = 10.0


class EventStream(EventSourceResponse):
    """One stream; its watch cuts a stalled client off and tells when one has gone.

    A timer that looks now and then replaces a timeout around each write, which would cost more
    than the write.
    """

    def __init__(self, times: StreamTimes, reader: Reader[Any]) -> None:
        super().__init__(ping_interval=times.ping, send_timeout=times.send, sep="\n")
        self._times = times
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._busy_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.stalled = False

    @property
    def busy(self) -> bool:
        """Whether a write waits for the client."""
        return self._busy_since is not None

    async def push(self, data: bytes) -> None:
        """Write, and wait while the socket takes no more.

        Raises:
            ConnectionError: the client has gone, or was cut off.
        """
        self._busy_since = self._loop.time()
        await self.write(data)
        self._busy_since = None

    def watch(self) -> None:
        """Begin to look after the client, until `unwatch`."""
        self._timer = self._loop.call_later(self._times.send / 4, self._look)

    def unwatch(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()

    def cut(self) -> None:
        """Drop the connection without waiting for the client."""
        if self._req is not None and self._req.transport is not None:
            self._req.transport.abort()

    def _look(self) -> None:
        if not self.is_connected():
            # The ping found out. Where handlers are not cancelled, nobody else tells the reader.
            self._reader.close()
            return
        since = self._busy_since
        if since is not None and self._loop.time() - since >= self._times.send:
            self.stalled = True
            self.cut()
            return
        self.watch()


@dataclass(eq=False, slots=True)
class _Open:
    """A stream that is being written."""

    task: asyncio.Task[Any]
    stream: EventStream
    closing: str | None = None


class OpenStreams:
    """The streams of one app."""

    def __init__(self, times: StreamTimes) -> None:
        self._times = times
        self._open: set[_Open] = set()
        self._closing: str | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self, request: web.Request, reader: Reader[Any], *, named: bool, greet: bool
    ) -> web.StreamResponse:
        """Write what a reader reads to a client, until either ends; closes the reader.

        Args:
            request: the request.
            reader: where the frames come from.
            named: whether frames carry `event:`.
            greet: begin with the `retry:` line; the feed's readers do that themselves.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream is served by a task")
        with reader:
            stream = EventStream(self._times, reader)
            opened: _Open | None = None
            try:
                await stream.prepare(request)
                stream.watch()
                opened = _Open(task, stream, self._closing)
                self._open.add(opened)
                await _write(opened, reader, named=named, greet=greet)
            except ConnectionError:
                if stream.stalled:
                    LOG.info("an event stream was cut off: its client took nothing in time")
            finally:
                if opened is not None:
                    self._open.discard(opened)
                stream.unwatch()
                if stream.prepared:
                    stream.stop_streaming()
        return stream

    async def close(self, reason: str) -> None:
        """End every stream with `stream.closing`, and each one that is asked for later."""
        self._closing = reason
        left = list(self._open)
        for opened in left:
            opened.closing = reason
            # One that waits for its client looks when the client has taken what there is.
            if not opened.stream.busy:
                opened.task.cancel()
        if not left:
            return
        tasks = [opened.task for opened in left]
        await asyncio.wait(tasks, timeout=_LAST_WORDS)
        for opened in self._open.intersection(left):
            opened.stream.cut()
        await asyncio.wait(tasks, timeout=_LAST_WORDS)


async def _write(opened: _Open, reader: Reader[Any], *, named: bool, greet: bool) -> None:
    stream = opened.stream
    try:
        if greet and opened.closing is None:
            await stream.push(retry_line(RETRY_MS))
        while opened.closing is None and (frames := await reader.frames()):
            await stream.push(b"".join([frame.sse(named) for frame in frames]))
    except asyncio.CancelledError:
        # `close` cancels to end a wait for the next event; all else is the client's leaving.
        if opened.closing is None or opened.task.uncancel() > 0:
            raise
    if opened.closing is not None:
        await stream.push(closing(opened.closing).sse(named))
