"""Coroutines, async iterators and threads as nodes, with demand; the owner of every task.

An async node has one task, its worker, which lives as long as the node: one task per message
would cost 20 us each, and a plugin's `asyncio.timeout` and `TaskGroup` need a task of their own
to cancel. The worker works off what the pump grants it and parks again, so it yields to other
nodes as the synchronous ones do, and a call that never suspends costs no trip through the loop.
The pump counts what the worker's last batch took, so a turn with many async nodes stays short.

Threads end here: a blocking call runs in a `BlockingPool` and its result comes back to the loop
in one `call_soon_threadsafe` per batch. Nothing else in the engine may be called from a thread,
apart from `Circuit.post` and `FlowSubscription.dispose`.

Feature: ENG-01, ENG-02.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.pump import BATCH_SLOW, Pump
from yukta_rx.streams.stage import SourceStage, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge

T = TypeVar("T")

THREAD_BATCH: Final = 32
"""Elements that go to a thread in one piece."""


# -- tasks


class Tasks:
    """Owner of a circuit's tasks: holds them, knows when the last has gone, cancels them.

    The only place in the engine that makes tasks; `idle` is called when the last one is done.
    """

    __slots__ = ("_idle", "_loop", "_tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop, idle: Callable[[], None]) -> None:
        self._loop = loop
        self._idle = idle
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work`, which reports its own errors, as a task of this owner."""
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def cancel(self) -> None:
        """Cancel every task that is left."""
        for task in tuple(self._tasks):
            task.cancel()

    def names(self) -> list[str]:
        """Names of the tasks that are left."""
        return [task.get_name() for task in self._tasks]

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": f"task {task.get_name()} failed", "exception": error, "task": task}
            )
        if not self._tasks:
            self._idle()


# -- async nodes


class WorkerStage(Stage):
    """A stage whose elements go through a task of its own."""

    __slots__ = ("busy", "cost", "task", "waiter")

    def __init__(self, plan: NodePlan, circuit: Circuit) -> None:
        super().__init__(plan, circuit)
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.busy = False
        self.cost = 0.0

    def run(self) -> float | None:
        """Let the worker go on; while it is in a call, only look whether it must stop."""
        if self.ended:
            return None
        if self.busy:
            if self.closing:
                self.settle()
            if self.pruning:
                self.prune()
            return None
        if self.task is None:
            self.task = self.circuit.tasks.spawn(self._main(), f"yukta node {self.plan.name}")
            return 0.0
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return self.cost

    def park(self) -> asyncio.Future[None]:
        """What the worker awaits until the pump grants it another batch."""
        self.busy = False
        self.waiter = self.circuit.loop.create_future()
        return self.waiter

    async def granted(self) -> bool:
        """Park, and go on when the pump says so; False once the stage has ended."""
        await self.park()
        self.busy = True
        return not self.ended

    async def work(self) -> None:
        """Work until the stage has ended."""
        raise NotImplementedError

    async def _main(self) -> None:
        self.busy = True
        try:
            await self.work()
        except asyncio.CancelledError as error:
            if not self.ended:
                # Nobody cancelled this stage: the call let a cancellation of its own escape.
                self.fail(RuntimeError(f"the call was cancelled from inside: {error!r}"))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a plugin raises ends its node
            self.fail(error, self.culprit)
        finally:
            self.busy = False
            self.waiter = None

    def release(self) -> None:
        """Cancel the worker, unless it is the one that ended the stage."""
        if self.task is not None and asyncio.current_task(self.circuit.loop) is not self.task:
            self.task.cancel()

    async def emit_one(self, item: Any) -> bool:
        """Emit one element once every child has credit for it; False when the stage ended."""
        if item is None:
            self.filtered += 1
            return not self.ended
        while not self.ended and any(edge.credit < 1 for edge in self.outs):
            if not await self.granted():
                return False
            if self.closing:
                self.settle()
            if self.pruning:
                self.prune()
        if self.ended:
            return False
        self.emit([item])
        return True


Convert = Callable[[Any, Any, int], Any]
"""(input, what the call gave, index of the output) to an element, `Routed`, or None to drop."""


