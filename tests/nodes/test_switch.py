"""SWITCH: one way out per case."""

from __future__ import annotations

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.nodes.switch import SwitchConfig, switch
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-02")

CASES = [
    {"port": "large", "when": "payload.n >= 100"},
    {"port": "even", "when": "payload.n % 2 == 0"},
    {"port": "large", "when": "payload.n == 7"},
]


def sent(n, bench, **options):
    cfg = SwitchConfig.model_validate({"cases": CASES, **options})
    return switch(Message.of({"n": n}), cfg, bench.ctx)


def test_the_first_case_that_holds_wins(bench) -> None:
    b = bench()

    assert [sent(n, b).port for n in (100, 2, 7)] == ["large", "even", "large"]


def test_the_message_goes_on_as_it_is(bench) -> None:
    msg = Message.of({"n": 2})

    out = switch(msg, SwitchConfig.model_validate({"cases": CASES}), bench().ctx)

    assert out.value is msg


def test_what_no_case_is_for_leaves_by_otherwise(bench) -> None:
    assert sent(3, bench(), otherwise="rest").port == "rest"


def test_without_otherwise_it_is_filtered_and_counted(bench) -> None:
    b = bench()

    assert sent(3, b) is None
    assert b.counts == [("unmatched", 1)]


def test_a_case_that_does_not_fit_the_message_is_bad_input_and_not_skipped(bench) -> None:
    with pytest.raises(BadInputError, match="does not go with the text 'x'"):
        sent("x", bench(), otherwise="rest")


def test_its_ports_are_those_of_its_cases() -> None:
    cfg = SwitchConfig.model_validate({"cases": CASES, "otherwise": "rest"})

    assert spec_of(switch).named_ports(cfg) == ("large", "even", "rest")


@pytest.mark.parametrize(
    ("config", "option", "detail"),
    [
        ({}, "cases", "is required"),
        ({"cases": []}, "cases", "at least 1 item"),
        ({"cases": [{"port": "a"}]}, "cases.0.when", "is required"),
        ({"cases": [{"when": "true"}]}, "cases.0.port", "is required"),
        ({"cases": [{"port": "a", "when": "n ="}]}, "cases.0.when", "`==` compares"),
        ({"cases": [{"port": "a b", "when": "true"}]}, "cases.0.port", "a b"),
        ({"cases": [{"port": "error", "when": "true"}]}, "cases.0.port", "a port of the engine"),
        ({"cases": [{"port": "a", "when": "true"}], "otherwise": "dropped"}, "otherwise", "engine"),
        ({"cases": [{"port": "a", "when": "true", "x": 1}]}, "cases.0.x", "not an option"),
        ({"cases": [{"port": "${payload.p}", "when": "true"}]}, "cases.0.port", "ports are fixed"),
        ({"cases": [{"port": "a", "when": "${payload.p}"}]}, "cases.0.when", "payload.x"),
        ({"cases": [{"port": "a", "when": "true"}], "otherwise": "${id}"}, "otherwise", "fixed"),
    ],
)
def test_a_fault_names_its_place(config, option, detail) -> None:
    (fault,) = check_config(spec_of(switch), config)

    assert fault.option == option
    assert detail in fault.detail
