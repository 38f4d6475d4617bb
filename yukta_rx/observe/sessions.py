"""SessionBook: which sessions have runs in memory, and which one goes first.

Feature: OBS-01.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

UNLIMITED: Final = 0


class SessionBook:
    """Runs by session; sessions without a live run stand in the order of their last activity.

    Args:
        limit: sessions that are kept; `UNLIMITED` keeps all.
    """

    __slots__ = ("_idle", "_limit", "_live", "_runs")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: dict[str, set[str]] = {}
        self._live: dict[str, int] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def began(self, session_id: str, execution_id: str) -> None:
        """A run is there and goes on."""
        self._runs.setdefault(session_id, set()).add(execution_id)
        self._live[session_id] = self._live.get(session_id, 0) + 1
        self._idle.pop(session_id, None)

    def ended(self, session_id: str) -> None:
        """A run of the session ended."""
        self._live[session_id] -= 1
        if not self._live[session_id]:
            del self._live[session_id]
            self._idle[session_id] = None

    def gone(self, session_id: str, execution_id: str) -> None:
        """An ended run is no longer kept."""
        runs = self._runs.get(session_id)
        if runs is None:
            return
        runs.discard(execution_id)
        if not runs:
            del self._runs[session_id]
            self._idle.pop(session_id, None)

    def excess(self) -> list[str]:
        """Forget the sessions that are too many; returns the runs that go with them."""
        runs: list[str] = []
        while self._limit != UNLIMITED and len(self._runs) > self._limit and self._idle:
            session_id, _ = self._idle.popitem(last=False)
            runs.extend(self._runs.pop(session_id))
        return runs
