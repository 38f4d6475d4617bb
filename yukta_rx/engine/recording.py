"""Recording: what a run's nodes emit goes to a recorder too, before any child sees it.

The engine knows no store; whoever wants a record implements `Recorder`. Nodes that feed nobody are
not recorded. A node whose recorder wants no more is as fast as one that never had any.

Feature: DUR-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from yukta_rx.engine.assembly import exposed_outputs
from yukta_rx.model.message import Message, copy_payload
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.plan import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.plan import Barrier, Tap

_WITHHELD: Final = 1 << 60
"""Credit that is taken from the children of a node that is held back."""

_WHOLE: Final = (TaskStatus.SUCCESS, TaskStatus.SKIPPED)


class NodeRecorder(Protocol):
    """Records one node of one run; called on the loop.

    Attributes:
        barrier: awaited when the node has completed, before any child sees that; it does not
            raise. None if `complete` is all that it takes.
    """

    barrier: Barrier | None

    def add(self, port: str | None, messages: Sequence[Message]) -> bool:
        """Take a batch over; False if no more of this node is wanted. Must not keep the list."""

    def complete(self) -> None:
        """Told where there is no barrier: the node has emitted all, and no child knows yet."""


class Recorder(Protocol):
    """Records the nodes of one run."""

    def node(self, node_id: str, hold: Callable[[bool], None]) -> NodeRecorder:
        """What records one node; `hold(True)` holds that back, `hold(False)` lets it go on."""


class Recording:
    """Taps and barriers for a recorder.

    Args:
        recorder: gets what is recorded.
        prepared: the workflow.
        shared: ids of the nodes whose plugins get copies, because others hold their inputs.
    """

    __slots__ = ("_exposed", "_nodes", "_recorder")

    def __init__(
        self, recorder: Recorder, prepared: PreparedWorkflow, shared: Collection[str]
    ) -> None:
        self._recorder = recorder
        self._exposed = exposed_outputs(prepared, shared)
        self._nodes: dict[str, NodeRecorder] = {}

    def tap(self, node: NodeRuntime, tap: Tap | None) -> Tap | None:
        """`tap` with the recording of `node` in front of it."""
        if not node.prepared.children:
            return tap
        recorder = self._nodes[node.id] = self._recorder.node(node.id, _Brake(node))
        add = recorder.add
        exposed = node.id in self._exposed
        wanted = True

        def dropped(port: str | None, messages: Sequence[Message]) -> None:
            nonlocal wanted
            kept = [_own(msg) for msg in messages] if exposed else messages
            wanted = wanted and add(port, kept)

        def recorded(port: str | None, messages: Sequence[Message]) -> None:
            dropped(port, messages)
            if tap is not None:
                tap(port, messages)
            if not wanted and node.stage is not None:
                node.stage.tap = tap

        node.on_dropped = dropped
        return recorded

    def barrier(self, node: NodeRuntime, barrier: Barrier | None) -> Barrier | None:
        """`barrier` with the end marker of `node` behind it."""
        recorder = self._nodes.get(node.id)
        if recorder is None or (mark := recorder.barrier) is None:
            return barrier

        async def marked() -> None:
            if barrier is not None:
                await barrier()
            if not node.cut_short():
                await mark()

        return marked

    def ended(self, node: NodeRuntime) -> None:
        """A node has ended, and its children do not know yet."""
        recorder = self._nodes.get(node.id)
        whole = node.outcome is Outcome.COMPLETED and node.status in _WHOLE
        if recorder is not None and recorder.barrier is None and whole:
            recorder.complete()


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
