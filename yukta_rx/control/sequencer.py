"""Sequencer: the commands of each run, one after the other: review, apply, audit, answer.

Commands to different runs do not wait for each other. A command to a live run is applied
synchronously, and where no reviewer is there nothing is awaited before that, so the order of
`send` calls is the order of application. A command id that was seen before gets the first answer
again.

Features: CTL-01, CTL-06.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from yukta_rx.control.commands.base import CommandResult, OfNode, Outcome
from yukta_rx.control.desk import unknown
from yukta_rx.control.held import HeldCommand, HeldCommands
from yukta_rx.control.reviewers import ControlRequest, Reviewed, Reviewers, name_of
from yukta_rx.errors import ControlRejectedError, YuktaError

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings
    from yukta_rx.control.audit import AuditTrail, Submission
    from yukta_rx.control.commands.base import Effect
    from yukta_rx.control.desk import Desk, Target
    from yukta_rx.control.idempotency import IdempotencyWindow
    from yukta_rx.streams.clock import LoopClock

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Line:
    """Where the commands to one run queue; gone when nobody is in it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class _Turn:
    """The turn of one command, as an async context; it may be given up before that is over."""

    __slots__ = ("_lock", "_mine")

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._mine = False

    async def __aenter__(self) -> Self:
        await self._lock.acquire()
        self._mine = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Let the next command have its turn."""
        if self._mine:
            self._mine = False
            self._lock.release()


class Sequencer:
    """Applies commands in order.

    Args:
        settings: how long reviewers and held commands get.
        clock: tells the time.
        desk: what commands act on.
        audit: records them.
        reviewers: are asked about each.
        seen: answers of commands that may be sent again.
    """

    def __init__(
        self,
        settings: Settings,
        clock: LoopClock,
        desk: Desk,
        audit: AuditTrail,
        reviewers: Reviewers,
        seen: IdempotencyWindow,
    ) -> None:
        self._clock = clock
        self._desk = desk
        self._audit = audit
        self._reviewers = reviewers
        self._seen = seen
        self._lines: dict[str, _Line] = {}
        hold = settings.control.hold_timeout.total_seconds()
        self.held = HeldCommands(clock, hold, self._expired)

    async def send(self, submission: Submission) -> CommandResult:
        """Carry a command out; what is returned is in force, unless it is held or a dry run.

        Raises:
            NotFoundError: there is no such run or node.
            ConflictError: the run has ended, or the command cannot be applied to it.
            ControlRejectedError: a reviewer refuses it.
            IdempotencyKeyReusedError: the command id came with another command before.
        """
        command = submission.command
        if submission.reason is None and command.reason is not None:
            submission = replace(submission, reason=command.reason)
        if submission.command_id is None:
            return await self._in_turn(submission, uuid.uuid4().hex)
        scope = (command.execution_id, "", submission.command_id)
        same = [
            command.name(),
            command.node_id if isinstance(command, OfNode) else None,
            command.arguments(),
            submission.dry_run,
        ]
        given = submission.command_id
        result: CommandResult
        result, _ = await self._seen.run(scope, same, lambda: self._in_turn(submission, given))
        return result

    async def decide(
        self, command_id: str, *, approve: bool, actor: str, reason: str | None = None
    ) -> CommandResult:
        """Let a held command pass, or refuse it; a second actor does.

        Raises:
            NotFoundError: no command of that id is held.
            RoleError: the one who gave it decides.
            YuktaError: it cannot be applied any more.
        """
        self.held.get(command_id).check_decider(actor)
        held = self.held.take(command_id)
        why = f": {reason}" if reason else ""
        if not approve:
            return self._reject(held, f"rejected by {actor}{why}")
        passed = held.passed | {held.reviewer}
        notes = (*held.notes, f"held by {held.reviewer}: {held.reason}; approved by {actor}{why}")
        return await self._in_turn(held.submission, command_id, passed, notes)

    def _expired(self, held: HeldCommand) -> None:
        self._reject(held, "nobody decided in time")

    def _reject(self, held: HeldCommand, reason: str) -> CommandResult:
        submission = held.submission
        target = submission.command.target(self._desk)
        said = f"held by {held.reviewer}: {held.reason}; {reason}"
        row = self._audit.record(submission, target, Outcome.REJECTED, held.command_id, said)
        return self._result(submission, held.command_id, row["seq"], Outcome.REJECTED, said)

    # -- one command

    async def _in_turn(
        self,
        submission: Submission,
        command_id: str,
        passed: frozenset[str] = frozenset(),
        notes: tuple[str, ...] = (),
    ) -> CommandResult:
        execution_id = submission.command.execution_id
        line = self._lines.setdefault(execution_id, _Line())
        line.waiting += 1
        try:
            async with _Turn(line.turn) as turn:
                return await self._carry_out(submission, command_id, turn, passed, notes)
        finally:
            line.waiting -= 1
            if not line.waiting:
                del self._lines[execution_id]

    async def _carry_out(
        self,
        submission: Submission,
        command_id: str,
        turn: _Turn,
        passed: frozenset[str],
        notes: tuple[str, ...],
    ) -> CommandResult:
        command = submission.command
        target: Target | None = None
        effect: Effect | None = None
        try:
            target = command.target(self._desk)
            if target is None:
                raise unknown(command.execution_id)
            if self._reviewers or submission.dry_run:
                command.examine(self._desk)
                reviewed = await self._review(submission, target, passed)
                notes = (*notes, *reviewed.notes)
                if reviewed.command is not command:
                    reviewed.command.examine(self._desk)
                submission = replace(submission, command=reviewed.command)
                if reviewed.held_by is not None and not submission.dry_run:
                    return self._hold(submission, command_id, target, reviewed, passed, notes)
            if not submission.dry_run:
                effect = await self._perform(submission)
            if effect is not None and effect.waits is not None:
                # For a slot that this very run may have: it can be commanded meanwhile.
                turn.give_up()
                effect = replace(effect, started=await effect.waits.answer(None))
        except YuktaError as error:
            self._refuse(submission, target, command_id, error, notes)
            raise
        except Exception:
            self._audit.record(submission, target, Outcome.REJECTED, command_id, "internal error")
            raise
        outcome = _outcome_of(effect)
        said = "; ".join(part for part in (submission.reason, *notes) if part) or None
        noted = "no_op" if outcome is Outcome.NO_OP and said is None else said
        row = self._audit.record(submission, target, outcome, command_id, noted)
        result = self._result(submission, command_id, row["seq"], outcome, said)
        if effect is not None:
            result = replace(result, answer=effect.answer, started=effect.started)
        return result

    async def _review(
        self, submission: Submission, target: Target, passed: frozenset[str]
    ) -> Reviewed:
        request = ControlRequest(
            command=submission.command,
            actor=submission.actor,
            via=submission.via,
            reason=submission.reason,
            dry_run=submission.dry_run,
            session_id=target.session_id,
            workflow_id=target.workflow_id,
        )
        return await self._reviewers.review(request, passed)

    async def _perform(self, submission: Submission) -> Effect:
        desk = self._desk.acting(submission.actor, submission.via)
        done = submission.command.perform(desk)
        return await done if inspect.isawaitable(done) else done

    def _hold(
        self,
        submission: Submission,
        command_id: str,
        target: Target,
        reviewed: Reviewed,
        passed: frozenset[str],
        notes: tuple[str, ...],
    ) -> CommandResult:
        held = self.held.put(
            command_id,
            submission,
            reviewer=str(reviewed.held_by),
            reason=reviewed.hold_reason,
            notes=notes,
            passed=passed,
        )
        said = f"held by {held.reviewer}: {held.reason}"
        row = self._audit.record(submission, target, Outcome.HELD, command_id, said)
        return self._result(submission, command_id, row["seq"], Outcome.HELD, said)

    def _refuse(
        self,
        submission: Submission,
        target: Target | None,
        command_id: str,
        error: YuktaError,
        notes: tuple[str, ...],
    ) -> None:
        if isinstance(error, ControlRejectedError):
            error.members["commandId"] = command_id
        said = "; ".join((*notes, error.detail))
        self._audit.record(submission, target, Outcome.REJECTED, command_id, said)

    def _result(
        self,
        submission: Submission,
        command_id: str,
        seq: int,
        outcome: Outcome,
        reason: str | None,
    ) -> CommandResult:
        command = submission.command
        return CommandResult(
            command_id=command_id,
            seq=seq,
            execution_id=command.execution_id,
            node_id=command.node_id if isinstance(command, OfNode) else None,
            command=command.name(),
            outcome=outcome,
            actor=submission.actor,
            applied_at=self._clock.wall(),
            state=self._desk.state(command.execution_id),
            reason=reason,
        )

    # -- what others read

    @property
    def reviewers(self) -> list[tuple[str, int]]:
        """Name and order of each reviewer, in order."""
        return [(name_of(one), getattr(one, "order", 0)) for one in self._reviewers.all]

    async def close(self) -> None:
        """Stop waiting for reviewers and for second actors."""
        self.held.close()
        await self._reviewers.close(1.0)


def _outcome_of(effect: Effect | None) -> Outcome:
    if effect is None:
        return Outcome.DRY_RUN
    if effect.started is not None and effect.started.status == "QUEUED":
        return Outcome.QUEUED
    return Outcome.APPLIED if effect.changed else Outcome.NO_OP
