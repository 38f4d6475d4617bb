"""Plain functions and iterables as nodes: what runs on the loop, a batch at a time.

How a batch stays exact: `list.extend` over `map` keeps what was computed before an exception, so
the failing element is known by the length, and a StopIteration that escapes from user code, which
would end the `map` silently, shows as a shortfall.

Feature: ENG-01, ENG-02.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.streams.aio import AsyncBody, HeldStage
from yukta_rx.streams.attempts import collect, outputs_of
from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.source import SourceStage
from yukta_rx.streams.stage import NOT_PLAIN, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from yukta_rx.streams.attempts import Hold
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge

_STOPPED: Final = "the function raised StopIteration"


@dataclass(slots=True, eq=False)
class MapBody:
    """A function from one element to at most one: its value, None to drop, or `Routed`.

    `exact` promises one element on the default port for each input, which saves the check;
    `again` is called instead for a further attempt.
    """

    fn: Callable[[Any], Any] | None
    exact: bool = False
    again: Callable[[Any], Any] | None = None

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage that calls on the loop, a batch at a time; in a thread where a call is timed."""
        fn = self.fn
        if plan.limit is None or fn is None:
            return MapStage(plan, circuit, fn, self.exact, self.again)
        call = self.again or fn

        async def in_thread(item: Any) -> Any:
            return await circuit.pool.call(call, item)

        return AsyncBody(in_thread, exact=self.exact).stage(plan, circuit)


