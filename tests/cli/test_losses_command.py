"""`yukta losses` against a real server."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("OBS-01")]


def test_losses_names_what_an_operator_dropped_and_nothing_else(ask) -> None:
    run = ask("start", "s/tick").out.strip()
    nothing = ask("losses", run)
    ask("break", run, "show", "--when", "payload.n >= 0")
    while (held := ask("held", run, "show", "--json")).code:
        pass
    ask("pause", run)
    ask("held", run, "show", "drop")
    text = ask("losses", run)
    shown = ask("losses", run, "--json").results
    ask("stop", run, "--mode", "KILL")

    message = json.loads(held.out)["id"]
    assert (nothing.code, nothing.out) == (0, "nothing was lost\n")
    row = {"place": "edge", "nodeId": "show", "reason": "DROP_HELD", "count": 1}
    assert shown == [{**row, "sample": [message]}]
    assert text.code == 0
    assert text.out.splitlines()[0].split() == ["PLACE", "NODE", "REASON", "COUNT", "FIRST"]
    assert text.out.splitlines()[1].split() == ["edge", "show", "DROP_HELD", "1", message]


def test_losses_of_no_run_says_so(ask) -> None:
    ended = ask("losses", "none")

    assert (ended.code, ended.out) == (4, "")
    assert "no run none" in ended.err
