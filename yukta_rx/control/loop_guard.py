"""What keeps a runaway supervisor from steering: a rate, and a guard against loops.

A supervisor sees what its commands do to runs, so it can answer its own doing for ever. The rate
bounds how fast, the guard notices that it is the same thing again and again.

Feature: CTL-07.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from yukta_rx.control.commands.base import OfNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.control.commands.base import Command

MAX_TARGETS: Final = 10_000
"""Targets that a guard remembers; beyond it the one that was commanded least lately goes."""


class TokenBucket:
    """So many per second, and as many at once after a quiet second.

    Args:
        rate: tokens per second, and how many the bucket holds; 1 or more.
        now: monotonic seconds.
    """

    __slots__ = ("_now", "_rate", "_since", "_tokens")

    def __init__(self, rate: int, now: Callable[[], float]) -> None:
        self._rate = rate
        self._now = now
        self._tokens = float(rate)
        self._since = now()

    @property
    def rate(self) -> int:
        """Tokens per second."""
        return self._rate

    @rate.setter
    def rate(self, rate: int) -> None:
        self._refill()
        self._rate = rate
        self._tokens = min(self._tokens, rate)

    def take(self) -> bool:
        """Take a token if there is one."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait(self) -> float:
        """Seconds until there is a token; 0 if there is one."""
        self._refill()
        return max(0.0, (1 - self._tokens) / self._rate)

    def _refill(self) -> None:
        now = self._now()
        # A wait that was just long enough must not miss its token by the last bit of a float.
        added = (now - self._since) * self._rate + 1e-9
        self._tokens = min(float(self._rate), self._tokens + added)
        self._since = now


class LoopGuard:
    """Notices that the same command goes to the same target too often.

    Which arguments it has does not matter: a loop may count them up.

    Args:
        commands: how many are let pass within the window; 0 lets all pass.
        window: seconds.
        now: monotonic seconds.
    """

    __slots__ = ("_commands", "_now", "_seen", "_window")

    def __init__(self, commands: int, window: float, now: Callable[[], float]) -> None:
        self._commands = commands
        self._window = window
        self._now = now
        self._seen: dict[tuple[str, str, str], deque[float]] = {}

    def passes(self, command: Command) -> bool:
        """Count a command; False if it is one too many."""
        if not self._commands:
            return True
        now = self._now()
        node = command.node_id if isinstance(command, OfNode) else ""
        key = command.name(), command.execution_id, node
        times = self._seen.pop(key, deque())
        self._seen[key] = times
        if len(self._seen) > MAX_TARGETS:
            del self._seen[next(iter(self._seen))]
        while times and times[0] <= now - self._window:
            times.popleft()
        times.append(now)
        return len(times) <= self._commands

    def clear(self) -> None:
        """Forget what was counted."""
        self._seen.clear()
