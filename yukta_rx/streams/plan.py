"""What operators write: the immutable plan of one node.

An operator is `Callable[[Flow], Flow]` and writes one slot of a `NodePlan`. While the slots of a
pipe come in the order of `Slot`, they fold into the same node; a slot that is taken, or lies
before the last one written, opens a new node behind it, which costs one edge. `broadcast()` is
the last slot: what follows it always is a new node, so a Flow that feeds several others is shared.

Feature: ENG-02.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.stage import Stage

PREFETCH: Final = 64
"""Elements that an edge lets its producer run ahead, unless told otherwise."""


class Slot(IntEnum):
    """The order of the policies around one call; an operator writes exactly one."""

    START = 0
    MERGE = 1
    EDGE_BUFFER = 2
    VALVE = 3
    CALL = 4
    ELEMENT_TIMEOUT = 5
    RETRY = 6
    ON_ERROR = 7
    IDLE_TIMEOUT = 8
    DEADLINE = 9
    STATUS = 10
    RECORD = 11
    BROADCAST = 12


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
    """What a valve contributes: how many elements may pass in front of the call.

    It may also set the stage's `front`, which sees each batch before the call does.
    """

    @property
    def open(self) -> bool:
        """Whether everything may pass, until it sets the stage's `steer`."""

    def attach(self, stage: Stage) -> None:
        """Remember the stage, to wake it when the gate changes."""

    def limit(self, n: int) -> int:
        """How many of the next `n` elements may pass now."""

    def passed(self, n: int) -> None:
        """`n` elements went through."""


class Limit(Protocol):
    """What an element timeout contributes: bounds one attempt."""

    async def run(self, item: Any, attempt: Callable[[Any], Awaitable[Any]]) -> Any:
        """Await `attempt(item)`; raises when it takes too long, which cancels it."""

    def stop(self) -> None:
        """The stage has ended."""


class Retry(Protocol):
    """What a retry contributes: whether, when and with what an element is tried again."""

    async def again(self, item: Any, error: BaseException, attempt: int) -> bool:
        """`attempt` failed: wait and return True for another one, False to give up."""

    def numbered(self, item: Any, attempt: int) -> Any:
        """The element as attempt number `attempt`, from 2 on, gets it."""


class OnError(Protocol):
    """What becomes of an element whose last attempt failed."""

    def given_up(self, item: Any, error: BaseException, attempts: int) -> DeadLetter | None:
        """What leaves by the port `error`, None to drop it; raises to fail the node."""


class Keeper(Protocol):
    """What has to keep the elements of a source before they leave it."""

    def keep(self, chunk: Sequence[Any]) -> None:
        """Take elements over, as they would be emitted. Must not keep the list."""

    def kept(self) -> asyncio.Future[None] | None:
        """Done when all that was taken over is kept, None if it is; it does not fail."""

    def last(self) -> None:
        """What was taken over is all; told where some of it is not kept yet."""


class Watch(Protocol):
    """What a clock slot contributes: watches a stage from its start to its end."""

    def start(self, stage: Stage) -> None:
        """The stage has its edges and gets going."""

    def touched(self) -> None:
        """First activity."""

    def stop(self) -> None:
        """The stage has ended."""


class Observer(Protocol):
    """What a status slot contributes: told of a stage's first activity and its end, once each."""

    def touched(self, stage: Stage) -> None:
        """The first element came, or a source was started."""

    def ended(self, stage: Stage, outcome: Outcome, error: BaseException | None) -> None:
        """The stage has ended; its children do not know yet."""


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """An element that was given up, on its way to the port `error`."""

    value: Any


class GivenUp(msgspec.Struct, frozen=True, gc=False):
    """Stands among the outputs for an element that was given up and leaves nothing."""


def is_given_up(output: Any) -> bool:
    """Whether it stands for an element that was given up, which is counted as failed."""
    return type(output) is DeadLetter or type(output) is GivenUp


ERROR_PORT: Final = "error"

Tap = Callable[[str | None, Sequence[Any]], None]
"""Sees each batch of new elements, with its port, before any child can."""

OnFinished = Callable[[Sequence[Any]], None]
"""Told of elements that came in and are worked off: all that they gave has been emitted, and
nothing else since the last time. Must not keep the list."""

Waits = Coroutine[Any, Any, None] | asyncio.Future[None]
"""What is waited for: a coroutine, or a future that does not fail."""

Barrier = Callable[[], Waits | None]
"""Gives what is waited for when a node has completed, before any child sees the completion; None
for nothing. It fails the node if it raises."""


# Not frozen, though nobody changes what is made: a run makes one for each node and edge, and frozen
# ones take four times as long.
@dataclass(slots=True, eq=False)
class Outlet:
    """One output port of a planned node; port None is the default output."""

    plan: NodePlan
    port: str | None = None


@dataclass(slots=True, eq=False)
class NodePlan:
    """One node of a graph; becomes exactly one stage in each circuit that uses it."""

    name: str = ""
    parents: tuple[Outlet, ...] = ()
    body: Body | None = None
    join: Join | None = None
    gate: Gate | None = None
    limit: Limit | None = None
    retry: Retry | None = None
    on_error: OnError | None = None
    idle: Watch | None = None
    deadline: Watch | None = None
    observer: Observer | None = None
    tap: Tap | None = None
    on_finished: OnFinished | None = None
    keeper: Keeper | None = None
    barrier: Barrier | None = None
    prefetch: int = PREFETCH
    """Window of the edges into this node, in elements."""
    last: Slot = Slot.START

    @property
    def guarded(self) -> bool:
        """Whether the call is made element by element, as attempts whose failure has a policy."""
        return not (self.limit is None and self.retry is None and self.on_error is None)

    def refuse_attempts(self, what: str) -> None:
        """Told by a body that makes no call per element.

        Raises:
            ValueError: the plan has a policy for such calls.
        """
        if self.guarded:
            raise ValueError(
                f"node {self.name or '?'} is {what}, which makes no call per element; "
                "retry, on_error and element_timeout need one"
            )

    def write(self, slot: Slot, outlet: Outlet, **fields: Any) -> NodePlan:
        """This plan with `fields` in `slot`, or a new node behind `outlet` that has them."""
        if outlet.port is None and self.last < slot:
            return replace(self, last=slot, **fields)
        return NodePlan(parents=(outlet,), last=slot, **fields)
