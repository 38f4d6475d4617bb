"""Event streams over HTTP: written in batches, watched for clients that stall, ended at shutdown.

A stream writes what its reader has, all at once, and reads on when the socket took it. So a slow
client costs one batch and what its reader bounds, whatever the pace of the runs. One that takes
nothing for the send timeout is cut off; it resumes by id. One that has everything is written to
without its task, see `yukta_rx.observe.circle`.

Feature: OBS-01.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp_sse import EventSourceResponse

from yukta_rx.http.state import LOG
from yukta_rx.observe.frames import PING, closing, retry_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp.abc import AbstractStreamWriter

    from yukta_rx.observe.frames import Frame
    from yukta_rx.observe.reader import Reader

RETRY_MS: Final = 2000
"""Milliseconds after which a client should come back."""

BEHIND: Final = 64 * 1024
"""Bytes not yet taken by the kernel with which a client is behind: where asyncio stops a writer."""

_LAST_WORDS: Final = 1.0
"""Seconds that a client gets at shutdown to take the last frame."""


def _named(frames: Sequence[Frame]) -> bytes:
    return b"".join([frame.sse() for frame in frames])


def _plain(frames: Sequence[Frame]) -> bytes:
    return b"".join([frame.sse(False) for frame in frames])


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _named_chunk(frames: Sequence[Frame]) -> bytes:
    return _chunk(_named(frames))


def _plain_chunk(frames: Sequence[Frame]) -> bytes:
    return _chunk(_plain(frames))


_JOIN: Final = {True: _named, False: _plain}
_PACK: Final = {
    (True, True): _named_chunk,
    (False, True): _plain_chunk,
    # A client of HTTP/1.0 knows no chunks; its stream ends with the connection.
    (True, False): _named,
    (False, False): _plain,
}
_PING_CHUNK: Final = _chunk(PING)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """How patient streams are.

    Attributes:
        ping: seconds between two pings.
        send: seconds that a client may take nothing before it is cut off.
    """

    ping: float = 15.0
    send: float = 10.0

    @property
    def look(self) -> float:
        """Seconds between two looks at all streams."""
        return min(self.ping / 2, self.send / 4)


class EventStream(EventSourceResponse):
    """One stream; `look` pings its client, cuts a stalled one off and tells when one has gone.

    All streams are looked at now and then by one timer: a task for pings and a timeout around each
    write would cost more than the writes.

    Args:
        times: how patient it is.
        reader: where its frames come from.
        named: whether frames carry `event:`.
    """

    def __init__(self, times: StreamTimes, reader: Reader[Any], *, named: bool) -> None:
        super().__init__(ping_interval=times.ping, send_timeout=times.send, sep="\n")
        self._times = times
        self._reader = reader
        self._named = named
        self._busy_since: float | None = None
        self._ping_at = asyncio.get_running_loop().time() + times.ping
        self._transport: asyncio.WriteTransport | None = None
        self._ping_bytes = PING
        self.pack: Callable[[Sequence[Frame]], bytes] = _JOIN[named]
        self.stalled = False

    @property
    def busy(self) -> bool:
        """Whether a write waits for the client."""
        return self._busy_since is not None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the headers; unlike its base, it starts no task."""
        if self.prepared:
            return self._payload_writer
        self._set_tcp_user_timeout(request)
        writer = await web.StreamResponse.prepare(self, request)
        if request.version >= (1, 1):
            self.pack = _PACK[self._named, True]
            self._ping_bytes = _PING_CHUNK
        self._transport = request.transport
        return writer

    def is_connected(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None and not self._transport.is_closing()

    async def push(self, data: bytes) -> None:
        """Write, and wait while the socket takes no more.

        Raises:
            ConnectionError: the client has gone, or was cut off.
        """
        self._busy_since = asyncio.get_running_loop().time()
        await self.write(data)
        if self._payload_writer is not None:
            # The writer itself waits only now and then, and knows nothing of what `take` wrote.
            await self._payload_writer.drain()
        self._busy_since = None

    async def push_frames(self, frames: Sequence[Frame]) -> None:
        """Write frames; see `push`."""
        await self.push(_JOIN[self._named](frames))

    def take(self, data: bytes) -> bool:
        """Write what `pack` made if the client is not behind; says whether it did."""
        transport = self._transport
        if (
            transport is None
            or transport.is_closing()
            or transport.get_write_buffer_size() > BEHIND
        ):
            return False
        transport.write(data)
        return True

    def cut(self) -> None:
        """Drop the connection without waiting for the client."""
        if self._transport is not None:
            self._transport.abort()

    def look(self, now: float) -> None:
        """See how the client is at a time of the loop."""
        if not self.is_connected():
            # Where handlers are not cancelled, nobody else tells the reader.
            self._reader.close()
        elif self._busy_since is not None:
            if now - self._busy_since >= self._times.send:
                self.stalled = True
                self.cut()
        elif now + self._times.look / 2 >= self._ping_at:
            self._ping_at = now + self._times.ping
            self.take(self._ping_bytes)


@dataclass(eq=False, slots=True)
class _Open:
    """A stream that is being written."""

    task: asyncio.Task[Any]
    stream: EventStream
    last: Frame | None = None
    """What it ends with, once it is to end."""


class OpenStreams:
    """The streams of one app."""

    def __init__(self, times: StreamTimes) -> None:
        self._times = times
        self._open: set[_Open] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: Frame | None = None

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
            stream = EventStream(self._times, reader, named=named)
            opened: _Open | None = None
            try:
                await stream.prepare(request)
                reader.connect(stream)
                opened = _Open(task, stream, self._closing)
                self._open.add(opened)
                self._look_later()
                await _write(opened, reader, greet=greet)
            except ConnectionError:
                if stream.stalled:
                    LOG.info("an event stream was cut off: its client took nothing in time")
            finally:
                if opened is not None:
                    self._open.discard(opened)
        return stream

    async def close(self, reason: str) -> None:
        """End every stream with `stream.closing`, and each one that is asked for later."""
        self._closing = closing(reason)
        left = self.end(self._closing)
        if not left:
            return
        tasks = [opened.task for opened in left]
        await asyncio.wait(tasks, timeout=_LAST_WORDS)
        for opened in self._open.intersection(left):
            opened.stream.cut()
        await asyncio.wait(tasks, timeout=_LAST_WORDS)

    def end(self, last: Frame) -> list[_Open]:
        """Have every stream that is open end with a frame; returns them."""
        left = list(self._open)
        for opened in left:
            opened.last = last
            # One that waits for its client looks when the client has taken what there is.
            if not opened.stream.busy:
                opened.task.cancel()
        return left

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._times.look, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for opened in tuple(self._open):
            opened.stream.look(now)
        if self._open:
            self._look_later()


async def _write(opened: _Open, reader: Reader[Any], *, greet: bool) -> None:
    stream = opened.stream
    try:
        if greet and opened.last is None:
            await stream.push(retry_line(RETRY_MS))
        while opened.last is None and (frames := await reader.frames()):
            await stream.push_frames(frames)
            del frames  # or the first ones would be kept as long as nothing follows
    except asyncio.CancelledError:
        # `close` cancels to end a wait for the next event; all else is the client's leaving.
        if opened.last is None or opened.task.uncancel() > 0:
            raise
    if opened.last is not None:
        await stream.push_frames([opened.last])
