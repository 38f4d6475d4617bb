"""Refuses a broken definition before any plugin runs, with all its faults at once.

Features: DEF-02, ENG-04.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.definitions.draft import Draft, DraftNode, draft_of, draft_of_document
from yukta_rx.definitions.graph_checks import GraphCheck
from yukta_rx.definitions.node_checks import (
    NodeFault,
    check_backoff,
    check_options,
    check_policy,
    engine_place,
    find_spec,
    lossy_buffer,
)
from yukta_rx.definitions.parse import fault_at, read_definition
from yukta_rx.errors import DefinitionError, Fault
from yukta_rx.model.policy import NodePolicy, OnError
from yukta_rx.model.workflow import WorkflowDefinition
from yukta_rx.plugins.contract import PluginKind, PluginSpec

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.plugins.registry import PluginRegistry

UNSUPPORTED_POLICY_KEYS: Final = frozenset({"placement"})
"""What a document may say but this version does not execute; saying it is refused."""

_HOPELESS = 4
"""Times a cap: a graph larger than that is refused without a look at the rest."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What is to be said about a definition.

    Attributes:
        definition: the definition, None if the document has not its shape.
        faults: why it is refused, in the order of the document; empty if it is not.
        warnings: what is odd but allowed.
        specs: the plugin of each node whose type is known.
    """

    definition: WorkflowDefinition | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]
    specs: Mapping[str, PluginSpec]

    @property
    def valid(self) -> bool:
        """Whether the definition can run."""
        return not self.faults


def validate(
    definition: WorkflowDefinition | Mapping[str, Any],
    registry: PluginRegistry,
    *,
    settings: Settings,
    base_dir: Path | None = None,
    unsupported: frozenset[str] = UNSUPPORTED_POLICY_KEYS,
) -> Validation:
    """Examine a definition, or a document that should be one.

    Args:
        definition: the definition or document; from a document that has not the right shape as
            much as can be read is examined too.
        registry: where plugin types are looked up.
        settings: for the caps on graph size and for options that depend on settings.
        base_dir: folder that relative paths in options start from.
        unsupported: keys that are refused because this build does not execute them.
    """
    document: Any = definition
    faults: list[Fault] = []
    if isinstance(definition, WorkflowDefinition):
        parsed: WorkflowDefinition | None = definition
        document = definition.as_document()
    faults += _caps(document, settings)
    if faults and _hopeless(document, settings):
        return Validation(None, tuple(faults), (), {})
    if not isinstance(definition, WorkflowDefinition):
        parsed, shape_faults = read_definition(document)
        faults += shape_faults
    draft = draft_of_document(document) if parsed is None else draft_of(parsed)
    check = _Check(document, draft, registry, settings, base_dir, unsupported)
    check.run()
    ordered = sorted([*faults, *check.faults], key=_place)
    return Validation(parsed, tuple(ordered), tuple(check.warnings), check.specs_by_id())


def check(
    definition: WorkflowDefinition | Mapping[str, Any],
    registry: PluginRegistry,
    *,
    settings: Settings,
    base_dir: Path | None = None,
    unsupported: frozenset[str] = UNSUPPORTED_POLICY_KEYS,
) -> Validation:
    """Examine a definition and return what is to be said about it, warnings included.

    Raises:
        DefinitionError: it is refused; lists every fault.
    """
    validation = validate(
        definition, registry, settings=settings, base_dir=base_dir, unsupported=unsupported
    )
    if validation.faults:
        raise DefinitionError(validation.faults)
    return validation


def _sizes(document: Any, settings: Settings) -> Iterator[tuple[str, int, int]]:
    caps = {"nodes": settings.definitions.max_nodes, "edges": settings.definitions.max_edges}
    for name, cap in caps.items():
        items = document.get(name) if isinstance(document, Mapping) else None
        yield name, len(items) if isinstance(items, (list, tuple)) else 0, cap


def _caps(document: Any, settings: Settings) -> list[Fault]:
    return [
        Fault(
            f"/{name}",
            f"too_many_{name}",
            f"{size} {name} are more than yukta.definitions.max-{name} = {cap} allows",
        )
        for name, size, cap in _sizes(document, settings)
        if size > cap
    ]


def _hopeless(document: Any, settings: Settings) -> bool:
    return any(size > cap * _HOPELESS for _, size, cap in _sizes(document, settings))


def _place(fault: Fault) -> tuple[Any, ...]:
    """Sort key: nodes by index, then edges by index, then the document; stable below that."""
    parts = fault.pointer.split("/")
    rank = {"nodes": 1, "edges": 2}.get(parts[1] if len(parts) > 1 else "", 0)
    # Elsewhere it is the name of a member, which may look like a number and be none.
    index = parts[2] if rank and len(parts) > 2 else ""
    return rank, int(index) if index.isdecimal() else -1


@dataclass(slots=True)
class _Check:
    document: Any
    draft: Draft
    registry: PluginRegistry
    settings: Settings
    base_dir: Path | None
    unsupported: frozenset[str]
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)
    nodes: dict[str, DraftNode] = field(default_factory=dict)
    specs: dict[int, PluginSpec] = field(default_factory=dict)

    def run(self) -> None:
        for node in self.draft.nodes:
            self._node(node)
        self._unique_nodes()
        self._whole()
        graph = GraphCheck(self.document, self.draft, self.nodes, self.specs)
        graph.run()
        self.faults += graph.faults
        self.warnings += graph.warnings
        self._lossless()

    def specs_by_id(self) -> dict[str, PluginSpec]:
        found = ((node, self.specs.get(node.index)) for node in self.nodes.values())
        return {str(node.node_id): spec for node, spec in found if spec is not None}

    def _fault(self, loc: Iterable[str | int], code: str, detail: str) -> None:
        self.faults.append(fault_at(self.document, tuple(loc), code, detail))

    # --- nodes

    def _node(self, node: DraftNode) -> None:
        spec = find_spec(node, self.registry)
        self._policy_not_executed(node)
        if spec is None:
            return
        if isinstance(spec, NodeFault):
            self._fault(("nodes", node.index, *spec.loc), spec.code, spec.detail)
            return
        self.specs[node.index] = spec
        found = list(check_options(node, spec, self.settings, self.base_dir))
        if not found:
            found += check_backoff(node, spec)
        for fault in (*found, *check_policy(node, spec)):
            self._fault(("nodes", node.index, *fault.loc), fault.code, fault.detail)

    def _policy_not_executed(self, node: DraftNode) -> None:
        policy = node.policy
        if policy is None:
            return
        for key, says_something in _SAYS_SOMETHING.items():
            if key not in self.unsupported or not says_something(policy):
                continue
            code, detail = "not_supported", _not_executed(f"engine.{key}")
            if key == "placement":
                code, detail = "no_workers", "workers are not enabled, so no pool can take the node"
            self._fault(("nodes", node.index, *engine_place(key)), code, detail)

    def _unique_nodes(self) -> None:
        for node in self.draft.nodes:
            if node.node_id is None:
                continue
            first = self.nodes.setdefault(node.node_id, node)
            if first is not node:
                detail = f"node `{node.node_id}` is there already, as node number {first.index + 1}"
                self._fault(("nodes", node.index, "nodeId"), "duplicate_node", detail)

    def _whole(self) -> None:
        document = self.document if isinstance(self.document, Mapping) else {}
        if document.get("nodes") in ([], ()):
            self._fault(("nodes",), "no_nodes", "a workflow needs at least one node, a trigger")
            return
        kinds = {spec.kind for spec in self.specs.values()}
        known = len(self.specs) == len(self.draft.nodes) > 0
        if known and PluginKind.TRIGGER not in kinds:
            self._fault(("nodes",), "no_trigger", "no node is a trigger: nothing would start")

    def _lossless(self) -> None:
        """A workflow that must lose nothing has no buffer that drops."""
        if not self.draft.options.lossless:
            return
        for node in self.draft.nodes:
            if (detail := lossy_buffer(node.node_id, node.policy)) is not None:
                self._fault(
                    ("nodes", node.index, *engine_place("edgeBuffer")), "invalid_option", detail
                )


_SAYS_SOMETHING: Final[Mapping[str, Callable[[NodePolicy], bool]]] = {
    "retry": lambda policy: policy.retry is not None,
    "onError": lambda policy: policy.on_error is not OnError.FAIL,
    "failureBudget": lambda policy: policy.failure_budget is not None,
    "elementTimeoutMs": lambda policy: policy.element_timeout_ms is not None,
    "deadlineMs": lambda policy: policy.deadline_ms is not None,
    "edgeBuffer": lambda policy: policy.edge_buffer is not None,
    "concurrency": lambda policy: policy.concurrency.max != 1,
    "placement": lambda policy: policy.placement is not None,
}


def _not_executed(what: str) -> str:
    return f"{what} is not executed by this version of yukta_rx; take it out"
