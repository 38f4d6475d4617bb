"""What operators write: the immutable plan of one node.

An operator is `Callable[[Flow], Flow]` and writes one slot of a `NodePlan`. While the slots of a
pipe come in the order of `Slot`, they fold into the same node; a slot that is taken, or lies
before the last one written, opens a new node behind it, which costs one edge. `broadcast()` is
the last slot: what follows it always is a new node, so a Flow that feeds several others is shared.

Feature: ENG-02.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.stage import Stage

PREFETCH: Final = 64
"""Elements that an edge lets its producer run ahead, unless told otherwise."""


class Slot(IntEnum):
    """The order of the policies around one call; an operator writes exactly one."""

    START = 0
    MERGE = 1
    VALVE = 3
    CALL = 4
    CLOCKS = 5
    STATUS = 6
    RECORD = 7
    BROADCAST = 8


class Outcome(Enum):
    """How a stage ended, as its observer is told."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Body(Protocol):
    """What a node does with its elements: makes the stage that does it."""

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A new stage of `circuit`, not yet running."""


class Join(Protocol):
    """The rule that decides what an ended parent means."""

    def parent_failed(self, parent: str, error: BaseException) -> BaseException | None:
        """Told as soon as `parent` fails; an error returned ends the node with it at once."""

    def parent_ended(self, parent: str, error: BaseException | None) -> BaseException | None:
        """Told when `parent` has ended and all it sent is worked off; an error ends the node."""


class Gate(Protocol):
    """What a valve contributes: how many elements may pass in front of the call."""

    def attach(self, stage: Stage) -> None:
        """Remember the stage, to wake it when the gate changes."""

    def limit(self, n: int) -> int:
        """How many of the next `n` elements may pass now."""

    def passed(self, n: int) -> None:
        """`n` elements went through."""


class Watch(Protocol):
    """What a clocks slot contributes: watches a stage from its start to its end."""

    def start(self, stage: Stage) -> None:
        """The stage has its edges and gets going."""

    def stop(self) -> None:
        """The stage has ended."""


class Observer(Protocol):
    """What a status slot contributes: told of a stage's first activity and its end, once each."""

    def touched(self, stage: Stage) -> None:
        """The first element came, or a source was started."""

    def ended(self, stage: Stage, outcome: Outcome, error: BaseException | None) -> None:
        """The stage has ended; its children do not know yet."""


Tap = Callable[[str | None, Sequence[Any]], None]
"""Sees each batch of new elements, with its port, before any child can."""

Barrier = Callable[[], Awaitable[None]]
"""Awaited when a node has completed, before any child sees the completion."""


@dataclass(frozen=True, slots=True, eq=False)
class Outlet:
    """One output port of a planned node; port None is the default output."""

    plan: NodePlan
    port: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NodePlan:
    """One node of a graph; becomes exactly one stage in each circuit that uses it."""

    name: str = ""
    parents: tuple[Outlet, ...] = ()
    body: Body | None = None
    join: Join | None = None
    gate: Gate | None = None
    watch: Watch | None = None
    observer: Observer | None = None
    tap: Tap | None = None
    barrier: Barrier | None = None
    prefetch: int = PREFETCH
    """Window of the edges into this node, in elements."""
    last: Slot = Slot.START

    def write(self, slot: Slot, outlet: Outlet, **fields: Any) -> NodePlan:
        """This plan with `fields` in `slot`, or a new node behind `outlet` that has them."""
        if outlet.port is None and self.last < slot:
            return replace(self, last=slot, **fields)
        return NodePlan(parents=(outlet,), last=slot, **fields)
