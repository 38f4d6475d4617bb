"""Suspension: what is left of a run in which nothing happens but that messages wait for signals.

`still` says whether a run is at such a point, and `left_of` takes down all that is needed to go on:
`Left`, which is numbers, times, and the messages that wait. `take_apart` ends what the run consists
of without a word. `engine/suspendable.py` makes a run again of what is left.

A run is put aside only where nothing of it could be lost or seen twice. Of nodes that have not
ended that means: messages wait in WAIT_FOR_SIGNAL and in front of it, any other node has nothing
to do and keeps nothing from message to message. In doubt it stays as it is.

Feature: CTL-05.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from yukta_rx.engine.progress import edge_state, in_document_order, node_known
from yukta_rx.engine.rates import RateMeter, over_life
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import PluginKind, Shape
from yukta_rx.streams.aio import WorkerStage
from yukta_rx.streams.concurrent import ConcurrentStage
from yukta_rx.streams.in_hand import in_hand, out
from yukta_rx.streams.known import KnownStage
from yukta_rx.streams.sync import ManyStage, MapStage
from yukta_rx.streams.threads import ThreadStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from yukta_rx.definitions.prepare import PreparedNode, PreparedWorkflow
    from yukta_rx.engine.host import PluginCounts
    from yukta_rx.engine.losses import Loss
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.suspendable import SuspendableRun
    from yukta_rx.model.message import Message
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.stage import Stage

T = TypeVar("T")

WAITS: Final = "WAIT_FOR_SIGNAL"

NUMBERS: Final = (
    *("received", "emitted", "filtered", "discarded", "unrouted", "failed", "retried"),
    *("dead_lettered", "skipped", "attempt", "quantum", "turn"),
)
"""What a stage has counted."""

_WELL: Final = (TaskStatus.SUCCESS, TaskStatus.SKIPPED)


class More(NamedTuple):
    """What most nodes have nothing of.

    Attributes:
        strays: the first messages that no child was there for.
        wasted: the first messages that came to nothing.
        config: its options, where they do not depend on a message.
        limit: of its idle clock, where a first message has told it.
        hand: the places of the edges that messages in its hands came by, and these, in order.
        fronts: of each stage in front of its own, whether that has ended.
        counted: what its plugin counted.
        beats: heartbeats of its plugin.
        skipping: whether it was skipped to its end.
    """

    strays: tuple[Any, ...] = ()
    wasted: tuple[Any, ...] = ()
    config: Any = None
    limit: float | None = None
    hand: tuple[tuple[int, Message], ...] = ()
    fronts: tuple[bool, ...] = ()
    counted: PluginCounts | None = None
    beats: int = 0
    skipping: bool = False


NOTHING: Final = More()


class NodeLeft(NamedTuple):
    """One node.

    Attributes:
        status: its status.
        started_at: when it began.
        ended_at: when it ended.
        lag: seconds of pauses.
        began: when it began, in seconds of the loop.
        meter: its rate, if anybody has looked at it.
        numbers: what its stage counted, see `NUMBERS`; None if it has none.
        more: what else there is of it.
    """

    status: TaskStatus
    started_at: datetime | None
    ended_at: datetime | None
    lag: float
    began: float
    meter: RateMeter | None
    numbers: tuple[int, ...] | None
    more: More

    def number(self, name: str) -> int:
        """One of its numbers."""
        return 0 if self.numbers is None else self.numbers[NUMBERS.index(name)]


class EdgeLeft(NamedTuple):
    """One edge.

    Attributes:
        of: the place of the edge in the document; None for one inside of a node.
        passed: messages that went over it.
        dropped: messages that a buffer at its end dropped.
        blocked: seconds that its source waited for it.
        credit: what its source may send.
        used: what its target has not given back yet.
        closed: whether its source has ended.
        worked_off: whether its target has nothing to do with it any more.
        waiting: the messages on it.
        meter: its rate, if anybody has looked at it.
    """

    of: int | None
    passed: int
    dropped: int
    blocked: float
    credit: int
    used: int
    closed: bool
    worked_off: bool
    waiting: tuple[Message, ...]
    meter: RateMeter | None


class Left(NamedTuple):
    """What is left of a run.

    Attributes:
        started_at: when it began.
        version: of its status.
        snapshots: the version of its last snapshot.
        cursor: of its last result.
        lag: seconds of pauses.
        deadline: when that ends, in active seconds of the loop; None for never.
        writers: nodes that have written log lines of their own.
        nodes: in topological order.
        edges: those of the document in its order, then those inside of nodes.
        losses: what it lost.
    """

    started_at: datetime | None
    version: int
    snapshots: int
    cursor: int
    lag: float
    deadline: float | None
    writers: tuple[str, ...]
    nodes: tuple[NodeLeft, ...]
    edges: tuple[EdgeLeft, ...]
    losses: tuple[Loss, ...]


# -- what is seen of it


def node_states(prepared: PreparedWorkflow, left: Left, now: float) -> list[dict[str, Any]]:
    """Every node as API.md's `NodeState`, at a time of the loop."""
    nodes = zip(prepared.nodes.values(), left.nodes, strict=True)
    return [_node_state(node, was, now) for node, was in nodes]


