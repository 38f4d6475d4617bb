"""Which nodes run again, which are replayed, which are left alone; and when it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.durability.restart_plan import plan_restart
from yukta_rx.durability.stores.checkpoints import OVER_CAP, NodeCheckpoint
from yukta_rx.errors import ConflictError, NotFoundError
from yukta_rx.model.workflow import Edge, Node, WorkflowDefinition

pytestmark = pytest.mark.feature("CTL-04")

DONE = NodeCheckpoint(complete=True)


def workflow(*edges: str, types: dict[str, str] | None = None) -> WorkflowDefinition:
    """A workflow with the edges `a>b`, whose nodes are those that they name."""
    pairs = [edge.split(">") for edge in edges]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    return WorkflowDefinition(
        workflow_id="w",
        nodes=tuple(Node(node_id=name, type=(types or {}).get(name, "T")) for name in names),
        edges=tuple(Edge(source=source, target=target) for source, target in pairs),
    )


DIAMOND = workflow("in>left", "in>right", "left>join", "right>join", "join>out", "right>aside")


def test_a_node_and_all_behind_it_run_again_and_what_feeds_them_is_replayed() -> None:
    plan = plan_restart(DIAMOND, "left", {"in": DONE, "right": DONE})

    assert plan.again == {"left", "join", "out"}
    assert plan.replayed == {"in", "right"}
    assert plan.alone == {"aside"}


def test_from_a_trigger_everything_behind_it_runs_again_and_nothing_is_needed() -> None:
    plan = plan_restart(DIAMOND, "in", {})

    assert plan.again == {"in", "left", "right", "join", "out", "aside"}
    assert (plan.replayed, plan.alone) == (frozenset(), frozenset())


def test_from_a_terminal_only_its_parents_are_needed() -> None:
    plan = plan_restart(DIAMOND, "out", {"join": DONE})

    assert (plan.again, plan.replayed) == ({"out"}, {"join"})
    assert plan.alone == {"in", "left", "right", "aside"}


def test_parents_without_an_end_marker_are_listed() -> None:
    with pytest.raises(ConflictError) as caught:
        plan_restart(DIAMOND, "join", {"left": NodeCheckpoint(messages=5)})

    assert caught.value.code == "not_restartable"
    assert caught.value.members == {"reason": "parents_not_finished", "nodes": ["left", "right"]}


def test_parents_whose_output_is_not_kept_are_listed_before_others() -> None:
    states = {"left": NodeCheckpoint(reason=OVER_CAP)}
    with pytest.raises(ConflictError) as caught:
        plan_restart(DIAMOND, "join", states)

    assert caught.value.members == {"reason": "output_over_cap", "nodes": ["left"]}


def test_an_output_that_is_not_needed_may_be_lost() -> None:
    states = {"in": NodeCheckpoint(reason=OVER_CAP), "join": DONE}

    assert plan_restart(DIAMOND, "out", states).replayed == {"join"}


def test_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(NotFoundError) as caught:
        plan_restart(DIAMOND, "nowhere", {})

    assert caught.value.code == "node_not_found"


def test_a_replayed_node_that_was_another_one_then_is_refused() -> None:
    old = workflow("in>a", "a>out", types={"in": "OLD"})
    new = workflow("in>a", "a>out", types={"a": "NEW"})

    with pytest.raises(ConflictError) as caught:
        plan_restart(new, "a", {"in": DONE}, old)
    from_out = plan_restart(workflow("in>a", "a>b", "b>out"), "b", {"a": DONE}, old)

    assert caught.value.members == {"reason": "definition_changed", "nodes": ["in"]}
    assert from_out.replayed == {"a"}


@given(st.data())
def test_the_three_sets_are_disjoint_and_feed_only_each_other(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 9))
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    definition = workflow(*(f"n{a}>n{b}" for a, b in chosen))
    names = [node.node_id for node in definition.nodes]
    begin = data.draw(st.sampled_from(names))

    plan = plan_restart(definition, begin, dict.fromkeys(names, DONE))

    assert plan.again | plan.replayed | plan.alone == set(names)
    assert len(plan.again) + len(plan.replayed) + len(plan.alone) == len(names)
    for edge in definition.edges:
        if edge.source in plan.again:
            assert edge.target in plan.again
        if edge.target in plan.again:
            assert edge.source in plan.again | plan.replayed
    assert all(
        any(edge.source == name and edge.target in plan.again for edge in definition.edges)
        for name in plan.replayed
    )
