"""Virtual time: an event loop whose clock jumps to the next timer when nothing else is to do.

An hour of pauses and deadlines takes microseconds and always the same steps. Calls that are out
in the engine's threads are waited for in real time before the clock jumps.

Feature: ENG-05.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import selectors
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

P = ParamSpec("P")
T = TypeVar("T")

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of day at which virtual time begins."""

PATIENCE: Final = 5.0
"""Real seconds that a loop with nothing to do waits for a thread before it calls it a deadlock."""


RESOLUTION: Final = 1e-9
"""Seconds by which asyncio lets a timer be early."""


class DeadlockError(RuntimeError):
    """Nothing is left that could ever wake the virtual loop."""


class _VirtualSelector(selectors.DefaultSelector):
    """Polls, and where the loop would block, moves its time instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self.loop
        events = super().select(0)
        if events:
            loop.stir()
        if events or (timeout is not None and timeout <= 0):
            return events
        outside = Pump.of(loop).outside
        if not outside and loop.rest():
            return []
        if timeout is None or outside:
            events = super().select(PATIENCE)
            if not events:
                raise DeadlockError("the loop waits for something that nothing will bring about")
            loop.stir()
            return events
        due = loop.time() + timeout
        if due + RESOLUTION == due:
            # After months asyncio's own resolution is lost in the rounding, and what is due would
            # never be less than now.
            due = math.nextafter(due, math.inf)
        loop.advance_to(due)
        loop.stir()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time; starts at 0 seconds."""

    def __init__(self) -> None:
        self._virtual = 0.0
        self._resting: list[asyncio.Future[None]] = []
        self._stirring: list[asyncio.Future[None]] = []
        selector = _VirtualSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual

    def wall_time(self) -> float:
        """The time of day, as seconds since 1970, that goes with `time()`."""
        return EPOCH.timestamp() + self._virtual

    async def quiet(self) -> None:
        """Wait until nothing is left to do that needs no time to pass."""
        await self._wait_in(self._resting)

    async def moved(self) -> None:
        """Wait until time moves or word comes from a thread or socket, and it is quiet again."""
        await self._wait_in(self._stirring)

    async def _wait_in(self, line: list[asyncio.Future[None]]) -> None:
        waiter = self.create_future()
        line.append(waiter)
        await waiter

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait for the executor's threads, which end in real time, without a limit of virtual."""
        await super().shutdown_default_executor()

    def advance_to(self, when: float) -> None:
        """Set the time; it never goes back."""
        self._virtual = max(self._virtual, when)

    # -- told by the selector

    def stir(self) -> None:
        """Something happened: who waits for that now waits for quiet."""
        self._resting += self._stirring
        self._stirring.clear()

    def rest(self) -> bool:
        """It is quiet: let those go on who wait for that; whether there were any."""
        resting, self._resting = self._resting, []
        for waiter in resting:
            if not waiter.done():
                waiter.set_result(None)
        return bool(resting)


class VirtualClock(LoopClock):
    """The clock of a running `VirtualLoop`, for tests that say how much time passes."""

    __slots__ = ()

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("VirtualClock needs a VirtualLoop; run the test with run_virtual")
        super().__init__(loop)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and everything happen that is due until then."""
        await asyncio.sleep(seconds)

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        await asyncio.sleep(1e-6)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time; like `asyncio.run` otherwise."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Decorate an async test so that it runs in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs))

    # pytest must see a plain function, not what it wraps.
    del run.__wrapped__
    run.__signature__ = _signature(test)  # type: ignore[attr-defined]
    return run


def _signature(test: Callable[..., Awaitable[Any]]) -> Any:
    return inspect.signature(test)
