"""WorkflowDiff: what changed between two forms of a workflow, as patches (RFC 6902).

Feature: DEF-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import json_pointer
from yukta_rx.model.codec import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from yukta_rx.model.workflow import WorkflowDefinition

_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""Types of which equal values are the same value; a float has two zeros."""

Operation = dict[str, Any]
"""One operation of a patch: `op` is add, remove or replace, `path` a pointer, `value` a value."""


@dataclass(frozen=True, slots=True)
class WorkflowDiff:
    """What has to happen to one form of a workflow to make it the other.

    Attributes:
        from_version: number of the one, None for a form that has none.
        to_version: number of the other, likewise.
        description: both descriptions, None if they are the same.
        nodes_added: ids of nodes that only the other has.
        nodes_removed: ids of nodes that only the one has.
        nodes_changed: by node id, the patch of the node's object.
        edges_added: edges, whole, that only the other has.
        edges_removed: edges that only the one has; an edge of which a member changed is in both.
        options: the patch of the workflow's `options`.
        reordered: nodes or edges that both have stand in another order, which makes a version too.
    """

    from_version: int | None
    to_version: int | None
    description: tuple[str | None, str | None] | None
    nodes_added: tuple[str, ...]
    nodes_removed: tuple[str, ...]
    nodes_changed: dict[str, list[Operation]]
    edges_added: tuple[dict[str, Any], ...]
    edges_removed: tuple[dict[str, Any], ...]
    options: list[Operation]
    reordered: bool

    @property
    def empty(self) -> bool:
        """Whether both have the same content."""
        return not (
            self.description
            or self.nodes_added
            or self.nodes_removed
            or self.nodes_changed
            or self.edges_added
            or self.edges_removed
            or self.options
            or self.reordered
        )

    def as_dict(self) -> dict[str, Any]:
        """The diff as API.md's `WorkflowDiff`; `options` only if they changed."""
        shown: dict[str, Any] = {"from": self.from_version, "to": self.to_version}
        if self.description is not None:
            old, new = self.description
            shown["description"] = {"from": old, "to": new}
        shown |= {
            "nodesAdded": list(self.nodes_added),
            "nodesRemoved": list(self.nodes_removed),
            "nodesChanged": [
                {"nodeId": node_id, "changes": changes}
                for node_id, changes in self.nodes_changed.items()
            ],
            "edgesAdded": list(self.edges_added),
            "edgesRemoved": list(self.edges_removed),
            "reordered": self.reordered,
        }
        if self.options:
            shown["options"] = self.options
        return shown


def diff_definitions(
    old: WorkflowDefinition,
    new: WorkflowDefinition,
    from_version: int | None = None,
    to_version: int | None = None,
) -> WorkflowDiff:
    """Return what changed from one form of a workflow to another.

    Two values are the same if their canonical JSON is: 1 is not 1.0, the order of members does
    not matter. So the diff is empty exactly if both have one content hash.
    """
    before, after = old.as_document(), new.as_document()
    old_nodes = {node["nodeId"]: node for node in before["nodes"]}
    new_nodes = {node["nodeId"]: node for node in after["nodes"]}
    patches = {
        node_id: patch(old_nodes[node_id], node)
        for node_id, node in new_nodes.items()
        if node_id in old_nodes
    }
    old_edges = {_edge_key(edge): edge for edge in before["edges"]}
    new_edges = {_edge_key(edge): edge for edge in after["edges"]}
    absent = "description" in before, "description" in after
    descriptions = old.description, new.description
    return WorkflowDiff(
        from_version=from_version,
        to_version=to_version,
        description=descriptions if descriptions[0] != descriptions[1] or _odd(absent) else None,
        nodes_added=tuple(node_id for node_id in new_nodes if node_id not in old_nodes),
        nodes_removed=tuple(node_id for node_id in old_nodes if node_id not in new_nodes),
        nodes_changed={node_id: changes for node_id, changes in patches.items() if changes},
        edges_added=tuple(edge for key, edge in new_edges.items() if key not in old_edges),
        edges_removed=tuple(edge for key, edge in old_edges.items() if key not in new_edges),
        options=patch(_options(before), _options(after)),
        reordered=_reordered(list(old_nodes), list(new_nodes))
        or _reordered(list(old_edges), list(new_edges)),
    )


def patch(old: Any, new: Any) -> list[Operation]:
    """Return the operations that turn one JSON value into another, in the order to apply them."""
    return list(_operations(old, new, ()))


def _operations(old: Any, new: Any, at: tuple[str | int, ...]) -> Iterator[Operation]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old:
            if name not in new:
                yield {"op": "remove", "path": json_pointer((*at, name))}
        for name, value in new.items():
            if name in old:
                yield from _operations(old[name], value, (*at, name))
            else:
                yield {"op": "add", "path": json_pointer((*at, name)), "value": value}
    elif isinstance(old, list) and isinstance(new, list):
        both = min(len(old), len(new))
        for index in range(both):
            yield from _operations(old[index], new[index], (*at, index))
        for index in range(len(old) - 1, both - 1, -1):
            yield {"op": "remove", "path": json_pointer((*at, index))}
        for index in range(both, len(new)):
            yield {"op": "add", "path": json_pointer((*at, index)), "value": new[index]}
    elif not _same(old, new):
        yield {"op": "replace", "path": json_pointer(at), "value": new}


def _same(old: Any, new: Any) -> bool:
    """Whether two values that are not both objects or both lists have one canonical JSON."""
    if type(old) is type(new) and type(old) in _PLAIN:
        return bool(old == new)
    return canonical(old) == canonical(new)


def _edge_key(edge: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return what two edges have in common exactly if they are the same: ids, and a yes or no."""
    return tuple(sorted(edge.items(), key=itemgetter(0)))


def _options(document: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a document that `options` is in, so that its absence shows."""
    return {"options": document["options"]} if "options" in document else {}


def _odd(present: tuple[bool, bool]) -> bool:
    return present[0] != present[1]


def _reordered(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether what both have comes in another order."""
    in_old, in_new = set(old), set(new)
    return [key for key in old if key in in_new] != [key for key in new if key in in_old]
