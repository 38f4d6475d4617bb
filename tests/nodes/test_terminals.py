"""CONSOLE_TERMINAL, COLLECT_TERMINAL and NULL_TERMINAL."""

from __future__ import annotations

import pytest

from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.message import Message
from yukta_rx.nodes.collect_terminal import collect_terminal
from yukta_rx.nodes.console_terminal import ConsoleTerminalConfig, console_terminal
from yukta_rx.nodes.null_terminal import null_terminal
from yukta_rx.plugins.contract import NoConfig, PluginKind, spec_of


@pytest.mark.feature("OBS-02")
def test_console_writes_one_line_of_json_per_message(bench) -> None:
    b = bench()

    console_terminal(Message.of({"a": [1, "é\n"]}), ConsoleTerminalConfig(), b.ctx)

    assert b.lines == [('{"a":[1,"é\\n"]}', "stdout")]


@pytest.mark.feature("OBS-02")
def test_console_puts_its_prefix_in_front(bench) -> None:
    b = bench()

    console_terminal(Message.of(None), ConsoleTerminalConfig(prefix="got: "), b.ctx)

    assert b.lines == [("got: null", "stdout")]


@pytest.mark.feature("OBS-02")
def test_console_refuses_what_has_no_json_form_and_says_where(bench) -> None:
    with pytest.raises(UnserialisablePayloadError, match="/a"):
        console_terminal(Message.of({"a": object()}), ConsoleTerminalConfig(), bench().ctx)


@pytest.mark.feature("OBS-02")
def test_console_shows_numbers_with_all_their_digits(bench) -> None:
    b = bench()

    console_terminal(Message.of(2**70), ConsoleTerminalConfig(), b.ctx)

    assert b.lines[0][0] == str(2**70)


@pytest.mark.feature("OBS-03")
@pytest.mark.parametrize("plugin", [collect_terminal, null_terminal])
def test_the_quiet_terminals_take_anything_and_write_nothing(bench, plugin) -> None:
    b = bench()

    assert plugin(Message.of(object()), NoConfig(), b.ctx) is None
    assert b.lines == []
    assert spec_of(plugin).kind is PluginKind.TERMINAL
