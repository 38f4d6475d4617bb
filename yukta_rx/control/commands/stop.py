"""Stop, of a run and of a node, in three strengths. Feature: CTL-03."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from yukta_rx.control.commands.base import Effect, NodeCommand, RunCommand
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from yukta_rx.control.desk import Desk
    from yukta_rx.engine.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorkflow(RunCommand):
    """DRAIN finishes what was emitted, CANCEL cancels calls, KILL waits for nothing.

    A run that waits for its slot is withdrawn, and ends CANCELLED.
    """

    route: ClassVar = ("POST", "/stop")
    tool: ClassVar = "STOP"
    summary: ClassVar = "Stop a run"

    mode: StopMode = StopMode.DRAIN

    def check(self, run: Run) -> None:
        """A live run can always be stopped."""

    def examine(self, desk: Desk) -> None:
        """The run must be live, or wait for its slot."""
        if desk.scheduler.pending(self.execution_id) is None:
            desk.run(self.execution_id)

    def perform(self, desk: Desk) -> Effect | Awaitable[Effect]:
        """Stop the live run, or withdraw it from the queue."""
        if desk.scheduler.pending(self.execution_id) is not None:
            return self._withdraw(desk)
        return Effect(changed=self.apply(desk.run(self.execution_id)))

    async def _withdraw(self, desk: Desk) -> Effect:
        return Effect(changed=await desk.scheduler.withdraw(self.execution_id))

    def apply(self, run: Run) -> bool:
        """Stop the run."""
        return run.stop(self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode(NodeCommand):
    """One node ends, its children see a normal end, and the run goes on."""

    route: ClassVar = ("POST", "/stop")
    tool: ClassVar = "STOP"
    summary: ClassVar = "Stop a node"

    mode: StopMode = StopMode.DRAIN

    def check(self, run: Run) -> None:
        """The node must exist."""
        run.node(self.node_id)

    def apply(self, run: Run) -> bool:
        """Stop the node."""
        return run.stop_node(self.node_id, self.mode)
