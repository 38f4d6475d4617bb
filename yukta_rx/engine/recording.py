"""Recording: what a run's nodes emit goes to a recorder too, before any child sees it.

The engine knows no store; whoever wants a record implements `Recorder`. Nodes that feed nobody are
not recorded, unless the record is to go on with after a crash: then it lists the inputs that a node
has finished, and terminals have one too. A node whose recorder wants no more is as fast as one that
never had any.

Features: DUR-02, DUR-03.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.engine.assembly import exposed_outputs
from yukta_rx.engine.claims import NodeClaims, RunClaims
from yukta_rx.engine.pipeline import Hooks
from yukta_rx.engine.policies import copies
from yukta_rx.model.message import Message, Routed, copy_payload
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.plan import Outcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterable, Sequence

    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.claims import ClaimSource
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.plan import Barrier, Tap, Waits

_WITHHELD: Final = 1 << 60
"""Credit that is taken from the children of a node that is held back."""

NULL_TERMINAL: Final = "NULL_TERMINAL"

_WHOLE: Final = (TaskStatus.SUCCESS, TaskStatus.SKIPPED)


class NodeRecorder(Protocol):
    """Records one node of one run; called on the loop.

    Attributes:
        wants_inputs: whether it asks for the inputs that were finished.
    """

    wants_inputs: bool

    @property
    def barrier(self) -> Barrier | None:
        """Gives what is waited for when the node has completed, before any child sees that.

        It does not fail. None if `complete` is all that it takes.
        """

    @property
    def wanted(self) -> bool:
        """Whether more of this node is wanted."""

    def add(self, port: str | None, messages: Sequence[Message]) -> bool:
        """Take a batch over; False if no more of this node is wanted. Must not keep the list."""

    def finished(self, inputs: Sequence[Message]) -> None:
        """All that was taken over since the last time is what these inputs gave, which are over.

        Only called where inputs are wanted. Must not keep the list.
        """

    def aside(self, port: str | None, messages: Sequence[Message]) -> None:
        """These inputs are over without having gone through the node.

        They left by `port` as they came, or are gone if that is None. What is taken over for
        inputs that are not over stays as it is.
        """

    def written(self) -> asyncio.Future[None] | None:
        """Have all that was taken over written, None if it is; done when that is, or failed."""

    def rests(self) -> bool:
        """Hand on what waits; whether nothing does, and another recorder could go on."""

    def complete(self) -> None:
        """The node has given all: have its end marker written, with what waits.

        No child knows yet. Told before the barrier, if at all, and where there is none.
        """


class Recorder(Protocol):
    """Records the nodes of one run."""

    @property
    def durable(self) -> bool:
        """Whether the record is there after a crash, so that a run can go on with it."""

    @property
    def claims(self) -> ClaimSource | None:
        """Where large payloads are kept apart; None if they are not."""

    def node(
        self,
        node_id: str,
        hold: Callable[[bool], None],
        *,
        by_input: bool = False,
    ) -> NodeRecorder:
        """What records one node; those that feed it come before it.

        Args:
            node_id: the node.
            hold: `hold(True)` holds it back, `hold(False)` lets it go on.
            by_input: whether the inputs that it has finished can be told.
        """

    def rests(self) -> bool:
        """Whether nothing of any node is on its way."""


class Recording:
    """Taps and barriers for a recorder.

    Args:
        recorder: gets what is recorded.
        prepared: the workflow.
        shared: ids of the nodes whose plugins get copies, because others hold their inputs.
        replayed: ids of the nodes in whose place something emits what was recorded.
    """

    __slots__ = ("_durable", "_exposed", "_nodes", "_recorder", "_replayed", "_shared")

    def __init__(
        self,
        recorder: Recorder,
        prepared: PreparedWorkflow,
        shared: Collection[str],
        replayed: Collection[str] = (),
    ) -> None:
        self._recorder = recorder
        self._durable = recorder.durable
        self._replayed = replayed
        self._shared = shared
        self._exposed = exposed_outputs(prepared, shared)
        self._nodes: dict[str, NodeRecorder] = {}

    def claim(self, nodes: Iterable[NodeRuntime], preview: int = 0) -> None:
        """Have large payloads travel as references, if the record keeps them apart.

        Args:
            nodes: those of the run.
            preview: characters of each payload that are kept with its reference, to be shown.
        """
        if (source := self._recorder.claims) is None:
            return
        run, recorders = RunClaims(source, preview), self._nodes
        for node in nodes:

            def wanted(node_id: str = node.id) -> bool:
                recorder = recorders.get(node_id)
                return recorder is not None and recorder.wanted

            feeds = bool(node.prepared.children)
            shared = copies(node.prepared, shared=node.id in self._shared)
            # One that looks at nothing needs nothing opened, but for its breakpoints.
            opens = node.prepared.spec.type != NULL_TERMINAL
            node.claims = NodeClaims(
                run, node, wanted if feeds else None, shared=shared, opens=opens
            )

    def hooks(self, node: NodeRuntime, tap: Tap | None, barrier: Barrier | None) -> Hooks:
        """What listens to a node: its recording before `tap`, its end marker after `barrier`."""
        feeds, durable = bool(node.prepared.children), self._durable
        if not feeds and not durable:
            return Hooks(tap, barrier=barrier)
        replayed = node.id in self._replayed
        by_input = by_message(node) and not replayed
        recorder = self._recorder.node(node.id, _Brake(node), by_input=by_input)
        self._nodes[node.id] = recorder
        exposed = node.id in self._exposed
        told = _Told(node, recorder, tap, barrier, named=durable, exposed=exposed)
        node.on_dropped = told.aside
        if recorder.barrier is not None:
            barrier = told.ended
        if durable and node.kind is PluginKind.TRIGGER and not replayed:
            return Hooks(tap, barrier=barrier, keeper=told)
        # What leaves a terminal is no output.
        outputs = feeds and not (recorder.wants_inputs and node.kind is PluginKind.TERMINAL)
        return Hooks(
            told.emitted if outputs else tap,
            told.finished if recorder.wants_inputs else None,
            barrier,
        )

    def rests(self, nodes: Iterable[NodeRuntime]) -> bool:
        """Whether nothing waits to be recorded, and more of these nodes is wanted."""
        known = [self._nodes[node.id] for node in nodes if node.id in self._nodes]
        return all(recorder.rests() for recorder in known) and self._recorder.rests()

    def ended(self, node: NodeRuntime) -> None:
        """A node has ended, and its children do not know yet."""
        recorder = self._nodes.get(node.id)
        whole = node.outcome is Outcome.COMPLETED and node.status in _WHOLE
        if recorder is not None and recorder.barrier is None and whole:
            recorder.complete()


def by_message(node: NodeRuntime) -> bool:
    """Whether what a node does for one message depends on no other, so that it can go on behind it.

    NULL_TERMINAL could, but does nothing that would be worth a record.
    """
    return node.prepared.goes_on and node.prepared.spec.type != NULL_TERMINAL


class _Told:
    """What is told of one node: by its stage, by a buffer in front of it; of a trigger its keeper.

    Args:
        node: the node.
        recorder: records it.
        tap: sees what it emits as well.
        barrier: what comes before its end marker.
        named: whether the ids of its outputs are written.
        exposed: whether a plugin further down may change its outputs.
    """

    __slots__ = ("_barrier", "_exposed", "_named", "_node", "_recorder", "_tap", "_wanted")

    def __init__(
        self,
        node: NodeRuntime,
        recorder: NodeRecorder,
        tap: Tap | None,
        barrier: Barrier | None,
        *,
        named: bool,
        exposed: bool,
    ) -> None:
        self._node = node
        self._recorder = recorder
        self._tap = tap
        self._barrier = barrier
        self._named = named
        self._exposed = exposed
        self._wanted = True

    def _own(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self._named:
            # They are written anyway. What is made of one whose id is known has it at hand, and
            # need not work out those of all that came before it.
            for msg in messages:
                msg.name()
        return [_own(msg) for msg in messages] if self._exposed else messages

    def emitted(self, port: str | None, messages: Sequence[Message]) -> None:
        """A batch leaves the node (streams.plan.Tap)."""
        node, tap = self._node, self._tap
        if self._wanted and not node.replaying:
            self._wanted = self._recorder.add(port, self._own(messages))
        if tap is not None:
            tap(port, messages)
        if not self._wanted and node.stage is not None:
            node.stage.tap = tap

    def finished(self, inputs: Sequence[Message]) -> None:
        """These inputs are over (streams.plan.OnFinished)."""
        self._recorder.finished(inputs)
        if not self._recorder.wanted and self._node.stage is not None:
            self._node.stage.on_finished = None

    def aside(self, port: str | None, messages: Sequence[Message]) -> None:
        """These inputs do not come to the node: they left by a port, or are gone."""
        if self._recorder.wanted:
            port = port if self._node.prepared.children else None
            self._recorder.aside(port, self._own(messages))

    def ended(self) -> Waits | None:
        """The node has completed (streams.plan.Barrier)."""
        return self._marked() if self._barrier is None else self._finish(self._barrier)

    async def _finish(self, barrier: Barrier) -> None:
        for step in (barrier, self._marked):
            if (waits := step()) is not None:
                await waits

    def _marked(self) -> Waits | None:
        mark = self._recorder.barrier
        return None if mark is None or self._node.cut_short() else mark()

    # -- of a trigger: before its messages leave it (streams.plan.Keeper)

    def keep(self, chunk: Sequence[Any]) -> None:
        """Record what it gives."""
        for port, items in groupby(chunk, _port_of):
            if self._recorder.wanted:
                messages = [item if port is None else item.value for item in items]
                self._recorder.add(port, self._own(messages))

    def kept(self) -> asyncio.Future[None] | None:
        """Have it written."""
        return self._recorder.written() if self._recorder.wanted else None

    def last(self) -> None:
        """Mark its output as whole."""
        # So the last row and the end marker are one write. What was not emitted yet is recorded,
        # and that it was all: whoever goes on behind a crash replays it.
        self._recorder.complete()


def _port_of(item: Any) -> str | None:
    return item.port if type(item) is Routed else None


class _Brake:
    """Holds a node back: its children have no credit until it is let go.

    So it waits as it would for a slow child, whatever kind of node it is.
    """

    __slots__ = ("_held", "_node")

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._held: list[Edge] = []

    def __call__(self, on: bool) -> None:
        stage = self._node.stage
        if stage is None:
            return
        if on:
            self._held = list(stage.outs)
            for edge in self._held:
                edge.credit -= _WITHHELD
            # What is in a batch goes on no further than its next element.
            stage.steer = True
            return
        for edge in self._held:
            edge.credit += _WITHHELD
        self._held = []
        if not stage.ended:
            stage.wake()


def is_withheld(edge: Edge) -> bool:
    """Whether a brake is what keeps an edge without credit."""
    return edge.credit < -_WITHHELD // 2


def _own(msg: Message) -> Message:
    """The same message with a payload of its own; its id is not worked out for that."""
    if msg.uid is not None or not msg.origin:
        return msg.copied()
    payload = copy_payload(msg.payload)
    return Message(payload, msg.headers, msg.origin, None, msg.attempt, msg.trail)