class MapStage(Stage):
    """Calls a plain function for a whole batch at once.

    An element whose call raises is tried again by a task, if there is a policy for that; the
    stage waits for it, so order is kept, and elements that do not fail pay nothing for it.
    """

    __slots__ = ("again", "fn", "recovery", "straight")

    def __init__(
        self,
        plan: NodePlan,
        circuit: Circuit,
        fn: Callable[[Any], Any] | None,
        exact: bool,
        again: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(plan, circuit)
        self.fn = fn
        self.again = again or fn
        self.exact = self.gives_none = exact or fn is None
        self.recovery: asyncio.Task[None] | None = None
        self.straight: Edge | None = None
        """The only child's edge, while nothing but the call is between it and the only parent."""

    def run(self) -> None:
        """One batch through the function."""
        out = self.straight
        if out is None or self.steer or self.closing or self.pruning:
            self.straight = None
            self.steer = self.ended
            self._run()
            if len(self.outs) == 1 and len(self.ins) == 1 and self.recovery is None:
                self.straight = self._only_child()
            return
        # What `room`, `take`, `release` and `push` do, written out: in a long line of nodes they
        # cost as much as the calls themselves.
        edge = self.ins[0]
        n = min(out.credit, self.quantum)
        if n < 1:
            self._note_blocked()
            return
        cur, pos = edge.cur, edge.pos
        if pos >= len(cur):
            cur, edge.buf, pos = edge.buf, [], 0
        if pos + n < len(cur):
            batch = cur[pos : pos + n]
            edge.cur, edge.pos = cur, pos + n
        else:
            batch = cur[pos:] if pos else cur
            edge.cur, edge.pos = [], 0
        if batch:
            self._straight_through(edge, batch, out)

    def _straight_through(self, edge: Edge, batch: list[Any], out: Edge) -> None:
        self.count = count = len(batch)
        buf = out.buf
        made = buf if self.exact else []
        before = len(made)
        try:
            made.extend(map(self.fn, batch))  # type: ignore[arg-type]
            if len(made) - before < count:
                raise RuntimeError(_STOPPED)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # What was made before the failure was not counted yet.
            chunk = made[before:]
            del made[before:]
            self.straight = None
            self._failed(edge, batch, chunk, error)
            return
        if made is not buf:
            if not NOT_PLAIN.isdisjoint(map(type, made)):
                self._worked_off(edge, batch, made)
                return
            buf += made
        if self.tap is not None:
            self.tap(None, buf[-count:])
        if self.on_finished is not None:
            self.on_finished(batch)
        self.received += count
        self.emitted += count
        out.credit -= count
        out.passed += count
        if out.blocked_at is not None:
            out.unblock()
        ready = self.circuit.ready
        if not (dst := out.dst).queued:
            dst.queued = True
            ready.append(dst)
        used = edge.used + count
        if used < edge.low:
            edge.used = used
        else:
            edge.credit += used
            edge.used = 0
            if not (src := edge.src).queued:
                src.queued = True
                ready.append(src)
        if edge.buf or edge.pos < len(edge.cur):
            self.wake()

    def _only_child(self) -> Edge | None:
        plain = self.fn is not None and self.front is None
        if plain and self.touched and self.default and (self.gate is None or self.gate.open):
            return self.default[0]
        return None

    def _run(self) -> None:
        n = self.room()
        if self.recovery is not None:
            return
        if self.ended or (not self.ins and self.complete_if_idle()) or n < 1:
            return
        edge = self.next_edge()
        if edge is None:
            return
        batch = edge.take(n)
        if self.front is not None and not (batch := self.front(edge, batch)):
            return
        if not self.touched:
            self.touch()
        self.count = len(batch)
        chunk: list[Any] = []
        if not self._apply(edge, batch, chunk):
            return
        self._worked_off(edge, batch, chunk)

    def _worked_off(self, edge: Edge, batch: list[Any], chunk: list[Any]) -> None:
        count = len(batch)
        self.received += count
        if self.gate is not None:
            self.gate.passed(count)
        edge.release(count)
        self.emit(chunk)
        if self.on_finished is not None:
            self.on_finished(batch)
        if self.more():
            self.wake()

    def _apply(self, edge: Edge, batch: list[Any], chunk: list[Any]) -> bool:
        """Fill `chunk` with what the function makes of `batch`; False once it failed."""
        fn = self.fn
        if fn is None:
            chunk += batch
            return True
        try:
            chunk.extend(map(fn, batch))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._failed(edge, batch, chunk, error)
            return False
        if len(chunk) < len(batch):
            self._failed(edge, batch, chunk, RuntimeError(_STOPPED))
            return False
        return True

    def _failed(self, edge: Edge, batch: list[Any], chunk: list[Any], error: BaseException) -> None:
        done = len(chunk)
        self.received += done + 1
        if self.gate is not None:
            self.gate.passed(done + 1)
        guarded = self.plan.guarded
        if guarded:
            edge.untake(batch, done + 1)
        else:
            self.discard(batch[done + 1 :])
        edge.release(done if guarded else len(batch))
        self.emit(chunk)
        if self.on_finished is not None and done:
            self.on_finished(batch[:done])
        if not guarded:
            self.fail(error, batch[done])
        else:
            edge.held = 1
            self.recovery = self.circuit.tasks.spawn(
                self._recover(edge, batch[done], error), f"yukta node {self.plan.name}"
            )

    async def _recover(self, edge: Edge, item: Any, error: BaseException | None) -> None:
        """Attempts after the first; there is credit for what they give, one element at most.

        Without an error none was made yet.
        """
        try:
            given = await outputs_of(self, self._attempt, item, error)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as last:
            self.recovery = None
            self.fail(last, item)
            return
        self.recovery = None
        edge.release(1)
        self.emit_outputs(given)
        if self.on_finished is not None:
            self.on_finished([item])
        self.wake()

    def clear(self) -> None:
        """Let go of the function too."""
        super().clear()
        self.fn = self.again = self.straight = None

    async def _attempt(self, item: Any) -> list[Any]:
        try:
            return [self.again(item)]  # type: ignore[misc]
        except StopIteration:
            raise RuntimeError(_STOPPED) from None

    def release(self) -> None:
        """Give up the element that is being tried again."""
        if self.recovery is not None:
            self.discarded += 1
            self.recovery.cancel()


@dataclass(slots=True, eq=False)
class ManyBody:
    """A function from one element to an iterable of elements, drawn as credit allows."""

    fn: Callable[[Any], Iterable[Any]]
    hold: Hold | None = None

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage that draws from one iterable at a time, on the loop; timed, in a thread."""
        if not plan.guarded:
            return ManyStage(plan, circuit, self.fn)

        async def attempt(item: Any) -> list[Any]:
            if plan.limit is None:
                return self._drawn(item)
            return await circuit.pool.call(self._drawn, item)

        return HeldStage(plan, circuit, attempt)

    def _drawn(self, item: Any) -> list[Any]:
        return collect(item, self.fn(item), self.hold)


class ManyStage(Stage):
    """Calls a function per element and draws from what it returned, never beyond the credit."""

    __slots__ = ("drawing", "edge", "fn")

    def __init__(
        self, plan: NodePlan, circuit: Circuit, fn: Callable[[Any], Iterable[Any]]
    ) -> None:
        super().__init__(plan, circuit)
        self.fn = fn
        self.drawing: Iterator[Any] | None = None
        self.edge: Edge | None = None

    def room(self) -> int:
        """As any stage, but outputs of an element that is already in the call pass the gate."""
        gate = self.gate
        if self.drawing is None:
            return super().room()
        self.gate = None
        try:
            return super().room()
        finally:
            self.gate = gate

    def run(self) -> None:
        """Draw outputs up to the room there is, taking inputs as earlier ones run dry."""
        room = self.room()
        if self.ended:
            return
        if self.drawing is None and not self.ins and self.complete_if_idle():
            return
        if room < 1:
            return
        chunk: list[Any] = []
        over: list[Any] | None = None if self.on_finished is None else []
        whole = taken = 0
        stays = False
        inputs = room
        if self.drawing is not None and self.gate is not None:
            inputs = self.gate.limit(room)
        try:
            while len(chunk) < room:
                if self.drawing is None:
                    if (over or chunk) and self.front is not None:
                        # It may emit by itself, which must come after what is in `chunk`.
                        break
                    self.edge = self.next_edge() if taken < inputs else None
                    if self.edge is None:
                        break
                    batch = self.edge.take(1)
                    if self.front is not None and not (batch := self.front(self.edge, batch)):
                        # It wakes this stage, if there is more to do.
                        stays = True
                        break
                    [self.culprit] = batch
                    taken += 1
                    if not self.touched:
                        self.touch()
                    self.drawing = iter(self.fn(self.culprit))
                wanted = room - len(chunk)
                before = len(chunk)
                chunk.extend(islice(self.drawing, wanted))
                if len(chunk) - before < wanted:
                    self.drawing = None
                    if over is not None:
                        over.append(self.culprit)
                        whole = len(chunk)
                    self.edge.release(1)  # type: ignore[union-attr]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._account(taken)
            self._emit(chunk, whole, over)
            self.fail(error, self.culprit)
            return
        self._account(taken)
        self.count = max(taken, len(chunk))
        self._emit(chunk, whole, over)
        if self.drawing is not None or (not stays and self.more()):
            self.wake()
        return

    def _emit(self, chunk: list[Any], whole: int, over: list[Any] | None) -> None:
        """Emit; the elements in `over` gave the first `whole`, one that is not over the others."""
        if self.on_finished is None or not over:
            self.emit(chunk)
            return
        self.emit(chunk[:whole])
        self.on_finished(over)
        self.emit(chunk[whole:])

    def _account(self, taken: int) -> None:
        self.received += taken
        if self.gate is not None and taken:
            self.gate.passed(taken)

    def release(self) -> None:
        """Close a generator that was not drawn to its end."""
        drawing, self.drawing = self.drawing, None
        close = getattr(drawing, "close", None)
        if close is not None:
            self.circuit.guard(self, close)


@dataclass(slots=True, eq=False)
class IterableBody:
    """A source: elements of an iterable, taken on the loop as children ask for them.

    `make` is called when the circuit starts, so each subscription begins anew.
    """

    make: Callable[[], Iterable[Any]]
    exact: bool = True

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A source stage on the loop."""
        return IterableStage(plan, circuit, self.make, self.exact)


class IterableStage(SourceStage):
    """Draws from an iterator on the loop, a batch at a time."""

    __slots__ = ("iterator", "make")

    spent = ("iterator", "make")

    def __init__(
        self,
        plan: NodePlan,
        circuit: Circuit,
        make: Callable[[], Iterable[Any]],
        exact: bool,
    ) -> None:
        super().__init__(plan, circuit)
        self.make = make
        self.exact = exact
        self.iterator: Iterator[Any] | None = None

    def run(self) -> None:
        """One batch from the iterator."""
        n = self.room()
        if n < 1:
            return
        chunk: list[Any] = []
        try:
            if self.iterator is None:
                self.touch()
                self.iterator = iter(self.make())
            chunk.extend(islice(self.iterator, n))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._pass(chunk)
            self.fail(error)
            return
        self.count = len(chunk)
        self._pass(chunk)
        if len(chunk) < n:
            self.end(Outcome.COMPLETED)
        else:
            self.wake()
        return

    def _pass(self, chunk: list[Any]) -> None:
        if chunk:
            if self.gate is not None:
                self.gate.passed(len(chunk))
            self.give(chunk)

    def release(self) -> None:
        """Close a generator that was not drawn to its end."""
        close = getattr(self.iterator, "close", None)
        if close is not None:
            self.circuit.guard(self, close)
