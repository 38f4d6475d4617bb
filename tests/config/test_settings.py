"""The declarations themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from yukta_rx.config.declare import Group, declared, nearest, setting
from yukta_rx.config.document import configuration_page, example_toml
from yukta_rx.config.load import catalogue, load_settings
from yukta_rx.config.settings import Settings

ROOT = Path(__file__).parents[2]

# Settings that users of the ported system know, with their defaults as text.
KNOWN = {
    "yukta.execution.max-concurrent": 0,
    "yukta.execution.on-limit": "QUEUE",
    "yukta.execution.queue-capacity": 100,
    "yukta.start.idempotency-max-keys": 100_000,
    "yukta.supervisor.max-commands-per-second": 20,
    "yukta.streaming.status-history-ttl-minutes": 5,
    "yukta.results.retained-events": 1000,
    "yukta.execution-log.retained-runs": 500,
    "yukta.execution-log.compact-after": 10_000,
    "yukta.restart.messages-per-node": 200,
    "yukta.restart.bytes-per-node": 4_194_304,
    "yukta.script.max-statements": 50_000_000,
    "yukta.limits.max-body": 1_048_576,
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_setting_of_the_ported_system_keeps_its_name_and_default(name: str) -> None:
    assert catalogue()[name].default == KNOWN[name]


def test_no_two_settings_share_a_variable() -> None:
    variables = [setting.env for setting in catalogue().values()]

    assert len(variables) == len(set(variables))


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_setting_says_what_it_does_and_whose_it_is(name: str) -> None:
    declaration = catalogue()[name]

    assert declaration.doc.endswith(".")
    assert all(re.fullmatch(r"[A-Z]{3}-\d\d", feature) for feature in declaration.features)


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_a_name_that_ends_in_a_unit_takes_a_plain_number(name: str) -> None:
    ends_in_unit = name.endswith(("-ms", "-seconds", "-minutes", "-bytes"))

    assert not ends_in_unit or isinstance(catalogue()[name].default, int)


def test_a_field_that_is_not_declared_with_setting_is_a_mistake() -> None:
    class Loose(Group):
        x: int = 3

    with pytest.raises(TypeError, match=r"yukta\.x is not declared with setting"):
        declared(Loose)


def test_a_declaration_carries_range_and_feature_ids() -> None:
    class Tight(Group):
        some_size: int = setting(3, "Something.", feature=("ENG-01", "ENG-02"), ge=1, le=9)

    (found,) = declared(Tight)

    assert (found.name, found.env) == ("yukta.some-size", "YUKTA_SOME_SIZE")
    assert (found.low, found.high) == (1, 9)
    assert found.features == ("ENG-01", "ENG-02")


def test_a_range_also_holds_for_settings_made_in_code() -> None:
    with pytest.raises(ValueError, match="prefetch"):
        Settings(execution={"prefetch": 0})


def test_the_nearest_word_is_offered_only_when_it_is_near() -> None:
    assert nearest("prefech", ["prefetch", "other"]) == "prefetch"
    assert nearest("zzz", ["prefetch", "other"]) is None


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")

    assert page == configuration_page(), "run `make docs`"


def test_the_sample_file_is_up_to_date() -> None:
    sample = (ROOT / "yukta.example.toml").read_text(encoding="utf-8")

    assert sample == example_toml(), "run `make docs`"


def test_the_sample_file_is_a_configuration_that_changes_nothing() -> None:
    settings = load_settings(ROOT / "yukta.example.toml", environ={})

    assert settings == Settings()


def test_every_line_of_the_sample_works_when_it_is_uncommented(tmp_path: Path) -> None:
    lines = [
        re.sub(r"^# (?=[a-z-]+ = (?!\.\.\.|\[\{|value$|\"\"$))", "", line)
        for line in example_toml().splitlines()
    ]
    sample = tmp_path / "yukta.toml"
    sample.write_text("\n".join(lines))

    settings = load_settings(sample, environ={})

    assert settings.model_dump() == Settings().model_dump()
    assert settings.origin("yukta.execution.prefetch") == str(sample)
