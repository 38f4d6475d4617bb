"""AuditTrail: every command that was given, applied or not, with who gave it. Feature: CTL-01."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yukta_rx.control.commands.base import Command, OfNode, Outcome
from yukta_rx.errors import BadRequestError, CursorExpiredError
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from yukta_rx.control.desk import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A command as it was handed in.

    Attributes:
        command: what is to be done.
        actor: who gives it.
        via: REST, MCP, CLI, SUPERVISOR or ENGINE.
        reason: why, for the audit.
        dry_run: only say whether it would be applied.
        command_id: the client's own id; a repeat with the same one gets the first answer.
        request_id: names the request that brought it; also in its answer, and in the log.
    """

    command: Command
    actor: str
    via: str
    reason: str | None = None
    dry_run: bool = False
    command_id: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which rows are asked for; members that are None do not filter.

    Attributes:
        actor: given by.
        command: of this name.
        outcome: APPLIED, REJECTED, HELD or DRY_RUN.
        execution_id: to this run.
        session_ids: to runs of any of these sessions; empty is all.
        since: at this time or later, aware.
    """

    actor: str | None = None
    command: str | None = None
    outcome: str | None = None
    execution_id: str | None = None
    session_ids: frozenset[str] = frozenset()
    since: datetime | None = None

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is among those that are asked for."""
        wanted = {
            "actor": self.actor,
            "command": self.command,
            "outcome": self.outcome,
            "executionId": self.execution_id,
        }
        if any(value is not None and row.get(name) != value for name, value in wanted.items()):
            return False
        if self.session_ids and row.get("sessionId") not in self.session_ids:
            return False
        return self.since is None or row["time"] >= rfc3339(self.since)


@dataclass(slots=True)
class _Line:
    """The rows of one run that are kept, and how many there ever were."""

    seq: int = 0
    rows: deque[dict[str, Any]] = field(default_factory=deque)


class AuditTrail:
    """The rows, the newest so many of all runs together; says each command as an event.

    Args:
        emit: gets `control.applied` and `control.rejected` events.
        now: the time of day.
        capacity: rows that are kept.
        mask: takes secrets out of a row.
    """

    def __init__(
        self,
        emit: Callable[[ExecutionEvent], None],
        now: Callable[[], datetime],
        capacity: int,
        mask: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row,
    ) -> None:
        self._emit = emit
        self._now = now
        self._capacity = capacity
        self.mask = mask
        self._rows: deque[dict[str, Any]] = deque()
        self._count = 0
        self._lines: dict[str, _Line] = {}

    def record(
        self,
        submission: Submission,
        target: Target | None,
        outcome: Outcome,
        command_id: str,
        reason: str | None,
    ) -> dict[str, Any]:
        """Add a row and say it; a command for a run that is not known is recorded as well."""
        command = submission.command
        now = self._now()
        line = self._lines.setdefault(command.execution_id, _Line())
        line.seq += 1
        # A no-op was applied and changed nothing.
        applied = outcome in (Outcome.APPLIED, Outcome.NO_OP, Outcome.QUEUED)
        row: dict[str, Any] = {
            "seq": line.seq,
            "time": rfc3339(now),
            "executionId": command.execution_id,
            "command": command.name(),
            "args": command.arguments(),
            "outcome": str(Outcome.APPLIED if applied else outcome),
            "actor": submission.actor,
            "via": submission.via,
            "commandId": command_id,
        }
        if target is not None and target.session_id:
            row["sessionId"] = target.session_id
        node_id = command.node_id if isinstance(command, OfNode) else None
        if node_id is not None:
            row["nodeId"] = node_id
        if reason is not None:
            row["reason"] = reason
        if submission.request_id is not None:
            row["requestId"] = submission.request_id
        row = self.mask(row)
        self._keep(line, row)
        if applied or outcome is Outcome.REJECTED:
            self._emit(
                ExecutionEvent(
                    type="control.applied" if applied else "control.rejected",
                    time=now,
                    session_id="" if target is None else target.session_id,
                    workflow_id="" if target is None else target.workflow_id,
                    execution_id=command.execution_id,
                    node_id=node_id,
                    data=row,
                )
            )
        return row

    def _keep(self, line: _Line, row: dict[str, Any]) -> None:
        self._rows.append(row)
        line.rows.append(row)
        self._count += 1
        while len(self._rows) > self._capacity:
            # The oldest of all is the oldest of its run.
            execution_id = self._rows.popleft()["executionId"]
            old = self._lines[execution_id]
            old.rows.popleft()
            if not old.rows:
                del self._lines[execution_id]

    def of_run(self, execution_id: str) -> list[dict[str, Any]]:
        """The rows of a run, oldest first."""
        line = self._lines.get(execution_id)
        return [] if line is None else list(line.rows)

    def find(
        self, query: AuditQuery, limit: int, cursor: str | None = None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Rows of all runs, oldest first.

        Args:
            query: which.
            limit: how many at most.
            cursor: what the page before returned beside its rows.

        Returns:
            The rows, and the cursor of the next page, None at the end.

        Raises:
            BadRequestError: the cursor is none of this list.
            CursorExpiredError: rows behind it are no longer kept.
        """
        first = self._count - len(self._rows)
        start = first
        if cursor is not None:
            if not cursor.isdecimal() or len(cursor) > 18 or int(cursor) > self._count:
                raise BadRequestError(
                    "this is not a cursor of this list",
                    code="invalid_cursor",
                    parameter="afterCursor",
                )
            start = int(cursor)
            if start < first:
                raise CursorExpiredError("these rows are no longer kept", oldest=str(first))
        found: list[dict[str, Any]] = []
        end = start
        for place, row in enumerate(self._rows, first):
            if place < start or not query.accepts(row):
                continue
            if len(found) == limit:
                return found, str(end)
            found.append(row)
            end = place + 1
        return found, None
