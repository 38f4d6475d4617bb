"""What becomes of each node of an aborted run; and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.config.settings import Settings
from yukta_rx.control.resume_plan import plan_resume
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import PreparedWorkflow, prepare
from yukta_rx.durability.stores.checkpoints import LEFT_ALONE, WRITE_FAILED, NodeCheckpoint
from yukta_rx.errors import ConflictError
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry

pytestmark = pytest.mark.feature("DUR-03")

DONE = NodeCheckpoint(complete=True, messages=3)
PART = NodeCheckpoint(messages=2, inputs=2)
LOST = NodeCheckpoint(reason=WRITE_FAILED)

TYPES: dict[str, Any] = {
    "in": ("API_TRIGGER", {}),
    "tick": ("INTERVAL_TRIGGER", {"everyMs": 10}),
    "a": ("FILTER", {"when": "true"}),
    "b": ("FILTER", {"when": "true"}),
    "batch": ("BATCH", {"size": 2}),
    "once": ("DEDUPLICATE", {"key": "${payload.n}"}),
    "state": ("STATE", {}),
    "out": ("COLLECT_TERMINAL", {}),
    "aside": ("COLLECT_TERMINAL", {}),
}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load(None, extra=[state])


@processor("STATE", stateful=True, blocking=False)
def state(msg, cfg, ctx):
    """Depends on what came before."""
    return msg.payload


@pytest.fixture
def workflow(registry: PluginRegistry):
    def make(*edges: str, **changed: dict[str, Any]) -> PreparedWorkflow:
        pairs = [edge.split(">") for edge in edges]
        names = dict.fromkeys(name for pair in pairs for name in pair)
        nodes = [
            {
                "nodeId": name,
                "type": TYPES[name][0],
                "config": {**TYPES[name][1], **changed.get(name, {})},
            }
            for name in names
        ]
        document = {
            "workflowId": "w",
            "nodes": nodes,
            "edges": [{"source": source, "target": target} for source, target in pairs],
        }
        return prepare(parse_definition(document), registry, settings=Settings())

    return make


LINE = ("in>a", "a>b", "b>out")


def test_what_had_finished_is_replayed_only_where_somebody_needs_it(workflow) -> None:
    plan = plan_resume(workflow(*LINE), {"in": DONE, "a": DONE, "b": PART})

    assert plan.finished == {"in"}
    assert plan.replayed == {"a"}
    assert plan.partial == {"b"}
    assert plan.again == {"out"}
    assert plan.passed == frozenset()


def test_a_terminal_that_had_finished_is_fed_again_for_its_results(workflow) -> None:
    prepared = workflow("in>a", "a>out", "in>b", "b>aside")
    plan = plan_resume(prepared, {"in": DONE, "a": DONE, "out": DONE, "b": PART})

    assert plan.passed == {"out"}
    assert plan.replayed == {"in", "a"}
    assert plan.again == {"aside"}


def test_a_node_with_state_begins_anew_whatever_it_had_emitted(workflow) -> None:
    plan = plan_resume(workflow("in>state", "state>out"), {"in": DONE, "state": PART, "out": PART})

    assert plan.again == {"state"}
    assert plan.partial == {"out"}


def test_one_that_makes_its_state_again_goes_on(workflow) -> None:
    plan = plan_resume(workflow("in>once", "once>out"), {"in": DONE, "once": PART, "out": PART})

    assert plan.partial == {"once", "out"}


def test_batches_go_on_since_each_names_what_it_was_made_of(workflow) -> None:
    plan = plan_resume(workflow("in>batch", "batch>out"), {"in": DONE, "batch": PART})

    assert plan.partial == {"batch"}


def test_what_a_run_left_alone_is_left_alone_again(workflow) -> None:
    prepared = workflow("in>a", "a>out", "in>b", "b>aside")
    alone = NodeCheckpoint(reason=LEFT_ALONE)
    states = {"in": DONE, "a": PART, "b": alone, "aside": alone}
    plan = plan_resume(prepared, states)

    assert (plan.alone, plan.partial, plan.again) == ({"b", "aside"}, {"a"}, {"out"})
    assert plan.replayed == {"in"}


def test_nothing_recorded_is_a_run_from_its_beginning(workflow) -> None:
    prepared = workflow(*LINE)

    assert plan_resume(prepared, {}).again == set(prepared.order)


def test_a_trigger_whose_messages_are_lost_cannot_go_on_unless_they_come_again(workflow) -> None:
    again = plan_resume(workflow("in>out"), {"in": LOST})
    assert again.again == {"in", "out"}

    with pytest.raises(ConflictError) as caught:
        plan_resume(workflow("tick>out"), {"tick": LOST})
    assert caught.value.code == "not_recoverable"
    assert caught.value.members == {"reason": "not_recorded", "nodes": ["tick"]}


def test_a_change_behind_all_that_was_recorded_is_taken(workflow) -> None:
    old = workflow(*LINE)
    new = workflow(*LINE, b={"when": "payload.n > 1"})
    plan = plan_resume(new, {"in": DONE, "a": PART}, old.definition)

    assert (plan.replayed, plan.partial, plan.again) == ({"in"}, {"a"}, {"b", "out"})


def test_a_change_of_what_had_worked_is_refused_and_names_all_that_must_run_again(workflow) -> None:
    old = workflow(*LINE)
    new = workflow(*LINE, a={"when": "payload.n > 1"})
    states = {"in": DONE, "a": DONE, "b": PART}
    with pytest.raises(ConflictError) as caught:
        plan_resume(new, states, old.definition)
    assert caught.value.members == {"reason": "definition_changed", "nodes": ["a", "b"]}

    plan = plan_resume(new, states, old.definition, rerun=True)
    assert (plan.replayed, plan.again) == ({"in"}, {"a", "b", "out"})


def test_another_edge_into_a_node_is_a_change_of_it(workflow) -> None:
    old, new = workflow(*LINE), workflow(*LINE, "in>b")
    with pytest.raises(ConflictError) as caught:
        plan_resume(new, {"in": DONE, "b": PART}, old.definition)
    assert caught.value.members["nodes"] == ["b"]


def test_the_rows_say_it_of_every_node(workflow) -> None:
    prepared = workflow(*LINE)
    states = {"in": DONE, "a": PART}
    rows = plan_resume(prepared, states).as_rows(prepared.order, states)

    assert rows == [
        {"nodeId": "in", "action": "REPLAYED", "messages": 3, "inputs": 0},
        {"nodeId": "a", "action": "CONTINUED", "messages": 2, "inputs": 2},
        {"nodeId": "b", "action": "AGAIN", "messages": 0, "inputs": 0},
        {"nodeId": "out", "action": "AGAIN", "messages": 0, "inputs": 0},
    ]


@given(
    states=st.dictionaries(
        st.sampled_from(["in", "a", "b", "batch", "out", "aside"]),
        st.sampled_from([DONE, PART, LOST]),
    )
)
def test_every_node_that_works_gets_all_its_inputs_again(registry, states) -> None:
    pairs = [("in", "a"), ("a", "b"), ("in", "batch"), ("batch", "b"), ("b", "out"), ("a", "aside")]
    nodes = [
        {"nodeId": name, "type": TYPES[name][0], "config": TYPES[name][1]}
        for name in dict.fromkeys(name for pair in pairs for name in pair)
    ]
    document = {
        "workflowId": "w",
        "nodes": nodes,
        "edges": [{"source": source, "target": target} for source, target in pairs],
    }
    prepared = prepare(parse_definition(document), registry, settings=Settings())
    plan = plan_resume(prepared, states)

    sets = (plan.replayed, plan.finished, plan.passed, plan.partial, plan.again)
    assert sum(map(len, sets)) == len(prepared.order)
    assert frozenset().union(*sets) == set(prepared.order)
    for source, target in pairs:
        if target in plan.partial | plan.again | plan.passed:
            assert source not in plan.finished
    for name in plan.replayed | plan.finished | plan.passed:
        assert states[name] is DONE
