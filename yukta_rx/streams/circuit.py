"""A circuit: the stages and edges of one wired graph, from start to its end.

Wiring walks the plans from the leaves upwards without recursion, so a line of 500 nodes is wired
in constant stack. Each plan becomes one stage; a plan with several children is a broadcast.
Nothing moves before every stage has its edges: the pump only runs after `start` has returned, so
no element is lost to a child that subscribes late.

Feature: ENG-01.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from yukta_rx.model.log_fields import log_fields
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.edge import Edge
from yukta_rx.streams.plan import NodePlan, Outcome, Outlet
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.streams.pump import Pump
from yukta_rx.streams.source import SourceStage
from yukta_rx.streams.sync import MapStage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.plan import Waits
    from yukta_rx.streams.stage import Stage

log = logging.getLogger(__name__)


class StopMode(StrEnum):
    """Three strengths of stopping a circuit. Feature: CTL-03."""

    DRAIN = "DRAIN"
    CANCEL = "CANCEL"
    KILL = "KILL"


class Circuit:
    """One running graph. Make it on the loop, `start()` it, and await `done`.

    `pool` runs blocking calls; without one the circuit makes its own at first use and closes it
    at the end. `on_stall(stage, seconds)` hears of a call that held the loop.
    """

    __slots__ = (
        "_context",
        "_live",
        "_own_pool",
        "_pool",
        "done",
        "edges",
        "loop",
        "on_stall",
        "pump",
        "queued",
        "ready",
        "stages",
        "started",
        "tasks",
    )

    def __init__(
        self,
        leaves: Iterable[Flow[Any] | NodePlan],
        *,
        pool: BlockingPool | None = None,
        on_stall: Callable[[Stage, float], None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.pump = Pump.of(self.loop)
        self._context: contextvars.Context | None = None
        self.ready: deque[Stage] = deque()
        self.queued = False
        self.started = False
        self.stages: dict[NodePlan, Stage] = {}
        self.edges: list[Edge] = []
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.tasks = Tasks(self.loop, self._check_done)
        self.on_stall = on_stall
        self._pool = pool
        self._own_pool = pool is None
        self._live = 0
        self._wire([leaf if isinstance(leaf, NodePlan) else leaf.plan for leaf in leaves])

    def _wire(self, waiting: list[NodePlan]) -> None:
        stages = self.stages
        while waiting:
            plan = waiting.pop()
            if plan in stages:
                continue
            if plan.body is None and not plan.parents:
                raise ValueError(f"node {plan.name or '?'} has neither parents nor a source")
            stages[plan] = (plan.body or PASS).stage(plan, self)
            waiting += [outlet.plan for outlet in plan.parents]
        for plan, child in stages.items():
            for outlet in plan.parents:
                edge = Edge(stages[outlet.plan], child, plan.prefetch, outlet.port)
                edge.src.add_child(edge)
                child.ins.append(edge)
                self.edges.append(edge)
        self._live = len(stages)

    @property
    def pool(self) -> BlockingPool:
        """The threads for blocking calls."""
        if self._pool is None:
            self._pool = BlockingPool()
        return self._pool

    def keep_context(self) -> contextvars.Context:
        """What calls in threads begin with: what was current at the first call of this."""
        if self._context is None:
            self._context = contextvars.copy_context()
        return self._context

    def stage_of(self, flow: Flow[Any]) -> Stage:
        """The stage that runs `flow`'s node here; KeyError if it is not part of this circuit."""
        return self.stages[flow.plan]

    def start(self) -> None:
        """Get every stage going. Emits nothing itself; the pump does, from the next turn on."""
        if self.started:
            raise RuntimeError("a circuit starts once")
        self.started = True
        if not self.stages:
            self._check_done()
        for stage in reversed(self.stages.values()):
            stage.start()

    def go_on(self) -> None:
        """`start`, where some stages have ended already."""
        self.started = True
        going = [stage for stage in reversed(self.stages.values()) if not stage.ended]
        self._live = len(going)
        for stage in going:
            stage.start()

    def stop(self, mode: StopMode) -> None:
        """DRAIN ends the sources, CANCEL the leaves, KILL everything without waiting for calls."""
        if mode is StopMode.DRAIN:
            for stage in tuple(self.stages.values()):
                if isinstance(stage, SourceStage):
                    stage.drain()
            return
        for stage in tuple(self.stages.values()):
            if mode is StopMode.KILL or not stage.outs:
                stage.end(Outcome.CANCELLED)
        if mode is StopMode.KILL:
            self.tasks.cancel()
            self._finish()

    def clear(self) -> None:
        """Undo what holds the parts of a circuit that is done together; its counters stay.

        For who makes many: what remains goes as soon as nobody has it, without the collector.
        Nothing happens while a task is left that ignores its cancellation.
        """
        if len(self.tasks):
            return
        for stage in self.stages.values():
            stage.clear()
        self.stages = {}
        self.edges = []
        self.on_stall = None
        self.tasks.forget()

    def unfinished(self) -> list[str]:
        """Names of the nodes whose tasks still run."""
        return sorted(self.tasks.names())

    def post(self, fn: Callable[[], None]) -> None:
        """Run `fn` on the loop soon; may be called from any thread."""
        self.loop.call_soon_threadsafe(fn)

    # -- told by the stages

    def stage_ended(self, stage: Stage, outcome: Outcome, error: BaseException | None) -> None:
        """One stage less to wait for."""
        self._live -= 1
        self._check_done()

    def seal(
        self,
        stage: Stage,
        waits: Waits,
        then: Callable[[Outcome, BaseException | None], None],
        outcome: Outcome,
        error: BaseException | None = None,
    ) -> None:
        """Wait for what the end of a stage waits for, then go on with it."""
        ended = outcome, error

        async def work(waits: Coroutine[Any, Any, None]) -> None:
            nonlocal ended
            try:
                await waits
            except Exception as failure:
                self.report(stage, failure)
                ended = Outcome.FAILED, failure

        def over(sealing: asyncio.Future[None]) -> None:
            if not isinstance(waits, asyncio.Future):
                # A task that is cancelled before its first step never begins with it.
                waits.close()
            if sealing.cancelled() or stage.unsealed[0] is Outcome.FAILED:
                # A watch has spoken, whatever the barrier made of being cancelled.
                stage.close(*stage.unsealed)
            else:
                then(*ended)

        if isinstance(waits, asyncio.Future):
            stage.sealing = waits
        else:
            stage.sealing = self.tasks.spawn(work(waits), f"yukta end of {stage.plan.name}")
        stage.sealing.add_done_callback(over)

    def stalled(self, stage: Stage, seconds: float) -> None:
        """A call of `stage` held the loop for `seconds`."""
        if self.on_stall is not None:
            self.on_stall(stage, seconds)

    def report(self, stage: Stage, error: BaseException) -> None:
        """Log an error that nobody else will see."""
        name = stage.plan.name
        about = log_fields(node_id=name or None)
        log.error("node %s: %s", name or "?", error, exc_info=error, extra=about)

    def offload(self, stage: Stage, job: Callable[[], Any]) -> None:
        """Have foreign clean-up code called in a thread; nobody waits for it."""

        def work() -> None:
            self.guard(stage, job)

        try:
            self.pool.submit(work)
        except RuntimeError:
            # The pool was closed meanwhile.
            threading.Thread(target=work, name="yukta-blocking", daemon=True).start()

    def guard(self, stage: Stage, fn: Callable[[], Any]) -> None:
        """Call foreign clean-up code; its error is logged and hurts nobody."""
        try:
            fn()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.report(stage, error)

    def _check_done(self) -> None:
        if self._live == 0 and not len(self.tasks):
            self._finish()

    def _finish(self) -> None:
        if self.done.done():
            return
        self.done.set_result(None)
        if self._own_pool and self._pool is not None:
            self._pool.close()


class _Pass:
    """The body of a node without a call: elements go through as they are."""

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        return MapStage(plan, circuit, None, exact=True)


PASS = _Pass()

__all__ = ["PASS", "Circuit", "Outlet", "StopMode"]
