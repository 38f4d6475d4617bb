"""`yukta tap` against a real server."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("OBS-01")]


@pytest.fixture
def ticking(ask):
    """The id of an endless run, which is stopped at the end."""
    run = ask("start", "s/tick").out.strip()

    yield run

    ask("stop", run, "--mode", "KILL")


def test_tap_shows_messages_of_an_edge(ask, ticking) -> None:
    text = ask("tap", ticking, "t:show", "-n", "2")
    shown = ask("tap", ticking, "t:show", "-n", "2", "--json")

    assert (text.code, len(text.out.splitlines())) == (0, 2)
    assert '{"n":' in text.out
    assert [set(line) for line in shown.results] == [
        {"time", "messageId", "payload", "headers", "truncated", "skipped"}
    ] * 2


def test_tap_refuses_what_is_no_edge(ask, ticking) -> None:
    assert ask("tap", ticking, "n").code == 2
    assert "no edge from show to t" in ask("tap", ticking, "show:t").err
