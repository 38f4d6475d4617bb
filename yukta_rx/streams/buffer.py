"""A bounded buffer in front of a node: takes what its parents send, at their pace.

The buffer is the edge between this stage and the node behind it, with a window as large as the
buffer. So what waits there is in one list, in the order of arrival, and the node behind takes it
in batches as from any edge.

Feature: ENG-01.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from yukta_rx.errors import BadInputError, EngineError, YuktaError
from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.spill import Spill
from yukta_rx.streams.stage import Stage

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge

DROPPED_PORT: Final = "dropped"

ALL: Final = 1 << 40

OnDrop: TypeAlias = Callable[["Edge", list[Any]], None]
"""Told of elements that were dropped, and the edge whose elements found no room."""


@dataclass(frozen=True, slots=True, eq=False)
class DropBody:
    """Keeps up to `size` elements and drops the oldest, or else the newest, beyond that."""

    size: int
    oldest: bool
    on_drop: OnDrop

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """The buffering stage."""
        return DropStage(plan, circuit, self)


class BufferStage(Stage):
    """What both kinds of buffers share: one child that works the buffer off."""

    __slots__ = ("shown_at", "size")

    def __init__(self, plan: NodePlan, circuit: Circuit, size: int) -> None:
        super().__init__(plan, circuit)
        self.shown_at: Edge | None = None
        self.exact = True
        self.size = size

    def free(self) -> int:
        """How many more elements the buffer has room for; what the child works on is not in it."""
        edge = self.default[0]
        return self.size - (len(edge.buf) + len(edge.cur) - edge.pos)

    def waiting(self) -> int:
        """Elements in the buffer."""
        return self.size - self.free() if self.default else 0

    def start(self) -> None:
        """Remember at which edge what waits here is shown."""
        self.shown_at = self.ins[0]
        super().start()

    def taken(self, n: int = ALL) -> tuple[Edge, list[Any]] | None:
        """Up to `n` elements of those that wait on the next input, which may send more at once."""
        edge = self.next_edge() if n > 0 else None
        if edge is None:
            return None
        batch = edge.take(n)
        edge.release(len(batch))
        self.received += len(batch)
        return edge, batch

    def attend(self) -> bool:
        """Look at inputs and children that ended; False if nothing is left to do."""
        if self.closing:
            self.settle()
        if self.pruning:
            self.prune()
        if not self.ended and not self.default:
            # Who works the buffer off is gone; what hangs on the port `dropped` is no reason.
            self.end(Outcome.CANCELLED)
        return not self.ended


class DropStage(BufferStage):
    """What finds no room is dropped, counted and reported; the node behind paces nobody.

    Where the port `dropped` has readers they get all of it, and so pace the parents.
    """

    __slots__ = ("body",)

    def __init__(self, plan: NodePlan, circuit: Circuit, body: DropBody) -> None:
        super().__init__(plan, circuit, body.size)
        self.body = body

    def run(self) -> None:
        """Move everything that waits on the inputs into the buffer."""
        if not self.attend():
            return
        readers = self.ports.get(DROPPED_PORT, ())
        while (
            taken := self.taken(min((edge.credit for edge in readers), default=ALL))
        ) is not None:
            edge, batch = taken
            excess = len(batch) - self.free()
            if excess > 0:
                batch = self._without(edge, batch, excess)
            self.emit(batch)
        if self.next_edge() is not None:
            # A reader of what was dropped has no credit; it wakes this stage when it has.
            return
        if self.closing:
            self.wake()
        elif not self.ins:
            self.end(self.natural_end())

    def _without(self, edge: Edge, batch: list[Any], excess: int) -> list[Any]:
        if self.body.oldest:
            dropped = self.default[0].drop_oldest(excess)
            more = excess - len(dropped)
            dropped, batch = dropped + batch[:more], batch[more:]
        else:
            keep = max(0, len(batch) - excess)
            batch, dropped = batch[:keep], batch[keep:]
        edge.dropped += len(dropped)
        for child in self.ports.get(DROPPED_PORT, ()):
            child.push(dropped)
        self.body.on_drop(edge, dropped)
        return batch


@dataclass(frozen=True, slots=True, eq=False)
class SpillBody:
    """Keeps up to `size` elements in memory and any number more on disk."""

    size: int
    folder: Path | None
    flatten: Callable[[Any], Any]
    restore: Callable[[Any], Any]

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """The spilling stage."""
        return SpillStage(plan, circuit, self)


class SpillStage(BufferStage):
    """Loses nothing: what finds no room in memory waits on disk, in order.

    Reading and writing go through a thread; while one is under way the parents are paced by
    their edges, so memory stays bounded whatever the disk does.
    """

    __slots__ = ("backlog", "body", "moving", "pending", "spill", "trip")

    def __init__(self, plan: NodePlan, circuit: Circuit, body: SpillBody) -> None:
        super().__init__(plan, circuit, body.size)
        self.body = body
        self.spill = Spill(body.folder)
        self.trip: asyncio.Task[None] | None = None
        """Reads or writes, in a thread."""
        self.backlog = 0
        """Elements on disk."""
        self.moving = 0
        """Elements on their way there."""
        self.pending: list[Any] = []
        """Read from disk, and not in the buffer yet."""

    def waiting(self) -> int:
        """Elements in memory and on disk."""
        return super().waiting() + self.backlog + self.moving + len(self.pending)

    def run(self) -> None:
        """Fill the buffer, from disk before all else; write what finds no room."""
        if not self.attend() or self.trip is not None:
            return
        self._fill()
        if self.backlog and self.free() > 0:
            self._send(self.spill.read, self._has_read)
            return
        taken = self.taken()
        if taken is not None:
            room = 0 if self.backlog or self.pending else max(0, self.free())
            _edge, batch = taken
            self.emit(batch[:room])
            if rest := batch[room:]:
                self.moving = len(rest)
                self._send(lambda: self._write(rest), self._has_written)
            else:
                self.wake()
        elif not (self.ins or self.backlog or self.pending):
            self.end(self.natural_end())

    def _fill(self) -> None:
        room = max(0, self.free())
        chunk, self.pending = self.pending[:room], self.pending[room:]
        self.emit(chunk)

    def _has_read(self, chunk: list[Any]) -> None:
        self.backlog -= len(chunk)
        self.pending = list(map(self.body.restore, chunk))

    def _has_written(self, _result: None) -> None:
        self.backlog += self.moving
        self.moving = 0

    def _write(self, chunk: list[Any]) -> None:
        self.spill.write([self.body.flatten(item) for item in chunk])

    def _send(self, job: Callable[[], Any], back: Callable[[Any], None]) -> None:
        async def work() -> None:
            fault: YuktaError
            try:
                result = await self.circuit.pool.call(job)
            except OSError as error:
                detail = f"the edge buffer of node {self.plan.name} cannot spill to disk: {error}"
                fault = EngineError(detail)
                fault.__cause__ = error
            except Exception as error:
                fault = BadInputError(f"a message cannot be spilled to disk: {error}")
                fault.__cause__ = error
            else:
                self.trip = None
                back(result)
                self.wake()
                return
            self.trip = None
            self.end(Outcome.FAILED, fault)

        self.trip = self.circuit.tasks.spawn(work(), f"yukta edge buffer {self.plan.name}")

    def release(self) -> None:
        """Drop what is on disk, and wait for no disk any more."""
        self.discarded += self.backlog + len(self.pending) + self.moving
        self.pending = []
        self.backlog = self.moving = 0
        if self.trip is not None:
            self.trip.cancel()
        if self.trip is not None or self.spill.used:
            self.circuit.offload(self, self.spill.close)
