"""The whole observe room around one clock, fed by event lists or by real runs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import pytest

from yukta_rx.config.load import load_settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.run import Run
from yukta_rx.metrics import Meters
from yukta_rx.model.codec import loads_external
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.message import Message
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.status import TaskStatus
from yukta_rx.observe.event_log import EventLog
from yukta_rx.observe.feed import EventFeed
from yukta_rx.observe.filters import EventFilter
from yukta_rx.observe.logs import LogStore
from yukta_rx.observe.progress import ProgressHistory
from yukta_rx.observe.result_recorder import ResultRecorder
from yukta_rx.observe.results import ResultStore
from yukta_rx.observe.tracker import Tracker
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.clock import LoopClock

if TYPE_CHECKING:
    from yukta_rx.observe.frames import Frame


@processor("PASS", blocking=False, pure=True)
def pass_on(msg, cfg, ctx):
    """Pass messages on."""
    return msg


class Scene:
    """A tracker with all that it feeds; use it as an async context inside the test's loop.

    Settings are given by their full names, with `__` for a dot and `_` for a hyphen, without
    `yukta`: `Scene(streaming__replay_events=5)`.
    """

    def __init__(self, **overrides: Any) -> None:
        self.overrides = {
            "yukta." + name.replace("__", ".").replace("_", "-"): value
            for name, value in overrides.items()
        }
        self.runs: list[Run] = []
        self.event_store: Any = None
        self.result_store: Any = None
        """Set before it is entered: durable stores."""
        self.stack = AsyncExitStack()
        self.stalled = False
        """Set before it is entered: the tracker's consumer starts with `tracker.start()`."""

    async def __aenter__(self) -> Self:
        self.settings = load_settings("/dev/null", environ={}, overrides=self.overrides)
        self.clock = LoopClock(asyncio.get_running_loop())
        self.meters = Meters()
        log = recorder = None
        if self.event_store is not None:
            begun = EventLog(self.event_store, self.clock, self.settings, self.meters)
            log = await self.stack.enter_async_context(begun)
        if self.result_store is not None:
            made = ResultRecorder(self.result_store, self.clock, self.settings, self.meters)
            recorder = await self.stack.enter_async_context(made)
        self.feed = EventFeed(self.clock, self.settings, self.meters, epoch="e", log=log)
        self.results = ResultStore(self.settings, self.clock, recorder)
        self.logs = LogStore(self.settings, self.clock)
        self.progress = ProgressHistory(self.settings, self.clock)
        self.tracker = Tracker(
            self.settings,
            self.clock,
            self.feed,
            self.results,
            self.logs,
            self.progress,
            self.meters,
        )
        if not self.stalled:
            await self.tracker.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.tracker.stop()
        await self.stack.aclose()

    # -- events by hand

    def event(self, type: str, node: str | None = None, run: str = "r1", **data: Any) -> Any:
        """An event that happens now."""
        return ExecutionEvent(
            type=type,
            time=self.clock.wall(),
            session_id=data.pop("session", "s"),
            workflow_id="w",
            execution_id=run,
            node_id=node,
            data=data,
        )

    def emit(self, type: str, node: str | None = None, run: str = "r1", **data: Any) -> None:
        """Emit one to the tracker."""
        self.tracker.emit(self.event(type, node, run, **data))

    def publish(self, *numbers: int, run: str = "r1") -> None:
        """Publish facts to the feed that carry these numbers."""
        for number in numbers:
            self.feed.publish(self.event("node.status", "n", run, n=number))

    def line(self, text: str, node: str = "n", run: str = "r1", stream: str = "stdout") -> None:
        """Emit a log line."""
        self.emit("node.log", node, run, stream=stream, level="INFO", line=text, attempt=1)

    def start(self, run: str = "r1", session: str = "s") -> None:
        """Emit what a run says at its start."""
        self.emit("execution.started", run=run, session=session, definitionVersion="v1")
        self.emit(
            "execution.status",
            run=run,
            session=session,
            status="RUNNING",
            previous="PENDING",
            version=1,
        )

    def finish(self, run: str = "r1", session: str = "s", status: str = "SUCCESS") -> None:
        """Emit what a run says at its end."""
        totals = {"in": 0, "out": 0, "failed": 0, "dropped": 0}
        self.emit("execution.finished", run=run, session=session, status=status, totals=totals)

    def result(self, cursor: int, payload: Any = None, node: str = "n") -> ResultEvent:
        """A result that happens now."""
        return ResultEvent(
            cursor=cursor,
            type=ResultType.RESULT,
            time=self.clock.wall(),
            node_id=node,
            message=Message.of(payload, id=f"m{cursor}"),
        )

    def end(self, cursor: int, node: str | None = None) -> ResultEvent:
        """The end of a terminal, or of the run."""
        return ResultEvent(
            cursor=cursor,
            type=ResultType.EXECUTION_END if node is None else ResultType.NODE_END,
            time=self.clock.wall(),
            node_id=node,
            status=TaskStatus.SUCCESS,
            truncated=False,
            totals={},
        )

    def wanted(self, *types: str) -> EventFilter:
        """What lets events of these types through."""
        return EventFilter.parse(type=list(types))

    # -- real runs

    def run(self, nodes: dict[str, Any], edges: str, *plugins: Any, **options: Any) -> Run:
        """A tracked run of `nodes` (id to type, or (type, config)), joined as "a > b > c" says."""
        registry = PluginRegistry.load(self.settings, extra=[pass_on, *plugins])
        document: dict[str, Any] = {"workflowId": "w", "nodes": [], "edges": []}
        for node_id, made in nodes.items():
            kind, config = (made, {}) if isinstance(made, str) else made
            document["nodes"].append({"nodeId": node_id, "type": kind, "config": config})
        for chain in edges.split(","):
            for left, right in pairwise(part.strip() for part in chain.split(">")):
                source, _, port = left.partition(".")
                edge = {"source": source, "target": right.partition(".")[0]}
                document["edges"].append(edge | ({"sourcePort": port} if port else {}))
        run = Run(
            prepare(parse_definition(document), registry, settings=self.settings),
            settings=self.settings,
            emit=self.tracker.emit,
            publish=lambda result: channel.publish(result),
            **options,
        )
        channel = self.results.channel(run.execution_id, run.session_id)
        self.tracker.track(run)
        self.runs.append(run)
        return run

    # -- what came of it

    def count(self, name: str, **labels: str) -> float:
        """The value of a counter or gauge now."""
        for family in self.meters.collect():
            for sample in family.samples:
                total = f"{name.replace('.', '_')}"
                if sample.name in (total, f"{total}_total") and sample.labels == labels:
                    return sample.value
        return 0.0


async def settle() -> None:
    """Let everything happen that needs no time to pass."""
    await asyncio.sleep(1e-6)


def data_of(frame: Frame) -> Any:
    """What a frame carries."""
    return loads_external(frame.data)


async def frames_now(reader: Any) -> list[Frame]:
    """The frames that are there without waiting for more."""
    found: list[Frame] = []
    while True:
        try:
            async with asyncio.timeout(1e-6):
                more = await reader.frames()
        except TimeoutError:
            return found
        if not more:
            return found
        found += more


@pytest.fixture(scope="session")
def new_scene():
    """Makes a scene, to be used as an async context."""
    return Scene


@pytest.fixture(scope="session")
def now():
    """The functions that read what is there: `frames_now`."""
    return frames_now


@pytest.fixture(scope="session")
def data():
    """What a frame carries."""
    return data_of


@pytest.fixture(scope="session")
def settled():
    """Waits until nothing is left to do that needs no time."""
    return settle


@pytest.fixture(scope="session")
def numbers():
    """The `n` of the facts among some frames, in order."""

    def read(frames: list[Frame]) -> list[int]:
        return [data_of(f)["data"]["n"] for f in frames if f.type == "node.status"]

    return read
