"""NodeContext: all that a plugin may know of the run around it.  Feature: ENG-02.

It is an explicit argument and not a contextvar: a contextvar read inside an Rx subscription
shows the emitter's value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from yukta_rx.errors import BadInputError
from yukta_rx.plugins.logs import check_stream, split_lines

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.model.message import Message
    from yukta_rx.plugins.signals import NodeSignals
    from yukta_rx.streams.aio import Tasks

R = TypeVar("R")

LineSink = Callable[[str, str, int], None]
"""Takes one line, the stream it was written to, and the attempt; thread-safe, never blocks."""

BlockingRunner = Callable[..., Awaitable[Any]]
"""`runner(fn, *args)`: awaits `fn(*args)` in the engine's thread pool."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """A run that a node started and that ended SUCCESS.

    Attributes:
        execution_id: the run.
        results: the payloads that reached its terminals, in the order in which they came.
    """

    execution_id: str
    results: list[Any]


RunChild = Callable[[str, Any, "Message"], Awaitable[ChildResult]]
"""`run(workflow_id, payload, message)`: runs another workflow to its end."""


class NodeClock(Protocol):
    """Time as a node sees it: it stands still while the node or its run is paused."""

    def now(self) -> float:
        """Return seconds since an arbitrary point; callable from any thread."""

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of unpaused time."""


class SecretSource(Protocol):
    """Hands out secrets by name."""

    def get(self, name: str) -> str:
        """Return the secret.

        Raises:
            BadInputError: there is no secret of that name.
        """


