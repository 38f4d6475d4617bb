"""ResumePlan: what becomes of each node of an aborted run when it goes on; pure.

Feature: DUR-03.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.durability.stores.checkpoints import LEFT_ALONE, NodeCheckpoint
from yukta_rx.errors import ConflictError
from yukta_rx.plugins.contract import PluginKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from yukta_rx.definitions.prepare import PreparedNode, PreparedWorkflow
    from yukta_rx.model.workflow import WorkflowDefinition

_UNKNOWN = NodeCheckpoint()


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What becomes of each node of the new run; the sets share no node and hold all of them.

    Attributes:
        replayed: had finished, and feed nodes that work: emit what was recorded.
        finished: had finished, and feed nobody that works: end at once.
        passed: terminals that had finished: what reaches them is a result again, and no more.
        partial: go on behind the inputs that they had finished.
        again: begin anew.
        alone: do nothing, as in the run before, which began behind them.
    """

    replayed: frozenset[str]
    finished: frozenset[str]
    passed: frozenset[str]
    partial: frozenset[str]
    again: frozenset[str]
    alone: frozenset[str] = frozenset()

    def as_rows(
        self, order: Iterable[str], states: Mapping[str, NodeCheckpoint]
    ) -> list[dict[str, Any]]:
        """Return one row per node: `{nodeId, action, messages, inputs}`."""
        actions = {
            "REPLAYED": self.replayed,
            "FINISHED": self.finished | self.passed,
            "CONTINUED": self.partial,
            "AGAIN": self.again,
            "ALONE": self.alone,
        }
        rows = []
        for node_id in order:
            [action] = [name for name, nodes in actions.items() if node_id in nodes]
            state = states.get(node_id, _UNKNOWN)
            counts = {"messages": state.messages, "inputs": state.inputs}
            rows.append({"nodeId": node_id, "action": action, **counts})
        return rows


def plan_resume(
    prepared: PreparedWorkflow,
    states: Mapping[str, NodeCheckpoint],
    recorded: WorkflowDefinition | None = None,
    *,
    rerun: bool = False,
) -> ResumePlan:
    """Work out what a resume needs.

    Args:
        prepared: what the new run runs.
        states: what is recorded of the aborted run's nodes.
        recorded: what the aborted run ran, if that was something else.
        rerun: begin nodes that have changed anew, with all behind them, instead of refusing.

    Raises:
        ConflictError: `not_recoverable`, with the `reason` and the `nodes` concerned: they were
            something else then (`definition_changed`), or what they had emitted is not known and
            cannot be had again (`not_recorded`).
    """
    changed = set() if recorded is None else _changed(prepared, recorded)
    used = {name for name, state in states.items() if state != _UNKNOWN}
    if (stale := sorted(changed & used)) and not rerun:
        raise not_recoverable(
            "definition_changed",
            f"{', '.join(stale)} changed, or come behind what did, and had worked already; "
            "recover with `rerun` to begin them anew, or with `version=same`",
            nodes=stale,
        )
    known = {
        name: _UNKNOWN if name in changed else states.get(name, _UNKNOWN) for name in prepared.order
    }
    _check_triggers(prepared, known)
    done = {name for name, state in known.items() if state.complete}
    partial = {
        name
        for name, state in known.items()
        if not state.complete
        and state.reason is None
        and (state.inputs or state.messages)
        and by_message(prepared.nodes[name])
    }
    alone = {name for name, state in known.items() if state.reason == LEFT_ALONE}
    again = prepared.nodes.keys() - done - partial - alone
    terminals = {name for name in done if prepared.nodes[name].spec.kind is PluginKind.TERMINAL}
    # One that feeds somebody does so with what its buffer dropped, which only its record has.
    passed = {name for name in terminals if not prepared.nodes[name].children}
    partial |= terminals - passed
    working = again | partial | passed
    replayed = {
        name
        for name in done - terminals
        if any(child.node_id in working for child in prepared.nodes[name].children)
    }
    return ResumePlan(
        replayed=frozenset(replayed),
        finished=frozenset(done - terminals - replayed),
        passed=frozenset(passed),
        partial=frozenset(partial),
        again=frozenset(again),
        alone=frozenset(alone),
    )


def by_message(node: PreparedNode) -> bool:
    """Whether a node can go on behind some inputs: what it does for one depends on no other."""
    return node.spec.kind is PluginKind.TRIGGER or node.goes_on


def _check_triggers(prepared: PreparedWorkflow, known: Mapping[str, NodeCheckpoint]) -> None:
    """Refuse triggers whose messages are neither known nor the same a second time."""
    lost = [
        name
        for name, state in known.items()
        if state.reason not in (None, LEFT_ALONE)
        and prepared.nodes[name].spec.kind is PluginKind.TRIGGER
        and not prepared.nodes[name].spec.replayable
    ]
    if lost:
        raise not_recoverable(
            "not_recorded",
            f"what {', '.join(lost)} emitted is not kept whole and cannot be had again",
            nodes=lost,
        )


def _changed(prepared: PreparedWorkflow, recorded: WorkflowDefinition) -> set[str]:
    """Return the nodes that are not what they were, or come behind such a one."""
    then = {node.node_id: node for node in recorded.nodes}
    edges_then = _into(recorded)
    edges_now = _into(prepared.definition)
    changed: set[str] = set()
    for name in prepared.order:
        node = prepared.nodes[name]
        same = then.get(name) == node.node and edges_then.get(name) == edges_now.get(name)
        if not same or any(parent.node_id in changed for parent in node.parents):
            changed.add(name)
    return changed


def _into(definition: WorkflowDefinition) -> dict[str, Collection[Any]]:
    """Return the edges into each node, as they are compared."""
    edges: dict[str, list[Any]] = {}
    for edge in definition.edges:
        edges.setdefault(edge.target, []).append(edge)
    return {name: sorted(into, key=repr) for name, into in edges.items()}


def not_recoverable(reason: str, detail: str, **members: Any) -> ConflictError:
    """Return the error of a run that cannot be resumed."""
    return ConflictError(detail, code="not_recoverable", reason=reason, **members)
