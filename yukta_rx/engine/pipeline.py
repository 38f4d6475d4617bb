"""The node wrapper: the plan of one node, with what each operator around its plugin would write.

merge parents, edge buffer, valve, plugin call with its claim check (attempt, element timeout,
retry, onError), clocks and status, record, broadcast. They fold into one plan, which is made at
once; only what stands in front of a node as a stage of its own is piped. What a policy that is off
would write is None, so it costs nothing.

Feature: ENG-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yukta_rx import operators as ops
from yukta_rx.model.policy import JoinRule, NOfM
from yukta_rx.streams.claims import ClaimedBody
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Outlet, Slot

if TYPE_CHECKING:
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.opening import Ready
    from yukta_rx.engine.resume import Prelude
    from yukta_rx.streams.plan import Barrier, Join, Keeper, OnFinished, Tap


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
    """The plan of a node, and that of the buffer in front of it, if it has one."""

    plan: NodePlan
    buffer: NodePlan | None


def node_plan(
    node: NodeRuntime,
    parents: tuple[Outlet, ...],
    ready: Ready,
    *,
    prefetch: int,
    hooks: Hooks,
    prelude: Prelude | None = None,
) -> Wired:
    """The plan of `node`.

    Args:
        node: gives the valve, the clocks and the policies, and observes the stage.
        parents: what feeds it, nothing for a trigger.
        ready: its plugin, ready to be called.
        prefetch: elements that each edge into it may hold.
        hooks: what listens to it.
        prelude: what leaves it first, where it goes on behind inputs that it had finished.
    """
    timeout, claims = ready.element_timeout, node.claims
    if callable(timeout) and claims is not None:
        timeout = claims.timed(timeout)
    limit, retry, on_error = node.attempts(timeout)
    idle, deadline = node.clocks()
    fields: dict[str, Any] = {
        "body": ClaimedBody(ready.body, claims) if claims and claims.opens else ready.body,
        "gate": prelude or node.valve,
        "limit": limit,
        "retry": retry,
        "on_error": on_error,
        "idle": idle,
        "deadline": deadline,
        "observer": node,
        **hooks._asdict(),
    }
    if not parents:
        return Wired(NodePlan(name=node.id, last=Slot.BROADCAST, **fields), None)
    join = join_of(node)
    edge_buffer = node.edge_buffer()
    if prelude is None and edge_buffer is None:
        plan = NodePlan(
            name=node.id,
            parents=parents,
            join=join,
            prefetch=prefetch,
            last=Slot.BROADCAST,
            **fields,
        )
        return Wired(plan, None)
    front: Flow[Any] = Flow(
        NodePlan(name=node.id, parents=parents, join=join, prefetch=prefetch, last=Slot.MERGE)
    )
    if prelude is not None:
        front = front.pipe(ops.without_known(prelude.memory))
    if edge_buffer is not None:
        front = front.pipe(edge_buffer)
    plan = front.write(Slot.BROADCAST, **fields).plan
    return Wired(plan, None if node.drops is None else plan.parents[0].plan)


def passing_plan(
    node: NodeRuntime, parents: tuple[Outlet, ...], ready: Ready, *, prefetch: int, hooks: Hooks
) -> Wired:
    """A terminal that had finished: what comes in goes out as a result, without clocks."""
    plan = NodePlan(
        name=node.id,
        parents=parents,
        join=join_of(node),
        prefetch=prefetch,
        body=ready.body,
        gate=node.valve,
        observer=node,
        last=Slot.BROADCAST,
        **hooks._asdict(),
    )
    return Wired(plan, plan)


def replay_plan(node: NodeRuntime, ready: Ready, hooks: Hooks) -> Wired:
    """The recorded output of `node` in place of the node; it has no clocks and no policies."""
    plan = NodePlan(
        name=node.id,
        body=ready.body,
        gate=node.valve,
        observer=node,
        last=Slot.BROADCAST,
        **hooks._asdict(),
    )
    # What a buffer in front of the node dropped then is among what was recorded.
    return Wired(plan, plan)


_ALL_SUCCESS: Final = ops.AllSuccess()
"""Remembers nothing, so every node that it is the rule of may have the same."""


def join_of(node: NodeRuntime) -> Join:
    """The join rule of a node. Feature: ENG-03."""
    prepared = node.prepared
    trigger = prepared.policy.trigger
    if trigger is JoinRule.ALL_SUCCESS and all(parent.required for parent in prepared.parents):
        return _ALL_SUCCESS
    parents = {parent.node_id for parent in prepared.parents}
    # A parent with several edges counts as soon as one of them is required.
    counted = {parent.node_id for parent in prepared.parents if parent.required}
    if isinstance(trigger, NOfM):
        return ops.AtLeast(trigger.n, counted)
    if trigger is JoinRule.ALL_DONE:
        return ops.AtLeast(0, ())
    if trigger is JoinRule.ONE_SUCCESS:
        return ops.AtLeast(min(1, len(counted)), counted)
    return ops.AllSuccess(parents - counted)
