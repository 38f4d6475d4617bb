"""Skip and unskip a processor. Feature: CTL-02."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from yukta_rx.control.commands.base import NodeCommand

if TYPE_CHECKING:
    from yukta_rx.engine.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipNode(NodeCommand):
    """From the next message on, messages go round the plugin; one inside it finishes."""

    route: ClassVar = ("POST", "/skip")
    tool: ClassVar = "SKIP"
    summary: ClassVar = "Skip a processor"
    errors: ClassVar = ("node_kind_not_skippable",)

    def check(self, run: Run) -> None:
        """The node must be a processor."""
        run.node(self.node_id).check_skippable()

    def apply(self, run: Run) -> bool:
        """Skip the node."""
        return run.node(self.node_id).skip(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnskipNode(NodeCommand):
    """From the next message on, messages go into the plugin again."""

    route: ClassVar = ("DELETE", "/skip")
    tool: ClassVar = "UNSKIP"
    summary: ClassVar = "Stop skipping a processor"
    errors: ClassVar = ("node_kind_not_skippable",)

    def check(self, run: Run) -> None:
        """The node must be a processor."""
        run.node(self.node_id).check_skippable()

    def apply(self, run: Run) -> bool:
        """Skip the node no more."""
        return run.node(self.node_id).skip(False)
