"""A workflow or a run as a graph with a layout: for programs, for Mermaid, and as plain text.

Feature: DEF-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.definitions.toposort import topological_order
from yukta_rx.errors import NotFoundError
from yukta_rx.plugins.contract import PluginKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.plugins.registry import PluginRegistry

_SWEEPS: Final = 4
"""Passes in which the rows of a layer are put near those of their neighbours."""

_SHAPES: Final = {"TRIGGER": ("([", "])"), "PROCESSOR": ("[", "]"), "TERMINAL": ("[[", "]]")}
_COLOURS: Final = {
    "RUNNING": "fill:#dbeafe,stroke:#1d4ed8",
    "SUCCESS": "fill:#dcfce7,stroke:#15803d",
    "FAILURE": "fill:#fee2e2,stroke:#b91c1c",
    "ERROR": "fill:#fee2e2,stroke:#b91c1c",
    "TIMED_OUT": "fill:#ffedd5,stroke:#c2410c",
    "UPSTREAM_FAILED": "fill:#ffedd5,stroke:#c2410c",
}


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes and edges with a place for each node; the same graph always has the same layout.

    Attributes:
        nodes: parents before children; each has `nodeId`, `type`, `kind`, `layer` (its longest way
            from a node without parents, from 0), `row` (its place in that layer, from 0), and what
            else the caller gave, such as `status`.
        edges: as given: `source`, `target`, `sourcePort?` and more.
        layers: ids of the nodes of each layer, by row.
    """

    nodes: Sequence[dict[str, Any]]
    edges: Sequence[dict[str, Any]]
    layers: Sequence[Sequence[str]]

    def as_dict(self) -> dict[str, Any]:
        """The graph, as it is answered."""
        return {
            "nodes": list(self.nodes),
            "edges": list(self.edges),
            "layers": [list(layer) for layer in self.layers],
        }

    def as_mermaid(self) -> str:
        """A Mermaid flowchart; a node's status is its second line and its colour."""
        # Numbers, since an id may be a word of Mermaid's own (`end`) or hold a dot.
        names = {node["nodeId"]: f"n{index}" for index, node in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        for node in self.nodes:
            before, after = _SHAPES[node["kind"]]
            words = [node["nodeId"], node["type"], node.get("status")]
            label = "<br/>".join(word for word in words if word)
            lines.append(f'  {names[node["nodeId"]]}{before}"{label}"{after}')
        for edge in self.edges:
            port = edge.get("sourcePort")
            arrow = {None: "-->", "error": "-. error .->"}.get(port, f"-->|{port}|")
            lines.append(f"  {names[edge['source']]} {arrow} {names[edge['target']]}")
        for status, style in _COLOURS.items():
            members = [names[node["nodeId"]] for node in self.nodes if node.get("status") == status]
            if members:
                lines.append(f"  classDef {status} {style}")
                lines.append(f"  class {','.join(members)} {status}")
        return "\n".join(lines) + "\n"

    def as_text(self) -> list[str]:
        """Lines for a terminal: each node, and below it where its messages go."""
        ways: dict[str, list[str]] = {}
        for edge in self.edges:
            port = edge.get("sourcePort")
            way = f"  {'->' if port is None else f'-{port}->'} {edge['target']}"
            ways.setdefault(edge["source"], []).append(way)
        lines = []
        for node in self.nodes:
            status = f" {node['status']}" if node.get("status") else ""
            lines.append(f"{node['nodeId']} ({node['type']}){status}")
            lines += ways.get(node["nodeId"], ())
        return lines


def graph_of(definition: WorkflowDefinition, registry: PluginRegistry) -> Graph:
    """Return the graph of a workflow that was validated."""
    sources = {edge.source for edge in definition.edges}
    targets = {edge.target for edge in definition.edges}
    nodes = [
        {
            "nodeId": node.node_id,
            "type": node.type,
            "kind": str(
                _kind(node.type, registry, node.node_id in targets, node.node_id in sources)
            ),
        }
        for node in definition.nodes
    ]
    edges = [
        {
            "source": edge.source,
            "target": edge.target,
            **({} if edge.source_port is None else {"sourcePort": edge.source_port}),
            "required": edge.required,
        }
        for edge in definition.edges
    ]
    return laid_out(nodes, edges)


def laid_out(nodes: Iterable[Mapping[str, Any]], edges: Iterable[Mapping[str, Any]]) -> Graph:
    """Return a graph with its layout.

    Args:
        nodes: each with `nodeId`, `type` and `kind`.
        edges: each with `source` and `target`, ids of these nodes; without a cycle.
    """
    by_id = {node["nodeId"]: node for node in nodes}
    pairs = [(edge["source"], edge["target"]) for edge in edges]
    order = topological_order(list(by_id), pairs)
    parents: dict[str, list[str]] = {node_id: [] for node_id in order}
    children: dict[str, list[str]] = {node_id: [] for node_id in order}
    for source, target in dict.fromkeys(pairs):
        parents[target].append(source)
        children[source].append(target)
    depth: dict[str, int] = {}
    for node_id in order:
        depth[node_id] = max((depth[parent] + 1 for parent in parents[node_id]), default=0)
    layers = _rows(order, depth, parents, children)
    rows = {node_id: row for layer in layers for row, node_id in enumerate(layer)}
    placed = [
        {**by_id[node_id], "layer": depth[node_id], "row": rows[node_id]} for node_id in order
    ]
    return Graph(placed, [dict(edge) for edge in edges], layers)


def _rows(
    order: Sequence[str],
    depth: Mapping[str, int],
    parents: Mapping[str, list[str]],
    children: Mapping[str, list[str]],
) -> list[list[str]]:
    """Return the layers with few crossings: each node at the middle of its neighbours."""
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node_id in order:
        layers[depth[node_id]].append(node_id)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        near = parents if forward else children
        row = {node_id: at for layer in layers for at, node_id in enumerate(layer)}
        for layer in layers if forward else reversed(layers):
            layer.sort(key=lambda node_id: _middle(near[node_id], row, row[node_id]))
            row.update((node_id, at) for at, node_id in enumerate(layer))
    return layers


def _middle(neighbours: Sequence[str], row: Mapping[str, int], own: int) -> float:
    if not neighbours:
        return float(own)
    return sum(row[node_id] for node_id in neighbours) / len(neighbours)


def _kind(name: str, registry: PluginRegistry, has_parents: bool, has_children: bool) -> str:
    """Return the kind of a node, from its place if its type is no longer there."""
    try:
        return str(registry.get(name).kind)
    except NotFoundError:
        if not has_parents:
            return str(PluginKind.TRIGGER)
        return str(PluginKind.PROCESSOR if has_children else PluginKind.TERMINAL)