def _node_state(node: PreparedNode, was: NodeLeft, now: float) -> dict[str, Any]:
    return node_known(node, was) | {
        "in": 0 if node.spec.kind is PluginKind.TRIGGER else was.number("received"),
        "out": 0 if node.spec.kind is PluginKind.TERMINAL else was.number("emitted"),
        "failed": was.number("failed"),
        "retried": was.number("retried"),
        "dropped": was.number("discarded") + was.number("unrouted"),
        "deadLettered": was.number("dead_lettered"),
        "skipped": was.number("skipped"),
        "attempt": was.number("attempt") or 1,
        "ratePerSec": _rate(was, now),
        "paused": False,
        "skipping": was.more.skipping,
    }


def _rate(was: NodeLeft, now: float) -> float:
    if was.meter is None or was.numbers is None or was.started_at is None:
        return 0.0
    count = max(was.number("received"), was.number("emitted"))
    if was.ended_at is None:
        return was.meter.read(now, count)
    return over_life(count, was.started_at, was.ended_at)


def looked_at(left: Left, now: float) -> Left:
    """The same, with meters for what is seen, which the first look makes."""
    return left._replace(
        nodes=tuple(
            node
            if node.meter is not None or node.started_at is None
            else node._replace(meter=RateMeter(node.began))
            for node in left.nodes
        ),
        edges=tuple(
            edge
            if edge.meter is not None or edge.of is None
            else edge._replace(meter=RateMeter(now, edge.passed))
            for edge in left.edges
        ),
    )


def edge_states(definition: WorkflowDefinition, left: Left, now: float) -> list[dict[str, Any]]:
    """Every edge of the document as API.md's `EdgeState`, at a time of the loop."""
    held = Counter(place for node in left.nodes for place, _ in node.more.hand)
    shown = []
    for place, edge in enumerate(left.edges):
        if edge.of is not None:
            of = definition.edges[edge.of]
            ends = of.source, of.target, of.source_port
            waiting = len(edge.waiting) + held[place]
            blocked = edge.blocked
            shown.append(edge_state(ends, edge, edge.meter, now, waiting=waiting, blocked=blocked))
    return shown


def edges_of(definition: WorkflowDefinition, circuit: Circuit) -> list[Edge]:
    """The edges of a circuit: those of the document in its order, then those inside of nodes."""
    shown = in_document_order(definition, circuit.edges)
    inner = set(circuit.edges) - set(shown)
    return shown + [edge for edge in circuit.edges if edge in inner]


# -- whether it may be


def still(node: NodeRuntime, asked: tuple[str, ...]) -> bool:
    """Whether a node has ended well, or does nothing but wait.

    Args:
        node: of a run that goes on.
        asked: ids of its messages that wait for signals.
    """
    stage = node.stage
    if node.drops is not None and node.drops.total:
        return False
    if any(front.discarded for front in node.fronts):
        return False
    if node.status.terminal:
        well = node.status in _WELL and node.error is None
        # Breakpoints stay, and are shown, as long as the run goes on.
        return well and not (asked or node.breakpoints)
    if stage is None or not (_plain(node, stage) and _untroubled(stage)):
        return False
    if not all(front.ended or _untroubled(front) for front in node.fronts):
        return False
    if node.prepared.spec.type == WAITS:
        return _asks_only(stage, asked)
    edges = (edge for one in (stage, *node.fronts) for edge in one.ins)
    return not asked and _at_rest(stage) and not any(map(_loaded, edges))


def _plain(node: NodeRuntime, stage: Stage) -> bool:
    """Whether nothing is asked of a node, and it keeps nothing that would be lost."""
    spec, policy, context = node.prepared.spec, node.prepared.policy, node.context
    if context is None or spec.kind is PluginKind.TRIGGER or spec.shape is Shape.STREAM:
        return False
    if node.paused or node.breakpoints or node.stopped_alone or node.drops is not None:
        return False
    if node.valve.paused or node.valve.skipping or node.valve.holds or stage.front is not None:
        return False
    if not all(isinstance(front, KnownStage) for front in node.fronts) or context.busy:
        return False
    if not stage.touched:
        return True
    own = spec.open or spec.close or spec.finish or context.state is not None
    return node.prepared.goes_on and not own and policy.deadline_ms is None


