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
    from yukta_rx.streams.plan import Barrier, OnFinished, Tap, Waits

_WITHHELD: Final = 1 << 60
"""Credit that is taken from the children of a node that is held back."""

NULL_TERMINAL: Final = "NULL_TERMINAL"

_WHOLE: Final = (TaskStatus.SUCCESS, TaskStatus.SKIPPED)


class NodeRecorder(Protocol):
    """Records one node of one run; called on the loop.

    Attributes:
        barrier: gives what is waited for when the node has completed, before any child sees that;
            it does not fail. None if `complete` is all that it takes.
        wants_inputs: whether it asks for the inputs that were finished.
    """

    barrier: Barrier | None
    wants_inputs: bool

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

    __slots__ = ("_exposed", "_nodes", "_recorder", "_replayed", "_shared")

    def __init__(
        self,
        recorder: Recorder,
        prepared: PreparedWorkflow,
        shared: Collection[str],
        replayed: Collection[str] = (),
    ) -> None:
        self._recorder = recorder
        self._replayed = replayed
        self._shared = shared
        self._exposed = exposed_outputs(prepared, shared)
        self._nodes: dict[str, NodeRecorder] = {}

    def claim(self, nodes: Iterable[NodeRuntime]) -> None:
        """Have large payloads travel as references, if the record keeps them apart."""
        if (source := self._recorder.claims) is None:
            return
        run, recorders = RunClaims(source), self._nodes
        for node in nodes:
            if node.prepared.spec.type == NULL_TERMINAL:
                # It looks at nothing, so nothing has to be opened.
                continue

            def wanted(node_id: str = node.id) -> bool:
                recorder = recorders.get(node_id)
                return recorder is not None and recorder.wanted

            feeds = bool(node.prepared.children)
            shared = copies(node.prepared, shared=node.id in self._shared)
            node.claims = NodeClaims(run, node, wanted if feeds else None, shared=shared)

    def hooks(self, node: NodeRuntime, hooks: Hooks) -> Hooks:
        """`hooks` with the recording of `node` in front of them, and its end marker behind."""
        feeds = bool(node.prepared.children)
        if not feeds and not self._recorder.durable:
            return hooks
        replayed = node.id in self._replayed
        by_input = by_message(node) and not replayed
        recorder = self._recorder.node(node.id, _Brake(node), by_input=by_input)
        self._nodes[node.id] = recorder
        exposed = node.id in self._exposed

        named = self._recorder.durable

        def own(messages: Sequence[Message]) -> Sequence[Message]:
            if named:
                # They are written anyway. What is made of one whose id is known has it at hand,
                # and need not work out those of all that came before it.
                for msg in messages:
                    msg.name()
            return [_own(msg) for msg in messages] if exposed else messages

        def aside(port: str | None, messages: Sequence[Message]) -> None:
            if recorder.wanted:
                recorder.aside(port if feeds else None, own(messages))

        node.on_dropped = aside
        barrier = _marked(node, recorder, hooks.barrier)
        if self._recorder.durable and node.kind is PluginKind.TRIGGER and not replayed:
            return Hooks(hooks.tap, barrier=barrier, keeper=_Keeper(recorder, own))
        tap, on_finished = hooks.tap, None
        if recorder.wants_inputs:
            on_finished = _finished(node, recorder)
        # What leaves a terminal is no output.
        if feeds and not (recorder.wants_inputs and node.kind is PluginKind.TERMINAL):
            tap = _recorded(node, recorder, own, hooks.tap)
        return Hooks(tap, on_finished, barrier)

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


class _Keeper:
    """Records what a trigger gives, before that leaves it."""

    __slots__ = ("_own", "_recorder")

    def __init__(
        self,
        recorder: NodeRecorder,
        own: Callable[[Sequence[Message]], Sequence[Message]],
    ) -> None:
        self._recorder = recorder
        self._own = own

    def keep(self, chunk: Sequence[Any]) -> None:
        recorder = self._recorder
        for port, items in groupby(chunk, _port_of):
            if recorder.wanted:
                messages = [item if port is None else item.value for item in items]
                recorder.add(port, self._own(messages))

    def kept(self) -> asyncio.Future[None] | None:
        return self._recorder.written() if self._recorder.wanted else None

    def last(self) -> None:
        # So the last row and the end marker are one write. What was not emitted yet is recorded,
        # and that it was all: whoever goes on behind a crash replays it.
        self._recorder.complete()


def _port_of(item: Any) -> str | None:
    return item.port if type(item) is Routed else None


def _recorded(
    node: NodeRuntime,
    recorder: NodeRecorder,
    own: Callable[[Sequence[Message]], Sequence[Message]],
    tap: Tap | None,
) -> Tap:
    add = recorder.add
    wanted = True

    def recorded(port: str | None, messages: Sequence[Message]) -> None:
        nonlocal wanted
        wanted = wanted and (node.replaying or add(port, own(messages)))
        if tap is not None:
            tap(port, messages)
        if not wanted and node.stage is not None:
            node.stage.tap = tap

    return recorded


def _finished(node: NodeRuntime, recorder: NodeRecorder) -> OnFinished:
    finished = recorder.finished

    def told(inputs: Sequence[Message]) -> None:
        finished(inputs)
        if not recorder.wanted and node.stage is not None:
            node.stage.on_finished = None

    return told


def _marked(node: NodeRuntime, recorder: NodeRecorder, barrier: Barrier | None) -> Barrier | None:
    if (mark := recorder.barrier) is None:
        return barrier

    def marked() -> Waits | None:
        return None if node.cut_short() else mark()

    if barrier is None:
        return marked

    async def finished_and_marked() -> None:
        for step in (barrier, marked):
            if (waits := step()) is not None:
                await waits

    return finished_and_marked


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
