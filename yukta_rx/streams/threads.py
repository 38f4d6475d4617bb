"""Blocking functions and iterables as nodes: the threads they run in, and the way back.

A blocking call runs in a `BlockingPool` and its result comes back to the loop in one
`call_soon_threadsafe` per batch; one per element would cost 125 us against 4. This is where
threads end: nothing else in the engine may be called from one, apart from `Circuit.post` and
`FlowSubscription.dispose`.

Feature: ENG-01, ENG-02.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.streams.aio import AsyncBody, HeldStage
from yukta_rx.streams.attempts import Hold, collect, outputs_of
from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.pool import to_loop
from yukta_rx.streams.source import SourceStage
from yukta_rx.streams.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge

THREAD_BATCH: Final = 32
"""Elements that go to a thread in one piece, at most."""

TRIP_FAST: Final = 0.005
TRIP_SLOW: Final = 0.020
"""Seconds in a thread at which a batch grows or shrinks: children see nothing before it is back."""


class _ThreadMixin(Stage):
    """What stages with calls in threads share: one batch out at a time, results on the loop."""

    __slots__ = ()

    def __init__(self, plan: NodePlan, circuit: Circuit) -> None:
        super().__init__(plan, circuit)
        # Whatever is current later, calls begin with what was when the graph was wired.
        circuit.keep_context()

    def _send(self, job: Callable[[], Any], back: Callable[..., None]) -> None:
        circuit = self.circuit
        context = circuit.keep_context()

        def run() -> None:
            to_loop(circuit.loop, returned, context.copy().run(job))

        def returned(result: Any) -> None:
            circuit.pump.outside -= 1
            try:
                back(result)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # as for what the pump runs: the stage ends, not more
                self.crash(error)

        circuit.pump.outside += 1
        circuit.pool.submit(run)


@dataclass(frozen=True, slots=True, eq=False)
class ThreadBody:
    """A blocking function from one element to at most one (`many=False`) or to a list.

    Runs in the circuit's `BlockingPool`, up to 32 elements in one piece; one by one where each
    call is timed.
    """

    fn: Callable[[Any], Any]
    many: bool = False
    hold: Hold | None = None

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage that calls in a thread."""
        if plan.limit is None:
            return ThreadStage(plan, circuit, self)
        if self.many:

            async def attempt(item: Any) -> list[Any]:
                return await circuit.pool.call(self.outputs, item)

            return HeldStage(plan, circuit, attempt)

        async def call(item: Any) -> Any:
            return await circuit.pool.call(self.fn, item)

        return AsyncBody(call).stage(plan, circuit)

    def outputs(self, item: Any) -> list[Any]:
        """All that the function gives for an element; runs in a thread."""
        made = self.fn(item)
        return collect(item, made, self.hold) if self.many else [made]


_Trip = tuple[list[Any], int, int, float, BaseException | None]
"""Outputs, how many of them are of calls that returned, calls, seconds, the last one's error."""


