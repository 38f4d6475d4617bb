"""The status of a run or a node, which only ever moves forward.

Feature: ENG-06.
"""

from __future__ import annotations

from enum import StrEnum


class TaskStatus(StrEnum):
    """Where a run or a node stands; every status from SUCCESS on is terminal."""

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    ERROR = "ERROR"
    STOPPED = "STOPPED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    SKIPPED = "SKIPPED"
    UPSTREAM_FAILED = "UPSTREAM_FAILED"
    ABORTED = "ABORTED"

    @property
    def rank(self) -> int:
        """Place in the order PENDING 0, QUEUED 1, RUNNING 2; 3 for every terminal status."""
        return _OPEN_RANKS.get(self, TERMINAL_RANK)

    @property
    def terminal(self) -> bool:
        """Whether nothing can follow."""
        return self not in _OPEN_RANKS


TERMINAL_RANK = 3
_OPEN_RANKS = {TaskStatus.PENDING: 0, TaskStatus.QUEUED: 1, TaskStatus.RUNNING: 2}


def advance(current: TaskStatus, new: TaskStatus) -> TaskStatus:
    """Return the status after a report of `new`: `new` if that is a step forward, else `current`.

    A terminal status is final: a second end, or a late RUNNING, changes nothing.
    """
    return new if new.rank > current.rank else current
