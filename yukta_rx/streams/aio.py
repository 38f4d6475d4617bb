"""Coroutines and async iterators as nodes, with demand.

An async node has one task, its worker, which lives as long as the node: one task per message
would cost 20 us each, and a plugin's `asyncio.timeout` and `TaskGroup` need a task of their own
to cancel. The worker works off what the pump grants it and parks again, so it yields to other
nodes as the synchronous ones do, and a call that never suspends costs no trip through the loop.
The pump counts what the worker's last batch took, so a turn with many async nodes stays short.

Feature: ENG-01, ENG-02.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from yukta_rx.streams.attempts import Attempt, Hold, close_iterator, collect_async, outputs_of
from yukta_rx.streams.grant import Grant
from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.pump import BATCH_SLOW
from yukta_rx.streams.source import SourceStage
from yukta_rx.streams.stage import Stage
from yukta_rx.streams.tasks import Tasks

if TYPE_CHECKING:
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge


class WorkerStage(Stage):
    """A stage whose elements go through a task of its own."""

    can_hang = True

    __slots__ = ("busy", "grant", "task")

    def __init__(self, plan: NodePlan, circuit: Circuit) -> None:
        super().__init__(plan, circuit)
        self.task: asyncio.Task[None] | None = None
        self.grant = Grant(circuit.loop)
        self.busy = False

    def run(self) -> None:
        """Let the worker go on; while it is in a call, only look whether it must stop."""
        if self.ended:
            if self.pruning:
                self.prune()
            return
        if self.busy:
            if self.closing:
                self.settle()
            if self.pruning:
                self.prune()
            return
        if self.task is None:
            if self.pruning:
                self.prune()
                if self.ended:
                    return
            # From now on: what happens before the worker's first step must not be missed.
            self.busy = True
            self.task = self.circuit.tasks.spawn(self._main(), f"yukta node {self.plan.name}")
        else:
            self.grant.give()

    def working(self) -> bool:
        """A call is out, or a source is being asked."""
        return self.busy

    async def granted(self) -> None:
        """Park, and go on when the pump says so; a stage that has ended is never granted more."""
        self.busy = False
        await self.grant
        self.busy = True

    @abstractmethod
    async def work(self) -> None:
        """Work until the stage has ended."""

    async def _main(self) -> None:
        try:
            # The first batch is granted as every other is, so that many nodes that start at once
            # do so within the turns of the pump.
            self.wake()
            await self.granted()
            if self.pruning:
                self.prune()
            if not self.ended:
                await self.work()
        except asyncio.CancelledError as error:
            if not self.ended:
                # Nobody cancelled this stage: the call let a cancellation of its own escape.
                self.fail(error, self.culprit)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.fail(error, self.culprit)
        finally:
            self.busy = False

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
            await self.granted()
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


@dataclass(slots=True, eq=False)
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

    async def attempt(self, item: Any) -> list[Any]:
        """One attempt at an element."""
        given = await self.fn(item)
        return [given if self.convert is None else self.convert(item, given, 0)]


class AsyncStage(WorkerStage):
    """Awaits a coroutine function per element.

    Outputs gather in `chunk` and are emitted when the batch is over. The stage queues itself
    with the pump when a batch begins: if the pump gets to run it before the batch is over, a call
    must have suspended, and `run` emits what is there. So nothing waits for a slow call, and a
    call that does not suspend pays for neither.
    """

    __slots__ = ("again", "batch", "chunk", "convert", "flushed", "fn")

    spent = ("task", "fn", "convert")

    def __init__(self, plan: NodePlan, circuit: Circuit, body: AsyncBody) -> None:
        super().__init__(plan, circuit)
        self.fn = body.fn
        self.convert = body.convert
        self.exact = self.gives_none = body.exact
        if plan.guarded:
            attempt = body.attempt

            async def guarded(item: Any) -> Any:
                [given] = await outputs_of(self, attempt, item)
                return given

            self.fn, self.convert, self.exact = guarded, None, False
        self.batch: list[Any] = []
        self.chunk: list[Any] = []
        self.flushed = -1
        self.again: tuple[Edge, list[Any]] | None = None  # see `streams.in_hand`

    def run(self) -> None:
        """Grant a batch if there is one; while a call is suspended, pass on what it left."""
        if not self.busy:
            begun = self.task is not None and self.again is None and not self.prelude
            if begun and not self.more():
                return
        elif self.flushed < 0 and not self.ended:
            self.steer = True
            self.flushed = len(self.chunk)
            chunk, self.chunk[:] = self.chunk[:], []
            self.emit(chunk)
            if self.on_finished is not None and chunk:
                self.on_finished(self.batch[: self.flushed])
        super().run()

    def release(self) -> None:
        """Cancel the worker; what it had in its hands before and did not take up is lost."""
        if self.again is not None:
            self.received += 1
            self.discard(self.again[1])
            self.again = None
        super().release()

    async def work(self) -> None:
        """Batch after batch, each as large as input, credit, gate and quantum allow."""
        if self.again is not None:
            (source, batch), self.again = self.again, None
            await self._work_off(source, batch)
        while True:
            n = self.room()
            if self.ended or (not self.ins and self.complete_if_idle()):
                return
            edge = self.next_edge() if n > 0 else None
            if edge is not None and await self._batch(edge, n):
                continue
            if self.ended:
                return
            self.busy = False
            await self.grant
            self.busy = True

    async def _batch(self, edge: Edge, n: int) -> bool:
        """Work off up to `n` elements; True if a call suspended, so the loop had its turn."""
        batch = edge.take(n)
        if self.front is not None and not (batch := self.front(edge, batch)):
            return False
        return await self._work_off(edge, batch)

    async def _work_off(self, edge: Edge, batch: list[Any]) -> bool:
        fn, convert = self.fn, self.convert
        if not self.touched:
            self.touch()
        self.steer = False
        self.flushed = -1
        chunk: list[Any] = []
        self.batch, self.chunk = batch, chunk
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
            before = max(self.flushed, 0)
            done = before + len(chunk) + failed
            self.flushed = 0
            self.received += done
            if self.ended:
                # What was in the call, what waited behind it, and outputs nobody takes any more.
                self.discard(batch[done - failed :])
                self.lose(chunk)
            else:
                if self.gate is not None:
                    self.gate.passed(done)
                if done < len(batch):
                    edge.untake(batch, done)
                edge.release(done)
                self.emit(chunk)
                if self.on_finished is not None and chunk:
                    self.on_finished(batch[before : done - failed])
        seconds = perf_counter() - start
        if suspended:
            self.quantum = max(1, self.quantum // 2)
        elif seconds > BATCH_SLOW or done >= self.quantum:
            self.adapt(done, seconds)
        return suspended


@dataclass(slots=True, eq=False)
class AsyncManyBody:
    """A function from one element to an async iterable, drawn as credit allows."""

    fn: Callable[[Any], AsyncIterable[Any]]
    convert: Convert | None = None
    hold: Hold | None = None

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage with a worker that draws from one async iterable at a time."""
        if not plan.guarded:
            return AsyncManyStage(plan, circuit, self.fn, self.convert)
        return HeldStage(plan, circuit, self.attempt)

    async def attempt(self, item: Any) -> list[Any]:
        """One attempt at an element: all that is given for it."""
        return await collect_async(item, self._converted(item), self.hold)

    async def _converted(self, item: Any) -> AsyncIterator[Any]:
        outputs = self.fn(item).__aiter__()
        index = 0
        try:
            async for out in outputs:
                yield out if self.convert is None else self.convert(item, out, index)
                index += 1
        finally:
            await close_iterator(outputs)


