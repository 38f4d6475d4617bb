"""What every built-in node type has to have."""

from __future__ import annotations

import inspect

import pytest

from yukta_rx.plugins.contract import Shape, check_config
from yukta_rx.plugins.registry import PluginRegistry

pytestmark = pytest.mark.feature("EXT-01")

SPECS = list(PluginRegistry.load().specs())


@pytest.fixture(params=SPECS, ids=lambda spec: spec.type)
def spec(request: pytest.FixtureRequest):
    return request.param


def test_it_has_a_summary_of_one_sentence(spec) -> None:
    assert spec.summary.endswith(".")
    assert "\n" not in spec.summary


def test_its_example_is_valid(spec) -> None:
    assert spec.example is not None
    assert check_config(spec, spec.example) == []


def test_every_option_is_described_in_its_schema(spec) -> None:
    schema = spec.json_schema()

    assert schema["additionalProperties"] is False
    assert all(option.get("description") for option in schema["properties"].values())


def test_unknown_options_are_refused(spec) -> None:
    faults = check_config(spec, {**(spec.example or {}), "noSuchOption": 1})

    assert [(fault.option, fault.code) for fault in faults] == [("noSuchOption", "unknown_option")]


def test_it_knows_nothing_but_the_contract(spec) -> None:
    imports = {
        line.split()[1]
        for line in inspect.getsource(inspect.getmodule(spec.fn)).splitlines()
        if line.startswith("from yukta_rx")
    }

    allowed = (
        "yukta_rx.plugins.contract",
        "yukta_rx.model.",
        "yukta_rx.errors",
        "yukta_rx.nodes._",
    )
    assert all(name.startswith(allowed) for name in imports), imports


# --- the types of API.md, section 9, that compute or read a file ----------------------------------


@pytest.mark.parametrize(
    ("type", "facts"),
    [
        ("API_TRIGGER", {"replayable": True, "blocking": False, "timeout": None}),
        ("SEQUENCE_TRIGGER", {"replayable": True, "blocking": False, "timeout": None}),
        ("FILE_TRIGGER", {"replayable": True, "blocking": True, "timeout": None}),
        ("TRANSFORM", {"exact": True, "blocking": False, "timeout": 30}),
        ("SPLIT", {"exact": False, "blocking": False, "timeout": 30}),
        ("BATCH", {"shape": Shape.STREAM, "timeout": None}),
        ("INTERVAL_TRIGGER", {"replayable": False, "blocking": False, "timeout": None}),
        ("FILTER", {"exact": False, "blocking": False, "timeout": 30}),
        ("SWITCH", {"exact": False, "blocking": False, "timeout": 30}),
        ("FAULT_INJECTOR", {"shape": Shape.ASYNC_GENERATOR, "timeout": 30}),
        ("KV_STORE", {"exact": True, "stateful": True, "shape": Shape.ASYNC, "timeout": 30}),
        ("SESSION_MEMORY", {"exact": True, "stateful": True, "shape": Shape.ASYNC, "timeout": 30}),
        ("DEDUPLICATE", {"stateful": True, "exact": False, "blocking": False, "timeout": 30}),
        ("RATE_LIMIT", {"exact": True, "shape": Shape.ASYNC, "timeout": 30}),
        ("HTTP_REQUEST", {"exact": True, "shape": Shape.ASYNC, "timeout": 30}),
        ("SSE_TRIGGER", {"replayable": False, "shape": Shape.ASYNC_GENERATOR, "timeout": None}),
        ("DELAY", {"exact": True, "shape": Shape.ASYNC, "timeout": 30}),
        ("SUB_WORKFLOW", {"exact": True, "stateful": True, "timeout": None}),
        ("CONSOLE_TERMINAL", {"blocking": False, "timeout": 30}),
        ("COLLECT_TERMINAL", {"blocking": False, "timeout": 30}),
        ("FILE_TERMINAL", {"blocking": True, "stateful": False, "timeout": 30}),
        ("NULL_TERMINAL", {"blocking": False, "timeout": 30}),
    ],
)
def test_a_type_declares_what_the_engine_counts_on(type, facts) -> None:
    spec = PluginRegistry.load().get(type)

    assert spec.pure
    assert {
        name: spec.timeout(None) if name == "timeout" else getattr(spec, name) for name in facts
    } == facts
