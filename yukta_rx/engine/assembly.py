"""Wires a prepared workflow: one Flow per node, in topological order.

Children are wired before sources start, since a circuit only starts as a whole.
Features: ENG-01, ENG-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.engine.pipeline import node_flow
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.buffer import DROPPED_PORT
from yukta_rx.streams.plan import ERROR_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.opening import Ready
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.plan import Tap


def wire(
    prepared: PreparedWorkflow,
    nodes: Mapping[str, NodeRuntime],
    ready: Mapping[str, Ready],
    *,
    prefetch: int,
    tap_of: Callable[[NodeRuntime], Tap | None],
) -> dict[str, Flow[Any]]:
    """The wrapped output of every node, by node id."""
    flows: dict[str, Flow[Any]] = {}
    buffers: dict[str, Flow[Any]] = {}
    for node_id in prepared.order:
        node = nodes[node_id]
        parents = []
        for parent in prepared.nodes[node_id].parents:
            # What a node's buffer drops leaves at the buffer, in front of the node itself.
            sources = buffers if parent.port == DROPPED_PORT else flows
            source = sources[parent.node_id]
            parents.append(source if parent.port is None else source.port(parent.port))
        wired = node_flow(node, parents, ready[node_id], prefetch=prefetch, tap=tap_of(node))
        flows[node_id] = wired.output
        if wired.buffer is not None:
            buffers[node_id] = wired.buffer
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
            as_it_came = source.spec.pure or parent.port in (DROPPED_PORT, ERROR_PORT)
            passes_on = as_it_came and (
                source.spec.kind is PluginKind.TRIGGER or parent.node_id in shared
            )
            if len(source.children) > 1 or passes_on:
                shared.add(node_id)
    return shared