class ThreadStage(_ThreadMixin):
    """Sends batches to a thread; outputs beyond the credit wait here, as does the next batch."""

    __slots__ = (
        "body",
        "busy",
        "failure",
        "finished",
        "fn",
        "guarded",
        "many",
        "pending",
        "recovery",
        "tail",
        "taken",
    )

    can_hang = True

    def __init__(self, plan: NodePlan, circuit: Circuit, body: ThreadBody) -> None:
        super().__init__(plan, circuit)
        self.body = body
        self.fn = body.fn
        self.many = body.many
        self.guarded = plan.guarded
        self.busy = False
        self.recovery: asyncio.Task[None] | None = None
        self.finished = 0
        """Calls that returned, written by the thread: a sign of life within a batch."""
        self.pending: list[Any] = []
        self.taken: tuple[Edge, int, list[Any]] | None = None
        """What `pending` was made of, how many and which; released, and so demanded anew, when all
        of it is emitted."""
        self.tail: list[Any] = []
        """Emitted behind `pending`: what the element gave that failed."""
        self.failure: tuple[Edge, Any, BaseException] | None = None
        """The element that failed, which the policy is asked about, or else ends the stage, once
        what came before it is emitted."""
        self.quantum = 1

    def activity(self) -> int:
        """Calls that returned count as they do, not only with their batch."""
        return self.finished + self.emitted + self.retried

    def working(self) -> bool:
        """A batch is out in a thread, or an element is tried again."""
        return self.busy or self.recovery is not None

    def run(self) -> None:
        """Flush what waits for credit, then send the next batch."""
        if self.busy or self.recovery is not None:
            if self.closing:
                self.settle()
            if self.pruning:
                self.prune()
            return
        if self.taken is not None and not self._flush(*self.taken):
            return
        if self.failure is not None:
            (source, item, error), self.failure = self.failure, None
            if self.guarded:
                self.recovery = self.circuit.tasks.spawn(
                    self._recover(source, item, error), f"yukta node {self.plan.name}"
                )
            else:
                self.fail(error, item)
            return
        n = min(self.room(), THREAD_BATCH)
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
        self.steer = False
        self.busy = True
        self._send(lambda: self._in_thread(batch), lambda result: self._back(edge, batch, *result))

    def _in_thread(self, batch: list[Any]) -> _Trip:
        outs: list[Any] = []
        done = whole = 0
        start = perf_counter()
        for item in batch:
            if self.steer:
                break
            done += 1
            try:
                if self.guarded:
                    outs.extend(self.body.outputs(item))
                elif self.many:
                    outs.extend(self.fn(item))
                else:
                    outs.append(self.fn(item))
            except BaseException as error:
                return outs, whole, done, perf_counter() - start, error
            whole = len(outs)
            self.finished += 1
        return outs, whole, done, perf_counter() - start, None

    def _back(
        self,
        edge: Edge,
        batch: list[Any],
        outs: list[Any],
        whole: int,
        done: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        self.busy = False
        if self.ended:
            # Too late: the stage was cancelled while the call was out.
            self.circuit.pool.reclaim()
            self.discard(batch)
            edge.held = 0
            return
        self.received += done
        if seconds > TRIP_SLOW:
            self.quantum = max(1, self.quantum // 2)
        elif done >= self.quantum and seconds < TRIP_FAST:
            self.quantum = min(2 * self.quantum, THREAD_BATCH)
        if self.gate is not None:
            self.gate.passed(done)
        if error is not None:
            self.failure = edge, batch[done - 1], error
        if error is not None and not self.guarded:
            self.discard(batch[done:])
        elif done < len(batch):
            edge.untake(batch, done)
        edge.held = done
        over = batch[: done - int(error is not None)]
        self.taken = edge, done - int(error is not None and self.guarded), over
        if self.on_finished is None:
            self.pending = outs
        else:
            self.pending, self.tail = outs[:whole], outs[whole:]
        self.wake()

    async def _recover(self, edge: Edge, item: Any, error: BaseException) -> None:
        """Attempts after the first; then its outputs wait for credit like any others."""
        try:
            given = await outputs_of(self, self._attempt, item, error)
        except asyncio.CancelledError:
            raise
        except BaseException as last:
            self.recovery = None
            self.fail(last, item)
            return
        self.recovery = None
        edge.held = 1
        self.taken = edge, 1, [item]
        self.pending = given
        self.wake()

    async def _attempt(self, item: Any) -> list[Any]:
        return await self.circuit.pool.call(self.body.outputs, item)

    def _flush(self, edge: Edge, done: int, over: list[Any]) -> bool:
        """Emit what there is credit for; True when nothing waits any more."""
        if self.closing:
            self.settle()
        if self.pruning:
            self.prune()
        if self.ended:
            return False
        n = min((edge.credit for edge in self.outs), default=len(self.pending))
        chunk, self.pending = self.pending[:n], self.pending[n:]
        if chunk:
            self.emit(chunk)
        if self.pending:
            if chunk:
                # What went out by one port left the credit of another: there may be more to do.
                self.wake()
            return False
        self.taken = None
        if self.on_finished is not None and over:
            self.on_finished(over)
        if self.tail:
            self.pending, self.tail = self.tail, []
            self.taken = edge, done, []
            return self._flush(*self.taken)
        edge.release(done)
        # Its failed element is not worked off yet, and keeps the edge from ending.
        edge.held = int(self.guarded and self.failure is not None)
        return True

    def release(self) -> None:
        """What could not be emitted any more is dropped, and counted."""
        self.lose(self.pending + self.tail)
        self.pending = self.tail = []
        self.discarded += int(self.failure is not None)
        if self.recovery is not None:
            self.discarded += 1
            self.recovery.cancel()
        if self.busy:
            # Whether the call ever comes back or not, it takes no thread from others.
            self.circuit.pool.abandon()


@dataclass(frozen=True, slots=True, eq=False)
class ThreadIterableBody:
    """A source: elements of a blocking iterable, drawn in a thread as children ask for them."""

    make: Callable[[], Iterable[Any]]

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A source stage that draws in a thread."""
        return ThreadIterableStage(plan, circuit, self.make)


class ThreadIterableStage(_ThreadMixin, SourceStage):
    """Draws up to 32 elements per trip to a thread, fewer where each takes long to come."""

    __slots__ = ("busy", "iterator", "make")

    can_hang = True

    def __init__(self, plan: NodePlan, circuit: Circuit, make: Callable[[], Iterable[Any]]) -> None:
        super().__init__(plan, circuit)
        self.make = make
        self.iterator: Iterator[Any] | None = None
        self.busy = False

    def working(self) -> bool:
        """The iterator is being asked, in a thread."""
        return self.busy

    def run(self) -> None:
        """Send for the next elements, unless a trip is under way."""
        if self.busy:
            if self.pruning:
                self.prune()
            return
        n = min(self.room(), THREAD_BATCH)
        if n < 1:
            return
        if not self.touched:
            self.touch()
        self.busy = True
        self.steer = False
        self._send(lambda: self._in_thread(n), lambda result: self._back(*result))

    def _in_thread(self, n: int) -> tuple[list[Any], bool, BaseException | None]:
        """Elements, whether the iterator is exhausted, and what it raised."""
        chunk: list[Any] = []
        limit = perf_counter() + TRIP_SLOW
        try:
            if self.iterator is None:
                self.iterator = iter(self.make())
            for item in islice(self.iterator, n):
                chunk.append(item)
                if self.steer or perf_counter() > limit:
                    return chunk, False, None
        except BaseException as error:
            return chunk, True, error
        return chunk, len(chunk) < n, None

    def _back(self, chunk: list[Any], exhausted: bool, error: BaseException | None) -> None:
        self.busy = False
        if self.ended:
            self.circuit.pool.reclaim()
            self.discard(chunk)
            self._close_iterator()
            return
        if chunk:
            if self.gate is not None:
                self.gate.passed(len(chunk))
            self.give(chunk)
        if error is not None:
            self.fail(error)
        elif exhausted:
            self.end(Outcome.COMPLETED)
        else:
            self.wake()

    def release(self) -> None:
        """Close the iterator, in a thread, once no call is inside it."""
        if self.busy:
            self.circuit.pool.abandon()
        else:
            self._close_iterator()

    def _close_iterator(self) -> None:
        iterator, self.iterator = self.iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            self.circuit.offload(self, close)
