"""Run: one execution of a prepared workflow, from start to its end.

The run's whole outside is in its constructor: `emit` gets every event, `publish` every result.
It knows no tracker, no store and no server.

Features: ENG-05, ENG-06, CTL-02, CTL-03, CTL-04, DUR-02.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.engine.asking import signals_of
from yukta_rx.engine.assembly import shared_inputs, wire
from yukta_rx.engine.host import NodeHost, nobody
from yukta_rx.engine.keeping import Keeping, keeping_in_memory
from yukta_rx.engine.lines import ECHOED, LineRelay
from yukta_rx.engine.losses import Loss, lossless_fault, untold
from yukta_rx.engine.node import NodeRuntime
from yukta_rx.engine.opening import OpenPlugins, without_engine_members
from yukta_rx.engine.pipeline import Hooks
from yukta_rx.engine.policies import root_of
from yukta_rx.engine.progress import RunOutcome, in_document_order, snapshot, totals
from yukta_rx.engine.recording import Recorder, Recording
from yukta_rx.engine.replay import NO_REPLAY, Replay
from yukta_rx.engine.steering import CANCEL_GRACE, Steerable
from yukta_rx.engine.sub_workflow import Children, Descent, StartChild
from yukta_rx.engine.voice import Voice, ignore
from yukta_rx.errors import RunAbortedError
from yukta_rx.model.ids import new_execution_id
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.status import TaskStatus, advance
from yukta_rx.model.trace_context import TRACEPARENT
from yukta_rx.model.workflow import OnTerminalFailure
from yukta_rx.plugins.contract import NodeContext, PluginKind
from yukta_rx.security.secrets import EnvironmentSecrets, SecretProvider
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.grant import until_done
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.opening import Opening
    from yukta_rx.engine.rates import RateMeter
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.workflow import RunOptions
    from yukta_rx.plugins.signals import SignalWaits
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.plan import Tap
    from yukta_rx.streams.stage import Stage

DEADLINE: Final = 3600.0
"""Seconds that a run may be active unless its session says otherwise."""

_FAILING: Final = (TaskStatus.FAILURE, TaskStatus.TIMED_OUT, TaskStatus.UPSTREAM_FAILED)


class Run(Steerable):
    """One execution. Make it on the loop, await `execute()`, steer it meanwhile.

    Args:
        prepared: the workflow, ready to run.
        payload: start payload; members that begin with `yukta.` are the engine's own.
        settings: the settings in force.
        emit: gets each event, on the loop, in order; must not block.
        publish: gets each result, on the loop, in order; must not block.
        session_id: the session it belongs to.
        execution_id: its id, made here if None.
        lineage: what message ids derive from; the execution id unless it continues another run.
        base_dir: folder that relative paths start from.
        timeout: run deadline in active seconds, None for no limit.
        options: how it is run as a whole; the definition's own if None.
        step_mode: begin paused.
        about: what the starter wants to be shown with it (actor, labels); not looked at.
        pool: threads for blocking plugins; its own if None.
        secrets: secrets by name; the environment's if None.
        start_child: makes runs for its nodes; None if they cannot have any.
        descent: where it stands below the run that was started from outside.
        recorder: gets what its nodes emit; None records nothing.
        replay: the recorded outputs that stand in for some of its nodes.
        signals: what its nodes wait for signals with; None if nobody could send one.
        keeping: what its plugins leave behind; its own and lost with it if None.
    """

    __slots__ = (
        *("_base_dir", "_edges", "_first_failure", "_host", "_lineage", "_lines", "_loop"),
        *("_options", "_own_pool", "_payload", "_plugins", "_pool", "_recording", "_replay"),
        *("_shared", "_snapshots", "_tasks", "_version", "_voice", "about"),
        *("children", "definition", "ended_at", "error", "family", "keeping", "prepared"),
        *("rates", "secrets", "session_id", "signals", "started_at", "traceparent"),
    )

    def __init__(
        self,
        prepared: PreparedWorkflow,
        *,
        payload: Any = None,
        settings: Settings,
        emit: Callable[[ExecutionEvent], None] = ignore,
        publish: Callable[[ResultEvent], None] = ignore,
        session_id: str = "local",
        execution_id: str | None = None,
        lineage: str | None = None,
        base_dir: Path | None = None,
        timeout: float | None = DEADLINE,
        options: RunOptions | None = None,
        step_mode: bool = False,
        about: Mapping[str, Any] | None = None,
        pool: BlockingPool | None = None,
        secrets: SecretProvider | None = None,
        start_child: StartChild | None = None,
        descent: Descent | None = None,
        recorder: Recorder | None = None,
        replay: Replay = NO_REPLAY,
        signals: SignalWaits | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(
            execution_id or new_execution_id(), LoopClock(self._loop), settings, timeout, step_mode
        )
        self.prepared, self.definition = prepared, prepared.definition
        self.session_id, self._base_dir = session_id, base_dir
        self._begin_blank()
        self.about: Mapping[str, Any] = about or {}
        self.traceparent: str | None = self.about.get(TRACEPARENT)
        self.children = Children(descent or Descent(), start_child, settings.sub_workflow)
        self._lineage = lineage or self.execution_id
        self.family = self.children.descent.family.of(self._lineage)
        self._payload = without_engine_members(payload)
        self.secrets = secrets or EnvironmentSecrets()
        self._own_pool = pool is None
        self._pool = pool or BlockingPool(settings.execution.blocking_threads)
        ids = session_id, self.workflow_id, self.execution_id
        self._voice = Voice(ids, self.secrets.masker, self._clock.wall, emit, publish)
        self._lines = LineRelay(self._loop, self._voice.line)
        self._options = options or prepared.definition.options
        self.signals = signals
        self.keeping = keeping or keeping_in_memory(settings, self._clock)
        self._tasks = Tasks(self._loop)
        self._plugins = OpenPlugins(self._pool, self._tasks)
        self._replay, self._shared = replay, shared_inputs(prepared, replay)
        self._recording: Recording | None = None
        if recorder is not None:
            self._recording = Recording(recorder, prepared, self._shared, replay.outputs)
        self._host = self._make_host()
        self.nodes = self._make_nodes()
        if self._recording is not None:
            shown = ECHOED if settings.logs.echo_output else 0
            self._recording.claim(self.nodes.values(), shown)
        if step_mode:
            self.pause()

    def _begin_blank(self) -> None:
        self.started_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.error: dict[str, Any] | None = None
        self.rates: dict[Edge, RateMeter] = {}
        self._edges: Sequence[Edge] = ()
        self._first_failure: dict[str, Any] | None = None
        """Of a terminal, where the others may finish all the same."""
        self._version = self._snapshots = 0

    def _make_host(self) -> NodeHost:
        execution = self._settings.execution
        return NodeHost(
            self._loop,
            self._clock,
            self._clock.wall,
            self._node_changed,
            self._voice.event,
            self.secrets.masker.mask,
            execution.held_output_bytes,
            execution.spill_dir,
        )

    def _make_nodes(self) -> dict[str, NodeRuntime]:
        host = self._host
        nodes = {name: NodeRuntime(node, host) for name, node in self.prepared.nodes.items()}
        for node in nodes.values():
            if node.prepared.parents:
                node.parents = tuple(nodes[parent.node_id] for parent in node.prepared.parents)
        return nodes

    # -- the run

    async def execute(self) -> RunOutcome:
        """Run to the end; cancelling the caller cancels the run, which then ends CANCELLED.

        Raises:
            RuntimeError: it was started before.
        """
        if self.status is not TaskStatus.PENDING:
            raise RuntimeError(f"run {self.execution_id} was started before")
        self.started_at = self._clock.wall()
        data = {"definitionVersion": self.definition.version}
        self._voice.event("execution.started", data, time=self.started_at)
        self._advance(TaskStatus.RUNNING, self.started_at)
        if self._timeout is not None:
            self._due = self._active.now() + self._timeout
            self._timers.append(self._active.call_at(self._due, self._overdue))
        return await self._to_the_end(self._clock.now())

    async def _to_the_end(self, began: float) -> RunOutcome:
        try:
            await self._until_done()
        except asyncio.CancelledError:
            self.stop(StopMode.CANCEL)
            await self._until_done()
            raise
        finally:
            self.stop(StopMode.KILL)
            while self._timers:
                self._timers.pop().cancel()
            try:
                await self._plugins.close(CANCEL_GRACE)
                await self.children.ended()
            finally:
                # Even if the caller is cancelled again: the end of a run is always said.
                self._lines.drain()
                if self._own_pool:
                    self._pool.close()
                self._finish()
                self._part()
        return RunOutcome(self, self._clock.now() - began)

    async def _until_done(self) -> None:
        """Open the plugins, wire and run the circuit, or go on waiting for either."""
        if self._opening is None and self._circuit is None and self._verdict is None:
            work = self._plugins.begin(self._openings())
            if work is not None:
                self._gave_up = self._loop.create_future()
                self._opening = self._tasks.spawn(work, f"yukta open {self}")
        if self._opening is not None and self._gave_up is not None:
            ends = (self._opening, self._gave_up)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._circuit is None and self._verdict is None:
            self._start()
        if self._circuit is not None:
            await until_done(self._circuit.done)

    def _openings(self) -> Iterator[Opening | None]:
        for node in self.nodes.values():
            if self._verdict is not None:
                return
            if not self._replay.replaces(node.id):
                node.context = self._context_of(node)
                rows, shared = self._replay.partial.get(node.id), node.id in self._shared
                yield self._plugins.open(node, node.context, shared=shared, recorded=rows)

    def tap_of(self, node: NodeRuntime) -> Tap | None:
        """What sees each batch that a node emits, before its children do; None for nothing."""
        return self._voice.tap_of(node)

    def _hooks_of(self, node: NodeRuntime) -> Hooks:
        ready, recording = self._plugins.ready.get(node.id), self._recording
        tap = self.tap_of(node)
        if self._settings.logs.echo_output:
            tap = self._lines.echo(node.id, tap)
        barrier = None if ready is None else ready.barrier
        if recording is None:
            return Hooks(tap, barrier=barrier)
        return recording.hooks(node, tap, barrier)

    def _start(self) -> None:
        self._replay.begin(self.nodes)
        plans = wire(
            self.prepared,
            self.nodes,
            self._plugins.ready | self._replay.ready(),
            prefetch=self._settings.execution.prefetch,
            hooks_of=self._hooks_of,
            replay=self._replay,
        )
        self._circuit = Circuit(plans.values(), pool=self._pool, on_stall=self._stalled)
        self._edges = self._circuit.edges
        for node_id, plan in plans.items():
            self.nodes[node_id].wired(self._circuit.stages[plan])
        self._circuit.start()
        self._hold.begin(self._circuit)
        if self._draining:
            self._circuit.stop(StopMode.DRAIN)

    def _finish(self) -> None:
        """Give every node and the run their final status; results and events come to an end."""
        cut = False
        for node in self.nodes.values():
            cut = cut or node.status is TaskStatus.STOPPED
            node.advance(TaskStatus.CANCELLED)
        self.ended_at = self._clock.wall()
        if self._verdict is not None:
            status, self.error = self._verdict
        elif self._first_failure is not None:
            status, self.error = TaskStatus.FAILURE, self._first_failure
        elif self._options.lossless and (fault := lossless_fault(self.nodes.values())) is not None:
            status, self.error = TaskStatus.FAILURE, fault
        else:
            status = TaskStatus.STOPPED if self._draining and cut else TaskStatus.SUCCESS
        self._advance(status, self.ended_at)
        sums = self.totals()
        self._voice.result(
            ResultType.EXECUTION_END,
            self.ended_at,
            status=self.status,
            totals=sums,
            truncated=False,
        )
        error = {} if self.error is None else {"error": self.error}
        data = {"status": str(self.status), "totals": sums, **error, **self._lines.losses()}
        self._voice.event("execution.finished", data, time=self.ended_at)

    def _part(self) -> None:
        """Undo what holds its parts together: an ended run goes when nobody has it any more."""
        self._host.changed = nobody
        if self._circuit is not None:
            self._circuit.clear()
        for node in self.nodes.values():
            if node.claims is not None:
                node.claims.part()
            node.on_dropped = node.prelude = node.claims = None

    def _context_of(self, node: NodeRuntime) -> NodeContext:
        return NodeContext(
            execution_id=self.execution_id,
            session_id=self.session_id,
            workflow_id=self.workflow_id,
            node_id=node.id,
            clock=node.clock,
            log=self._lines.sink(node.id),
            count=node.counted.add,
            blocking=self._pool.call,
            lineage=self._lineage,
            settings=self._settings,
            base_dir=self._base_dir,
            payload=self._payload,
            secrets=self.secrets,
            run_child=self.children.runner(self, node),
            signals=signals_of(self, node),
            keeping=self.keeping,
            family=self.family.lineage,
            traceparent=self.traceparent,
        )

    # -- what happens

    def _node_changed(self, node: NodeRuntime, previous: TaskStatus) -> None:
        data: dict[str, Any] = {"status": str(node.status), "previous": str(previous)}
        if node.error is not None:
            data["error"] = node.failure()
        at = node.ended_at if node.status.terminal else node.started_at
        self._voice.event("node.status", data, node.id, at)
        if not node.status.terminal:
            return
        if self._recording is not None:
            self._recording.ended(node)
        if node.kind is PluginKind.TERMINAL:
            counters = node.counters
            self._voice.result(
                ResultType.NODE_END,
                at,
                node_id=node.id,
                status=node.status,
                totals={key: counters[key] for key in ("in", "out", "failed", "dropped")},
                truncated=False,
            )
        if isinstance(node.error, RunAbortedError):
            self.end_with(TaskStatus.FAILURE, node.run_error())
        elif node.status is TaskStatus.ERROR:
            self.end_with(TaskStatus.ERROR, node.run_error())
        elif node.status in _FAILING and not node.prepared.children:
            error = root_of(node).run_error()
            if self._options.on_terminal_failure is OnTerminalFailure.FAIL_FAST:
                self.end_with(TaskStatus.FAILURE, error)
            elif self._first_failure is None:
                self._first_failure = error

    def _advance(self, status: TaskStatus, at: datetime) -> None:
        previous = self.status
        self.status = advance(previous, status)
        if self.status is not previous:
            self._version += 1
            data = {"status": str(status), "previous": str(previous), "version": self._version}
            self._voice.event("execution.status", data, time=at)

    def _stalled(self, stage: Stage, seconds: float) -> None:
        self._voice.warn(
            "node %s held the event loop for %.0f ms per message; a plugin that computes for long "
            "belongs in a thread, so it must not be declared blocking=False",
            stage.plan.name,
            seconds * 1000,
            node_id=stage.plan.name,
        )

    # -- what others read

    def say_of(self, node_id: str) -> Callable[[str, dict[str, Any]], None]:
        """What says an event of one node."""
        return self._host.say_of(node_id)

    @property
    def lineage(self) -> str:
        """What the ids of its messages derive from."""
        return self._lineage

    @property
    def workflow_id(self) -> str:
        """The workflow that it runs."""
        return self.definition.workflow_id

    @property
    def borrowed(self) -> bool:
        """Whether it runs on the slot of the run that started it, and so counts nowhere."""
        return self.children.descent.depth > 0

    def worker(self, task: asyncio.Task[Any] | None, stage: Stage | None) -> NodeRuntime | None:
        """Return the node that a task, or a stage, works for, if it is one of this run.

        Changes nothing, so another thread may ask.
        """
        if task is not None and task is self._opening:
            return self.nodes.get(self._plugins.opening or "")
        own = task in self._tasks or (self._circuit is not None and task in self._circuit.tasks)
        # The names of these tasks end with the node's id.
        named = task.get_name().rpartition(" ")[2] if own and task is not None else None
        for node in self.nodes.values():
            context = node.context
            if node.id == named or (context is not None and context.owns(task)):
                return node
            if stage is not None and node.stage is stage:
                return node
        return None

    def note(self, node_id: str, line: str) -> None:
        """Write a line of the engine's own into a node's log."""
        self._lines.write(node_id, line, "engine")

    def totals(self) -> dict[str, int]:
        """Messages that triggers emitted, that reached terminals, that failed, were dropped."""
        return totals(self.nodes.values())

    def losses(self) -> Iterable[Loss]:
        """Messages lost that no event tells."""
        return untold(self.nodes.values())

    def snapshot(self) -> dict[str, Any]:
        """The run as API.md's `ProgressSnapshot`, with its edges; `version` grows each time."""
        self._snapshots += 1
        return snapshot(self, self._snapshots, self._clock.wall())

    @property
    def edges(self) -> Sequence[Edge]:
        """The edges of the running graph, in the document's order; none before it is wired."""
        return in_document_order(self.definition, self._edges) if self._edges else ()

    def __str__(self) -> str:
        return self.execution_id
