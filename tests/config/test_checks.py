"""What settings say together."""

from __future__ import annotations

import pytest

from yukta_rx.config.checks import check, require, store_types
from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Settings, StoreType
from yukta_rx.errors import ConfigError

URL = "postgresql://yukta@db:5432/yukta"


def texts(refused: bool, found: Settings) -> list[str]:
    return [finding.text for finding in check(found) if finding.refused is refused]


def with_names(**values: object) -> Settings:
    return load_settings("/dev/null", environ={}, overrides=values)


def test_the_defaults_have_nothing_to_be_said_about() -> None:
    assert check(Settings()) == ()


@pytest.mark.parametrize("profile", ["file", "postgres"])
def test_a_whole_profile_has_nothing_to_be_said_about(profile: str) -> None:
    found = with_names(**{"yukta.profile": profile, "yukta.postgres.url": URL})

    assert check(found) == ()


def test_a_file_store_without_a_folder_is_refused() -> None:
    found = with_names(**{"yukta.kv.store-type": "file"})

    assert texts(True, found) == ["yukta.kv.store-type = file needs yukta.kv.dir or yukta.data.dir"]


def test_postgres_without_an_address_is_refused_naming_all_that_want_it() -> None:
    found = with_names(**{"yukta.kv.store-type": "postgres", "yukta.ha.mode": "postgres"})

    assert "yukta.kv.store-type, yukta.ha.mode = postgres needs yukta.postgres.url" in texts(
        True, found
    )


@pytest.mark.parametrize("url", ["mysql://x@y/z", "db", "postgresql://x@y:port/z"])
def test_an_address_of_something_else_is_refused_without_being_shown(url: str) -> None:
    found = with_names(**{"yukta.postgres.url": url, "yukta.postgres.migration-url": URL})

    assert texts(True, found) == [
        "yukta.postgres.url: expected postgresql://user@host:port/database"
    ]


@pytest.mark.feature("DUR-03")
def test_resuming_by_itself_without_durable_outputs_is_refused() -> None:
    found = with_names(**{"yukta.restart.auto-resume": True, "yukta.execution-log.dir": "/log"})

    assert any("yukta.restart.auto-resume needs" in text for text in texts(True, found))


@pytest.mark.feature("DUR-03")
@pytest.mark.parametrize("kept", ["execution-log", "restart"])
def test_half_of_what_a_resume_needs_is_warned_of(kept: str) -> None:
    found = with_names(**{f"yukta.{kept}.dir": "/data"})

    assert any("no run can be resumed" in text for text in texts(False, found))


@pytest.mark.feature("DUR-03")
@pytest.mark.parametrize("auto", [True, False])
def test_a_durable_store_that_records_nothing_is_warned_of_or_refused(auto: bool) -> None:
    found = with_names(
        **{
            "yukta.profile": "file",
            "yukta.restart.retained-executions": 0,
            "yukta.restart.auto-resume": auto,
        }
    )

    assert any("retained-executions = 0 records nothing" in text for text in texts(auto, found))
    assert texts(not auto, found) == []


def test_history_without_definitions_is_warned_of() -> None:
    found = with_names(**{"yukta.execution-log.dir": "/log"})

    assert any("workflow definitions are not" in text for text in texts(False, found))


@pytest.mark.feature("SCL-02")
def test_a_standby_that_cannot_see_the_log_is_refused() -> None:
    found = with_names(
        **{
            "yukta.ha.mode": "postgres",
            "yukta.postgres.url": URL,
            "yukta.session.store-type": "postgres",
        }
    )

    assert [text.split(": ")[0] for text in texts(True, found)] == [
        "yukta.ha.mode = postgres with yukta.execution-log.store-type = memory"
    ]
    assert len(texts(False, found)) == 3


@pytest.mark.parametrize("name", ["yukta.ha.lease", "yukta.workers.lease"])
def test_a_lease_that_is_off_is_refused(name: str) -> None:
    assert texts(True, with_names(**{name: "0"})) == [f"{name} must be 1s or longer"]


def test_more_than_one_partition_is_refused_for_now() -> None:
    assert len(texts(True, with_names(**{"yukta.cluster.partitions": 2}))) == 1


@pytest.mark.feature("SEC-01")
def test_two_keys_of_one_name_are_refused() -> None:
    keys = [{"name": "ci", "key": "a"}, {"name": "ci", "key": "b"}]

    assert texts(True, with_names(**{"yukta.api-keys": keys})) == [
        "yukta.api-keys: the name `ci` is used more than once"
    ]


@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize(
    ("host", "warned"),
    [("0.0.0.0", True), ("::", True), ("127.0.0.1", False), ("::1", False), ("localhost", False)],
)
def test_an_open_server_without_a_key_is_warned_of(host: str, warned: bool) -> None:
    found = with_names(**{"yukta.http.host": host})

    assert bool(texts(False, found)) is warned
    assert check(with_names(**{"yukta.http.host": host, "yukta.api-key": "k" * 16})) == ()


@pytest.mark.feature("SEC-01")
def test_metrics_behind_a_key_need_a_key() -> None:
    assert len(texts(True, with_names(**{"yukta.metrics.auth": True}))) == 1


@pytest.mark.feature("SEC-03")
@pytest.mark.parametrize("name", ["process.allow-any", "plugins.allow-fault-injection"])
def test_a_safety_that_is_off_is_warned_of(name: str) -> None:
    assert len(texts(False, with_names(**{f"yukta.{name}": True}))) == 1


@pytest.mark.feature("SEC-03")
def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    (text,) = texts(True, with_names(**{"yukta.llm.deny-input-patterns": ["("]}))

    assert text.startswith("yukta.llm.deny-input-patterns: '(' is no regular expression")


def test_what_cannot_work_is_raised_together_and_the_rest_returned() -> None:
    broken = with_names(**{"yukta.kv.store-type": "file", "yukta.ha.lease": "0"})
    risky = with_names(**{"yukta.process.allow-any": True})

    with pytest.raises(ConfigError) as caught:
        require(broken)

    assert len(caught.value.problems) == 2
    assert len(require(risky)) == 1


def test_the_types_in_force_are_listed_by_store() -> None:
    assert store_types(Settings())["execution-log"] is StoreType.MEMORY
