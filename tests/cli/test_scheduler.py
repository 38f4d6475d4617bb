"""`yukta limits`, `queue`, `priority`, and starts that wait, against a real server."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("ADM-01", "ADM-03")]


@pytest.fixture
def full(ask):
    """The id of a run that has the only slot of its workflow."""
    assert ask("limits", "set", "--per-workflow", "1").code == 0
    run = ask("start", "s/tick").out.strip()

    yield run

    for row in ask("queue", "--json").results:
        ask("stop", row["executionId"])
    ask("stop", run, "--mode", "KILL")
    assert ask("limits", "set", "--max", "0", "--per-workflow", "0").code == 0


def test_a_start_that_waits_prints_its_id_and_says_so(ask, full) -> None:
    ended = ask("start", "s/tick")

    assert ended.code == 0
    assert ended.err == "yukta: it waits for a slot, at place 1 of the queue\n"
    status = ask("status", ended.out.strip())
    assert "QUEUED" in status.out
    assert "QUEUE: 1 of 1 runs of workflow s/tick go on" in status.out
    assert ask("start", "s/tick", "--json").results[0]["queuePosition"] == 2


def test_the_queue_is_listed_in_its_order_and_a_priority_moves_a_start(ask, full) -> None:
    first, second = (ask("start", "s/tick").out.strip() for _ in range(2))

    moved = ask("priority", second, "5", "--reason", "urgent")
    listed = ask("queue")
    rows = ask("queue", "--json").results

    assert moved.out == "APPLIED SetPriority: the run is QUEUED\n"
    head, *lines = listed.out.splitlines()
    assert head.split() == ["PLACE", "EXECUTION", "WORKFLOW", "PRIORITY", "SINCE", "WAITS", "FOR"]
    assert [line.split()[:4] for line in lines] == [
        ["1", second, "s/tick", "5"],
        ["2", first, "s/tick", "0"],
    ]
    assert lines[0].endswith("PER_WORKFLOW: 1 of 1 runs of workflow s/tick go on")
    assert [row["executionId"] for row in rows] == [second, first]
    assert ask("priority", first, "--json", "--", "-1.5").results[0]["command"] == "SetPriority"


def test_a_priority_of_what_does_not_wait_is_a_conflict(ask, full) -> None:
    refused = ask("priority", full, "1")

    assert refused.code == 6
    assert "does not wait for a slot" in refused.err
    assert ask("priority", "none", "1").code == 4
    assert ask("priority", full, "high").code == 2


def test_limits_are_shown_and_set_and_what_is_not_given_stays(ask, full) -> None:
    waiting = ask("start", "s/tick").out.strip()

    changed = ask("limits", "set", "--max", "50", "--reason", "busy")
    shown = ask("limits", "--json").results[0]
    lines = dict(line.split("  ", 1) for line in ask("limits").out.splitlines())

    assert changed.code == 0
    assert (shown["maxConcurrent"], shown["perWorkflow"], shown["source"]) == (50, 1, "LOG")
    assert {name: text.strip() for name, text in lines.items()} == {
        "runs at once": f"{shown['running']} of 50",
        "per workflow": "1",
        "per session": "any number",
        "beyond that": "wait",
        "waiting": "1 of 100",
        "set by": "a command",
    }
    result = ask("limits", "set", "--per-workflow", "2", "--json").results[0]
    assert (result["command"], result["outcome"]) == ("SetLimits", "APPLIED")
    assert "RUNNING" in ask("status", waiting).out
    ask("stop", waiting, "--mode", "KILL")


def test_setting_no_limit_is_a_mistake(ask) -> None:
    assert ask("limits", "set").code == 2
    assert ask("limits", "set", "--max", "-1").code == 2


@pytest.mark.feature("DEF-01")
def test_a_start_can_name_a_version(ask) -> None:
    assert ask("start", "s/echo", "--version", "1", "--wait").code == 0
    assert ask("start", "s/echo", "--version", "99").code == 4


def test_at_shutdown_a_client_that_waits_for_a_slot_is_told_at_once(
    serve, tmp_path, workflow
) -> None:
    (tmp_path / "flows" / "s").mkdir(parents=True)
    endless = ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20})
    workflow(endless, ("end", "NULL_TERMINAL"), name="flows/s/flow.json")
    (tmp_path / "one.toml").write_text("[yukta.execution]\nmax-concurrent = 1\n")
    server = serve("--config", "one.toml", "--apply", "flows")
    server.ask("start", "s/flow")
    request = urllib.request.Request(f"{server.url}/api/workflow/s/flow/start", method="POST")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_answer, request)
        while not server.ask("queue", "--json").results:
            pass
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        status, body = waiting.result(30)
        told = time.monotonic() - began
        assert server.process.wait(30) == 0

    assert (status, body["code"]) == (503, "shutting_down")
    assert told < 5


def _answer(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
