"""The status of a run or a node, which only ever moves forward.

Feature: ENG-06.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

TERMINAL_RANK: Final = 3
_OPEN_RANKS: Final = {"PENDING": 0, "QUEUED": 1, "RUNNING": 2}


class TaskStatus(StrEnum):
    """Where a run or a node stands; every status from SUCCESS on is terminal.

    Attributes:
        rank: place in the order PENDING 0, QUEUED 1, RUNNING 2; 3 for every terminal status.
        terminal: whether nothing can follow.
    """

    rank: int
    terminal: bool

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

    def __new__(cls, name: str) -> Self:
        """Make the status of a name; its attributes are asked for often, so they are laid down."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.rank = _OPEN_RANKS.get(name, TERMINAL_RANK)
        member.terminal = member.rank == TERMINAL_RANK
        return member


_BY_NAME: Final = {str(status): status for status in TaskStatus}


def status_of(name: str) -> TaskStatus:
    """Return the status of a name; as `TaskStatus(name)`, without the detours of an enum.

    Raises:
        ValueError: there is no such status.
    """
    known = _BY_NAME.get(name)
    return TaskStatus(name) if known is None else known


def advance(current: TaskStatus, new: TaskStatus) -> TaskStatus:
    """Return the status after a report of `new`: `new` if that is a step forward, else `current`.

    A terminal status is final: a second end, or a late RUNNING, changes nothing.
    """
    return new if new.rank > current.rank else current
