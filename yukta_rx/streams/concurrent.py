"""Several calls of one async node at once, each a task; outputs in order, or as they come.

Feature: ENG-02.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.streams.attempts import outputs_of
from yukta_rx.streams.plan import is_given_up
from yukta_rx.streams.stage import Stage

if TYPE_CHECKING:
    import asyncio

    from yukta_rx.streams.attempts import Attempt
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.plan import NodePlan


@dataclass(frozen=True, slots=True, eq=False)
class ConcurrentBody:
    """A coroutine function from one element to a list, up to `most` calls at once.

    Outputs of one call are held back until it has ended; with `ordered` also until those of every
    element before it are emitted. With `holds` the edges have room for what the calls hold beside
    what they may hold anyway; without, no more calls are out than an edge may hold.
    """

    attempt: Attempt
    most: int
    ordered: bool = True
    holds: bool = False

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage with a task per call."""
        return ConcurrentStage(plan, circuit, self)


class _Call:
    """One element in a call, or with its outputs on their way out."""

    __slots__ = ("edge", "error", "item", "outputs", "task")

    def __init__(self, edge: Edge, item: Any) -> None:
        self.edge = edge
        self.item = item
        self.outputs: list[Any] | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None


class ConcurrentStage(Stage):
    """Takes elements while calls are free; what was taken and not emitted is `most` at the most."""

    can_hang = True

    __slots__ = ("body", "calls", "failing", "finished", "leaving")

    spent = ("body",)

    def __init__(self, plan: NodePlan, circuit: Circuit, body: ConcurrentBody) -> None:
        super().__init__(plan, circuit)
        self.body = body
        self.calls: dict[_Call, None] = {}
        """In the order in which their elements came."""
        self.leaving: deque[_Call] | None = None
        """Ended, in the order in which they leave; made with the first of them."""
        self.failing = False
        self.finished = 0

    def start(self) -> None:
        """Get going, with room for what the calls hold."""
        if self.body.holds:
            for edge in self.ins:
                edge.widen(self.body.most)
        super().start()

    def working(self) -> bool:
        """A call is out; those that ended only wait for demand, or for their turn."""
        return any(call.outputs is None and call.error is None for call in self.calls)

    def activity(self) -> int:
        """Calls that ended count too, whatever they gave."""
        return super().activity() + self.finished

    def run(self) -> None:
        """Emit what has ended, then take as many elements as there are free calls."""
        if self.closing:
            self.settle()
        if self.pruning:
            self.prune()
        if not self.ended:
            self._flush()
        while not (self.ended or self.failing) and len(self.calls) < self.body.most:
            if self.front is not None and self.calls and (self.body.ordered or self.leaving):
                # What goes round the call must not overtake what is in one, nor come in between
                # the outputs of one.
                break
            if not self._take():
                break
        if not (self.ended or self.calls):
            self.complete_if_idle()

    def _take(self) -> bool:
        """Take one element; False if none goes into a call, or there is no room for its outputs."""
        edge = self.next_edge() if self.room() > 0 else None
        if edge is None:
            return False
        held = edge.held
        batch = edge.take(1)
        if self.front is not None:
            batch = self.front(edge, batch)
        edge.held = held + len(batch)
        if batch:
            if not self.touched:
                self.touch()
            self.received += 1
            if self.gate is not None:
                self.gate.passed(1)
            self._call(edge, batch[0])
        # The gate may have kept it, or sent it round; it wakes this stage if there is more.
        return bool(batch)

    def _call(self, edge: Edge, item: Any) -> None:
        call = _Call(edge, item)
        self.calls[call] = None
        call.task = self.circuit.tasks.spawn(self._work(call), f"yukta node {self.plan.name}")

    def take_up(self, edge: Edge, item: Any) -> None:
        """Call for an element that was in a call already when its circuit was given up."""
        edge.held += 1
        self._call(edge, item)

    async def _work(self, call: _Call) -> None:
        try:
            call.outputs = await self._outputs(call.item)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            call.error = error
        if self.ended:
            return
        self.finished += 1
        self.failing = self.failing or call.error is not None
        if not self.body.ordered:
            self._leave(call)
        self.wake()

    def _leave(self, call: _Call) -> None:
        if self.leaving is None:
            self.leaving = deque()
        self.leaving.append(call)

    async def _outputs(self, item: Any) -> list[Any]:
        if self.plan.guarded:
            return await outputs_of(self, self.body.attempt, item)
        return await self.body.attempt(item)

    def _flush(self) -> None:
        """Emit outputs as far as there is credit."""
        while not self.ended:
            if self.body.ordered and not self.leaving and self.calls:
                first = next(iter(self.calls))
                if first.outputs is not None or first.error is not None:
                    self._leave(first)
            if not self.leaving:
                return
            call = self.leaving[0]
            if call.error is not None:
                del self.calls[call]
                self.fail(call.error, call.item)
                return
            outputs = call.outputs or []
            room = min((edge.credit for edge in self.outs), default=len(outputs))
            chunk, call.outputs = outputs[:room], outputs[room:]
            if chunk:
                self.emit_outputs(chunk)
            if call.outputs:
                if chunk:
                    # What went out by one port left the credit of another.
                    self.wake()
                return
            self.leaving.popleft()
            del self.calls[call]
            held = call.edge.held
            call.edge.release(1)
            call.edge.held = held - 1
            if self.on_finished is not None:
                self.on_finished((call.item,))
            if self.closing:
                self.settle()

    def _counted(self, call: _Call) -> bool:
        """Whether its element is counted as failed."""
        if call.error is not None:
            return self.plan.guarded
        return any(map(is_given_up, call.outputs or ()))

    def release(self) -> None:
        """Cancel every call that is out; what was taken and not emitted is lost, and counted."""
        for call in self.calls:
            self.discarded += int(not self._counted(call))
            if call.task is not None and not call.task.done():
                call.task.cancel()
        self.calls.clear()
        self.leaving = None
