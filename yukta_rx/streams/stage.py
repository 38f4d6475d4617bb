"""A stage: one running node of a circuit, and the batches it moves.

A stage is woken when something changed for it (elements came, credit came back, a neighbour
ended, a command was given) and runs one batch per turn of the pump: as many elements as wait,
as every live child has credit for, as the gate lets through and as the quantum allows. The
quantum adapts so that a batch takes about half a millisecond, which keeps the loop responsive
without paying the per-batch cost for every element.

Alternatives refused: one closure per element through a chain of observers (the stack grows with
the graph, and 22 times slower), and re-wiring the graph for each control action (a command would
race with the elements that are under way). A policy that is off is simply not in the plan: what
a stage tests per batch is a handful of slots that are None.

The kinds of stages are in `sync` (plain functions and iterables), `aio` (coroutines and async
iterators), `threads` (blocking calls), `rx` (Observables) and `leaves` (where elements leave).

Feature: ENG-01, ENG-02.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from yukta_rx.errors import EngineError
from yukta_rx.model.message import Routed
from yukta_rx.streams.faults import as_error
from yukta_rx.streams.plan import (
    ERROR_PORT,
    DeadLetter,
    GivenUp,
    NodePlan,
    Outcome,
    is_given_up,
)
from yukta_rx.streams.pump import BATCH_SLOW

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.source import Lock

QUANTUM_START: Final = 4
QUANTUM_MAX: Final = 1024
BATCH_FAST: Final = 0.0005
CALL_STALL: Final = 0.020
REMEMBERED: Final = 10
"""Seconds that one call may hold the loop before it is reported."""


NOT_PLAIN: Final = frozenset({NoneType, Routed, DeadLetter, GivenUp})
"""Types in a chunk that are not simply for the default output."""


CUT_OFF: Final = (Outcome.CANCELLED, None)


def _has_elements(edge: Edge) -> bool:
    return bool(edge.buf) or edge.pos < len(edge.cur)


class Stage:
    """The part that every kind of node shares: edges, demand, termination, counters."""

    can_hang = False
    """Whether a call can be silent without holding the event loop."""

    spent: ClassVar[tuple[str, ...]] = ()
    """Slots of a kind of stage that only its work needs; they are emptied by `clear`."""

    __slots__ = (
        "attempt",
        "circuit",
        "closing",
        "count",
        "culprit",
        "dead_lettered",
        "default",
        "discarded",
        "draining",
        "emitted",
        "ended",
        "exact",
        "failed",
        "filtered",
        "front",
        "gate",
        "gives_none",
        "ins",
        "lock",
        "on_finished",
        "outs",
        "plan",
        "ports",
        "prelude",
        "pruning",
        "quantum",
        "queued",
        "received",
        "retried",
        "sealing",
        "skipped",
        "steer",
        "strays",
        "tap",
        "touched",
        "turn",
        "unrouted",
        "unsealed",
        "wasted",
    )

    def __init__(self, plan: NodePlan, circuit: Circuit) -> None:
        self.plan = plan
        self.circuit = circuit
        self.gate = plan.gate
        self.tap = plan.tap
        self.on_finished = plan.on_finished
        self.front: Callable[[Edge, list[Any]], list[Any]] | None = None
        """What the gate does with a taken batch before the call: returns what goes into it."""
        self.exact = False
        self.gives_none = False
        """Whether None is an element like any other, and not one that was filtered out."""
        self.ins: list[Edge] = []
        self.outs: list[Edge] = []
        self.default: list[Edge] = []
        self.ports: dict[str, list[Edge]] = {}
        self.queued = False
        self.closing = False
        self.pruning = False
        self.ended = False
        self.draining = False
        self.touched = False
        self.steer = False
        self.prelude = False
        """Whether elements leave it that it did not make; a source that is drained waits for it."""
        self.lock: Lock | None = None
        """Where what a source makes waits until it is kept."""
        self.turn = 0
        self.quantum = QUANTUM_START
        self.count = 0
        """Elements that the last run handled; the pump fits the quantum to what they took."""
        self.received = 0
        self.emitted = 0
        self.filtered = 0
        self.discarded = 0
        self.unrouted = 0
        self.strays: Sequence[Any] = ()
        """The first elements that no child was there for."""
        self.wasted: Sequence[Any] = ()
        """The first elements that were discarded, as far as they were at hand."""
        self.failed = 0
        """Elements that were given up after their last attempt, where there is a policy."""
        self.retried = 0
        self.dead_lettered = 0
        self.skipped = 0
        self.attempt = 1
        """The attempt that is under way, or that was the last."""
        self.culprit: Any = None
        self.unsealed: tuple[Outcome, BaseException | None] = CUT_OFF
        """How it ends when the barrier is cancelled."""
        self.sealing: asyncio.Future[None] | None = None
        """What its end waits for; cancelled when nobody wants that any more."""
        if self.gate is not None:
            self.gate.attach(self)

    # -- wiring

    def add_child(self, edge: Edge) -> None:
        """Let `edge` carry what this stage emits on the edge's port."""
        self.outs.append(edge)
        if edge.port is None:
            self.default.append(edge)
        else:
            self.ports.setdefault(edge.port, []).append(edge)

    def start(self) -> None:
        """Get going; called once, after every stage of the circuit has its edges."""
        for watch in (self.plan.idle, self.plan.deadline):
            if watch is not None:
                watch.start(self)
        self.wake()

    def wake(self) -> None:
        """Have the pump run this stage in its turn; cheap when that is already due."""
        if not self.queued:
            self.queued = True
            circuit = self.circuit
            circuit.ready.append(self)
            if not circuit.queued:
                circuit.pump.enqueue(circuit)

    @abstractmethod
    def run(self) -> None:
        """Work off one batch."""

    # -- what a batch may do

    def room(self) -> int:
        """How many elements may be worked off now; below 1 means wait (or that it ended)."""
        if self.closing:
            self.settle()
        if self.pruning:
            self.prune()
        if self.ended:
            return 0
        n = self.quantum
        for edge in self.outs:
            if edge.credit < n:
                n = edge.credit
        if n < 1:
            self._note_blocked()
        elif self.gate is not None:
            n = self.gate.limit(n)
        return n

    def _note_blocked(self) -> None:
        """There is work, and a child has no credit for it: its edge is what paces this stage."""
        if not self.ins or any(map(_has_elements, self.ins)):
            now = self.circuit.loop.time()
            for edge in self.outs:
                edge.block(now)

    def complete_if_idle(self) -> bool:
        """End successfully once no input is left; a closed gate holds the end back."""
        if self.ins or self.ended:
            return self.ended
        if self.gate is not None and self.gate.limit(1) < 1:
            return False
        self.end(self.natural_end())
        return True

    def natural_end(self) -> Outcome:
        """How it ends when its input has: STOPPED if a drain cut that short."""
        return Outcome.STOPPED if self.draining else Outcome.COMPLETED

    def drain(self) -> None:
        """Take nothing more from the parents, work off what waits, then end STOPPED."""
        self.draining = True
        self.closing = True
        for edge in self.ins:
            edge.finish()
        self.wake()

    def next_edge(self) -> Edge | None:
        """The next input that has elements, taking turns."""
        ins = self.ins
        count = len(ins)
        if count == 1:
            edge = ins[0]
            return edge if edge.buf or edge.pos < len(edge.cur) else None
        for step in range(count):
            index = (self.turn + step) % count
            edge = ins[index]
            if not edge.empty:
                self.turn = index + 1
                return edge
        return None

    def pass_round(self, edge: Edge, batch: list[Any]) -> None:
        """Emit a taken batch as it is, without the call: the gate skips the node."""
        if not self.touched:
            self.touch()
        count = len(batch)
        self.received += count
        self.skipped += count
        edge.release(count)
        self.emit(batch)
        if self.on_finished is not None:
            self.on_finished(batch)
        if self.more():
            self.wake()

    def more(self) -> bool:
        """Something is left that another run could work on."""
        ins = self.ins
        if self.closing or self.pruning or not ins:
            return True
        if len(ins) == 1:
            return bool(ins[0].buf) or ins[0].pos < len(ins[0].cur)
        return any(map(_has_elements, ins))

    def touch(self) -> None:
        """First activity: tell the observer, once."""
        self.touched = True
        if self.plan.observer is not None:
            self.plan.observer.touched(self)
        if self.plan.deadline is not None:
            self.plan.deadline.touched()

    def adapt(self, count: int, seconds: float) -> None:
        """Fit the quantum to what a batch of `count` took; report a call that stalls the loop."""
        if seconds > BATCH_SLOW:
            self.quantum = max(1, self.quantum // 2)
            if seconds > CALL_STALL * count:
                self.circuit.stalled(self, seconds / count)
        elif count >= self.quantum and seconds < BATCH_FAST and self.quantum < QUANTUM_MAX:
            self.quantum *= 2

    # -- signs of life

    def activity(self) -> int:
        """A count that changes whenever an element goes in or out."""
        return self.received + self.emitted + self.retried

    def working(self) -> bool:
        """Whether there is work now that only this stage can do; asked where `can_hang`."""
        return False

    # -- emitting

    def emit(self, chunk: list[Any]) -> None:
        """Hand `chunk`, which may hold None and `Routed`, to every live child it is for."""
        if not self.exact:
            kinds = set(map(type, chunk))
            if not kinds.isdisjoint(NOT_PLAIN):
                chunk = self.sift(chunk)
        if not chunk:
            return
        self.emitted += len(chunk)
        if self.tap is not None:
            self.tap(None, chunk)
        if not self.default and self.outs:
            # Its children all hang on named ports, or those that did not have cancelled.
            self.stray(chunk)
            return
        for edge in self.default:
            edge.push(chunk)

    def emit_outputs(self, outputs: list[Any]) -> None:
        """`emit` for what may hold a dead letter, also where the call itself is exact."""
        exact, self.exact = self.exact, False
        self.emit(outputs)
        self.exact = exact

    def sift(self, chunk: list[Any]) -> list[Any]:
        """Send on what is for a named port; what is left is for the default output."""
        plain: list[Any] = []
        routed: dict[str, list[Any]] = {}
        for item in chunk:
            if item is None and not self.gives_none:
                self.filtered += 1
            elif type(item) is GivenUp:
                continue
            elif type(item) is Routed:
                routed.setdefault(item.port, []).append(item.value)
            elif type(item) is DeadLetter:
                routed.setdefault(ERROR_PORT, []).append(item.value)
                self.dead_lettered += 1
                self.emitted -= 1
            else:
                plain.append(item)
        for port, items in routed.items():
            self.emitted += len(items)
            if self.tap is not None:
                self.tap(port, items)
            edges = self.ports.get(port)
            if not edges:
                self.stray(items)
                continue
            for edge in edges:
                edge.push(items)
        return plain

    def lose(self, outputs: list[Any]) -> None:
        """Count outputs that nobody takes any more; what was given up is counted already."""
        self.discard([output for output in outputs if not is_given_up(output)])

    def stray(self, items: list[Any]) -> None:
        """Count elements that were emitted for nobody, and remember the first."""
        self.unrouted += len(items)
        self.strays = (*self.strays, *items[: REMEMBERED - len(self.strays)])

    def discard(self, items: list[Any]) -> None:
        """Count elements that come to nothing since this stage ends, and remember the first."""
        if items:
            self.discarded += len(items)
            self.wasted = (*self.wasted, *items[: REMEMBERED - len(self.wasted)])

    # -- termination

    def settle(self) -> None:
        """Look at the inputs that ended: ask the join rule, forget those that are worked off."""
        self.closing = False
        join = self.plan.join
        for edge in tuple(self.ins):
            if not edge.closed:
                continue
            name, verdict = edge.src.plan.name, None
            if edge.err is not None and join is not None:
                verdict = join.parent_failed(name, edge.err)
            if verdict is None and edge.empty and not edge.held:
                self._forget(edge)
                verdict = edge.err if join is None else join.parent_ended(name, edge.err)
            elif verdict is None:
                self.closing = True
            if verdict is not None:
                self.end(Outcome.FAILED, verdict)
                return

    def _forget(self, edge: Edge) -> None:
        """Take an input out; the one whose turn it is stays so."""
        index = self.ins.index(edge)
        del self.ins[index]
        self.turn -= int(index < self.turn)

    def prune(self) -> None:
        """Forget children that cancelled; without any left there is nothing to work for."""
        self.pruning = False
        self.outs = [edge for edge in self.outs if not edge.dead]
        self.default = [edge for edge in self.default if not edge.dead]
        self.ports = {
            port: [edge for edge in edges if not edge.dead] for port, edges in self.ports.items()
        }
        if not self.outs:
            self.end(Outcome.CANCELLED)

    def fail(self, error: BaseException, culprit: Any = None) -> None:
        """The call failed for `culprit`: end with its error."""
        self.culprit = culprit
        self.end(Outcome.FAILED, as_error(error))

    def crash(self, error: BaseException) -> None:
        """A defect of the engine, not of the call: end this stage, keep the pump going."""
        defect = EngineError(f"stage {self.plan.name or '?'}: {error!r}")
        defect.__cause__ = error
        self.circuit.report(self, defect)
        self.end(Outcome.FAILED, defect)

    def end(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """End once: cancel what is upstream, tell the observer, then the children."""
        if self.ended:
            if outcome in (Outcome.CANCELLED, Outcome.FAILED) and self.sealing is not None:
                self.unsealed = outcome, error
                self.sealing.cancel()
            return
        self.ended = True
        self.steer = True
        for edge in self.ins:
            self.discard(edge.cancel())
        self.ins = []
        self.release()
        self.conclude(outcome, error)

    def conclude(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Let the children see the end, once the barrier is passed."""
        waits = None
        if outcome is Outcome.COMPLETED and self.plan.barrier is not None:
            try:
                waits = self.plan.barrier()
            except Exception as failure:
                self.circuit.report(self, failure)
                outcome, error = Outcome.FAILED, failure
        if waits is None:
            self.close(outcome, error)
        else:
            self.circuit.seal(self, waits, self.close, outcome)

    def release(self) -> None:
        """Let go of what this kind of stage holds besides its edges."""

    def clear(self) -> None:
        """Let go, at the end of the circuit, of all but the name and what was counted."""
        self.plan = NodePlan(name=self.plan.name)
        self.gate = self.tap = self.on_finished = self.front = self.lock = None
        self.outs, self.default, self.ports = [], [], {}
        for name in self.spent:
            delattr(self, name)

    def close(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Second half of `end`: the observer, the children, the circuit."""
        for watch in (self.plan.idle, self.plan.deadline, self.plan.limit):
            if watch is not None:
                watch.stop()
        if self.plan.observer is not None:
            self.circuit.guard(self, partial(self.plan.observer.ended, self, outcome, error))
        passed_on = error if outcome is Outcome.FAILED else None
        for edge in self.outs:
            edge.close(passed_on)
        self.circuit.stage_ended(self, outcome, error)
