"""A graph and its layout: complete, the same every time, and readable by Mermaid."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.definitions.graph import graph_of, laid_out
from yukta_rx.definitions.parse import parse_definition

pytestmark = pytest.mark.feature("DEF-01")


@pytest.fixture
def fan(doc):
    """A trigger, two ways of different length, an error port, a terminal called `end`."""
    nodes = [
        doc.node("end", "COLLECT_TERMINAL"),
        doc.node("in", "API_TRIGGER"),
        doc.node("a.b"),
        doc.node("slow", "WAIT"),
        doc.node("c"),
    ]
    edges = [
        doc.edge("in", "a.b"),
        doc.edge("in", "slow"),
        doc.edge("a.b", "c"),
        doc.edge("c", "end"),
        doc.edge("slow", "end", "late", required=False),
        doc.edge("a.b", "end", "error"),
    ]
    return parse_definition(doc.workflow(nodes, edges))


def test_every_node_has_its_layer_and_edges_go_to_the_right(fan, registry):
    shown = graph_of(fan, registry).as_dict()

    places = {node["nodeId"]: (node["layer"], node["kind"]) for node in shown["nodes"]}
    assert places == {
        "in": (0, "TRIGGER"),
        "a.b": (1, "PROCESSOR"),
        "slow": (1, "PROCESSOR"),
        "c": (2, "PROCESSOR"),
        "end": (3, "TERMINAL"),
    }
    assert shown["layers"] == [["in"], ["a.b", "slow"], ["c"], ["end"]]
    assert shown["edges"][4] == {
        "source": "slow",
        "target": "end",
        "sourcePort": "late",
        "required": False,
    }


def test_mermaid_gets_names_of_its_own_and_shows_ports_and_kinds(fan, registry):
    lines = graph_of(fan, registry).as_mermaid().splitlines()

    assert lines == [
        "flowchart LR",
        '  n0(["in<br/>API_TRIGGER"])',
        '  n1["a.b<br/>PASS"]',
        '  n2["slow<br/>WAIT"]',
        '  n3["c<br/>PASS"]',
        '  n4[["end<br/>COLLECT_TERMINAL"]]',
        "  n0 --> n1",
        "  n0 --> n2",
        "  n1 --> n3",
        "  n3 --> n4",
        "  n2 -->|late| n4",
        "  n1 -. error .-> n4",
    ]


def test_the_status_of_a_node_is_text_as_well_as_colour():
    graph = laid_out([{"nodeId": "a", "type": "T", "kind": "TRIGGER", "status": "FAILURE"}], [])

    assert graph.as_mermaid().splitlines()[1:] == [
        '  n0(["a<br/>T<br/>FAILURE"])',
        "  classDef FAILURE fill:#fee2e2,stroke:#b91c1c",
        "  class n0 FAILURE",
    ]
    assert graph.as_text() == ["a (T) FAILURE"]


def test_text_for_a_terminal_lists_where_messages_go(fan, registry):
    assert graph_of(fan, registry).as_text() == [
        "in (API_TRIGGER)",
        "  -> a.b",
        "  -> slow",
        "a.b (PASS)",
        "  -> c",
        "  -error-> end",
        "slow (WAIT)",
        "  -late-> end",
        "c (PASS)",
        "  -> end",
        "end (COLLECT_TERMINAL)",
    ]


def test_a_node_of_a_type_that_is_gone_is_drawn_by_its_place(registry, doc):
    definition = parse_definition(
        doc.workflow(
            [doc.node("a", "GONE"), doc.node("b", "GONE"), doc.node("c", "GONE")],
            [doc.edge("a", "b"), doc.edge("b", "c")],
        )
    )

    kinds = [node["kind"] for node in graph_of(definition, registry).nodes]
    assert kinds == ["TRIGGER", "PROCESSOR", "TERMINAL"]


def test_no_graph_at_all_is_an_empty_one():
    assert laid_out([], []).as_dict() == {"nodes": [], "edges": [], "layers": []}


def test_crossings_that_need_not_be_are_taken_out():
    nodes = [{"nodeId": name, "type": "T", "kind": "PROCESSOR"} for name in "abxy"]
    edges = [{"source": "a", "target": "y"}, {"source": "b", "target": "x"}]

    assert laid_out(nodes, edges).layers == [["a", "b"], ["y", "x"]]


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_any_graph_is_laid_out_the_same_each_time(seed, size):
    dice = random.Random(seed)
    nodes = [{"nodeId": f"n{at}", "type": "T", "kind": "PROCESSOR"} for at in range(size)]
    edges = [
        {"source": f"n{low}", "target": f"n{high}"}
        for low in range(size)
        for high in range(low + 1, size)
        if dice.random() < 0.1
    ]

    graph = laid_out(nodes, edges)

    assert graph == laid_out(nodes, edges)
    layer = {node["nodeId"]: node["layer"] for node in graph.nodes}
    assert all(layer[edge["source"]] < layer[edge["target"]] for edge in edges)
    placed = sorted((node["layer"], node["row"], node["nodeId"]) for node in graph.nodes)
    assert [name for *_, name in placed] == [name for row in graph.layers for name in row]
