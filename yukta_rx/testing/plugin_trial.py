"""Trials of one plugin: runs of the engine from a source that a test feeds to a sink.

Feature: EXT-01.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.load import load_settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.model.policy import OnError
from yukta_rx.plugins.contract import PluginKind, spec_of, terminal, trigger
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.observed import Failure, Output, Outputs
from yukta_rx.testing.signal_bench import SignalBench
from yukta_rx.testing.stand_in import registry_with
from yukta_rx.testing.watched_run import WatchedRun, virtual_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.message import Message
    from yukta_rx.plugins.keeping import Keeping

PLUGIN: Final = "plugin"
SOURCE: Final = "source"
SINK: Final = "sink"
OVERFLOW: Final = "dropped"
"""The sink of what an edge buffer has no room for, and the port that leads there."""


@dataclass
class Seen:
    """What was seen of a plugin, over all of its trials."""

    outputs: Outputs = field(default_factory=Outputs)
    failures: list[Failure] = field(default_factory=list)
    events: list[ExecutionEvent] = field(default_factory=list)
    trials: list[PluginTrial] = field(default_factory=list)
    dropped: int = 0

    @property
    def beats(self) -> int:
        """Heartbeats so far."""
        contexts = [trial.node.context for trial in self.trials]
        return sum(context.beats for context in contexts if context is not None)

    @property
    def counts(self) -> dict[str, int]:
        """What the plugin counted, by outcome."""
        sums: Counter[str] = Counter()
        for trial in self.trials:
            sums.update(trial.node.counts)
        return dict(sums)


class Feed:
    """Payloads on their way into a trial."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._came = asyncio.Event()
        self._over = False
        self.given = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, payloads: Iterable[Any]) -> None:
        """Append payloads or messages."""
        before = len(self._waiting)
        self._waiting.extend(payloads)
        self.given += len(self._waiting) - before
        self._came.set()

    def end(self) -> None:
        """Nothing more will come."""
        self._over = True
        self._came.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._over:
                return
            self._came.clear()
            await self._came.wait()


