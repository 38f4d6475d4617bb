"""Wires a prepared workflow: one plan per node, in topological order.

Children are wired before sources start, since a circuit only starts as a whole.
Features: ENG-01, ENG-02, CTL-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.engine.pipeline import node_plan, passing_plan, replay_plan
from yukta_rx.engine.policies import copies
from yukta_rx.engine.replay import NO_REPLAY, Replay
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.buffer import DROPPED_PORT
from yukta_rx.streams.plan import ERROR_PORT, NodePlan, Outlet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.opening import Ready
    from yukta_rx.engine.pipeline import Hooks


def wire(
    prepared: PreparedWorkflow,
    nodes: Mapping[str, NodeRuntime],
    ready: Mapping[str, Ready],
    *,
    prefetch: int,
    hooks_of: Callable[[NodeRuntime], Hooks],
    replay: Replay = NO_REPLAY,
) -> dict[str, NodePlan]:
    """The plan of every node, by node id; none for those that a replay leaves alone."""
    plans: dict[str, NodePlan] = {}
    buffers: dict[str, NodePlan] = {}
    for node_id in prepared.order:
        if not replay.has_stage(node_id):
            continue
        node = nodes[node_id]
        hooks = hooks_of(node)
        if node_id in replay.outputs:
            wired = replay_plan(node, ready[node_id], hooks)
            plans[node_id] = buffers[node_id] = wired.plan
            continue
        parents = tuple(
            # What a node's buffer drops leaves at the buffer, in front of the node itself.
            Outlet((buffers if parent.port == DROPPED_PORT else plans)[parent.node_id], parent.port)
            for parent in node.prepared.parents
        )
        if node_id in replay.passed:
            wired = passing_plan(node, parents, ready[node_id], prefetch=prefetch, hooks=hooks)
        else:
            wired = node_plan(
                node,
                parents,
                ready[node_id],
                prefetch=prefetch,
                hooks=hooks,
                prelude=node.prelude,
            )
        plans[node_id] = wired.plan
        if wired.buffer is not None:
            buffers[node_id] = wired.buffer
    return plans


def shared_inputs(prepared: PreparedWorkflow, replay: Replay = NO_REPLAY) -> set[str]:
    """Ids of the nodes whose input payloads another branch, or the run itself, may hold too.

    A payload is shared where an output feeds several edges; plugins that are `pure` may pass it
    on, and what a pure trigger emits may be part of the start payload. Others emit copies. What
    is replayed stays in the store.
    """
    return (
        prepared.once(_shared_inputs) if replay is NO_REPLAY else _shared_inputs(prepared, replay)
    )


def _shared_inputs(prepared: PreparedWorkflow, replay: Replay = NO_REPLAY) -> set[str]:
    shared: set[str] = set()
    for node_id in prepared.order:
        for parent in prepared.nodes[node_id].parents:
            source = prepared.nodes[parent.node_id]
            as_it_came = source.spec.pure or parent.port in (DROPPED_PORT, ERROR_PORT)
            passes_on = as_it_came and (
                source.spec.kind is PluginKind.TRIGGER or parent.node_id in shared
            )
            recorded = parent.node_id in replay.outputs or parent.node_id in replay.partial
            if len(source.children) > 1 or passes_on or recorded:
                shared.add(node_id)
    return shared


def exposed_outputs(prepared: PreparedWorkflow, shared: Collection[str]) -> set[str]:
    """Ids of the nodes whose outputs a plugin further down may change, having no copy of its own.

    Who keeps such an output for later has to copy it.
    """
    exposed: set[str] = set()
    passing: set[str] = set()
    """Nodes with a port that what came in leaves by as it came, into such a plugin."""
    for node_id in reversed(prepared.order):
        for child in prepared.nodes[node_id].children:
            behind = prepared.nodes[child.node_id]
            changed = not (behind.spec.pure or copies(behind, shared=child.node_id in shared))
            if changed or child.node_id in (exposed if behind.spec.pure else passing):
                exposed.add(node_id)
                if child.port in (DROPPED_PORT, ERROR_PORT):
                    passing.add(node_id)
    return exposed
