"""Sources: stages without parents, and what must be kept before it leaves one.

Where a keeper is given, an element leaves the source only once it is kept. It takes the credit of
its place on every edge with it while it waits, so a source never runs ahead of its children by
more than they asked for.

Features: ENG-01, DUR-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.streams.plan import NodePlan, Outcome
from yukta_rx.streams.stage import Stage

if TYPE_CHECKING:
    import asyncio

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.plan import Keeper


class SourceStage(Stage):
    """What sources share: they are touched when started, and a drain ends them."""

    # One that is a worker too could have no slots of its own.
    __slots__ = ()

    def __init__(self, plan: NodePlan, circuit: Circuit) -> None:
        plan.refuse_attempts("a source")
        super().__init__(plan, circuit)
        if plan.keeper is not None:
            self.lock = Lock(self, plan.keeper)

    def drain(self) -> None:
        """Take nothing more; children see a normal end."""
        if self.prelude:
            self.draining = True
        else:
            self.end(Outcome.STOPPED)

    def give(self, chunk: list[Any]) -> None:
        """Emit new elements; where there is a keeper, once they are kept."""
        if self.lock is None:
            self.emit(chunk)
        else:
            self.lock.take(chunk)

    def conclude(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """What waits for the keeper leaves before the end, unless that is a cancellation."""
        lock = self.lock
        if lock is None or lock.waiting is None or outcome is Outcome.CANCELLED:
            super().conclude(outcome, error)
            return
        if outcome is Outcome.COMPLETED and self.sealing is None:
            lock.last()
        self.circuit.seal(self, lock.waiting, self.conclude, outcome, error)

    def close(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """What did not leave before the end never will, and is counted."""
        if self.lock is not None:
            self.lock.drop()
        super().close(outcome, error)


class Lock:
    """Where elements of a source wait until they are kept."""

    __slots__ = ("_asked", "_held", "_keeper", "_stage", "waiting")

    def __init__(self, stage: SourceStage, keeper: Keeper) -> None:
        self._stage = stage
        self._keeper = keeper
        self._held: list[Any] = []
        """Handed to the keeper, which was not asked yet whether they are kept."""
        self._asked: list[Any] = []
        self.waiting: asyncio.Future[None] | None = None
        """Done when what was asked about is kept."""

    def take(self, chunk: list[Any]) -> None:
        """Take elements in; they leave as soon as they are kept."""
        stage = self._stage
        some = chunk if stage.gives_none else [item for item in chunk if item is not None]
        stage.filtered += len(chunk) - len(some)
        if not some:
            return
        self._keeper.keep(some)
        self._held += some
        for edge in stage.outs:
            edge.credit -= len(some)
        if self.waiting is None:
            self._ask()

    def _ask(self) -> None:
        """Ask about what is held; what is kept at once leaves at once."""
        while self.waiting is None and self._held:
            self._asked, self._held = self._held, []
            kept = self._keeper.kept()
            if kept is None:
                self._leave()
            else:
                kept.add_done_callback(self._kept)
                self.waiting = kept

    def _kept(self, waiting: asyncio.Future[None]) -> None:
        if not waiting.cancelled():
            self.waiting = None
            self._leave()
            self._ask()

    def _leave(self) -> None:
        chunk, self._asked = self._asked, []
        for edge in self._stage.outs:
            edge.credit += len(chunk)
        self._stage.emit(chunk)

    def last(self) -> None:
        """Nothing more is taken in."""
        self._keeper.last()

    def drop(self) -> None:
        """Give up what waits."""
        self._stage.lose(self._asked + self._held)
        self._asked, self._held = [], []
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.cancel()