class TrialBench:
    """A plugin with its configuration, checked and ready for trials.

    Args:
        plugin: a decorated function or class, or its spec.
        config: its options as a document writes them, `engine` included; the declared example if
            None.
        payload: the start payload.
        settings: settings by their full names; the defaults otherwise.
        base_dir: folder that relative paths start from, and that files may be read from.

    Raises:
        TypeError: it is not a plugin.
        DefinitionError: the options are refused; lists every fault.
        ConfigError: a setting is.
    """

    def __init__(
        self,
        plugin: Any,
        config: Mapping[str, Any] | None = None,
        *,
        payload: Any = None,
        settings: Mapping[str, Any] | None = None,
        base_dir: Path | None = None,
    ) -> None:
        self.spec = spec_of(plugin)
        self.options = dict(self.spec.example or {}) if config is None else dict(config)
        self.payload = payload
        self.base_dir = base_dir
        self.overrides = dict(settings or {})
        if base_dir is not None:
            self.overrides.setdefault("yukta.files.allowed-dirs", [str(base_dir)])
        self.settings = load_settings(environ={}, overrides=self.overrides)
        self.trials: dict[str, PluginTrial] = {}
        self.keeping: Keeping | None = None
        """What the plugin leaves behind for later trials."""
        self.prepared = self._prepare()

    @property
    def triggers(self) -> bool:
        """Whether the plugin is a trigger."""
        return self.spec.kind is PluginKind.TRIGGER

    @property
    def ends(self) -> bool:
        """Whether the plugin is a terminal."""
        return self.spec.kind is PluginKind.TERMINAL

    def start(self, seen: Seen, *, prefetch: int | None = None) -> PluginTrial:
        """Begin a trial; its findings are added to `seen`.

        Args:
            seen: where they go.
            prefetch: messages that each edge may hold; as the settings say if None.
        """
        settings = self.settings
        if prefetch is not None:
            overrides = {**self.overrides, "yukta.execution.prefetch": prefetch}
            settings = load_settings(environ={}, overrides=overrides)
        return PluginTrial(self, seen, settings)

    def _prepare(self) -> PreparedWorkflow:
        document = self._document()
        registry = registry_with([self.spec, *self._ends()], self.settings)

        def prepared() -> PreparedWorkflow:
            return prepare(
                parse_definition(document),
                registry,
                settings=self.settings,
                base_dir=self.base_dir,
            )

        # Only options that were found right tell the ports.
        first = prepared()
        for port in () if self.ends else _ports(first):
            document["edges"].append({"source": PLUGIN, "target": SINK, "sourcePort": port})
        if not self.triggers and _overflows(first):
            document["nodes"].append({"nodeId": OVERFLOW, "type": "HARNESS_SINK", "config": {}})
            document["edges"].append({"source": PLUGIN, "target": OVERFLOW, "sourcePort": OVERFLOW})
        return prepared() if len(document["edges"]) > len(first.definition.edges) else first

    def _document(self) -> dict[str, Any]:
        nodes = [{"nodeId": PLUGIN, "type": self.spec.type, "config": self.options}]
        edges = []
        if not self.triggers:
            nodes.append({"nodeId": SOURCE, "type": "HARNESS_SOURCE", "config": {}})
            edges.append({"source": SOURCE, "target": PLUGIN})
        if not self.ends:
            # What came before a failure arrives too.
            options = {"engine": {"trigger": "ALL_DONE"}}
            nodes.append({"nodeId": SINK, "type": "HARNESS_SINK", "config": options})
            edges.append({"source": PLUGIN, "target": SINK})
        return {"workflowId": "harness", "nodes": nodes, "edges": edges}

    def _ends(self) -> list[Any]:
        trials = self.trials

        @trigger("HARNESS_SOURCE")
        async def source(cfg: Any, ctx: Any) -> AsyncIterator[Any]:
            """Emit what the test sends."""
            async for item in trials[ctx.execution_id].feed:
                yield item

        @terminal("HARNESS_SINK", blocking=False, pure=True, default_timeout=None)
        def sink(msg: Message, cfg: Any, ctx: Any) -> None:
            """Take everything."""
            trials[ctx.execution_id].arrived(ctx.node_id, msg)

        return [source, sink]


def _ports(prepared: PreparedWorkflow) -> list[str]:
    node = prepared.nodes[PLUGIN]
    named = node.spec.named_ports(node.config.constant)
    if named is None:
        raise ValueError(
            f"{node.spec.type}: its ports depend on an expression; give the harness a fixed value"
        )
    ports = list(named)
    if node.policy.on_error is OnError.ROUTE and "error" not in ports:
        ports.append("error")
    return ports


def _overflows(prepared: PreparedWorkflow) -> bool:
    buffer = prepared.nodes[PLUGIN].policy.edge_buffer
    return buffer is not None and buffer.overflow.drops


