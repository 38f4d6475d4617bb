"""`yukta restart`, `retry` and `recover` against a real server."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("CTL-04")]


def test_a_run_is_restarted_and_the_new_id_is_all_of_stdout(ask) -> None:
    first = ask("start", "s/echo", "--set", "a=1", "--wait").out.strip()
    again = ask("restart", first, "--wait")
    other = ask("restart", first, "--set", "b=2", "--version", "same", "--wait")

    assert (again.code, again.last) == (0, "SUCCESS s/echo")
    assert again.out.strip() != first
    assert [line["payload"] for line in ask("result", again.out.strip()).results] == [{"a": 1}]
    assert [line["payload"] for line in ask("result", other.out.strip()).results] == [{"b": 2}]


def test_a_node_is_restarted_with_what_was_recorded_before_it(ask) -> None:
    first = ask("start", "s/echo", "--set", "a=1", "--wait").out.strip()
    node = ask("status", first, "--json").results[0]["nodes"][-1]["nodeId"]
    again = ask("restart", first, node, "--wait", "--json")

    started, detail = again.results
    assert started["links"]["self"] == f"/api/executions/{started['executionId']}"
    assert (detail["status"], detail["restartedFrom"]) == ("SUCCESS", first)
    ids = [
        {line["messageId"] for line in ask("result", run).results}
        for run in (first, started["executionId"])
    ]
    assert ids[0] == ids[1]


def test_what_cannot_be_done_is_said(ask) -> None:
    first = ask("start", "s/echo", "--wait").out.strip()
    node = ask("status", first, "--json").results[0]["nodes"][-1]["nodeId"]

    for args, words in (
        (("retry", first, node), "only one that ended FAILURE or TIMED_OUT is retried"),
        (("recover", first), "only one that a crash ended"),
        (("restart", first, "nowhere"), "no node nowhere"),
        (("restart", first, "--version", "99"), "99"),
    ):
        refused = ask(*args)
        assert refused.code not in (0, 2)
        assert refused.out == ""
        assert words in refused.last, refused.err
    misused = ask("restart", first, node, "--set", "a=1")
    assert misused.code == 2
    assert "for a whole run" in misused.last


def test_a_failed_node_is_retried(ask) -> None:
    first = ask("start", "s/split", "--wait").out.strip()
    again = ask("retry", first, "s", "--wait", "--reason", "once more")

    assert again.code == 1
    assert "FAILURE s/split" in again.err
    assert again.out.strip() != first