def _untroubled(stage: Stage) -> bool:
    """Whether a stage works as at its first message, and is not about to do anything."""
    if stage.ended or stage.queued or stage.pruning or stage.draining or stage.prelude:
        return False
    if stage.failed or stage.retried or stage.dead_lettered or stage.sealing is not None:
        return False
    if any(edge.dead or edge.closed or edge.credit < 0 for edge in stage.outs):
        return False
    return not any(
        edge.pinned or edge.err is not None or edge.blocked_at is not None or edge.credit < 0
        for edge in stage.ins
    )


def _asks_only(stage: Stage, asked: tuple[str, ...]) -> bool:
    """Whether all that a stage does is that the messages in its calls wait for signals."""
    hand = in_hand(stage)
    if hand is None or (hand and stage.plan.limit is not None):
        return False
    called = [item.id for _, item in hand[: out(stage)]]
    return sorted(called) == sorted(asked)


def _at_rest(stage: Stage) -> bool:
    """Whether a stage has no call out, and nothing in hand."""
    if isinstance(stage, MapStage):
        return stage.recovery is None
    if isinstance(stage, ManyStage):
        return stage.drawing is None
    if isinstance(stage, ThreadStage):
        return not stage.working() and stage.taken is None and stage.failure is None
    if isinstance(stage, ConcurrentStage):
        return not stage.calls
    return isinstance(stage, WorkerStage) and not stage.working()


def _loaded(edge: Edge) -> bool:
    return not edge.empty or edge.held > 0


# -- taking it down


def left_of(run: SuspendableRun, circuit: Circuit, deadline: float | None) -> Left:
    """Take down what a run that is still needs to go on.

    Args:
        run: the run.
        circuit: what it runs.
        deadline: when that ends, in active seconds.
    """
    edges = edges_of(run.definition, circuit)
    places = {edge: place for place, edge in enumerate(edges)}
    return Left(
        started_at=run.started_at,
        **run.numbered(),
        lag=run.lag,
        deadline=deadline,
        nodes=tuple(_node_left(run, node, places) for node in run.nodes.values()),
        edges=tuple(_edges_left(run, edges)),
        losses=tuple(run.losses()),
    )


def take_apart(run: SuspendableRun, circuit: Circuit) -> None:
    """End what a run consists of without a word; nothing more happens in it."""
    for stage in circuit.stages.values():
        stage.ended = True
        for watch in (stage.plan.idle, stage.plan.deadline, stage.plan.limit):
            if watch is not None:
                watch.stop()
    for node in run.nodes.values():
        # Who reads a meter changes it, and it is another's now.
        node.meter = None
        if node.context is not None:
            node.context.cancelled = True
    run.rates.clear()
    circuit.ready.clear()
    circuit.tasks.cancel()
    if not circuit.done.done():
        circuit.done.set_result(None)


@lru_cache(maxsize=1024)
def _same(one: T) -> T:
    """One object for the many runs that stand at the same point of the same workflow."""
    return one


def _node_left(run: SuspendableRun, node: NodeRuntime, places: Mapping[Edge, int]) -> NodeLeft:
    stage = node.stage
    more = _more(run, node, stage, places)
    left = NodeLeft(
        status=node.status,
        started_at=node.started_at,
        ended_at=node.ended_at,
        lag=node.clock.lag,
        began=node.began,
        meter=node.meter,
        numbers=None if stage is None else _same(tuple(getattr(stage, name) for name in NUMBERS)),
        more=NOTHING if more == NOTHING else more,
    )
    return left if left.started_at is not None or left.more is not NOTHING else _same(left)


def _more(
    run: SuspendableRun, node: NodeRuntime, stage: Stage | None, places: Mapping[Edge, int]
) -> More:
    made = More(
        counted=node.counted if node.counted.total else None,
        beats=0 if node.context is None else node.context.beats,
        skipping=node.valve.skipping,
    )
    if stage is None:
        return made
    made = made._replace(
        strays=tuple(stage.strays),
        wasted=tuple(stage.wasted),
        fronts=tuple(front.ended for front in node.fronts),
    )
    if node.status.terminal:
        return made
    config, limit = run.told(node)
    hand = tuple((places[edge], item) for edge, item in in_hand(stage) or ())
    return made._replace(config=config, limit=limit, hand=hand)


def _edges_left(run: SuspendableRun, edges: Iterable[Edge]) -> Iterable[EdgeLeft]:
    documented = {
        (edge.source, edge.target, edge.source_port): place
        for place, edge in enumerate(run.definition.edges)
    }
    for edge in edges:
        left = EdgeLeft(
            of=documented.get((edge.src.plan.name, edge.dst.plan.name, edge.port)),
            passed=edge.passed,
            dropped=edge.dropped,
            blocked=edge.blocked,
            credit=edge.credit,
            used=edge.used,
            closed=edge.closed,
            worked_off=edge not in edge.dst.ins,
            waiting=tuple(edge.cur[edge.pos :] + edge.buf),
            meter=run.rates.get(edge),
        )
        yield left if left.waiting or left.meter is not None else _same(left)
