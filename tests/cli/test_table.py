"""The live table as a picture of a snapshot."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from yukta_rx.cli.table import picture

pytestmark = pytest.mark.feature("OBS-01")


def node(node_id: str, kind: str, **more):
    state = {
        "nodeId": node_id,
        "type": f"A_{kind}",
        "kind": kind,
        "status": "RUNNING",
        "in": 5,
        "out": 7,
        "ratePerSec": 0.0,
        "paused": False,
    }
    return state | more


def drawn(*nodes, edges=(), **execution) -> list[str]:
    snapshot = {
        "execution": {
            "workflowId": "flow",
            "status": "RUNNING",
            "paused": False,
            "durationMs": 1500,
        }
        | execution,
        "nodes": list(nodes),
        "edges": list(edges),
    }
    out = StringIO()
    Console(file=out, width=100).print(picture(snapshot))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_first_line_says_which_run_and_for_how_long() -> None:
    assert drawn()[0] == "flow RUNNING 1.5 s"


def test_each_node_has_a_line_with_what_applies_to_its_kind() -> None:
    lines = drawn(
        node("t", "TRIGGER", ratePerSec=12.3),
        node("p", "PROCESSOR"),
        node("e", "TERMINAL", status="SUCCESS"),
    )

    assert lines[1] == "node type status in out per s"
    assert lines[2:5] == [
        "t A_TRIGGER RUNNING 7 12",
        "p A_PROCESSOR RUNNING 5 7",
        "e A_TERMINAL SUCCESS 5",
    ]


def test_a_paused_node_and_a_paused_run_show_it() -> None:
    lines = drawn(node("t", "TRIGGER", paused=True), paused=True)

    assert lines[0] == "flow PAUSED 1.5 s"
    assert lines[2].startswith("t A_TRIGGER PAUSED")


def test_each_edge_has_a_line_with_its_port_in_the_order_of_the_nodes() -> None:
    lines = drawn(
        *(node(name, "PROCESSOR") for name in "abc"),
        edges=[
            {"source": "a", "sourcePort": "error", "target": "c", "passed": 0, "waiting": 0},
            {"source": "a", "target": "b", "passed": 9, "waiting": 3},
        ],
    )

    assert lines[-2:] == ["a -> b 9 3", "a:error -> c 0"]


def test_markup_in_a_name_is_no_markup() -> None:
    assert "[red]x A_TRIGGER" in drawn(node("[red]x", "TRIGGER"))[2]
