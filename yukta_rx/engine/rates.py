"""RateMeter: how fast a counter grows, worked out only when somebody looks. Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

WINDOW: Final = 1.0
"""Seconds over which a rate is taken, at least; up to twice that where it is read often."""


def over_life(count: int, started_at: datetime, ended_at: datetime) -> float:
    """The rate of what has ended."""
    seconds = (ended_at - started_at).total_seconds()
    return round(count / seconds, 1) if seconds > 0 else 0.0


class RateMeter:
    """The recent rate of a counter that others count, in units per second.

    It remembers two earlier readings and compares with the older one, so it costs the counter
    nothing. Where nobody has looked for long, the first reading is the average since the last look.
    """

    __slots__ = ("_newer", "_older")

    def __init__(self, now: float, count: int = 0) -> None:
        self._older = self._newer = (now, count)

    def read(self, now: float, count: int) -> float:
        """The rate up to `now`, in seconds of any clock that does not go back."""
        if now - self._newer[0] >= WINDOW:
            self._older, self._newer = self._newer, (now, count)
        since, before = self._older
        return round((count - before) / (now - since), 1) if now > since else 0.0
