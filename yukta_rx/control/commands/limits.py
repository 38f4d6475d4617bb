"""Change the limits of the scheduler, and the priority of a start that waits. Feature: ADM-03."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from yukta_rx.control.commands.base import Command, Effect, Role
from yukta_rx.control.scheduler import SCHEDULER
from yukta_rx.control.tickets import priority_fault
from yukta_rx.errors import Fault, ValidationError
from yukta_rx.model.execution_log import ControlApplied

if TYPE_CHECKING:
    from yukta_rx.control.desk import Desk, Target
    from yukta_rx.control.scheduler import Scheduler
    from yukta_rx.durability.stores.execution_log import ExecutionLogStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits(Command):
    """How many runs may go at once, in all and of each workflow; 0 is no limit.

    In force at once: starts that fit now get their slots, and runs that are too many go on. It is
    given to `scheduler` in place of a run.
    """

    role: ClassVar = Role.ADMIN
    scope: ClassVar = "/api/scheduler"
    route: ClassVar = ("PUT", "/limits")
    also: ClassVar = ("POST",)
    aliases: ClassVar = ("/scheduler/limits",)
    tool: ClassVar = "SET_LIMITS"
    summary: ClassVar = "Change how many runs may go at once"

    execution_id: str = SCHEDULER
    max_concurrent: int
    per_workflow: int

    def __post_init__(self) -> None:
        given = {"maxConcurrent": self.max_concurrent, "perWorkflow": self.per_workflow}
        faults = [
            Fault(f"/{name}", "invalid_value", "must be 0, which is no limit, or more")
            for name, value in given.items()
            if value < 0
        ]
        if self.execution_id != SCHEDULER:
            detail = f"must be {SCHEDULER}: limits are not those of a run"
            faults.append(Fault("/executionId", "invalid_value", detail))
        if faults:
            raise ValidationError(faults)

    def target(self, desk: Desk) -> Target:
        """The scheduler."""
        return desk.scheduler

    def examine(self, desk: Desk) -> None:
        """Limits can always be changed."""

    def perform(self, desk: Desk) -> Effect:
        """Change them."""
        return Effect(changed=desk.scheduler.set_limits(self.max_concurrent, self.per_workflow))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPriority(Command):
    """Move a start that waits for a slot; higher goes first."""

    route: ClassVar = ("PUT", "/priority")
    also: ClassVar = ("POST",)
    aliases: ClassVar = ("/executions/{executionId}/priority",)
    tool: ClassVar = "SET_PRIORITY"
    summary: ClassVar = "Move a start that waits for a slot"
    errors: ClassVar = ("not_queued",)

    priority: float

    def __post_init__(self) -> None:
        if (fault := priority_fault(self.priority)) is not None:
            raise ValidationError([Fault("/priority", "invalid_value", fault)])

    def examine(self, desk: Desk) -> None:
        """The start must be waiting."""
        desk.scheduler.check_waiting(self.execution_id)

    async def perform(self, desk: Desk) -> Effect:
        """Move it."""
        return Effect(changed=await desk.scheduler.set_priority(self.execution_id, self.priority))


async def restore_limits(scheduler: Scheduler, log: ExecutionLogStore) -> None:
    """Put those limits in force that a command set last: the log wins over the configuration."""
    newest: SetLimits | None = None
    after = 0
    while entries := await log.read(SCHEDULER, after):
        after = entries[-1].seq
        for entry in entries:
            event = entry.event
            # What was rejected is another class.
            if type(event) is ControlApplied and event.command == SetLimits.name():
                newest = SetLimits.parse(event.args)
    if newest is not None:
        scheduler.set_limits(newest.max_concurrent, newest.per_workflow)
