"""SuspendableRun: a run that can be put aside while it only waits, and taken up again.

It is taken up as another object under the same id: the whole graph is wired as it was, stages of
nodes that have ended are ended from the start, the others have their numbers and their messages
back, and nothing that was told is told again. That happens in one step of the loop, so a command
that comes meanwhile finds a run like any other. Only plugins that declare `open` need a moment:
their nodes take no message before it is over.

Feature: CTL-05.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from yukta_rx.engine.assembly import wire
from yukta_rx.engine.opening import Ready
from yukta_rx.engine.policies import guarded
from yukta_rx.engine.run import Run
from yukta_rx.engine.steering import CANCEL_GRACE
from yukta_rx.engine.suspension import (
    NUMBERS,
    EdgeLeft,
    Left,
    NodeLeft,
    edges_of,
    left_of,
    still,
    take_apart,
)
from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.aio import WorkerStage
from yukta_rx.streams.attempts import cancelling
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.concurrent import ConcurrentStage
from yukta_rx.streams.in_hand import take_up
from yukta_rx.streams.plan import Outcome
from yukta_rx.streams.sync import IterableBody, MapBody

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.progress import RunOutcome
    from yukta_rx.operators import Valve
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.stage import Stage

log = logging.getLogger(__name__)


class SuspendableRun(Run):
    """A run that can be put aside.

    Attributes:
        closed: set once its plugins are closed, where it was put aside.
        origin: what its starter made it of; not looked at.
    """

    closed: asyncio.Event | None = None
    origin: Any = None
    _again = False
    _withdrawn: tuple[asyncio.Task[None], ...] = ()
    _gates: tuple[asyncio.Task[None], ...] = ()

    # -- putting it aside

    def mark(self) -> tuple[int, ...]:
        """What differs from an earlier look if anything has happened meanwhile."""
        return (
            self._version,
            *(stage.activity() for node in self.nodes.values() if (stage := node.stage)),
        )

    def left(self) -> Left | None:
        """What would be left of it now; None unless it does nothing but wait for signals."""
        circuit, signals = self._circuit, self.signals
        if circuit is None or signals is None or not self._calm(circuit):
            return None
        asked = signals.still(self.execution_id)
        if asked is None or not any(asked.values()):
            return None
        nodes = self.nodes.values()
        if not all(still(node, asked.get(node.id, ())) for node in nodes):
            return None
        # A task that is not one of these does something that is not known here.
        workers = sum(
            isinstance(stage, WorkerStage) and stage.task is not None for stage in _of(nodes)
        )
        calls = sum(len(stage.calls) for stage in _of(nodes) if isinstance(stage, ConcurrentStage))
        if len(circuit.tasks) != workers + calls:
            return None
        going = [node for node in nodes if not node.status.terminal]
        if self._recording is not None and not self._recording.rests(going):
            return None
        return left_of(self, circuit, self._due)

    def leave(self) -> float:
        """Put it aside, of which it is known what is left: it ends without a word.

        Returns:
            When what is left has to be looked at, in seconds of the loop.
        """
        circuit, signals = self._circuit, self.signals
        assert circuit is not None, "it executes"
        assert signals is not None, "messages wait in it"
        self.suspended, self.closed = True, asyncio.Event()
        for node in self.nodes.values():
            if not node.status.terminal and node.prepared.spec.open is None:
                # It is closed once, when it really ends.
                self._plugins.let_go(node.id)
        take_apart(self, circuit)
        for timer in self._timers:
            timer.cancel()
        lags = {node.id: node.clock.lag for node in self.nodes.values()}
        first = signals.leave(self.execution_id, lags)
        return first if self._due is None else min(first, self._due + self.lag)

    def _calm(self, circuit: Circuit) -> bool:
        """Whether the run as a whole only goes on by itself."""
        steered = self.paused or self.step_mode or self._draining or self.taps > 0
        ending = self._verdict is not None or self._first_failure is not None
        family = self.borrowed or bool(self.children.runs)
        usual = self.status is TaskStatus.RUNNING and not circuit.done.done()
        busy = circuit.queued or self._hold.held or self._own_pool or self._lines.busy
        return usual and not (steered or ending or family or busy)

    def numbered(self) -> dict[str, Any]:
        """What it has numbered of what it said, and which nodes wrote lines."""
        return {
            "version": self._version,
            "snapshots": self._snapshots,
            "cursor": self._voice.cursor,
            "writers": self._lines.written(),
        }

    @property
    def lag(self) -> float:
        """Seconds of pauses that are over."""
        return self._active.lag

    def told(self, node: NodeRuntime) -> tuple[Any, float | None]:
        """The options of a node that were made when it was opened, and its idle limit."""
        call = self._plugins.call_of(node.id)
        constant = node.prepared.config.constant
        config = None if call is None or call.config is constant else call.config
        touched = node.stage is not None and node.stage.touched
        return config, node.idle.limit if touched and node.idle is not None else None

    # -- taking it up

    def take_up(self, left: Left, closed: asyncio.Event | None) -> None:
        """Go on with what was left of it; `execute` it as any other.

        Args:
            left: what was left.
            closed: set once its plugins are closed; None if they are.

        Raises:
            Exception: it cannot, whatever the reason; nothing goes on of it.
        """
        self._again = True
        try:
            self._go_on(left, closed)
        except BaseException:
            for timer in self._timers:
                timer.cancel()
            if self._circuit is not None:
                take_apart(self, self._circuit)
            self._part()
            raise

    def _go_on(self, left: Left, closed: asyncio.Event | None) -> None:
        self.status, self.started_at = TaskStatus.RUNNING, left.started_at
        self._version, self._snapshots = left.version, left.snapshots
        self._voice.cursor = left.cursor
        self._lines.go_on(left.writers)
        self._active.lag = left.lag
        ready: dict[str, Ready] = {}
        opening: dict[str, Callable[[], Awaitable[None]]] = {}
        for node, was in zip(self.nodes.values(), left.nodes, strict=True):
            node.status, node.began, node.meter = was.status, was.began, was.meter
            node.started_at, node.ended_at = was.started_at, was.ended_at
            node.clock.lag = was.lag
            if was.more.counted is not None:
                node.counted = was.more.counted
            if was.status.terminal:
                node.outcome = Outcome.COMPLETED
                node.valve.skip(was.more.skipping)
                trigger = node.kind is PluginKind.TRIGGER
                ready[node.id] = Ready(IterableBody(tuple) if trigger else MapBody(None))
                if was.more.beats:
                    node.context = self._context_of(node)
                    node.context.beats, node.context.cancelled = was.more.beats, True
            elif (work := self._reopen(node, was)) is not None:
                opening[node.id] = work
        self._wire_again(left, ready, opening, closed)
        if left.deadline is not None:
            self._due = left.deadline
            self._timers.append(self._active.call_at(left.deadline, self._overdue))

    def _reopen(self, node: NodeRuntime, was: NodeLeft) -> Callable[[], Awaitable[None]] | None:
        """Make a node's plugin ready; what opens it, if it declares that."""
        node.context = self._context_of(node)
        node.context.beats = was.more.beats
        if self.signals is not None:
            self.signals.attach(self.execution_id, node.id, node.clock, node.say)
            if guarded(node.prepared.policy):
                node.policies.on_failed = partial(self._withdraw, node.id)
        shared, began = node.id in self._shared, was.started_at is not None
        return self._plugins.again(
            node, node.context, shared=shared, config=was.more.config, began=began
        )

    def _wire_again(
        self,
        left: Left,
        ready: Mapping[str, Ready],
        opening: Mapping[str, Callable[[], Awaitable[None]]],
        closed: asyncio.Event | None,
    ) -> None:
        for node_id in self._replay.partial:
            # It had a stage in front that took out what was finished before a crash; no more.
            self.nodes[node_id].prelude = _Over()  # type: ignore[assignment]
        plans = wire(
            self.prepared,
            self.nodes,
            {**self._replay.ready(), **self._plugins.ready, **ready},
            prefetch=self._settings.execution.prefetch,
            hooks_of=self._hooks_of,
            replay=self._replay,
        )
        circuit = self._circuit = Circuit(plans.values(), pool=self._pool, on_stall=self._stalled)
        for node_id, plan in plans.items():
            node = self.nodes[node_id]
            node.wired(circuit.stages[plan])
            node.prelude = None
        edges = edges_of(self.definition, circuit)
        for node, was in zip(self.nodes.values(), left.nodes, strict=True):
            if node.stage is not None:
                _set_stages(node, node.stage, was)
        circuit.go_on()
        for edge, had in zip(edges, left.edges, strict=True):
            _set_edge(edge, had)
            if had.meter is not None:
                self.rates[edge] = had.meter
        for node, was in zip(self.nodes.values(), left.nodes, strict=True):
            if was.more.hand and node.stage is not None:
                take_up(node.stage, [(edges[place], message) for place, message in was.more.hand])
            if node.id in opening and node.stage is not None:
                gate = _Unopened(node.stage, node.valve, opening[node.id], closed)
                about = log_fields(self.execution_id, node.id)
                opened = circuit.tasks.spawn(gate.opened(about), f"yukta open {node.id}")
                self._gates += (opened,)
        self._edges = circuit.edges
        self._hold.begin(circuit)

    # -- its life

    async def execute(self) -> RunOutcome:
        """Run to the end, or until it is put aside."""
        if not self._again:
            return await super().execute()
        passed = 0.0
        if self.started_at is not None:
            passed = (self._clock.wall() - self.started_at).total_seconds()
        return await self._to_the_end(self._clock.now() - passed)

    def end_with(
        self, status: TaskStatus, error: dict[str, Any] | None, mode: StopMode = StopMode.CANCEL
    ) -> None:
        """Stop everything, also what is being opened again."""
        super().end_with(status, error, mode)
        for opening in self._gates:
            opening.cancel()

    async def _until_done(self) -> None:
        await super()._until_done()
        if self._withdrawn:
            await asyncio.wait(self._withdrawn, timeout=CANCEL_GRACE)

    def _node_changed(self, node: NodeRuntime, previous: TaskStatus) -> None:
        if node.status.terminal and self._again:
            # What it has asked before, and was ended before it could ask again.
            self._withdraw(node.id)
        super()._node_changed(node, previous)

    def _withdraw(self, node_id: str, message_id: str | None = None) -> None:
        """Close what a node asked before and does not ask again, of one message or of all."""
        if self.signals is not None:
            task = self.signals.withdraw(self.execution_id, node_id, message_id)
            self._withdrawn += () if task is None else (task,)

    def _finish(self) -> None:
        if not self.suspended:
            super()._finish()