class NodeContext:
    """What the engine hands to a plugin: one object per node and run, made by the engine.

    `heartbeat`, `log`, `count`, `cancelled` and `clock.now` may be used from any thread;
    everything else belongs to the event loop.

    Attributes:
        execution_id: the run.
        session_id: the session that the run belongs to.
        workflow_id: the workflow that runs.
        node_id: the node that this plugin is.
        attempt: which attempt at the current message this is, from 1.
        lineage: what the ids of this run's messages are derived from.
        clock: the node's pause-aware time.
        settings: the settings in force.
        base_dir: folder that relative paths start from; None where there is none.
        payload: the start payload, without the engine's own `yukta.*` members.
        secrets: secrets by name.
        traceparent: what the run is a part of, as W3C trace context; None if of nothing.
        cancelled: True once the node is to stop; a long blocking call should look at it.
        state: whatever the plugin wants to keep from `open` to `close`; None at first.
        stream_plugin: the node's ProcessorPlugin, if it is one; the engine's own business.
        beats: how many heartbeats there were.
    """

    __slots__ = (
        "_beat",
        "_count_sink",
        "_line_sink",
        "_run_blocking",
        "_run_child",
        "_signals",
        "_tasks",
        "attempt",
        "base_dir",
        "beats",
        "cancelled",
        "clock",
        "execution_id",
        "lineage",
        "node_id",
        "payload",
        "secrets",
        "session_id",
        "settings",
        "state",
        "stream_plugin",
        "traceparent",
        "workflow_id",
    )

    def __init__(
        self,
        *,
        execution_id: str,
        session_id: str,
        workflow_id: str,
        node_id: str,
        clock: NodeClock,
        log: LineSink,
        count: Callable[[str, int], None],
        blocking: BlockingRunner,
        lineage: str | None = None,
        settings: Any = None,
        base_dir: Path | None = None,
        payload: Any = None,
        secrets: SecretSource | None = None,
        run_child: RunChild | None = None,
        signals: NodeSignals | None = None,
        traceparent: str | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.session_id = session_id
        self.workflow_id = workflow_id
        self.node_id = node_id
        self.clock = clock
        self.lineage = execution_id if lineage is None else lineage
        self.settings = settings
        self.base_dir = base_dir
        self.payload = payload
        self.secrets = secrets
        self.traceparent = traceparent
        self.state: Any = None
        self.stream_plugin: Any = None
        self.attempt = 1
        self.cancelled = False
        self._beat = clock.now()
        self.beats = 0
        self._line_sink = log
        self._count_sink = count
        self._run_blocking = blocking
        self._run_child = run_child
        self._signals = signals
        self._tasks: Tasks | None = None

    def wall(self) -> datetime:
        """Return the time of day, UTC; it goes with the event loop's time, and never pauses."""
        # Late, as in `spawn`.
        from yukta_rx.streams.clock import LoopClock

        return LoopClock(asyncio.get_running_loop()).wall()

    def heartbeat(self) -> None:
        """Say that silent work goes on: the node's idle clock starts again."""
        self._beat = self.clock.now()
        self.beats += 1

    @property
    def last_beat(self) -> float:
        """`clock.now()` of the last sign of life; now while a message waits for a signal."""
        if self._signals is not None and self._signals.waiting:
            return self.clock.now()
        return self._beat

    @property
    def signals(self) -> NodeSignals:
        """What a plugin that is declared with `signals=True` waits for signals with.

        Raises:
            BadInputError: the plugin is not, nothing here could send a signal, or the node has
                ended.
        """
        if self._signals is None:
            raise BadInputError(
                f"node {self.node_id} cannot wait for signals here: start the run on a server "
                "(yukta dev, yukta serve), where somebody can send one; a plugin of your own also "
                "has to declare signals=True"
            )
        if self.cancelled:
            raise BadInputError(f"node {self.node_id} has ended and waits for no more signals")
        return self._signals

    def log(self, line: str, stream: str = "stdout") -> None:
        """Write to the node's live log; a text of several lines becomes several log lines.

        Args:
            line: the text; cut at newlines, otherwise kept as it is.
            stream: `stdout` or `stderr`.

        Raises:
            TypeError: `line` is not text.
            ValueError: there is no such stream.
        """
        check_stream(stream)
        for part in split_lines(line):
            self._line_sink(part, stream, self.attempt)

    def at_attempt(self, attempt: int) -> NodeContext:
        """Return this context as a later attempt at a message gets it."""
        return self if attempt == 1 else _AttemptContext(self, attempt)

    def count(self, outcome: str, n: int = 1) -> None:
        """Add `n` to the meter `yukta.plugin.events` under this plugin and `outcome`.

        Args:
            outcome: one of a few fixed words, never a value from a message.
            n: how many, not negative.

        Raises:
            ValueError: `n` is negative, or `outcome` is empty.
        """
        if n < 0 or not outcome:
            raise ValueError(f"count needs an outcome and n >= 0, not {outcome!r}, {n!r}")
        self._count_sink(outcome, n)

    def spawn(self, work: Coroutine[Any, Any, None], name: str = "plugin") -> asyncio.Task[None]:
        """Run `work` beside the plugin, as a task that the node owns until it is done.

        The plugin cancels it when it needs it no more, at the latest in its clean-up; what is
        left then, `release` cancels. An error that `work` does not handle is only logged.
        """
        if self._tasks is None:
            # Late, because most plugins need no task, and streams bring in reactivex.
            from yukta_rx.streams.aio import Tasks

            self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        return self._tasks.spawn(work, f"yukta {self.node_id} {name}")

    def owns(self, task: object) -> bool:
        """Whether `spawn` started this task and it is not done."""
        return self._tasks is not None and task in self._tasks

    def release(self) -> None:
        """Cancel the tasks that the plugin left behind; called by the engine at the end."""
        if self._tasks is not None:
            self._tasks.cancel()

    async def blocking(self, fn: Callable[..., R], *args: Any) -> R:
        """Run a function that waits or computes for long in the engine's thread pool.

        Raises:
            Exception: whatever `fn` raises.
        """
        result: R = await self._run_blocking(fn, *args)
        return result

    async def run_child(self, workflow_id: str, payload: Any, message: Message) -> ChildResult:
        """Run another workflow of the session to its end, as a run of its own below this one.

        Cancelling the call cancels that run. Its message ids derive from `message` and this node,
        so a repeated attempt makes the same ones; hence at most one run per message.

        Args:
            workflow_id: the workflow, as it is stored now.
            payload: its start payload; copied.
            message: the message that this node is working on.

        Raises:
            SubWorkflowError: it ended other than SUCCESS, or too many such runs are alive.
            BadInputError: it cannot be run: there is no such workflow, it lies too deep, or it
                gives more results than are collected.
        """
        if self._run_child is None:
            raise BadInputError(f"node {self.node_id}: nothing here could start another workflow")
        return await self._run_child(workflow_id, payload, message)


_SHARED = frozenset({"_beat", "_tasks", "beats", "cancelled", "state"})


def _shared(name: str) -> Any:
    def read(self: _AttemptContext) -> Any:
        return getattr(self._node, name)

    def write(self: _AttemptContext, value: Any) -> None:
        setattr(self._node, name, value)

    return property(read, write)


class _AttemptContext(NodeContext):
    """The context of a later attempt; what changes is that of the node, shared with the others.

    An attempt that was left behind in a thread so keeps its own number.
    """

    __slots__ = ("_node",)

    def __init__(self, node: NodeContext, attempt: int) -> None:
        self._node = node
        for name in NodeContext.__slots__:
            if name not in _SHARED:
                setattr(self, name, getattr(node, name))
        self.attempt = attempt


for _name in _SHARED:
    setattr(_AttemptContext, _name, _shared(_name))
