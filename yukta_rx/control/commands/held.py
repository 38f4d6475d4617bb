"""Let go, drop or edit the message that a breakpoint holds. Features: CTL-02, W61."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from yukta_rx.control.commands.base import NodeCommand, Role
from yukta_rx.engine import held
from yukta_rx.model import codec

if TYPE_CHECKING:
    from yukta_rx.engine.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseHeld(NodeCommand):
    """The held message goes through, once.

    A node that only its breakpoint has paused goes on; one that is paused besides stays so.
    """

    route: ClassVar = ("POST", "/held/release")
    tool: ClassVar = "RELEASE_HELD"
    summary: ClassVar = "Let the held message of a node through"
    errors: ClassVar = ("not_paused",)

    def check(self, run: Run) -> None:
        """A message must be held."""
        held.check_holds(run.node(self.node_id))

    def apply(self, run: Run) -> bool:
        """Let it through."""
        held.release(run.node(self.node_id))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class DropHeld(NodeCommand):
    """The held message is discarded: it counts as dropped, and an `edge.dropped` event tells it.

    The node goes on, or stays paused, as with `ReleaseHeld`.
    """

    route: ClassVar = ("POST", "/held/drop")
    tool: ClassVar = "DROP_HELD"
    summary: ClassVar = "Discard the held message of a node"
    errors: ClassVar = ("not_paused",)

    def check(self, run: Run) -> None:
        """A message must be held."""
        held.check_holds(run.node(self.node_id))

    def apply(self, run: Run) -> bool:
        """Discard it."""
        held.drop(run.node(self.node_id))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class EditHeld(NodeCommand):
    """The held message gets another payload; its id and headers stay, and it is still held."""

    role: ClassVar = Role.ADMIN
    route: ClassVar = ("PUT", "/held")
    tool: ClassVar = "EDIT_HELD"
    summary: ClassVar = "Give the held message of a node another payload"
    errors: ClassVar = ("not_paused", "unserialisable_payload")
    body_only: ClassVar = frozenset({"payload"})

    payload: Any

    def check(self, run: Run) -> None:
        """A message must be held, and the payload must have an exact JSON form."""
        held.check_holds(run.node(self.node_id))
        codec.encode(self.payload)

    def apply(self, run: Run) -> bool:
        """Replace the payload."""
        held.edit(run.node(self.node_id), self.payload)
        return True