class AsyncManyStage(WorkerStage):
    """Draws the outputs of one element, then takes the next."""

    __slots__ = ("convert", "fn")

    spent = ("task", "fn", "convert")

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
            batch = edge.take(1) if edge is not None else []
            if batch and self.front is not None:
                batch = self.front(edge, batch)  # type: ignore[arg-type]
            if edge is not None and batch:
                [item] = batch
                if not self.touched:
                    self.touch()
                self.received += 1
                self.culprit = item
                if self.gate is not None:
                    self.gate.passed(1)
                finished = False
                try:
                    finished = await self._draw(item)
                finally:
                    # Cancelled in the middle: what it would still have given is lost.
                    self.discarded += int(self.ended and not finished)
                if not finished:
                    return
                edge.release(1)
                if self.on_finished is not None:
                    self.on_finished(batch)
                if self.more():
                    self.wake()
            if self.ended:
                return
            await self.granted()

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
            await close_iterator(outputs)
        return True


class HeldStage(AsyncManyStage):
    """Emits what the attempts at one element gave once that is decided, then takes the next."""

    __slots__ = ()

    def __init__(self, plan: NodePlan, circuit: Circuit, attempt: Attempt) -> None:
        async def outputs(item: Any) -> AsyncIterator[Any]:
            for output in await outputs_of(self, attempt, item):
                yield output

        super().__init__(plan, circuit, outputs, None)


@dataclass(slots=True, eq=False)
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
                    await self.granted()
                    continue
                for _ in range(room):
                    try:
                        item = await anext(iterator)
                    except StopAsyncIteration:
                        self.end(Outcome.COMPLETED)
                        return
                    if not await self._passed():
                        self.discarded += 1
                        return
                    if self.lock is None:
                        self.emit([item])
                    else:
                        self.give([item])
                    if self.ended or self.steer:
                        self.steer = False
                        break
                else:
                    self.wake()
                    await self.granted()
        finally:
            await close_iterator(iterator)

    async def _passed(self) -> bool:
        """Wait until the gate lets an element through; False when the stage ended meanwhile."""
        if self.gate is not None:
            while not self.ended and self.gate.limit(1) < 1:
                await self.granted()
                if self.pruning:
                    self.prune()
            if not self.ended:
                self.gate.passed(1)
        return not self.ended


__all__ = [
    "AsyncBody",
    "AsyncIterableBody",
    "AsyncIterableStage",
    "AsyncManyBody",
    "AsyncManyStage",
    "AsyncStage",
    "Convert",
    "HeldStage",
    "Tasks",
    "WorkerStage",
]