class PluginTrial:
    """One run of a plugin, fed while it lasts."""

    def __init__(self, bench: TrialBench, seen: Seen, settings: Settings) -> None:
        self.loop = virtual_loop("a plugin harness")
        self.seen = seen
        self.feed = Feed()
        self._triggers = bench.triggers
        self._ports: dict[int, str | None] = {}
        self._overflowed = 0
        self._began = self.loop.time()
        self.signals = SignalBench(self.loop)
        self.run = WatchedRun(
            bench.prepared,
            watch=self._watch,
            emit=self._event,
            payload=bench.payload,
            settings=settings,
            execution_id=f"harness-{len(bench.trials) + 1}",
            base_dir=bench.base_dir,
            timeout=None,
            signals=self.signals.waits,
            keeping=bench.keeping,
        )
        bench.keeping = self.run.keeping
        bench.trials[self.run.execution_id] = self
        seen.trials.append(self)
        self._tasks = Tasks(self.loop, lambda: None)
        if self._triggers:
            # A trigger emits as demand allows; the sink takes what the test asks for.
            self.run.pause(SINK)
        self._task = self._tasks.spawn(self._execute(), f"yukta {self.run} of a harness")

    @property
    def node(self) -> NodeRuntime:
        """The plugin's node."""
        return self.run.nodes[PLUGIN]

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self._task.done()

    @property
    def idle(self) -> bool:
        """Whether the plugin has taken everything and works on nothing."""
        stage = self.node.stage
        if stage is None or self.feed or self.node.status.terminal:
            return False
        return not stage.working() and not any(edge.waiting for edge in stage.ins)

    # -- what a harness does

    async def settle(self, patience: float) -> None:
        """Wait until the plugin is idle or the run over, as virtual time passes.

        Raises:
            AssertionError: that took longer than `patience` seconds.
        """
        await self._until(lambda: self.idle, patience, "it works on what it was sent")

    async def taken(self, n: int, patience: float) -> None:
        """Have the sink take `n` messages, and wait until it has, or the run is over.

        Raises:
            AssertionError: that took longer than `patience` seconds.
        """
        outputs = self.seen.outputs
        wanted = len(outputs) + n
        self.run.step(n, SINK)
        await self._until(lambda: len(outputs) >= wanted, patience, f"it was asked for {n}")

    async def ended(self, patience: float) -> None:
        """End the input and wait for the end of the run.

        Raises:
            AssertionError: that took longer than `patience` seconds.
        """
        self.feed.end()
        if self._triggers:
            self.run.resume(SINK)
        await self._until(lambda: False, patience, "its input ended")

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, and everything happen that is due until then."""
        await asyncio.sleep(seconds)
        await self.loop.quiet()

    async def cancel(self) -> None:
        """Cancel the run and wait for its end."""
        self.run.stop(StopMode.CANCEL)
        await self._tasks.ended()

    async def _until(self, reached: Callable[[], bool], patience: float, since: str) -> None:
        try:
            async with asyncio.timeout(patience):
                await self.loop.quiet()
                while not (self.over or reached()):
                    await self.loop.moved()
        except TimeoutError:
            told = f"{patience:g} s of virtual time after {since}, the plugin is not done"
            raise AssertionError(told) from None

    # -- what the run tells

    async def _execute(self) -> None:
        await self.run.execute()
        failure = Failure.of_node(self.node)
        if failure is not None:
            self.seen.failures.append(failure)
        if not self._triggers:
            self.seen.dropped += self.feed.given - self.node.counters["in"] - self._overflowed

    def _event(self, event: ExecutionEvent) -> None:
        self.seen.events.append(event)
        failed = event.type == "node.message_failed" and event.node_id == PLUGIN
        # One that ends the node is told by the node, with the exception itself.
        if failed and event.data["action"] != OnError.FAIL:
            self.seen.failures.append(Failure.of_event(event))

    def _watch(self, node_id: str, port: str | None, messages: Sequence[Message]) -> None:
        if node_id != PLUGIN:
            return
        if self._triggers:
            # What it emits ahead of demand is an output once the sink takes it.
            self._ports.update((id(msg), port) for msg in messages if port is not None)
            return
        for msg in messages:
            self._output(msg, port)

    def arrived(self, node_id: str, msg: Message) -> None:
        """A sink took `msg`."""
        if self._triggers:
            self._output(msg, self._ports.pop(id(msg), None))
        elif node_id == OVERFLOW:
            # Not emitted by the plugin, but by the buffer in front of it.
            self._overflowed += 1
            self._output(msg, OVERFLOW)

    def _output(self, msg: Message, port: str | None) -> None:
        self.seen.outputs.append(Output(msg, port, self.loop.time() - self._began))