@dataclass(frozen=True, slots=True, eq=False)
class AsyncBody:
    """A coroutine function from one element to at most one; one call at a time, in order.

    `exact` as for `MapBody`.
    """

    fn: Callable[[Any], Awaitable[Any]]
    convert: Convert | None = None
    exact: bool = False

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage with a worker."""
        return AsyncStage(plan, circuit, self)


class AsyncStage(WorkerStage):
    """Awaits a coroutine function per element.

    Outputs gather in `chunk` and are emitted when the batch is over. The stage queues itself
    with the pump when a batch begins: if the pump gets to run it before the batch is over, a call
    must have suspended, and `run` emits what is there. So nothing waits for a slow call, and a
    call that does not suspend pays for neither.
    """

    __slots__ = ("chunk", "convert", "flushed", "fn")

    def __init__(self, plan: NodePlan, circuit: Circuit, body: AsyncBody) -> None:
        super().__init__(plan, circuit)
        self.fn = body.fn
        self.convert = body.convert
        self.exact = body.exact
        self.chunk: list[Any] = []
        self.flushed = -1

    def run(self) -> float | None:
        """Grant a batch; or, while a call is suspended, pass on what it left behind."""
        if self.busy:
            if self.flushed < 0 and not self.ended:
                self.steer = True
                self.flushed = len(self.chunk)
                chunk, self.chunk[:] = self.chunk[:], []
                self.emit(chunk)
        elif self.task is not None and self.ins and not (self.more() and self.room() > 0):
            # Nothing to grant: waking the worker for that costs as much as a small batch.
            return None
        return super().run()

    async def work(self) -> None:
        """Batch after batch, each as large as input, credit, gate and quantum allow."""
        while True:
            n = self.room()
            if self.ended or (not self.ins and self.complete_if_idle()):
                return
            edge = self.next_edge() if n > 0 else None
            if edge is not None and await self._batch(edge, n):
                continue
            if self.ended:
                return
            await self.park()
            self.busy = True

    async def _batch(self, edge: Edge, n: int) -> bool:
        """Work off up to `n` elements; True if a call suspended, so the loop had its turn."""
        fn, convert = self.fn, self.convert
        batch = edge.take(n)
        if not self.touched:
            self.touch()
        self.steer = False
        self.flushed = -1
        self.chunk = chunk = []
        append = chunk.append
        self.wake()
        failed = 0
        start = perf_counter()
        try:
            if convert is None:
                for item in batch:
                    append(await fn(item))
                    if self.steer:
                        break
            else:
                for item in batch:
                    append(convert(item, await fn(item), 0))
                    if self.steer:
                        break
        except BaseException:
            failed = 1
            self.culprit = item
            raise
        finally:
            suspended = self.flushed >= 0
            done = max(self.flushed, 0) + len(chunk) + failed
            self.flushed = 0
            self.received += done
            if self.ended:
                self.discarded += len(batch) - done + len(chunk)
            else:
                if self.gate is not None:
                    self.gate.passed(done)
                if done < len(batch):
                    edge.untake(batch, done)
                edge.release(done)
                self.emit(chunk)
        self.cost = 0.0 if suspended else perf_counter() - start
        if suspended:
            self.quantum = max(1, self.quantum // 2)
        elif self.cost > BATCH_SLOW or done >= self.quantum:
            self.adapt(done, self.cost)
        return suspended


@dataclass(frozen=True, slots=True, eq=False)
class AsyncManyBody:
    """A function from one element to an async iterable, drawn as credit allows."""

    fn: Callable[[Any], AsyncIterable[Any]]
    convert: Convert | None = None

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage with a worker that draws from one async iterable at a time."""
        return AsyncManyStage(plan, circuit, self.fn, self.convert)


class AsyncManyStage(WorkerStage):
    """Draws the outputs of one element, then takes the next."""

    __slots__ = ("convert", "fn")

    def __init__(
        self,
        plan: NodePlan,
        circuit: Circuit,
        fn: Callable[[Any], AsyncIterable[Any]],
        convert: Convert | None,
    ) -> None:
        super().__init__(plan, circuit)
        self.fn = fn
        self.convert = convert

    async def work(self) -> None:
        """One element at a time, each output under credit."""
        while True:
            n = self.room()
            if self.ended or (not self.ins and self.complete_if_idle()):
                return
            edge = self.next_edge() if n > 0 else None
            if edge is not None:
                [item] = edge.take(1)
                if not self.touched:
                    self.touch()
                self.received += 1
                self.culprit = item
                if self.gate is not None:
                    self.gate.passed(1)
                if not await self._draw(item):
                    return
                edge.release(1)
                if self.more():
                    self.wake()
            if not await self.granted():
                return

    async def _draw(self, item: Any) -> bool:
        outputs = self.fn(item).__aiter__()
        index = 0
        try:
            async for out in outputs:
                converted = out if self.convert is None else self.convert(item, out, index)
                index += 1
                if not await self.emit_one(converted):
                    return False
        finally:
            await _close(outputs)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class AsyncIterableBody:
    """A source: elements of an async iterable, awaited only while children ask for them."""

    make: Callable[[], AsyncIterable[Any]]

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A source stage with a worker."""
        return AsyncIterableStage(plan, circuit, self.make)


class AsyncIterableStage(WorkerStage, SourceStage):
    """Awaits the next element only when every child has credit."""

    __slots__ = ("make",)

    def __init__(
        self, plan: NodePlan, circuit: Circuit, make: Callable[[], AsyncIterable[Any]]
    ) -> None:
        super().__init__(plan, circuit)
        self.make = make

    async def work(self) -> None:
        """Element by element, until the iterator or the demand ends."""
        self.touch()
        iterator = self.make().__aiter__()
        try:
            while True:
                room = self.room()
                if self.ended:
                    return
                if room < 1:
                    if not await self.granted():
                        return
                    continue
                for _ in range(room):
                    try:
                        item = await anext(iterator)
                    except StopAsyncIteration:
                        self.end(Outcome.COMPLETED)
                        return
                    if self.gate is not None:
                        while self.gate.limit(1) < 1:
                            if not await self.granted():
                                self.discarded += 1
                                return
                        self.gate.passed(1)
                    self.emit([item])
                    if self.ended or self.steer:
                        self.steer = False
                        break
                else:
                    self.wake()
                    if not await self.granted():
                        return
        finally:
            await _close(iterator)


@dataclass(frozen=True, slots=True, eq=False)
class StreamBody:
    """A function from the node's whole input stream to its whole output stream.

    `fn` is called once, with an async iterator over the elements that pass the gate, and returns
    an async iterable of outputs.
    """

    fn: Callable[[AsyncIterator[Any]], AsyncIterable[Any]]

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage with a worker that iterates what `fn` made of the input."""
        return StreamStage(plan, circuit, self.fn)


