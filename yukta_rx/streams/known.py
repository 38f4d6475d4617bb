"""A stage in front of a node that takes out elements which were worked off before.

Feature: DUR-03.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from yukta_rx.streams.stage import Stage

if TYPE_CHECKING:
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.plan import NodePlan


class Memory(Protocol):
    """What is known of elements that were worked off before."""

    def room(self, n: int) -> int:
        """How many of the next `n` elements may be looked at now; it wakes the stage for more."""

    def attach(self, stage: Stage) -> None:
        """Remember the stage."""

    def fresh(self, batch: list[Any]) -> list[Any]:
        """The elements of a batch that were not worked off; the others are dealt with."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownBody:
    """Lets through what was not worked off before."""

    memory: Memory

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """The sorting stage."""
        return KnownStage(plan, circuit, self.memory)


class KnownStage(Stage):
    """Moves elements on, without those that were worked off; holds all until that is known."""

    __slots__ = ("memory",)

    def __init__(self, plan: NodePlan, circuit: Circuit, memory: Memory) -> None:
        super().__init__(plan, circuit)
        self.exact = True
        self.memory = memory
        memory.attach(self)

    def run(self) -> None:
        """Look through one batch."""
        n = self.room()
        if self.ended:
            return
        allowed = self.memory.room(max(1, n))
        if allowed < 1:
            return
        if not self.ins:
            self.end(self.natural_end())
            return
        edge = self.next_edge() if n > 0 else None
        if edge is None:
            return
        batch = edge.take(min(n, allowed))
        self.received += len(batch)
        self.count = len(batch)
        edge.release(len(batch))
        self.emit(self.memory.fresh(batch))
        if self.more():
            self.wake()
