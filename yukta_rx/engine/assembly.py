"""Wires a prepared workflow: one Flow per node, in topological order.

Children are wired before sources start, since a circuit only starts as a whole.
Features: ENG-01, ENG-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.engine.pipeline import node_flow
from yukta_rx.plugins.contract import PluginKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.plan import Barrier, Body, Tap


def wire(
    prepared: PreparedWorkflow,
    nodes: Mapping[str, NodeRuntime],
    bodies: Mapping[str, Body],
    barriers: Mapping[str, Barrier],
    *,
    prefetch: int,
    tap_of: Callable[[NodeRuntime], Tap | None],
) -> dict[str, Flow[Any]]:
    """The wrapped output of every node, by node id."""
    flows: dict[str, Flow[Any]] = {}
    for node_id in prepared.order:
        node = nodes[node_id]
        parents = [
            flows[parent.node_id]
            if parent.port is None
            else flows[parent.node_id].port(parent.port)
            for parent in prepared.nodes[node_id].parents
        ]
        flows[node_id] = node_flow(
            node,
            parents,
            bodies[node_id],
            prefetch=prefetch,
            tap=tap_of(node),
            barrier=barriers.get(node_id),
        )
    return flows


def shared_inputs(prepared: PreparedWorkflow) -> set[str]:
    """Ids of the nodes whose input payloads another branch, or the run itself, may hold too.

    A payload is shared where an output feeds several edges; plugins that are `pure` may pass it
    on, and what a pure trigger emits may be part of the start payload. Others emit copies.
    """
    shared: set[str] = set()
    for node_id in prepared.order:
        for parent in prepared.nodes[node_id].parents:
            source = prepared.nodes[parent.node_id]
            passes_on = source.spec.pure and (
                source.spec.kind is PluginKind.TRIGGER or parent.node_id in shared
            )
            if len(source.children) > 1 or passes_on:
                shared.add(node_id)
    return shared
