"""RestartPlan: which nodes run again, and which recorded outputs stand in for the others; pure.

Feature: CTL-04.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.durability.stores.checkpoints import LEFT_ALONE, UNFINISHED, NodeCheckpoint
from yukta_rx.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from yukta_rx.model.workflow import WorkflowDefinition

_UNKNOWN = NodeCheckpoint()


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """What becomes of each node of the new run; the three sets share no node.

    Attributes:
        again: run again: the node that was asked for, and all behind it.
        replayed: feed those; emit what was recorded.
        alone: neither run nor emit.
    """

    again: frozenset[str]
    replayed: frozenset[str]
    alone: frozenset[str]


def plan_restart(
    definition: WorkflowDefinition,
    node_id: str,
    states: Mapping[str, NodeCheckpoint],
    recorded: WorkflowDefinition | None = None,
) -> RestartPlan:
    """Work out what a restart from a node needs.

    Args:
        definition: what the new run runs.
        node_id: where it begins.
        states: what is recorded of the old run's nodes.
        recorded: what the old run ran, if that was something else.

    Raises:
        NotFoundError: there is no such node.
        ConflictError: `not_restartable`, with the `reason` and the `nodes` concerned: a feeding
            node has not finished (`parents_not_finished`), its output is not kept whole
            (`output_over_cap`, `output_unserialisable`, `write_failed`), or it was another node
            then (`definition_changed`).
    """
    everything = [node.node_id for node in definition.nodes]
    if node_id not in everything:
        raise NotFoundError(
            f"workflow {definition.workflow_id} has no node {node_id}",
            code="node_not_found",
            nodeId=node_id,
        )
    again = _descendants(definition, node_id)
    feeding = {
        edge.source
        for edge in definition.edges
        if edge.target in again and edge.source not in again
    }
    if recorded is not None:
        _check_same(definition, recorded, feeding)
    _check_recorded(node_id, {name: states.get(name, _UNKNOWN) for name in sorted(feeding)})
    return RestartPlan(
        again=frozenset(again),
        replayed=frozenset(feeding),
        alone=frozenset(everything) - again - feeding,
    )


def _descendants(definition: WorkflowDefinition, node_id: str) -> set[str]:
    """Return the node and all behind it, without recursion."""
    children: dict[str, list[str]] = {}
    for edge in definition.edges:
        children.setdefault(edge.source, []).append(edge.target)
    found = {node_id}
    waiting = [node_id]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _check_recorded(node_id: str, states: Mapping[str, NodeCheckpoint]) -> None:
    reasons = {state.reason for state in states.values() if state.reason}
    for reason in sorted(reasons - {UNFINISHED, LEFT_ALONE}):
        lost = [name for name, state in states.items() if state.reason == reason]
        raise not_restartable(
            reason, f"the output of {', '.join(lost)} is not kept whole", nodes=lost
        )
    unfinished = [name for name, state in states.items() if not state.complete]
    if unfinished:
        raise not_restartable(
            "parents_not_finished",
            f"{', '.join(unfinished)} must have finished before a restart from {node_id}",
            nodes=unfinished,
        )


def _check_same(
    definition: WorkflowDefinition, recorded: WorkflowDefinition, feeding: Iterable[str]
) -> None:
    then = {node.node_id: node for node in recorded.nodes}
    now = {node.node_id: node for node in definition.nodes}
    changed = sorted(name for name in feeding if then.get(name) != now[name])
    if changed:
        raise not_restartable(
            "definition_changed",
            f"{', '.join(changed)} was another node when its output was recorded",
            nodes=changed,
        )


def not_restartable(reason: str, detail: str, **members: Any) -> ConflictError:
    """Return the refusal of a restart, for a reason."""
    return ConflictError(detail, code="not_restartable", reason=reason, **members)
