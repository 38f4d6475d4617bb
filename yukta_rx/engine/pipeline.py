"""The node wrapper: composes the operators around one plugin, in the documented order.

merge parents, edge buffer, valve, plugin call (attempt, element timeout, retry, onError), clocks
and status, record, broadcast. An operator whose policy is off is not in the pipe at all, so it
costs nothing.

Feature: ENG-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx import operators as ops
from yukta_rx.model.policy import JoinRule, NOfM
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.streams.plan import Barrier, Body, Join, Tap


def node_flow(
    node: NodeRuntime,
    parents: Sequence[Flow[Any]],
    body: Body,
    *,
    prefetch: int,
    tap: Tap | None = None,
    barrier: Barrier | None = None,
) -> Flow[Any]:
    """The output of `node`, wrapped.

    Args:
        node: gives the valve and observes the stage.
        parents: the flows that feed it, none for a trigger.
        body: its plugin, ready to be called.
        prefetch: elements that each edge into it may hold.
        tap: sees what it emits, before its children do.
        barrier: awaited before its children see its completion.
    """
    if parents:
        flow = ops.merge(*parents, name=node.id, join=join_of(node), prefetch=prefetch).pipe(
            ops.valve(node.valve), ops.call(body)
        )
    else:
        flow = Flow(NodePlan(name=node.id, body=body, gate=node.valve, last=Slot.CALL))
    idle = node.idle_clock()
    if idle is not None:
        flow = flow.pipe(ops.idle_timeout(idle))
    flow = flow.pipe(ops.status(node))
    if tap is not None or barrier is not None:
        flow = flow.pipe(ops.record(tap, barrier))
    return flow.pipe(ops.broadcast())


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