class Inlet(AsyncIterator[Any]):
    """A stage's input as an async iterator: takes an element when one is asked for.

    One task may iterate at a time. Ends when the parents have ended and all is taken.
    """

    __slots__ = ("_stage", "_waiter")

    def __init__(self, stage: StreamStage) -> None:
        self._stage = stage
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Look again: something changed for the stage."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> Any:
        stage = self._stage
        while True:
            if stage.closing:
                stage.settle()
            if stage.ended or (not stage.ins and stage.open()):
                raise StopAsyncIteration
            edge = stage.next_edge() if stage.open() else None
            if edge is not None:
                [item] = edge.take(1)
                stage.received += 1
                stage.culprit = item
                if not stage.touched:
                    stage.touch()
                if stage.gate is not None:
                    stage.gate.passed(1)
                edge.release(1)
                return item
            self._waiter = stage.circuit.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


class StreamStage(WorkerStage):
    """Lets a function turn the node's whole input into its whole output, under demand."""

    __slots__ = ("fn", "inlet")

    def __init__(
        self,
        plan: NodePlan,
        circuit: Circuit,
        fn: Callable[[AsyncIterator[Any]], AsyncIterable[Any]],
    ) -> None:
        super().__init__(plan, circuit)
        self.fn = fn
        self.inlet = Inlet(self)

    def open(self) -> bool:
        """Whether the gate lets an element through now."""
        return self.gate is None or self.gate.limit(1) > 0

    def run(self) -> float | None:
        """Wake whichever waits: the worker for credit, the inlet for elements."""
        ahead = super().run()
        self.inlet.wake()
        return ahead

    async def work(self) -> None:
        """Draw the outputs, each under credit."""
        outputs = self.fn(self.inlet).__aiter__()
        try:
            async for item in outputs:
                if not await self.emit_one(item):
                    return
        finally:
            await _close(outputs)
        self.end(Outcome.COMPLETED)


async def _close(iterator: Any) -> None:
    """Close an async generator that may not have been drawn to its end."""
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()


# -- threads


