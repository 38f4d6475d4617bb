"""A document as far as it can be read: so that faults of its graph show beside those of its shape.

Feature: DEF-02.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from yukta_rx.definitions.parse import readable_edges, readable_nodes
from yukta_rx.model.ids import id_fault
from yukta_rx.model.policy import NO_POLICY, NodePolicy
from yukta_rx.model.workflow import Edge, Node, RunOptions, WorkflowDefinition

M = TypeVar("M", bound=BaseModel)

# The rest of a node that is made only to read one member of it.
_PROBE = {"nodeId": "n", "type": "t"}


@dataclass(frozen=True, slots=True)
class DraftNode:
    """A node; a member that cannot be read is None.

    Attributes:
        index: its place in the document.
        node_id: its id.
        type: its plugin type.
        config: the plugin's options.
        policy: what `engine` says.
        timeout: `timeoutSeconds`; `readable_timeout` tells absent from unreadable.
        readable_timeout: whether `timeout` can be relied on.
    """

    index: int
    node_id: str | None
    type: str | None
    config: Mapping[str, Any] | None
    policy: NodePolicy | None
    timeout: float | int | str | None
    readable_timeout: bool = True


@dataclass(frozen=True, slots=True)
class DraftEdge:
    """An edge whose ends have the shape of ids."""

    index: int
    source: str
    target: str
    port: str | None
    required: bool

    @property
    def ends(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target


@dataclass(frozen=True, slots=True)
class Draft:
    """Nodes and edges of a document, and whether they are all there."""

    nodes: tuple[DraftNode, ...]
    edges: tuple[DraftEdge, ...]
    options: RunOptions
    complete: bool


def draft_of(definition: WorkflowDefinition) -> Draft:
    """Return a definition as a draft; nothing is missing."""
    nodes = tuple(
        DraftNode(
            index, node.node_id, node.type, node.plugin_config, node.policy, node.timeout_seconds
        )
        for index, node in enumerate(definition.nodes)
    )
    edges = tuple(
        DraftEdge(index, edge.source, edge.target, edge.source_port, edge.required)
        for index, edge in enumerate(definition.edges)
    )
    return Draft(nodes, edges, definition.options, complete=True)


def draft_of_document(document: Any) -> Draft:
    """Return what can be read of a document that has faults."""
    if not isinstance(document, Mapping):
        return Draft((), (), RunOptions(), complete=False)
    nodes = tuple(_node(index, node) for index, node in readable_nodes(document))
    edges = tuple(
        DraftEdge(index, edge.source, edge.target, edge.source_port, edge.required)
        for index, written in readable_edges(document)
        if (edge := _read(Edge, written)) is not None
    )
    options = _read(RunOptions, document.get("options", {})) or RunOptions()
    return Draft(nodes, edges, options, complete=False)


def _node(index: int, written: Mapping[str, Any]) -> DraftNode:
    config = written.get("config", {})
    readable = isinstance(config, Mapping)
    policy: NodePolicy | None = NO_POLICY
    if readable and "engine" in config:
        policy = _read(NodePolicy, config["engine"])
    timeout = written.get("timeoutSeconds")
    return DraftNode(
        index,
        _identifier(written.get("nodeId")),
        _identifier(written.get("type")),
        {k: v for k, v in config.items() if k != "engine"} if readable else None,
        policy,
        timeout,
        timeout is None or _read(Node, {**_PROBE, "timeoutSeconds": timeout}) is not None,
    )


def _identifier(value: Any) -> str | None:
    return value if id_fault("id", value) is None else None


def _read(model: type[M], written: Any) -> M | None:
    try:
        return model.model_validate(written, by_alias=True, by_name=False)
    except PydanticError:
        return None
