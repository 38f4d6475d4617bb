"""Blocking functions and iterables as nodes: the threads they run in, and the way back.

A blocking call runs in a `BlockingPool` and its result comes back to the loop in one
`call_soon_threadsafe` per batch; one per element would cost 125 us against 4. This is where
threads end: nothing else in the engine may be called from one, apart from `Circuit.post` and
`FlowSubscription.dispose`.

Feature: ENG-01, ENG-02.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.pump import Pump
from yukta_rx.streams.stage import SourceStage, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge

T = TypeVar("T")

THREAD_BATCH: Final = 32
"""Elements that go to a thread in one piece, at most."""

TRIP_FAST: Final = 0.005
TRIP_SLOW: Final = 0.020
"""Seconds in a thread at which a batch grows or shrinks: children see nothing before it is back."""


class BlockingPool:
    """A bounded pool of daemon threads for blocking calls.

    Daemon threads, unlike those of `concurrent.futures`, cannot keep a process from exiting when
    a call hangs. Threads are made as they are needed and end when the pool is closed; a call that
    never returns keeps its thread, and `abandon` makes room for another in its place.
    """

    __slots__ = ("_backlog", "_closed", "_idle", "_jobs", "_lock", "_size", "_started")

    def __init__(self, size: int = 16) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least 1 thread, not {size}")
        self._size = size
        self._started = 0
        self._closed = False
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A job is promised a thread when it is submitted, an idle or a new one, or it is in the
        # backlog. Counting threads that wait in `get` would race with those just leaving it.
        self._idle = 0
        self._backlog = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job`, which reports its own errors, in a thread as soon as one is free."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._jobs.put(job)
            if self._idle:
                self._idle -= 1
            elif self._started < self._size:
                self._start()
            else:
                self._backlog += 1

    def abandon(self) -> None:
        """A call may not come back: let another thread take its place."""
        with self._lock:
            self._size += 1
            if self._backlog and not self._closed:
                self._backlog -= 1
                self._start()

    def reclaim(self) -> None:
        """A call that was abandoned came back after all: one thread less is needed again."""
        with self._lock:
            self._size -= 1

    def close(self) -> None:
        """Let the threads end once the jobs at hand are done; does not wait."""
        with self._lock:
            self._closed = True
            for _ in range(self._started):
                self._jobs.put(None)

    def _start(self) -> None:
        self._started += 1
        threading.Thread(target=self._serve, name="yukta-blocking", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            # An idle thread must not keep alive what its last job was about.
            del job
            with self._lock:
                if self._backlog:
                    self._backlog -= 1
                elif self._started > self._size and not self._closed:
                    self._started -= 1
                    return
                else:
                    self._idle += 1

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Await one blocking call, in a copy of the caller's context."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        pump = Pump.of(loop)
        context = contextvars.copy_context()

        def back(result: T | None, error: BaseException | None) -> None:
            pump.outside -= 1
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            elif isinstance(error, StopIteration):
                future.set_exception(RuntimeError("the function raised StopIteration"))
            else:
                future.set_exception(error)

        def job() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(fn, *args)
            except BaseException as raised:
                error = raised
            _to_loop(loop, back, result, error)

        pump.outside += 1
        try:
            self.submit(job)
        except BaseException:
            pump.outside -= 1
            raise
        return await future


def _to_loop(loop: asyncio.AbstractEventLoop, back: Callable[..., None], *args: Any) -> None:
    """Hand a thread's result to the loop; a loop that is gone wants no results."""
    try:
        loop.call_soon_threadsafe(back, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


class _ThreadMixin(Stage):
    """What stages with calls in threads share: one batch out at a time, results on the loop."""

    __slots__ = ()

    def _send(self, job: Callable[[], Any], back: Callable[..., None]) -> None:
        circuit = self.circuit
        context = circuit.context

        def run() -> None:
            _to_loop(circuit.loop, returned, context.copy().run(job))

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

    Runs in the circuit's `BlockingPool`, up to 32 elements in one piece.
    """

    fn: Callable[[Any], Any]
    many: bool = False

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage that calls in a thread."""
        return ThreadStage(plan, circuit, self.fn, self.many)


class ThreadStage(_ThreadMixin):
    """Sends batches to a thread; outputs beyond the credit wait here, as does the next batch."""

    __slots__ = ("busy", "failure", "finished", "fn", "many", "pending", "taken")

    can_hang = True

    def __init__(
        self, plan: NodePlan, circuit: Circuit, fn: Callable[[Any], Any], many: bool
    ) -> None:
        super().__init__(plan, circuit)
        self.fn = fn
        self.many = many
        self.busy = False
        self.finished = 0
        """Calls that returned, written by the thread: a sign of life within a batch."""
        self.pending: list[Any] = []
        self.taken: tuple[Edge, int] | None = None
        """What `pending` was made of; released, and so demanded anew, when all of it is emitted."""
        self.failure: tuple[BaseException, Any] | None = None
        """Ends the stage once what came before the failure is emitted."""
        self.quantum = 1

    def activity(self) -> int:
        """Calls that returned count as they do, not only with their batch."""
        return self.finished + self.emitted

    def working(self) -> bool:
        """A batch is out in a thread."""
        return self.busy

    def run(self) -> None:
        """Flush what waits for credit, then send the next batch."""
        if self.busy:
            if self.closing:
                self.settle()
            if self.pruning:
                self.prune()
            return
        if self.taken is not None and not self._flush():
            return
        if self.failure is not None:
            self.fail(*self.failure)
            return
        n = min(self.room(), THREAD_BATCH)
        if self.ended or (not self.ins and self.complete_if_idle()) or n < 1:
            return
        edge = self.next_edge()
        if edge is None:
            return
        batch = edge.take(n)
        if not self.touched:
            self.touch()
        self.steer = False
        self.busy = True
        self._send(lambda: self._in_thread(batch), lambda result: self._back(edge, batch, *result))

    def _in_thread(self, batch: list[Any]) -> tuple[list[Any], int, float, BaseException | None]:
        outs: list[Any] = []
        done = 0
        start = perf_counter()
        for item in batch:
            if self.steer:
                break
            done += 1
            try:
                if self.many:
                    outs.extend(self.fn(item))
                else:
                    outs.append(self.fn(item))
            except BaseException as error:
                return outs, done, perf_counter() - start, error
            self.finished += 1
        return outs, done, perf_counter() - start, None

    def _back(
        self,
        edge: Edge,
        batch: list[Any],
        outs: list[Any],
        done: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        self.busy = False
        if self.ended:
            # Too late: the stage was cancelled while the call was out.
            self.circuit.pool.reclaim()
            self.discarded += len(batch)
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
            self.discarded += len(batch) - done
            self.failure = error, batch[done - 1]
        elif done < len(batch):
            edge.untake(batch, done)
        edge.held = done
        self.taken = edge, done
        self.pending = outs
        self.wake()

    def _flush(self) -> bool:
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
            return False
        if self.taken is not None:
            (edge, done), self.taken = self.taken, None
            edge.release(done)
        return True

    def release(self) -> None:
        """What could not be emitted any more is dropped, and counted."""
        self.discarded += len(self.pending)
        self.pending = []
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
            self.discarded += len(chunk)
            self._close_iterator()
            return
        if chunk:
            if self.gate is not None:
                self.gate.passed(len(chunk))
            self.emit(chunk)
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
            circuit = self.circuit

            def job() -> None:
                circuit.guard(self, close)

            try:
                circuit.pool.submit(job)
            except RuntimeError:
                # The pool was closed while the last trip was out.
                threading.Thread(target=job, name="yukta-blocking", daemon=True).start()
