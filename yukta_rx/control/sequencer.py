"""Sequencer: the commands of each run, one after the other, audited. Feature: CTL-01.

A command is applied synchronously on the event loop, so the order of `send` calls is the order of
application, and the answer of a command that was applied says so truthfully. A command id that was
seen before gets the first answer again.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.control.commands.base import Command, CommandResult, NodeCommand, Outcome
from yukta_rx.errors import ConflictError, YuktaError
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from yukta_rx.engine.run import Run
    from yukta_rx.model.status import TaskStatus

AUDITED: Final = 1000
"""Audit rows kept per run; older ones are dropped, and `seq` shows that."""

LINES: Final = 10_000
"""Runs whose commands are kept; the one that got none for longest goes first."""

REMEMBERED: Final = 1000
"""Answers kept per run for commands that are sent again."""


@dataclass(slots=True)
class _Line:
    """What is known of one run's commands."""

    seq: int = 0
    audit: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=AUDITED))
    answers: OrderedDict[str, CommandResult] = field(default_factory=OrderedDict)


class Target(Protocol):
    """What the sequencer needs to know of a run that has ended; a `Run` says the same."""

    execution_id: str
    session_id: str
    status: TaskStatus

    @property
    def workflow_id(self) -> str:
        """The workflow that it ran."""


class Sequencer:
    """Applies commands in order and keeps the audit.

    Args:
        emit: gets `control.applied` and `control.rejected` events.
        now: the time of day.
    """

    def __init__(self, emit: Callable[[ExecutionEvent], None], now: Callable[[], datetime]) -> None:
        self._emit = emit
        self._now = now
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    def send(
        self,
        run: Run,
        command: Command,
        *,
        actor: str,
        via: str,
        reason: str | None = None,
        dry_run: bool = False,
        command_id: str | None = None,
    ) -> CommandResult:
        """Apply `command` to its run; what is returned is in force.

        Raises:
            ConflictError: the run has ended.
            YuktaError: the command cannot be applied; it is audited as rejected.
        """
        line = self._line(command.execution_id)
        if command_id is not None and command_id in line.answers:
            return line.answers[command_id]
        given_id = command_id or uuid.uuid4().hex
        line.seq += 1
        try:
            outcome = self._outcome(run, command, dry_run)
        except YuktaError as error:
            self._record(line, run, command, Outcome.REJECTED, actor, via, error.detail, given_id)
            raise
        noted = "no_op" if outcome is Outcome.NO_OP and reason is None else reason
        self._record(line, run, command, outcome, actor, via, noted, given_id)
        result = CommandResult(
            command_id=given_id,
            seq=line.seq,
            execution_id=command.execution_id,
            node_id=command.node_id if isinstance(command, NodeCommand) else None,
            command=command.name(),
            outcome=outcome,
            actor=actor,
            applied_at=self._now(),
            state={
                "status": str(run.status),
                "paused": run.paused,
                "stepMode": run.step_mode,
            },
            reason=reason,
        )
        if command_id is not None:
            line.answers[command_id] = result
            while len(line.answers) > REMEMBERED:
                line.answers.popitem(last=False)
        return result

    def refuse_ended(
        self, target: Target, command: Command, *, actor: str, via: str
    ) -> ConflictError:
        """Audit a command for a run that has ended; the error that its sender gets."""
        error = _ended(target)
        line = self._line(command.execution_id)
        line.seq += 1
        command_id = uuid.uuid4().hex
        self._record(line, target, command, Outcome.REJECTED, actor, via, error.detail, command_id)
        return error

    def _outcome(self, run: Run, command: Command, dry_run: bool) -> Outcome:
        if run.status.terminal:
            raise _ended(run)
        if dry_run:
            command.check(run)
            return Outcome.DRY_RUN
        return Outcome.APPLIED if command.apply(run) else Outcome.NO_OP

    def _record(
        self,
        line: _Line,
        run: Target,
        command: Command,
        outcome: Outcome,
        actor: str,
        via: str,
        reason: str | None,
        command_id: str,
    ) -> None:
        now = self._now()
        node_id = command.node_id if isinstance(command, NodeCommand) else None
        # The audit knows APPLIED, REJECTED and DRY_RUN; a no-op was applied and changed nothing.
        shown = Outcome.APPLIED if outcome is Outcome.NO_OP else outcome
        row: dict[str, Any] = {
            "seq": line.seq,
            "time": rfc3339(now),
            "executionId": command.execution_id,
            "sessionId": run.session_id,
            "command": command.name(),
            "args": command.arguments(),
            "outcome": str(shown),
            "actor": actor,
            "via": via,
            "commandId": command_id,
        }
        if node_id is not None:
            row["nodeId"] = node_id
        if reason is not None:
            row["reason"] = reason
        line.audit.append(row)
        if shown is Outcome.DRY_RUN:
            return
        self._emit(
            ExecutionEvent(
                type="control.applied" if shown is Outcome.APPLIED else "control.rejected",
                time=now,
                session_id=run.session_id,
                workflow_id=run.workflow_id,
                execution_id=run.execution_id,
                node_id=node_id,
                data=row,
            )
        )

    def _line(self, execution_id: str) -> _Line:
        line = self._lines.setdefault(execution_id, _Line())
        self._lines.move_to_end(execution_id)
        while len(self._lines) > LINES:
            self._lines.popitem(last=False)
        return line

    def audit(self, execution_id: str) -> list[dict[str, Any]]:
        """The audit rows of a run, oldest first."""
        line = self._lines.get(execution_id)
        return [] if line is None else list(line.audit)


def _ended(run: Target) -> ConflictError:
    return ConflictError(
        f"run {run.execution_id} has ended {run.status}",
        code="execution_not_running",
        executionId=run.execution_id,
        status=str(run.status),
    )