def _of(nodes: Iterable[NodeRuntime]) -> Iterator[Stage]:
    for node in nodes:
        if node.stage is not None and not node.status.terminal:
            yield node.stage


def _set_stages(node: NodeRuntime, stage: Stage, was: NodeLeft) -> None:
    """Let the stages of a node be as they were, before they start."""
    for name, number in zip(NUMBERS, was.numbers or (), strict=True):
        setattr(stage, name, number)
    stage.strays, stage.wasted = list(was.more.strays), list(was.more.wasted)
    stage.touched = was.status is not TaskStatus.PENDING
    stage.ended = was.status.terminal
    for front, ended in zip(node.fronts, was.more.fronts, strict=True):
        front.ended = ended
    if stage.ended:
        return
    stage.gate = node.valve
    node.valve.attach(stage)
    if was.more.limit is not None and node.idle is not None:
        node.idle.limit = was.more.limit


def _set_edge(edge: Edge, had: EdgeLeft) -> None:
    """Let an edge be as it was, after its ends have started."""
    edge.passed, edge.dropped, edge.blocked = had.passed, had.dropped, had.blocked
    edge.credit, edge.used, edge.closed = had.credit, had.used, had.closed
    edge.buf = list(had.waiting)
    if had.worked_off:
        edge.dst.ins.remove(edge)
    elif edge.closed:
        edge.dst.closing = True


