"""Pace: writing to streams takes at most a tenth of the loop while runs have work.

A write to a thousand clients takes milliseconds. Done in each turn of the loop in which something
happened, it would take most of the time of runs in which much does. So what streams wait for is
gathered a little longer then; where no run has work it is written at the end of the turn.

Feature: OBS-01.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from yukta_rx.streams.pump import Pump

if TYPE_CHECKING:
    import asyncio

    from yukta_rx.observe.circle import Circle

REST: Final = 9
"""Seconds for runs per second of writing."""

SLICE: Final = 0.002
"""Seconds of writing after which runs that have work get their turn."""


class Pace:
    """Says when circles write; one for all of a feed.

    Args:
        loop: the loop that runs and streams share.

    Attributes:
        full: circles that have as much to write as may wait.
    """

    __slots__ = ("_due", "_free_at", "_loop", "_pump", "_soon", "_timer", "full")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pump = Pump.of(loop)
        self._due: dict[Circle, None] = {}
        self._free_at = float("-inf")
        self._soon = False
        self._timer: asyncio.TimerHandle | None = None
        self.full = 0

    @property
    def resting(self) -> bool:
        """Whether runs have work, and it is their time."""
        return bool(self._pump.runs) and self._loop.time() < self._free_at

    @property
    def crowded(self) -> bool:
        """Whether no more should be published for the moment."""
        return self.full > 0 and self.resting

    def due(self, circle: Circle) -> None:
        """A circle has something to write."""
        self._due[circle] = None
        if self._soon or (self._timer is not None and self._pump.runs):
            return
        self._soon = True
        self._loop.call_soon(self._turn_ends)

    def spent(self, seconds: float) -> None:
        """So long was written."""
        self._free_at = max(self._free_at, self._loop.time()) + REST * seconds

    def _turn_ends(self) -> None:
        self._soon = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        began = perf_counter()
        while self._due and not self.resting:
            circle = next(iter(self._due))
            del self._due[circle]
            circle.flush()
            if self._pump.runs and perf_counter() - began > SLICE:
                break
        if self._due:
            self._timer = self._loop.call_at(self._free_at, self._turn_ends)
