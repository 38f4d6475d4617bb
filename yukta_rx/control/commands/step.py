"""Step, of a run and of a node, and step mode. Feature: CTL-02."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from yukta_rx.control.commands.base import NodeCommand, RunCommand

if TYPE_CHECKING:
    from yukta_rx.engine.run import Run


def _check_count(n: int) -> None:
    if n < 1:
        raise ValueError(f"n must be 1 or more, not {n}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWorkflow(RunCommand):
    """Each node lets exactly `n` messages through, then the run stays paused."""

    route: ClassVar = ("POST", "/step")
    tool: ClassVar = "STEP"
    summary: ClassVar = "Let n messages through each node"

    n: int = 1

    def __post_init__(self) -> None:
        """Refuse a count below 1."""
        _check_count(self.n)

    def check(self, run: Run) -> None:
        """A live run can always be stepped."""

    def apply(self, run: Run) -> bool:
        """Step the run."""
        run.step(self.n)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNode(NodeCommand):
    """One node lets exactly `n` messages through, then stays paused."""

    route: ClassVar = ("POST", "/step")
    tool: ClassVar = "STEP"
    summary: ClassVar = "Let n messages through a node"

    n: int = 1

    def __post_init__(self) -> None:
        """Refuse a count below 1."""
        _check_count(self.n)

    def check(self, run: Run) -> None:
        """The node must exist."""
        run.node(self.node_id)

    def apply(self, run: Run) -> bool:
        """Step the node."""
        run.step(self.n, self.node_id)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStepMode(RunCommand):
    """Step mode on pauses the run, so that it moves only when stepped; off resumes it."""

    route: ClassVar = ("PUT", "/step-mode")
    tool: ClassVar = "STEP_MODE"
    summary: ClassVar = "Switch step mode"

    enabled: bool

    def check(self, run: Run) -> None:
        """A live run can always change its mode."""

    def apply(self, run: Run) -> bool:
        """Switch the mode."""
        return run.set_step_mode(self.enabled)
