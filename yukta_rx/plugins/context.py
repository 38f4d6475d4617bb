"""NodeContext: all that a plugin may know of the run around it.  Feature: ENG-02.

It is an explicit argument and not a contextvar: a contextvar read inside an Rx subscription
shows the emitter's value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.errors import BadInputError, SubWorkflowError
from yukta_rx.plugins.key_values import NodeKeyValues
from yukta_rx.plugins.logs import check_stream, split_lines
from yukta_rx.plugins.node_histories import NodeHistories

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.model.message import Message
    from yukta_rx.plugins.keeping import Keeping
    from yukta_rx.plugins.signals import NodeSignals
    from yukta_rx.streams.aio import Tasks

R = TypeVar("R")

LineSink = Callable[[str, str, int], None]
"""Takes one line, the stream it was written to, and the attempt; thread-safe, never blocks."""

LONGEST_NAME = 1200
"""Characters of the key of something that is done once, with what `kv` puts before it."""

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


async def _too_late(workflow_id: str, _payload: Any, _message: Message) -> ChildResult:
    raise SubWorkflowError(
        f"the run has ended, and with it the node that would start {workflow_id}",
        code="sub_workflow_failed",
    )


def _nothing() -> tuple[int, Any]:
    return 0, None


class NodeContext:
    """What the engine hands to a plugin: one object per node and run, made by the engine.

    A call in a thread or of a coroutine gets one of its own, which also knows the message.
    `heartbeat`, `log`, `count`, `cancelled` and `clock.now` may be used from any thread,
    `once_blocking` from any but that of the event loop, and everything else belongs to that.

    Attributes:
        execution_id: the run.
        session_id: the session that the run belongs to.
        workflow_id: the workflow that runs.
        node_id: the node that this plugin is.
        message: what is being worked on, where that is known.
        attempt: which attempt at the current message this is, from 1.
        lineage: what the ids of this run's messages are derived from.
        clock: the node's pause-aware time.
        settings: the settings in force.
        base_dir: folder that relative paths start from; None where there is none.
        payload: the start payload, without the engine's own `yukta.*` members.
        secrets: secrets by name.
        traceparent: what the run is a part of, as W3C trace context; None if of nothing.
        emitted_headers: of a trigger, where its run goes on after a crash: the last value of each
            header that it emitted before; empty in any other run.
        emitted: of such a trigger, gives how many messages it emitted before, and the payload of
            the last one; 0 and None in any other run.
        cancelled: True once the node is to stop; a long blocking call should look at it.
        state: whatever the plugin wants to keep from `open` to `close`; None at first.
        stream_plugin: the node's ProcessorPlugin, if it is one; the engine's own business.
        beats: how many heartbeats there were.
    """

    __slots__ = (
        "_beat",
        "_count_sink",
        "_family",
        "_keeping",
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
        "emitted",
        "emitted_headers",
        "execution_id",
        "lineage",
        "message",
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
        keeping: Keeping | None = None,
        family: str | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.session_id = session_id
        self.workflow_id = workflow_id
        self.node_id = node_id
        self.clock = clock
        self.lineage = execution_id if lineage is None else lineage
        self._family = self.lineage if family is None else family
        self.settings = settings
        self.base_dir = base_dir
        self.payload = payload
        self.secrets = secrets
        self.traceparent = traceparent
        self.emitted_headers: Mapping[str, Any] = {}
        self.emitted: Callable[[], tuple[int, Any]] = _nothing
        self.state: Any = None
        self.stream_plugin: Any = None
        self.attempt = 1
        self.message: Message | None = None
        self.cancelled = False
        self._beat = 0.0
        self.beats = 0
        self._line_sink = log
        self._count_sink = count
        self._run_blocking = blocking
        self._run_child = run_child
        self._signals = signals
        self._keeping = keeping
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
        return self.latest_beat()

    def latest_beat(self) -> float:
        """As `last_beat`, for those who have to be given something to call."""
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
        # What a suspended run has asked its node asks again, also where that is about to end.
        if self.cancelled and not self._signals.left:
            raise BadInputError(f"node {self.node_id} has ended and waits for no more signals")
        return self._signals

    # -- what is kept

    async def once(self, key: str, fn: Callable[[], Any], message: Message | None = None) -> Any:
        """Do something outside once for a message, however often the message is worked on.

        What `fn` gives is recorded with run, node, message and `key` before this returns. Where
        the message comes again, in a later attempt, a restart from this node or a resumed run, it
        is returned and `fn` is not called. Whoever asks the same meanwhile waits. Nothing is
        recorded of an `fn` that raises. If the process ends between the doing and the recording
        it is done again.

        Args:
            key: which of the things that are done for the message; 1 to 500 characters.
            fn: does it; without arguments, a coroutine function, or a function that never waits.
            message: the message; needed in a stream plugin and in a plain function on the loop.

        Returns:
            What `fn` gave, as JSON brings it back.

        Raises:
            PluginContractError: what `fn` gave is no JSON value, or larger than 4 MiB.
            BadInputError: the node has ended, or nothing here could record it.
            TypeError: the message is not known.
            StoreUnavailableError: it cannot be recorded, or nobody knows whether it was.
        """
        effects = self._kept("once").effects
        return await effects.once(self._effect(key, message), fn)

    def once_blocking(self, key: str, fn: Callable[[], Any], message: Message | None = None) -> Any:
        """As `once`, for a plugin that runs in a thread: `fn` is called in it and may wait.

        Raises:
            RuntimeError: this is the thread of the event loop.
        """
        effects = self._kept("once_blocking").effects
        return effects.once_blocking(self._effect(key, message), fn)

    @property
    def kv(self) -> NodeKeyValues:
        """The values of the session, which outlive its runs.

        Raises:
            BadInputError: nothing here could keep them.
        """
        store = self._kept("kv").key_values
        return NodeKeyValues(store, self.session_id, self._effect)

    @property
    def histories(self) -> NodeHistories:
        """The conversations of the session, which outlive its runs.

        Raises:
            BadInputError: nothing here could keep them.
        """
        return NodeHistories(self._kept("histories").histories, self.session_id, self._effect)

    def _kept(self, what: str) -> Keeping:
        if self._keeping is None:
            raise BadInputError(f"node {self.node_id}: nothing here keeps anything for ctx.{what}")
        return self._keeping

    def _effect(self, key: str, message: Message | None) -> EffectKey:
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_NAME:
            raise TypeError(f"node {self.node_id}: the key of what is done once is text")
        message = message or self.message
        if message is None:
            raise TypeError(
                f"node {self.node_id}: which message something is done once for is not known here;"
                " name it: once(key, fn, msg)"
            )
        if self.cancelled:
            raise BadInputError(f"node {self.node_id} has ended and does nothing once any more")
        # That of the run that was started from outside: it ends last, and is what is repeated.
        return EffectKey(self._family, self.node_id, message.id, key)

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

    @property
    def busy(self) -> bool:
        """Whether tasks that `spawn` started are not done."""
        return bool(self._tasks)

    def owns(self, task: object) -> bool:
        """Whether `spawn` started this task and it is not done."""
        return self._tasks is not None and task in self._tasks

    def release(self) -> None:
        """Cancel the tasks that the plugin left behind, and let go of the run; at the end."""
        if self._tasks is not None:
            self._tasks.cancel()
        if self._run_child is not None:
            self._run_child = _too_late

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


class CallContext(NodeContext):
    """The context of one call; what changes is that of the node, shared with the others.

    A call that was left behind in a thread so keeps its own message and attempt.

    Args:
        node: the context of the node.
        message: what the call is for, at the attempt that it says.
    """

    __slots__ = ("_node", "message")

    def __init__(self, node: NodeContext, message: Message) -> None:
        # One for each message: as little as can be is done here.
        self._node = node
        self.message = message


def _seen(name: str) -> Any:
    def write(self: CallContext, value: Any) -> None:
        setattr(self._node, name, value)

    return property(attrgetter(f"_node.{name}" if name != "attempt" else "message.attempt"), write)


for _name in set(NodeContext.__slots__) - {"message"}:
    setattr(CallContext, _name, _seen(_name))
