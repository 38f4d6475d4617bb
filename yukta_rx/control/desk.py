"""Desk: what commands act on, in one place. Feature: CTL-01."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from yukta_rx.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from yukta_rx.control.approvals import Approvals
    from yukta_rx.control.restart import Restarts
    from yukta_rx.control.resume import Resumes
    from yukta_rx.control.scheduler import Scheduler
    from yukta_rx.control.starter import Starter
    from yukta_rx.engine.run import Run
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.observe.tracker import Tracker


class Target(Protocol):
    """What the audit says of the thing that a command is about; runs and their states say it."""

    execution_id: str
    session_id: str
    status: TaskStatus

    @property
    def workflow_id(self) -> str:
        """The workflow of the run; empty for what is no run."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What commands act on.

    Attributes:
        starter: starts runs and owns the live ones.
        tracker: knows every run.
        scheduler: gives slots to starts.
        restarts: runs runs again.
        resumes: goes on with runs that a crash ended.
        actor: who gives the command at hand.
        via: where it came in.
    """

    starter: Starter
    tracker: Tracker
    scheduler: Scheduler
    restarts: Restarts
    resumes: Resumes
    actor: str = "engine"
    via: str = "ENGINE"

    def acting(self, actor: str, via: str) -> Desk:
        """The same desk, for a command that this actor gives."""
        return replace(self, actor=actor, via=via)

    @property
    def approvals(self) -> Approvals:
        """What people and programs are asked."""
        return self.starter.approvals

    def target(self, execution_id: str) -> Target | None:
        """A run, live or ended; None if none is known."""
        return (
            self.starter.live.peek(execution_id)
            or self.tracker.state(execution_id)
            or self.scheduler.pending(execution_id)
            or self.resumes.target(execution_id)
        )

    def run(self, execution_id: str) -> Run:
        """A live run.

        Raises:
            NotFoundError: there is no such run.
            ConflictError: it has ended, or has not begun.
        """
        run = self.starter.live.get(execution_id)
        if run is not None and not run.status.terminal:
            return run
        target = self.target(execution_id)
        if target is None:
            raise unknown(execution_id)
        did = "has ended" if target.status.terminal else "has not begun:"
        raise ConflictError(
            f"run {execution_id} {did} {target.status}",
            code="execution_not_running",
            executionId=execution_id,
            status=str(target.status),
        )

    def state(self, execution_id: str) -> dict[str, Any]:
        """A run after a command: status, paused, stepMode; empty for what is no run."""
        run = self.starter.live.peek(execution_id)
        if run is not None:
            shown = {"paused": run.paused, "stepMode": run.step_mode}
            return {"status": str(run.status), **shown}
        target = self.target(execution_id)
        if target is None:
            return {}
        return {"status": str(target.status), "paused": False, "stepMode": False}


def unknown(execution_id: str) -> NotFoundError:
    """Return the error of a run that is not known."""
    return NotFoundError(
        f"there is no run {execution_id}", code="execution_not_found", executionId=execution_id
    )
