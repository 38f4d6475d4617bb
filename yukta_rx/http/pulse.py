"""Pulse: whether the event loop turns, for the liveness probe. Feature: OBS-01."""

from __future__ import annotations

import asyncio
from typing import Final

PERIOD: Final = 0.5
"""Seconds between two beats."""

TOO_LATE: Final = 5.0
"""Seconds of lag from which on the process does not count as alive."""


class Pulse:
    """Measures how late the loop is; costs one timer."""

    __slots__ = ("_due", "_handle", "_lag", "_loop")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._lag = 0.0

    def start(self) -> None:
        """Begin to beat on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._beat_later(self._loop)

    def stop(self) -> None:
        """Stop beating."""
        if self._handle is not None:
            self._handle.cancel()
        self._loop = None

    @property
    def lag(self) -> float:
        """Seconds by which the newest beat was or is late."""
        if self._loop is None:
            return 0.0
        return max(self._lag, self._loop.time() - self._due, 0.0)

    @property
    def alive(self) -> bool:
        """Whether the loop turns."""
        return self.lag < TOO_LATE

    def _beat_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + PERIOD
        self._handle = loop.call_at(self._due, self._beat)

    def _beat(self) -> None:
        if self._loop is not None:
            self._lag = max(self._loop.time() - self._due, 0.0)
            self._beat_later(self._loop)
