"""Options that are conditions, ports that come from the options, settings that a plugin needs."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from yukta_rx.config.load import load_settings
from yukta_rx.plugins.contract import (
    Condition,
    PluginConfig,
    When,
    bind_config,
    check_config,
    check_environment,
    fixed,
    processor,
    spec_of,
)

pytestmark = pytest.mark.feature("EXT-01")


class Rule(PluginConfig):
    when: When


class Rules(PluginConfig):
    when: When = Field(description="The main one.")
    unless: When | None = Field(None, description="The other one.")
    rules: list[Rule] = Field(default_factory=list, description="More of them.")
    limit: int = Field(1, description="Not a condition.")


@processor("RULES", config=Rules, blocking=False, pure=True)
def rules(msg, cfg, ctx):
    """Test."""


def faults(config: Any) -> list[tuple[str | None, str, str]]:
    return [(f.option, f.code, f.detail) for f in check_config(spec_of(rules), config)]


def test_a_condition_is_compiled_with_the_configuration() -> None:
    bound = bind_config(spec_of(rules), {"when": "payload.n > 1", "rules": [{"when": "true"}]})

    config = bound.constant
    assert isinstance(config.when, Condition)
    assert config.when.matches({"payload": {"n": 2}})
    assert config.unless is None
    assert config.rules[0].when.source == "true"


def test_a_malformed_condition_is_a_fault_of_its_option_with_place_and_hint() -> None:
    (fault,) = faults({"when": "payload.n = 1"})

    assert fault[:2] == ("when", "invalid_expression")
    assert fault[2] == "`payload.n = 1` is no condition (column 11): `==` compares"


def test_every_malformed_condition_is_told_at_once_wherever_it_stands() -> None:
    found = faults(
        {"when": "n > 1", "unless": "payload.{x}", "rules": [{"when": "true"}, {"when": "a b"}]}
    )

    assert [(option, code) for option, code, _ in found] == [
        ("when", "invalid_expression"),
        ("unless", "invalid_expression"),
        ("rules.1.when", "invalid_expression"),
    ]


@pytest.mark.parametrize("option", ["when", "unless"])
def test_a_placeholder_in_a_condition_is_refused_with_what_to_write(option) -> None:
    (fault,) = faults({"when": "true", option: "${payload.n} > 1"})

    assert fault == (
        option,
        "fixed_option",
        "is a condition, which reads names without `${}`: payload.x",
    )


def test_a_placeholder_in_a_nested_condition_is_refused_too() -> None:
    (fault,) = faults({"when": "true", "rules": [{"when": "${payload.n} > 1"}]})

    assert fault[:2] == ("rules.0.when", "fixed_option")


@pytest.mark.parametrize("value", [5, True, None, ["true"], {}])
def test_a_condition_is_a_text(value) -> None:
    (fault,) = faults({"when": value})

    assert fault == ("when", "invalid_option", "must be text")


def test_the_schema_says_that_it_is_a_condition_and_takes_no_placeholder() -> None:
    options = spec_of(rules).json_schema()["properties"]

    assert options["when"]["type"] == "string"
    assert options["when"]["maxLength"] == 4096
    assert options["when"]["x-yukta-condition"] is True
    assert "pattern" not in str(options["unless"])
    assert "pattern" in str(options["limit"])


def test_a_configuration_can_be_written_out_again() -> None:
    config = bind_config(spec_of(rules), {"when": " payload.n > 1 "}).constant

    assert config.model_dump(by_alias=True, exclude_unset=True) == {"when": "payload.n > 1"}


def test_other_options_may_read_the_message_beside_a_condition() -> None:
    bound = bind_config(spec_of(rules), {"when": "true", "limit": "${payload.n:int}"})

    assert bound.constant is None
    assert bound.reads_message


# --- ports that come from the options ------------------------------------------------------------


class Ways(PluginConfig):
    to: Annotated[list[str], fixed()] = Field(description="Ports.")
    note: str = Field("", description="May depend on the message.")


@processor("WAYS", config=Ways, ports=["always"], ports_of=lambda cfg: tuple(cfg.to))
async def ways(msg, cfg, ctx):
    """Test."""


def test_ports_come_from_the_configuration() -> None:
    spec = spec_of(ways)

    assert spec.named_ports(Ways(to=["a", "b"])) == ("always", "a", "b")
    assert spec.named_ports(None) is None, "not known while the configuration is not"
    assert spec.describe()["portsFromConfig"] is True
    assert spec_of(rules).named_ports(None) == ()


def test_a_function_that_is_exact_has_no_further_ports() -> None:
    with pytest.raises(TypeError, match="exact"):
        processor("X", exact=True, ports_of=lambda cfg: ("a",))(lambda msg, cfg, ctx: msg)


# --- a setting that a plugin needs ---------------------------------------------------------------


@processor("GUARDED", config=Ways, setting="yukta.plugins.allow-fault-injection")
async def guarded(msg, cfg, ctx):
    """Test."""


@pytest.mark.parametrize("note", ["plain", "${payload.n}"])
def test_a_plugin_can_need_a_setting_whatever_its_options_are(note) -> None:
    def found(allowed: bool) -> list[tuple[str, str]]:
        settings = load_settings(
            environ={}, overrides={"yukta.plugins.allow-fault-injection": allowed}
        )
        config = {"to": [], "note": note}
        faults = check_environment(spec_of(guarded), config, settings=settings, base_dir=None)
        return [(fault.code, fault.detail) for fault in faults]

    assert found(True) == []
    assert found(False) == [
        (
            "not_allowed",
            "GUARDED is not allowed here; yukta.plugins.allow-fault-injection = true allows it",
        )
    ]


def test_without_settings_nothing_is_allowed_that_needs_one() -> None:
    found = check_environment(spec_of(guarded), {"to": []}, settings=None, base_dir=None)

    assert [fault.code for fault in found] == ["not_allowed"]
    assert spec_of(guarded).describe()["setting"] == "yukta.plugins.allow-fault-injection"