class BlockingPool:
    """A bounded pool of daemon threads for blocking calls.

    Daemon threads, unlike those of `concurrent.futures`, cannot keep a process from exiting when
    a call hangs. Threads are made as they are needed and end when the pool is closed; a call that
    never returns keeps its thread, and `abandon` makes room for another in its place.
    """

    __slots__ = ("_closed", "_idle", "_jobs", "_lock", "_size", "_started")

    def __init__(self, size: int = 16) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least 1 thread, not {size}")
        self._size = size
        self._started = 0
        self._idle = 0
        self._closed = False
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job`, which reports its own errors, in a thread as soon as one is free."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._jobs.put(job)
            if self._idle < self._jobs.qsize() and self._started < self._size:
                self._started += 1
                threading.Thread(target=self._serve, name="yukta-blocking", daemon=True).start()

    def abandon(self) -> None:
        """A call is not coming back: let another thread take its place."""
        with self._lock:
            self._size += 1

    def close(self) -> None:
        """Let the threads end once the jobs at hand are done; does not wait."""
        with self._lock:
            self._closed = True
            for _ in range(self._started):
                self._jobs.put(None)

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if job is None:
                return
            job()

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
            except BaseException as raised:  # noqa: BLE001 - goes to the caller
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
            back(result)

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
    """Sends batches to a thread; outputs beyond the credit wait here, and so does the next batch."""

    __slots__ = ("busy", "fn", "many", "pending")

    def __init__(
        self, plan: NodePlan, circuit: Circuit, fn: Callable[[Any], Any], many: bool
    ) -> None:
        super().__init__(plan, circuit)
        self.fn = fn
        self.many = many
        self.busy = False
        self.pending: list[Any] = []

    def run(self) -> float | None:
        """Flush what waits for credit, then send the next batch."""
        if self.busy:
            if self.closing:
                self.settle()
            if self.pruning:
                self.prune()
            return None
        if self.pending and not self._flush():
            return None
        n = min(self.room(), THREAD_BATCH)
        if self.ended or (not self.ins and self.complete_if_idle()) or n < 1:
            return None
        edge = self.next_edge()
        if edge is None:
            return None
        batch = edge.take(n)
        if not self.touched:
            self.touch()
        self.steer = False
        self.busy = True
        self._send(lambda: self._in_thread(batch), lambda result: self._back(edge, batch, *result))
        return None

    def _in_thread(self, batch: list[Any]) -> tuple[list[Any], int, BaseException | None]:
        outs: list[Any] = []
        done = 0
        for item in batch:
            if self.steer:
                break
            done += 1
            try:
                if self.many:
                    outs.extend(self.fn(item))
                else:
                    outs.append(self.fn(item))
            except BaseException as error:  # noqa: BLE001 - goes to the loop, ends the node
                return outs, done, error
        return outs, done, None

    def _back(
        self,
        edge: Edge,
        batch: list[Any],
        outs: list[Any],
        done: int,
        error: BaseException | None,
    ) -> None:
        self.busy = False
        if self.ended:
            # Too late: the stage was cancelled while the call was out.
            self.discarded += len(batch)
            edge.held = 0
            return
        self.received += done
        if self.gate is not None:
            self.gate.passed(done)
        if done < len(batch) and error is None:
            edge.untake(batch, done)
        edge.release(done)
        self.pending = outs
        if error is not None:
            self.discarded += len(batch) - done
            self._flush()
            self.fail(error, batch[done - 1])
            return
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
        return not self.pending

    def release(self) -> None:
        """What could not be emitted any more is dropped, and counted."""
        self.discarded += len(self.pending)
        self.pending = []


@dataclass(frozen=True, slots=True, eq=False)
class ThreadIterableBody:
    """A source: elements of a blocking iterable, drawn in a thread as children ask for them."""

    make: Callable[[], Iterable[Any]]

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A source stage that draws in a thread."""
        return ThreadIterableStage(plan, circuit, self.make)


class ThreadIterableStage(_ThreadMixin, SourceStage):
    """Draws up to 32 elements per trip to a thread."""

    __slots__ = ("busy", "iterator", "make")

    def __init__(
        self, plan: NodePlan, circuit: Circuit, make: Callable[[], Iterable[Any]]
    ) -> None:
        super().__init__(plan, circuit)
        self.make = make
        self.iterator: Iterator[Any] | None = None
        self.busy = False

    def run(self) -> float | None:
        """Send for the next elements, unless a trip is under way."""
        if self.busy:
            if self.pruning:
                self.prune()
            return None
        n = min(self.room(), THREAD_BATCH)
        if n < 1:
            return None
        if not self.touched:
            self.touch()
        self.busy = True
        self._send(lambda: self._in_thread(n), lambda result: self._back(n, *result))
        return None

    def _in_thread(self, n: int) -> tuple[list[Any], BaseException | None]:
        chunk: list[Any] = []
        try:
            if self.iterator is None:
                self.iterator = iter(self.make())
            chunk.extend(islice(self.iterator, n))
        except BaseException as error:  # noqa: BLE001 - goes to the loop, ends the node
            return chunk, error
        return chunk, None

    def _back(self, n: int, chunk: list[Any], error: BaseException | None) -> None:
        self.busy = False
        if self.ended:
            self.discarded += len(chunk)
            self._close_iterator()
            return
        if chunk:
            if self.gate is not None:
                self.gate.passed(len(chunk))
            self.emit(chunk)
        if error is not None:
            self.fail(error)
        elif len(chunk) < n:
            self.end(Outcome.COMPLETED)
        else:
            self.wake()

    def release(self) -> None:
        """Close the iterator, in a thread, once no call is inside it."""
        if not self.busy:
            self._close_iterator()

    def _close_iterator(self) -> None:
        iterator, self.iterator = self.iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            circuit = self.circuit
            self.circuit.pool.submit(lambda: circuit.guard(self, close))
