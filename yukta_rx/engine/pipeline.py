"""The node wrapper: composes the operators around one plugin, in the documented order.

merge parents, edge buffer, valve, plugin call (attempt, element timeout, retry, onError), clocks
and status, record, broadcast. An operator whose policy is off is not in the pipe at all, so it
costs nothing.

Feature: ENG-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from yukta_rx import operators as ops
from yukta_rx.model.policy import JoinRule, NOfM
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.opening import Ready
    from yukta_rx.engine.resume import Prelude
    from yukta_rx.streams.plan import Barrier, Gate, Join, Keeper, OnFinished, Tap


class Hooks(NamedTuple):
    """What listens to a node's stage.

    Attributes:
        tap: sees what it emits, before its children do.
        on_finished: told of the inputs that it has finished.
        barrier: what is awaited before its children see that it has completed.
        keeper: of a trigger: what has to keep a message before that leaves it.
    """

    tap: Tap | None = None
    on_finished: OnFinished | None = None
    barrier: Barrier | None = None
    keeper: Keeper | None = None


class Wired(NamedTuple):
    """The wrapped output of a node, and that of the buffer in front of it, if it has one."""

    output: Flow[Any]
    buffer: Flow[Any] | None


def node_flow(
    node: NodeRuntime,
    parents: Sequence[Flow[Any]],
    ready: Ready,
    *,
    prefetch: int,
    hooks: Hooks,
    prelude: Prelude | None = None,
) -> Wired:
    """The output of `node`, wrapped.

    Args:
        node: gives the valve, the clocks and the policies, and observes the stage.
        parents: the flows that feed it, none for a trigger.
        ready: its plugin, ready to be called.
        prefetch: elements that each edge into it may hold.
        hooks: what listens to it.
        prelude: what leaves it first, where it goes on behind inputs that it had finished.
    """
    gate: Gate = prelude or node.valve
    buffer: Flow[Any] | None = None
    if parents:
        flow = ops.merge(*parents, name=node.id, join=join_of(node), prefetch=prefetch)
        if prelude is not None:
            flow = flow.pipe(ops.without_known(prelude.memory))
        if (edge_buffer := node.edge_buffer()) is not None:
            flow = flow.pipe(edge_buffer)
            if node.drops is not None:
                buffer = Flow(flow.plan.parents[0].plan)
        flow = flow.write(Slot.VALVE, gate=gate).pipe(ops.call(ready.body))
        flow = flow.pipe(*node.policies.around_call(ready.element_timeout))
    else:
        flow = Flow(NodePlan(name=node.id, body=ready.body, gate=gate, last=Slot.CALL))
    flow = flow.pipe(*node.clocks(), ops.status(node), *_recorded(hooks), ops.broadcast())
    return Wired(flow, buffer)


def passing_flow(
    node: NodeRuntime, parents: Sequence[Flow[Any]], ready: Ready, *, prefetch: int, hooks: Hooks
) -> Wired:
    """A terminal that had finished: what comes in goes out as a result, without clocks."""
    flow = ops.merge(*parents, name=node.id, join=join_of(node), prefetch=prefetch)
    flow = flow.pipe(ops.valve(node.valve), ops.call(ready.body), ops.status(node))
    flow = flow.pipe(*_recorded(hooks), ops.broadcast())
    return Wired(flow, flow)


def replay_flow(node: NodeRuntime, ready: Ready, hooks: Hooks) -> Wired:
    """The recorded output of `node` in place of the node; it has no clocks and no policies."""
    plan = NodePlan(name=node.id, body=ready.body, gate=node.valve, last=Slot.CALL)
    flow: Flow[Any] = Flow(plan)
    flow = flow.pipe(ops.status(node), *_recorded(hooks), ops.broadcast())
    # What a buffer in front of the node dropped then is among what was recorded.
    return Wired(flow, flow)


def _recorded(hooks: Hooks) -> list[ops.Operator]:
    if hooks == Hooks():
        return []
    return [ops.record(hooks.tap, hooks.barrier, hooks.on_finished, hooks.keeper)]


def join_of(node: NodeRuntime) -> Join:
    """The join rule of a node, new for each run. Feature: ENG-03."""
    prepared = node.prepared
    parents = {parent.node_id for parent in prepared.parents}
    # A parent with several edges counts as soon as one of them is required.
    counted = {parent.node_id for parent in prepared.parents if parent.required}
    trigger = prepared.policy.trigger
    if isinstance(trigger, NOfM):
        return ops.AtLeast(trigger.n, counted)
    if trigger is JoinRule.ALL_DONE:
        return ops.AtLeast(0, ())
    if trigger is JoinRule.ONE_SUCCESS:
        return ops.AtLeast(min(1, len(counted)), counted)
    return ops.AllSuccess(parents - counted)
