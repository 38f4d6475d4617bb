"""WriteBehind: what goes to a store in order, by one task, so that nobody on the loop waits for it.

What waits is written together. A write that fails is tried again until it is done, with pauses that
grow; nothing is left out meanwhile. Who puts things in asks `full` and has to slow down then. Once
another server leads nothing is written any more: it would be refused for ever.

Features: OBS-01, OBS-03.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from yukta_rx.errors import StaleLeaderError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from yukta_rx.metrics import Meters
    from yukta_rx.streams.clock import LoopClock

T = TypeVar("T")

log = logging.getLogger(__name__)

BATCH: Final = 1000
BATCH_BYTES: Final = 1 << 20
"""Items of one write, and their bytes."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts at a write that failed: doubled from the first to the longest."""

CLOSING: Final = 5.0
"""Seconds that a shutdown waits for what is not written yet."""


class Linger:
    """A moment in which more may come that can be written together. Belongs to the loop.

    Args:
        seconds: how long it is; 0 for none.
    """

    __slots__ = ("_over", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._over: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Let it pass."""
        if not self._seconds:
            return
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        timer = loop.call_later(self._seconds, self.hurry)
        try:
            await self._over
        finally:
            timer.cancel()
            self._over = None

    def hurry(self) -> None:
        """End it."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


class WriteBehind(Generic[T]):
    """A queue in front of a store, as an async context. Belongs to the loop.

    Args:
        what: what is written, in a word or two, such as `results`.
        write: writes a batch, all of it or in a way that it can be tried again.
        clock: tells the time.
        meters: where failed writes are counted.
        limit: bytes with which it is full.
        linger: seconds that a write waits for more to come, unless somebody waits for it; where a
            write costs more than what is written.

    Attributes:
        waiting: what is not written yet, each with its bytes, the oldest first.
        weight: the bytes of that.
        full: whether so much waits that no more should come; until half of it is gone.
        failing: whether the last write failed.
        on_full: called when it becomes full.
        on_room: called when it is full no more.
        on_failure: called when a write has failed.
    """

    def __init__(
        self,
        what: str,
        write: Callable[[list[T]], Awaitable[None]],
        clock: LoopClock,
        meters: Meters,
        limit: int,
        linger: float = 0,
    ) -> None:
        self._linger = Linger(linger)
        self._what = what
        self._write = write
        self._clock = clock
        self._failures = meters.counter("yukta.store.write.failed", type=what)
        meters.watch(f"yukta.store.{what}.waiting", lambda: len(self.waiting))
        self._limit = limit
        self.waiting: deque[tuple[T, int]] = deque()
        self.weight = 0
        self.full = False
        self.failing = False
        self.on_full: Callable[[], None] = lambda: None
        self.on_room: Callable[[], None] = lambda: None
        self._put = self._done = 0
        self._watchers: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._closing = False
        self._over = False
        """Whether another server leads by now."""
        self._error: Exception | None = None
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)

    async def __aenter__(self) -> Self:
        """Start the task that writes."""
        self._tasks.spawn(self._run(), f"yukta write {self._what}")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Write what waits, for a few seconds at the most, then stop."""
        self._closing = True
        self._wake()
        self._linger.hurry()
        try:
            async with asyncio.timeout(CLOSING):
                await self._tasks.ended()
        except TimeoutError:
            log.error("%d %s were not written and are lost", len(self.waiting), self._what)
            self._tasks.cancel()
            await self._tasks.ended()
        self._tell()

    def put(self, item: T, weight: int) -> None:
        """Have something written."""
        if self._over:
            return
        self.waiting.append((item, weight))
        self.weight += weight
        self._put += 1
        if self.weight > self._limit and not self.full:
            self.full = True
            self.on_full()
        if self.weight > BATCH_BYTES:
            self._linger.hurry()
        if self._idle is not None:
            self._wake()

    async def written(self) -> None:
        """Return once all that was put in so far is written; at once while writes fail."""
        if self._done < self._put and not self.failing and not self._closing:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append((self._put, watcher))
            self._linger.hurry()
            await watcher

    def fault(self) -> str | None:
        """Why it cannot write; None if it can, as far as is known."""
        if not self.failing:
            return None
        return f"{self._what} are not written: {self._error}"

    # -- the writer

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            if not self.waiting:
                if self._closing:
                    return
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
                self._idle = None
                continue
            if not (self._watchers or self._closing or self.weight > BATCH_BYTES):
                await self._linger.wait()
            batch = self._batch()
            try:
                await self._write(batch)
            except StaleLeaderError as error:
                self._give_up(error)
                return
            except Exception as error:
                self._failed(error)
                await self._clock.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                self._written(len(batch))
                pause = FIRST_PAUSE

    def _batch(self) -> list[T]:
        batch: list[T] = []
        weight = 0
        for item, size in self.waiting:
            if len(batch) >= BATCH or (batch and weight + size > BATCH_BYTES):
                break
            batch.append(item)
            weight += size
        return batch

    def _written(self, count: int) -> None:
        if self.failing:
            log.warning("%s are written again", self._what)
        self.failing = False
        for _ in range(count):
            self.weight -= self.waiting.popleft()[1]
        self._done += count
        self._tell()
        if self.full and 2 * self.weight <= self._limit:
            self.full = False
            self.on_room()

    def _give_up(self, error: StaleLeaderError) -> None:
        log.error("%d %s are not written: %s", len(self.waiting), self._what, error)
        self._over, self.failing, self._done = True, False, self._put
        self.waiting.clear()
        self.weight = 0
        self._tell()
        if self.full:
            self.full = False
            self.on_room()

    def _failed(self, error: Exception) -> None:
        self._failures.add(1)
        if not self.failing:
            log.error("%s are not written, it is tried again: %s", self._what, error)
        self.failing, self._error = True, error
        self._tell()

    def _tell(self) -> None:
        over = self.failing or self._closing
        while self._watchers and (over or self._watchers[0][0] <= self._done):
            watcher = self._watchers.popleft()[1]
            if not watcher.done():
                watcher.set_result(None)

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
