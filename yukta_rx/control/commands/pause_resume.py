"""Pause and resume, of a run and of a node. Feature: CTL-02."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from yukta_rx.control.commands.base import NodeCommand, RunCommand

if TYPE_CHECKING:
    from yukta_rx.engine.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseWorkflow(RunCommand):
    """Every node stops taking messages; those under way finish; all clocks stand still."""

    route: ClassVar = ("POST", "/pause")
    tool: ClassVar = "PAUSE"
    summary: ClassVar = "Pause a run"

    def check(self, run: Run) -> None:
        """A live run can always be paused."""

    def apply(self, run: Run) -> bool:
        """Pause the run."""
        return run.pause()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeWorkflow(RunCommand):
    """Every node goes on, also one that was paused alone."""

    route: ClassVar = ("POST", "/resume")
    tool: ClassVar = "RESUME"
    summary: ClassVar = "Resume a run"

    def check(self, run: Run) -> None:
        """A live run can always be resumed."""

    def apply(self, run: Run) -> bool:
        """Resume the run."""
        return run.resume()


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseNode(NodeCommand):
    """One node stops taking messages; its parents are paced by that."""

    route: ClassVar = ("POST", "/pause")
    tool: ClassVar = "PAUSE"
    summary: ClassVar = "Pause a node"

    def check(self, run: Run) -> None:
        """The node must exist."""
        run.node(self.node_id)

    def apply(self, run: Run) -> bool:
        """Pause the node."""
        return run.pause(self.node_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeNode(NodeCommand):
    """One node goes on."""

    route: ClassVar = ("POST", "/resume")
    tool: ClassVar = "RESUME"
    summary: ClassVar = "Resume a node"

    def check(self, run: Run) -> None:
        """The node must exist."""
        run.node(self.node_id)

    def apply(self, run: Run) -> bool:
        """Resume the node."""
        return run.resume(self.node_id)
