"""`yukta signal` and `yukta approvals` against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.slow, pytest.mark.feature("CTL-05")]

ASKING = {
    "workflowId": "asking",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 2}},
        {
            "nodeId": "ask",
            "type": "WAIT_FOR_SIGNAL",
            "config": {
                "signal": "go",
                "onReject": "CONTINUE",
                "prompt": "Is ${payload.n} fine?\nReally \u001b[31m?",
            },
        },
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
}


@pytest.fixture
def own(serve: Callable[..., Any], tmp_path: Any) -> Any:
    """A server of its own, so that nothing else waits there."""
    folder = tmp_path / "flows"
    (folder / "s").mkdir(parents=True)
    (folder / "s" / "asking.json").write_text(json.dumps(ASKING))
    return serve("--apply", str(folder))


def waiting(own: Any, count: int) -> list[dict[str, Any]]:
    """What waits, once there is so much."""
    for _ in range(200):
        found = own.ask("approvals", "--json").results
        if len(found) == count:
            return list(found)
    raise AssertionError(f"{len(found)} approvals, not {count}")


def test_a_person_answers_from_the_command_line(own: Any) -> None:
    run = own.ask("start", "s/asking").out.strip()
    first, second = waiting(own, 2)

    shown = own.ask("approvals", "ls", "--session", "s")
    said = own.ask("approvals", "reject", second["approvalId"], "--comment", "no", "--data", "[1]")
    again = own.ask("approvals", "approve", second["approvalId"])
    signal = own.ask("signal", run, "ask", "go", "--decision", "sure", "--data", "as text")

    head, row, _ = shown.out.splitlines()
    assert head.split() == ["APPROVAL", "WORKFLOW", "NODE", "SIGNAL", "SINCE", "ASKED"]
    assert row.split()[:4] == [first["approvalId"], "s/asking", "ask", "go"]
    assert "Is 0 fine? Really" in row
    assert "\x1b" not in row
    assert (said.code, said.out) == (0, "ACCEPTED: a message waited for it\n")
    assert again.code != 0
    assert "cannot be answered" in again.err
    assert signal.out == "ACCEPTED: a message waited for it\n"
    assert own.ask("wait", run).code == 0
    assert own.ask("approvals").out.split() == head.split()
    ended = own.ask("signal", run, "ask", "go")
    assert ended.code != 0
    assert "has ended" in ended.err


def test_a_signal_that_nobody_waits_for_is_kept(own: Any) -> None:
    run = own.ask("start", "s/asking").out.strip()
    waiting(own, 2)

    kept = own.ask("signal", run, "ask", "other")
    shown = own.ask("signal", run, "ask", "other", "--json")
    refused = own.ask("signal", run, "out", "go")

    assert kept.out.startswith("QUEUED: no message waits for it")
    assert shown.results[0]["answer"] == "QUEUED"
    assert refused.code != 0
    assert "waits for no signals" in refused.err
    own.ask("stop", run, "--mode", "KILL")


@pytest.mark.parametrize(
    "args",
    [
        ["approvals", "approve"],
        ["approvals", "ls", "some-id"],
        ["approvals", "--comment", "x"],
        ["approvals", "reject", "a", "--session", "s"],
        ["approvals", "perhaps", "a"],
        ["signal", "run", "node"],
        ["signal", "a b", "node", "go"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(yukta: Any, args: Any) -> None:
    assert yukta(*args, "--url", "http://127.0.0.1:1").code == 2


def test_a_run_without_a_server_says_that_nobody_could_answer(
    yukta: Any, workflow: Callable[..., str]
) -> None:
    path = workflow(
        ("in", "SEQUENCE_TRIGGER", {"count": 1}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go"}),
        ("out", "COLLECT_TERMINAL"),
    )

    ended = yukta("run", path)

    assert ended.code == 1
    assert "node ask cannot wait for signals here: start the run on a server" in ended.err
