"""What can be wrong with the graph as a whole: edges, cycles, and where each kind of node stands.

Feature: DEF-02.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yukta_rx.definitions.node_checks import engine_place, ports_of
from yukta_rx.definitions.parse import fault_at, suggestion
from yukta_rx.definitions.toposort import find_cycles
from yukta_rx.errors import Fault
from yukta_rx.model.policy import NodePolicy, NOfM, OnError
from yukta_rx.plugins.contract import PluginKind, PluginSpec

if TYPE_CHECKING:
    from yukta_rx.definitions.draft import Draft, DraftEdge, DraftNode


@dataclass(slots=True)
class GraphCheck:
    """One pass over a graph.

    Attributes:
        document: the document, to tell places in.
        draft: what could be read of it.
        nodes: the nodes by id, the first of each.
        specs: the plugins by the node's index, as far as they are known.
        faults: what was found wrong.
        warnings: what was found odd.
    """

    document: Any
    draft: Draft
    nodes: Mapping[str, DraftNode]
    specs: Mapping[int, PluginSpec]
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)

    def run(self) -> None:
        """Look at edges, cycles and places."""
        sound = self._edges()
        self._cycles(sound)
        self._places(sound)

    def _fault(self, loc: Iterable[str | int], code: str, detail: str) -> None:
        self.faults.append(fault_at(self.document, tuple(loc), code, detail))

    def _edges(self) -> list[DraftEdge]:
        """Check every edge; return those that join two known nodes, each once."""
        seen: dict[tuple[str, str, str | None], DraftEdge] = {}
        sound: list[DraftEdge] = []
        for edge in self.draft.edges:
            key = (edge.source, edge.target, edge.port)
            first = seen.setdefault(key, edge)
            if first is not edge:
                port = f" by port `{edge.port}`" if edge.port else ""
                detail = f"{edge.source} -> {edge.target}{port} is there already, as edge number "
                self._edge_fault(edge, "duplicate_edge", f"{detail}{first.index + 1}")
            elif self._ends(edge):
                sound.append(edge)
        return sound

    def _edge_fault(
        self, edge: DraftEdge, code: str, detail: str, option: str | None = None
    ) -> None:
        at = f"/edges/{edge.index}"
        self.faults.append(Fault(at, code, detail, self._known(edge.source), option))

    def _known(self, node_id: str) -> str | None:
        return node_id if node_id in self.nodes else None

    def _ends(self, edge: DraftEdge) -> bool:
        known = True
        for option, name in (("source", edge.source), ("target", edge.target)):
            if name not in self.nodes:
                known = False
                hint = suggestion(name, list(self.nodes)) if len(self.nodes) <= 20 else ""
                detail = f"{option} `{name}` is no node of this workflow{hint}"
                self._edge_fault(edge, "unknown_node", detail, option)
        if known:
            self._directions(edge)
            self._port(edge)
        return known

    def _kind(self, node_id: str) -> PluginKind | None:
        spec = self.specs.get(self.nodes[node_id].index)
        return spec.kind if spec else None

    def _directions(self, edge: DraftEdge) -> None:
        if self._kind(edge.target) is PluginKind.TRIGGER:
            detail = f"`{edge.target}` is a trigger, and nothing can lead into one"
            self._edge_fault(edge, "edge_into_trigger", detail, "target")
        if self._kind(edge.source) is PluginKind.TERMINAL:
            detail = f"`{edge.source}` is a terminal, and nothing can leave one"
            self._edge_fault(edge, "edge_out_of_terminal", detail, "source")

    def _port(self, edge: DraftEdge) -> None:
        node = self.nodes[edge.source]
        spec, policy, port = self.specs.get(node.index), node.policy, edge.port
        if port is None or spec is None or policy is None:
            return
        ports = ports_of(node, policy, spec)
        if ports is None or port in ports or spec.kind is PluginKind.TERMINAL:
            return
        if port == "error":
            why = f"the port `error` needs engine.onError ROUTE on node `{node.node_id}`"
        elif port == "dropped":
            why = f"the port `dropped` needs an engine.edgeBuffer that drops on `{node.node_id}`"
        else:
            hint = suggestion(port, sorted(ports)) or "; it has only the default one"
            why = f"{spec.type} has no port `{port}`{hint}"
        self._edge_fault(edge, "unknown_port", why, "sourcePort")

    # --- the graph

    def _cycles(self, edges: list[DraftEdge]) -> None:
        places = {edge.ends: edge for edge in reversed(edges)}
        # An edge that runs against a trigger or terminal is a fault already; a cycle that needs
        # one is told only where there is no other.
        proper = [edge.ends for edge in edges if not self._against(edge)]
        cycles = find_cycles(list(self.nodes), proper)
        taken = {node for cycle in cycles for node in cycle}
        left = [ends for ends in places if taken.isdisjoint(ends)]
        for cycle in (*cycles, *find_cycles(list(self.nodes), left)):
            path = " -> ".join((*cycle, cycle[0]))
            back = places[cycle[-1], cycle[0]]
            detail = f"the nodes form a cycle: {path}"
            self.faults.append(Fault(f"/edges/{back.index}", "cycle", detail, cycle[0]))

    def _against(self, edge: DraftEdge) -> bool:
        into_trigger = self._kind(edge.target) is PluginKind.TRIGGER
        return into_trigger or self._kind(edge.source) is PluginKind.TERMINAL

    def _places(self, edges: list[DraftEdge]) -> None:
        """Check that each node stands where its kind can: parents, children, join rule."""
        parents = Counter(target for _, target in {edge.ends for edge in edges})
        counted = Counter(target for _, target in {edge.ends for edge in edges if edge.required})
        sources = {edge.source for edge in edges}
        wired_ports = {(edge.source, edge.port) for edge in edges}
        # With an edge that could not be read, nobody knows what it would have joined.
        certain = len(self.draft.edges) == len(self._written_edges())
        for name, node in self.nodes.items():
            kind = self._kind(name)
            if kind is None:
                continue
            at = ("nodes", node.index)
            if certain and kind is not PluginKind.TRIGGER and not parents[name]:
                detail = f"a {kind.lower()} needs a parent: no edge leads to `{name}`"
                self._fault(at, "no_parent", detail)
            if certain and kind is not PluginKind.TERMINAL and name not in sources:
                detail = f"no edge leaves `{name}`, so what it emits goes nowhere"
                self._warn(at, "no_child", detail)
            if node.policy is not None:
                self._join(node, node.policy, counted[name], certain)
                if node.policy.on_error is OnError.ROUTE and (name, "error") not in wired_ports:
                    detail = "no edge leaves port `error`, so dead letters go nowhere"
                    self._warn((*at, *engine_place("onError")), "no_child", detail)

    def _written_edges(self) -> Any:
        edges = self.document.get("edges") if isinstance(self.document, Mapping) else None
        return edges if isinstance(edges, (list, tuple)) else ()

    def _join(self, node: DraftNode, policy: NodePolicy, parents: int, certain: bool) -> None:
        rule = policy.trigger
        if certain and isinstance(rule, NOfM) and rule.n > parents:
            detail = f"{rule.n} is more than the node's {parents} counted parents"
            place = engine_place("trigger", "n")
            self._fault(("nodes", node.index, *place), "invalid_option", detail)

    def _warn(self, loc: Iterable[str | int], code: str, detail: str) -> None:
        self.warnings.append(fault_at(self.document, tuple(loc), code, detail))
