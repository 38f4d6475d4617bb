"""HeldCommands: commands that wait for a second actor. Feature: CTL-06."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.commands.base import OfNode
from yukta_rx.errors import ControlRejectedError, NotFoundError, RoleError
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from yukta_rx.control.audit import Submission
    from yukta_rx.streams.clock import LoopClock, Timer

CAPACITY: Final = 1000
"""Commands that may wait at once; one more is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCommand:
    """A command that waits.

    Attributes:
        command_id: its id.
        submission: what was handed in, as the reviewers left it.
        reviewer: who wants a second actor.
        reason: why.
        notes: what reviewers changed.
        passed: reviewers whose hold was lifted before.
        since: when it was held, aware.
        expires_at: when it counts as rejected, aware.
    """

    command_id: str
    submission: Submission
    reviewer: str
    reason: str
    notes: tuple[str, ...]
    passed: frozenset[str]
    since: datetime
    expires_at: datetime

    def as_dict(self) -> dict[str, Any]:
        """The command as it is listed."""
        command = self.submission.command
        shown: dict[str, Any] = {
            "commandId": self.command_id,
            "executionId": command.execution_id,
            "command": command.name(),
            "args": command.arguments(),
            "actor": self.submission.actor,
            "via": self.submission.via,
            "reviewer": self.reviewer,
            "reason": self.reason,
            "since": rfc3339(self.since),
            "expiresAt": rfc3339(self.expires_at),
        }
        if isinstance(command, OfNode):
            shown["nodeId"] = command.node_id
        return shown

    def check_decider(self, actor: str) -> None:
        """Raise RoleError if the one who gave it decides about it."""
        if actor == self.submission.actor:
            raise RoleError(
                f"command {self.command_id} was given by {actor}: another actor has to decide",
                requiredRole=str(self.submission.command.role),
            )


class HeldCommands:
    """The commands that wait, by their ids.

    Args:
        clock: tells the time.
        seconds: how long each may wait.
        expired: told of one that waited so long.
    """

    def __init__(
        self, clock: LoopClock, seconds: float, expired: Callable[[HeldCommand], None]
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._expired = expired
        self._held: dict[str, tuple[HeldCommand, Timer]] = {}

    def put(
        self,
        command_id: str,
        submission: Submission,
        *,
        reviewer: str,
        reason: str,
        notes: tuple[str, ...],
        passed: frozenset[str],
    ) -> HeldCommand:
        """Let a command wait.

        Raises:
            ControlRejectedError: too many wait.
        """
        if len(self._held) >= CAPACITY:
            detail = f"it wants a second actor, but {CAPACITY} commands wait for one already"
            raise ControlRejectedError(reviewer, detail)
        now = self._clock.wall()
        held = HeldCommand(
            command_id=command_id,
            submission=submission,
            reviewer=reviewer,
            reason=reason,
            notes=notes,
            passed=passed,
            since=now,
            expires_at=now + timedelta(seconds=self._seconds),
        )
        due = self._clock.now() + self._seconds
        self._held[command_id] = held, self._clock.call_at(due, lambda: self._expire(command_id))
        return held

    def get(self, command_id: str) -> HeldCommand:
        """One that waits.

        Raises:
            NotFoundError: none of that id does.
        """
        if command_id not in self._held:
            raise no_such_command(command_id)
        return self._held[command_id][0]

    def take(self, command_id: str) -> HeldCommand:
        """Let one wait no more; see `get`."""
        held = self.get(command_id)
        self._held.pop(command_id)[1].cancel()
        return held

    def list(self) -> list[HeldCommand]:
        """All that wait, the oldest first."""
        return [held for held, _ in self._held.values()]

    def close(self) -> None:
        """Watch no time any more."""
        for _, timer in self._held.values():
            timer.cancel()

    def _expire(self, command_id: str) -> None:
        held, _ = self._held.pop(command_id)
        self._expired(held)


def no_such_command(command_id: str) -> NotFoundError:
    """Return the error of a command that is not held."""
    return NotFoundError(
        f"no command {command_id} waits for a decision",
        code="command_not_found",
        commandId=command_id,
    )
