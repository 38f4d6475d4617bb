"""Set and clear the breakpoints of a node. Feature: CTL-02."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from yukta_rx.control.commands.base import NodeCommand
from yukta_rx.engine.breakpoints import Breakpoint

if TYPE_CHECKING:
    from yukta_rx.engine.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBreakpoint(NodeCommand):
    """The node is held before each message that is as it says, as if paused; see `Breakpoint`.

    A part of the message (`expression`) is compared with `value` by `op`, or `when` is a condition.
    Without either, before each message. Resume lets the held message through once; step too.
    """

    route: ClassVar = ("POST", "/breakpoint")
    tool: ClassVar = "BREAKPOINT"
    summary: ClassVar = "Hold a node before certain messages"
    errors: ClassVar = ("node_takes_no_messages",)

    expression: str | None = None
    equals: str | None = None
    op: str | None = None
    value: Any = None
    when: str | None = None

    def made(self) -> Breakpoint:
        """The breakpoint.

        Raises:
            ValidationError: it cannot be read.
        """
        return Breakpoint(
            self.expression, self.equals, op=self.op, value=self.value, when=self.when
        )

    def arguments(self) -> dict[str, Any]:
        """The fields that were given."""
        # `super()` does not know the class that `slots` makes.
        given = NodeCommand.arguments(self)
        return {name: value for name, value in given.items() if value is not None}

    def check(self, run: Run) -> None:
        """The node must take messages, and the breakpoint must be readable."""
        self.made()
        run.node(self.node_id).check_takes_messages()

    def apply(self, run: Run) -> bool:
        """Set the breakpoint, beside those that the node has."""
        return run.node(self.node_id).set_breakpoint(self.made())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearBreakpoint(NodeCommand):
    """The node is held no more; a message that is held stays so until resume or step."""

    route: ClassVar = ("DELETE", "/breakpoint")
    tool: ClassVar = "BREAKPOINT_CLEAR"
    summary: ClassVar = "Clear the breakpoints of a node"

    def check(self, run: Run) -> None:
        """The node must exist."""
        run.node(self.node_id)

    def apply(self, run: Run) -> bool:
        """Clear all breakpoints of the node."""
        return run.node(self.node_id).clear_breakpoints()
