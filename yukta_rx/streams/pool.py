"""The threads that blocking calls run in, and the way back to the loop. Feature: ENG-01."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from yukta_rx.streams.faults import as_error
from yukta_rx.streams.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class BlockingPool:
    """A bounded pool of daemon threads for blocking calls.

    Daemon threads, unlike those of `concurrent.futures`, cannot keep a process from exiting when
    a call hangs. Threads are made as they are needed and end when the pool is closed; a call that
    never returns keeps its thread, and `abandon` makes room for another in its place.
    """

    __slots__ = ("_backlog", "_closed", "_idle", "_jobs", "_lock", "_size", "_started")

    def __init__(self, size: int = 16) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least 1 thread, not {size}")
        self._size = size
        self._started = 0
        self._closed = False
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A job is promised a thread when it is submitted, an idle or a new one, or it is in the
        # backlog. Counting threads that wait in `get` would race with those just leaving it.
        self._idle = 0
        self._backlog = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job`, which reports its own errors, in a thread as soon as one is free."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._jobs.put(job)
            if self._idle:
                self._idle -= 1
            elif self._started < self._size:
                self._start()
            else:
                self._backlog += 1

    def abandon(self) -> None:
        """A call may not come back: let another thread take its place."""
        with self._lock:
            self._size += 1
            if self._backlog and not self._closed:
                self._backlog -= 1
                self._start()

    def reclaim(self) -> None:
        """A call that was abandoned came back after all: one thread less is needed again."""
        with self._lock:
            self._size -= 1

    def close(self) -> None:
        """Let the threads end once the jobs at hand are done; does not wait."""
        with self._lock:
            self._closed = True
            for _ in range(self._started):
                self._jobs.put(None)

    def _start(self) -> None:
        self._started += 1
        threading.Thread(target=self._serve, name="yukta-blocking", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            # An idle thread must not keep alive what its last job was about.
            del job
            with self._lock:
                if self._backlog:
                    self._backlog -= 1
                elif self._started > self._size and not self._closed:
                    self._started -= 1
                    return
                else:
                    self._idle += 1

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Await one blocking call, in a copy of the caller's context."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        pump = Pump.of(loop)
        context = contextvars.copy_context()

        def back(result: T | None, error: BaseException | None) -> None:
            pump.outside -= 1
            if future.cancelled():
                self.reclaim()
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(as_error(error))

        def job() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(fn, *args)
            except BaseException as raised:
                error = raised
            to_loop(loop, back, result, error)

        pump.outside += 1
        try:
            self.submit(job)
        except BaseException:
            pump.outside -= 1
            raise
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                # It goes on regardless; until it is back, another thread takes its place.
                self.abandon()
            raise


def to_loop(loop: asyncio.AbstractEventLoop, back: Callable[..., None], *args: Any) -> None:
    """Hand a thread's result to the loop; a loop that is gone wants no results."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(back, *args)