class _Over:
    """Stands for a prelude that is over, while its node is wired: everything may pass."""

    __slots__ = ()

    open = True

    @property
    def memory(self) -> _Over:
        return self

    def attach(self, stage: Stage) -> None:
        """It needs to know no stage."""

    def limit(self, n: int) -> int:
        return n

    room = limit

    def passed(self, n: int) -> None:
        """It counts nothing."""

    def fresh(self, batch: list[Any]) -> list[Any]:
        return batch


class _Unopened:
    """The gate of a node whose plugin is being opened again: no message passes before that is over.

    Commands go to the valve behind it.
    """

    __slots__ = ("_closed", "_open", "_stage", "_valve")

    open = False

    def __init__(
        self,
        stage: Stage,
        valve: Valve,
        opening: Callable[[], Awaitable[None]],
        closed: asyncio.Event | None,
    ) -> None:
        self._stage = stage
        self._valve = valve
        self._open = opening
        self._closed = closed
        stage.gate = self

    def attach(self, stage: Stage) -> None:
        """It is made for its stage."""

    def limit(self, n: int) -> int:
        return 0

    def passed(self, n: int) -> None:
        """Nothing passes."""

    async def opened(self, about: Mapping[str, str]) -> None:
        """Open the plugin, then let messages pass; a node that cannot be opened fails."""
        stage = self._stage
        try:
            if self._closed is not None:
                await self._closed.wait()
            if stage.ended:
                return
            await self._open()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and cancelling():
                raise
            log.warning("node %s could not be opened", stage.plan.name, exc_info=error, extra=about)
            if not stage.ended:
                stage.fail(error)
            return
        stage.gate = self._valve
        stage.steer = True
        stage.wake()
