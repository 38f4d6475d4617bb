"""A function of the whole stream as a node: windows, batches, joins.

Feature: ENG-02.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.streams.aio import WorkerStage
from yukta_rx.streams.attempts import close_iterator

if TYPE_CHECKING:
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.plan import NodePlan
    from yukta_rx.streams.stage import Stage


@dataclass(frozen=True, slots=True, eq=False)
class StreamBody:
    """A function from the node's whole input stream to its whole output stream.

    `fn` is called once, with an async iterator over the elements that pass the gate, and returns
    an async iterable of outputs.
    """

    fn: Callable[[AsyncIterator[Any]], AsyncIterable[Any]]
    settled: Callable[[Any], Sequence[Any]] | None = None
    """The elements that are finished with an output; None if that cannot be told."""

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage with a worker that iterates what `fn` made of the input."""
        return StreamStage(plan, circuit, self.fn, self.settled)


class Inlet(AsyncIterator[Any]):
    """A stage's input as an async iterator: takes an element when one is asked for.

    One task may iterate at a time. Ends when the parents have ended and all is taken.
    """

    __slots__ = ("_stage", "_waiter")

    def __init__(self, stage: StreamStage) -> None:
        self._stage = stage
        self._waiter: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether an element is asked for and none is there."""
        return self._waiter is not None

    def wake(self) -> None:
        """Look again: something changed for the stage."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __anext__(self) -> Any:
        stage = self._stage
        while True:
            if stage.closing:
                stage.settle()
            if stage.ended:
                # A failed or cancelled input must not look like one that came to its end.
                raise asyncio.CancelledError("the node has ended")
            if not stage.ins and stage.open():
                raise StopAsyncIteration
            edge = stage.next_edge() if stage.open() else None
            batch = [] if edge is None else stage.admitted(edge)
            if edge is not None and batch:
                [item] = batch
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

    __slots__ = ("fn", "inlet", "settled")

    def __init__(
        self,
        plan: NodePlan,
        circuit: Circuit,
        fn: Callable[[AsyncIterator[Any]], AsyncIterable[Any]],
        settled: Callable[[Any], Sequence[Any]] | None = None,
    ) -> None:
        plan.refuse_attempts("a function of the whole stream")
        super().__init__(plan, circuit)
        self.fn = fn
        self.settled = settled
        self.inlet = Inlet(self)

    def working(self) -> bool:
        """The function works on what it took, or finishes after its last input."""
        return self.busy and not self.inlet.waiting

    def admitted(self, edge: Edge) -> list[Any]:
        """One element for the function; none if the gate holds it or sends it round."""
        if self.front is None:
            return edge.take(1)
        return self.front(edge, edge.take(1)) if self.room() > 0 else []

    def open(self) -> bool:
        """Whether the gate lets an element through now."""
        return self.gate is None or self.gate.limit(1) > 0

    def run(self) -> None:
        """Wake whichever waits: the worker for credit, the inlet for elements."""
        super().run()
        self.inlet.wake()

    async def work(self) -> None:
        """Draw the outputs, each under credit."""
        outputs = self.fn(self.inlet).__aiter__()
        try:
            async for item in outputs:
                if not await self.emit_one(item):
                    return
                if self.on_finished is not None and self.settled is not None:
                    self.on_finished(self.settled(item))
        finally:
            await close_iterator(outputs)
        self.end(self.natural_end())
