"""Due: when which suspended run has to be looked at; one timer for all of them. Feature: CTL-05."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.control.suspended import Suspended
    from yukta_rx.streams.clock import LoopClock, Timer

SPARE: Final = 100
"""Entries of runs that are not suspended any more which do not matter."""


class Due:
    """The times of suspended runs.

    Args:
        clock: tells the time.
        suspended: the runs.
        take_up: told of each whose time has come.
    """

    __slots__ = ("_armed", "_clock", "_heap", "_suspended", "_take_up", "_timer")

    def __init__(
        self,
        clock: LoopClock,
        suspended: Mapping[str, Suspended],
        take_up: Callable[[str], object],
    ) -> None:
        self._clock = clock
        self._suspended = suspended
        self._take_up = take_up
        self._heap: list[tuple[float, str]] = []
        self._timer: Timer | None = None
        self._armed = 0.0

    def add(self, run: Suspended) -> None:
        """Take a run up, which is among the suspended ones, when it is due."""
        if len(self._heap) > 2 * len(self._suspended) + SPARE:
            runs = self._suspended.values()
            self._heap = [(one.due, one.execution_id) for one in runs if one.due < math.inf]
            heapify(self._heap)
        else:
            heappush(self._heap, (run.due, run.execution_id))
        self._arm()

    def _counts(self, entry: tuple[float, str]) -> bool:
        run = self._suspended.get(entry[1])
        return run is not None and run.due == entry[0]

    def _arm(self) -> None:
        due = self._heap[0][0]
        if self._timer is not None and self._armed <= due:
            return
        self.close()
        self._armed = due
        self._timer = self._clock.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            if self._counts(entry):
                self._take_up(entry[1])
                # Many may be due at the same time: others get their turn between two of them.
                break
        if self._heap:
            self._arm()

    def close(self) -> None:
        """Look at no time any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
