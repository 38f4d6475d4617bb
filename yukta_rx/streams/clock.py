"""Time as a parameter: the loop's clock, and a stopwatch that a pause can freeze.

Everything that waits does so on the loop's time, so a loop in virtual time (see
`yukta_rx.testing.clock`) turns hours into microseconds. Seconds everywhere.

Feature: ENG-05.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Forget the call; nothing happens if it was made already."""


class Clock(Protocol):
    """A monotonic clock that calls back; seconds."""

    def now(self) -> float:
        """Seconds since some fixed point; never goes back."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop once `now()` has reached `when`."""

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` of this clock have passed."""


class LoopClock:
    """The event loop's own time."""

    __slots__ = ("_loop", "_wall")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wall: Callable[[], float] = getattr(loop, "wall_time", time.time)

    def now(self) -> float:
        """The loop's time in seconds."""
        return self._loop.time()

    def wall(self) -> datetime:
        """The time of day, UTC."""
        return datetime.fromtimestamp(self._wall(), UTC)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once the loop's time has reached `when`."""
        return self._loop.call_at(when, callback)

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of the loop's time."""
        await asyncio.sleep(seconds)


class _PausableTimer:
    """One entry of a `PausableClock`; `handle` is None while the clock stands still."""

    __slots__ = ("callback", "clock", "handle", "when")

    def __init__(self, clock: PausableClock, when: float, callback: Callable[[], None]) -> None:
        self.clock = clock
        self.when = when
        self.callback = callback
        self.handle: Timer | None = None

    def fire(self) -> None:
        self.clock.forget(self)
        self.callback()

    def freeze(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def cancel(self) -> None:
        self.freeze()
        self.clock.forget(self)


class PausableClock:
    """A clock that stands still while paused, and all of its timers with it.

    Pauses nest: it goes on when every `pause()` has had its `resume()`.
    """

    __slots__ = ("_base", "_lag", "_paused_at", "_pauses", "_timers")

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._lag = 0.0
        self._pauses = 0
        self._paused_at = 0.0
        self._timers: dict[_PausableTimer, None] = {}

    @property
    def paused(self) -> bool:
        """Whether the clock stands still."""
        return self._pauses > 0

    def now(self) -> float:
        """Active seconds: the base clock's time less all pauses."""
        base = self._paused_at if self._pauses else self._base.now()
        return base - self._lag

    @property
    def lag(self) -> float:
        """Seconds of all pauses that are over."""
        return self._lag

    @lag.setter
    def lag(self, seconds: float) -> None:
        """Go on where another clock was, before anybody has read this one."""
        self._lag = seconds

    def pause(self) -> None:
        """Stand still; timers keep what they have left."""
        self._pauses += 1
        if self._pauses > 1:
            return
        self._paused_at = self._base.now()
        for timer in self._timers:
            timer.freeze()

    def resume(self) -> None:
        """Undo one `pause()`; raises RuntimeError when there is none."""
        if not self._pauses:
            raise RuntimeError("resume() without pause()")
        self._pauses -= 1
        if self._pauses:
            return
        self._lag += self._base.now() - self._paused_at
        for timer in tuple(self._timers):
            self._arm(timer)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `now()`, which pauses hold back, has reached `when`."""
        timer = _PausableTimer(self, when, callback)
        self._timers[timer] = None
        if not self._pauses:
            self._arm(timer)
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed outside of pauses."""
        done = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        timer = self.call_at(self.now() + max(0.0, seconds), wake)
        try:
            await done
        finally:
            timer.cancel()

    def forget(self, timer: _PausableTimer) -> None:
        """Drop a timer that fired or was cancelled."""
        self._timers.pop(timer, None)

    def _arm(self, timer: _PausableTimer) -> None:
        timer.handle = self._base.call_at(timer.when + self._lag, timer.fire)
