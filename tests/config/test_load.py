"""Reading the settings from file, environment and overrides."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.config.load import catalogue, find_config, load_settings
from yukta_rx.config.settings import OnLimit, Role, Settings, StoreType
from yukta_rx.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def _no_file_to_find(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("config"))
        yield


@pytest.fixture(autouse=True)
def _empty_folder(_no_file_to_find: None) -> Iterator[None]:
    yield
    Path("yukta.toml").unlink(missing_ok=True)


def loaded(toml: str = "", environ: dict[str, str] | None = None, **overrides: object) -> Settings:
    Path("yukta.toml").write_text(toml)
    return load_settings(environ=environ or {}, overrides=overrides)


def refused(
    toml: str = "", environ: dict[str, str] | None = None, **overrides: object
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(toml, environ, **overrides)
    return list(caught.value.problems)


def test_without_any_source_every_setting_has_its_default() -> None:
    assert load_settings(environ={}) == Settings()


def test_a_file_sets_typed_values() -> None:
    settings = loaded(
        """
        [yukta.execution]
        prefetch = 16
        on-limit = "REJECT"
        queue-timeout = "1m"
        [yukta.plugins]
        strict = true
        disabled = ["SCRIPT"]
        """
    )

    assert settings.execution.prefetch == 16
    assert settings.execution.on_limit is OnLimit.REJECT
    assert settings.execution.queue_timeout == timedelta(minutes=1)
    assert settings.plugins.strict is True
    assert settings.plugins.disabled == ("SCRIPT",)


def test_a_variable_wins_over_the_file() -> None:
    settings = loaded("[yukta.execution]\nprefetch = 16", {"YUKTA_EXECUTION_PREFETCH": "8"})

    assert settings.execution.prefetch == 8


def test_an_override_wins_over_the_variable() -> None:
    settings = load_settings(
        environ={"YUKTA_EXECUTION_PREFETCH": "8"}, overrides={"yukta.execution.prefetch": 4}
    )

    assert settings.execution.prefetch == 4


def test_an_override_in_text_is_read_like_a_variable() -> None:
    settings = load_settings(environ={}, overrides={"yukta.plugins.disabled": "A,B"})

    assert settings.plugins.disabled == ("A", "B")


def test_an_empty_variable_counts_as_not_set() -> None:
    settings = load_settings(environ={"YUKTA_EXECUTION_PREFETCH": ""})

    assert settings.execution.prefetch == 64


def test_each_value_remembers_where_it_came_from() -> None:
    settings = loaded(
        "[yukta.execution]\nprefetch = 16\n",
        {"YUKTA_EXECUTION_QUEUE_CAPACITY": "5", "YUKTA_PROFILE": "file"},
        **{"yukta.plugins.strict": True},
    )

    assert settings.origin("yukta.execution.prefetch") == "yukta.toml"
    assert settings.origin("yukta.execution.queue-capacity") == "YUKTA_EXECUTION_QUEUE_CAPACITY"
    assert settings.origin("yukta.plugins.strict") == "override"
    assert settings.origin("yukta.session.store-type") == "yukta.profile"
    assert settings.origin("yukta.http.port") == "default"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().execution.prefetch = 3


# --- what is refused -----------------------------------------------------------------------------


def test_a_name_that_is_no_setting_is_refused_with_the_one_that_was_meant() -> None:
    assert refused("[yukta.execution]\nmax-concurent = 5") == [
        "yukta.toml: no setting yukta.execution.max-concurent;"
        " did you mean yukta.execution.max-concurrent?"
    ]


def test_a_value_that_is_no_choice_is_refused_with_the_choices() -> None:
    assert refused('[yukta.session]\nstore-type = "postgress"') == [
        "yukta.toml: yukta.session.store-type = 'postgress':"
        " expected one of in-memory, file, postgres"
    ]


def test_a_wrong_variable_is_named_as_it_was_written() -> None:
    assert refused(environ={"YUKTA_SESSION_STORE_TYPE": "postgress"}) == [
        "YUKTA_SESSION_STORE_TYPE = 'postgress': expected one of in-memory, file, postgres"
    ]


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    problems = refused(
        """
        top = 1
        [yukta.exection]
        prefetch = 3
        [yukta.execution]
        queue_capacity = 5
        prefetch = 0
        queue-timeout = 15
        [yukta]
        stop = 3
        """,
        {"YUKTA_EXECUTION_MAX_CONCURENT": "7"},
        **{"yukta.nothing.like.it": 1},
    )

    assert problems == [
        "yukta.toml: no setting top; every setting is below [yukta]",
        "yukta.toml: no setting yukta.exection.prefetch; did you mean yukta.execution.prefetch?",
        "yukta.toml: no setting yukta.execution.queue_capacity;"
        " did you mean yukta.execution.queue-capacity?",
        "yukta.toml: yukta.stop = 3: expected a table of settings",
        "YUKTA_EXECUTION_MAX_CONCURENT: no such setting;"
        " did you mean YUKTA_EXECUTION_MAX_CONCURRENT?",
        "override: no setting yukta.nothing.like.it",
        "yukta.toml: yukta.execution.prefetch = 0: expected 1 to 65536",
        "yukta.toml: yukta.execution.queue-timeout = 15: expected a duration with a unit,"
        " such as 500ms, 15s, 10m or 1h30m, or 0 for off",
    ]


def test_a_number_below_an_open_range_is_refused() -> None:
    assert refused("[yukta.execution]\nqueue-capacity = -1") == [
        "yukta.toml: yukta.execution.queue-capacity = -1: expected 0 or more"
    ]


def test_a_file_that_is_no_toml_is_refused_with_the_line() -> None:
    (problem,) = refused("[yukta\n")

    assert problem.startswith("yukta.toml: cannot be read: ")
    assert "line 1" in problem


def test_a_named_file_that_is_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"elsewhere\.toml: no such file"):
        load_settings("elsewhere.toml", environ={})


def test_a_wrong_secret_is_never_shown() -> None:
    (problem,) = refused("[yukta]\napi-key = 12345678")

    assert problem == "yukta.toml: yukta.api-key = ***: expected a text"


def test_a_long_value_is_cut_in_the_report() -> None:
    (problem,) = refused(f"[yukta.execution]\nprefetch = '{'x' * 500}'")

    assert len(problem) < 150


# --- variables that are no settings --------------------------------------------------------------


@pytest.mark.parametrize(
    "variable",
    [
        "YUKTA_CONFIG_",
        "YUKTA_HOME",
    ],
)
def test_an_unknown_variable_like_no_setting_is_warned_of(variable: str) -> None:
    settings = load_settings(environ={variable: "x"})

    assert settings.warnings == (f"{variable}: no such setting; it is ignored",)


@pytest.mark.parametrize(
    "variable",
    [
        "YUKTA_DEBUG",
        "YUKTA_URL",
        "YUKTA_KEY",
        "YUKTA_VAR_region",
        "YUKTA_SECRET_DB",
        "YUKTA_TEST_POSTGRES_URL",
        "YUKTA_MAIN_SERVICE_HOST",
        "YUKTA_MAIN_SERVICE_PORT",
        "YUKTA_MAIN_SERVICE_PORT_HTTP",
        "YUKTA_PORT",
        "YUKTA_PORT_8080_TCP_ADDR",
        "YUKTA_SERVICE_HOST",
    ],
)
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert load_settings(environ={variable: "x"}).warnings == ()


# --- lists of tables and maps --------------------------------------------------------------------


@pytest.mark.feature("SEC-01")
def test_api_keys_are_a_list_of_tables() -> None:
    settings = loaded(
        """
        [[yukta.api-keys]]
        name = "ci"
        key = "sha256:00"
        role = "OPERATOR"
        sessions = ["build"]
        [[yukta.api-keys]]
        name = "eyes"
        key = "k"
        """
    )

    ci, eyes = settings.api_keys
    assert (ci.name, ci.role, ci.sessions) == ("ci", Role.OPERATOR, ("build",))
    assert ci.key.get_secret_value() == "sha256:00"
    assert (eyes.name, eyes.role, eyes.sessions) == ("eyes", Role.VIEWER, ())


@pytest.mark.feature("SEC-01")
def test_api_keys_can_come_from_numbered_variables() -> None:
    settings = load_settings(
        environ={
            "YUKTA_API_KEYS_0_NAME": "ci",
            "YUKTA_API_KEYS_0_KEY": "k",
            "YUKTA_API_KEYS_0_SESSIONS": "a,b",
        }
    )

    assert settings.api_keys[0].sessions == ("a", "b")


def test_a_wrong_entry_of_a_list_of_tables_is_named_by_its_index() -> None:
    problems = refused(
        """
        [[yukta.api-keys]]
        name = "ci"
        key = "secret-value"
        rol = "ADMIN"
        [[yukta.api-keys]]
        name = "x"
        role = "ADMI"
        """
    )

    assert problems == [
        "yukta.toml: no setting yukta.api-keys[0].rol; did you mean role?",
        "yukta.toml: yukta.api-keys[1].role = 'ADMI': expected one of VIEWER, OPERATOR, ADMIN",
        "yukta.toml: yukta.api-keys[1] needs key",
    ]


def test_a_list_of_tables_given_as_something_else_is_refused() -> None:
    assert refused('[yukta]\napi-keys = "k"') == [
        "yukta.toml: yukta.api-keys: expected a list of tables"
    ]
    assert refused("[yukta]\napi-keys = [3]") == ["yukta.toml: yukta.api-keys[0]: expected a table"]


@pytest.mark.feature("EXT-03")
def test_a_map_takes_any_name_from_every_source() -> None:
    settings = loaded(
        "[yukta.llm.rate-limit]\nopenai = 60\nlocal = 5",
        {"YUKTA_LLM_RATE_LIMIT_MY_OWN": "7"},
        **{"yukta.llm.rate-limit.local": 9},
    )

    assert settings.llm.rate_limit == {"openai": 60, "local": 9, "my-own": 7}


def test_a_wrong_value_in_a_map_names_its_key() -> None:
    assert refused("[yukta.llm.rate-limit]\nopenai = 0") == [
        "yukta.toml: yukta.llm.rate-limit.openai = 0: expected 1 or more"
    ]
    assert refused("[yukta.llm]\nrate-limit = 3") == [
        "yukta.toml: yukta.llm.rate-limit = 3: expected a table"
    ]


@pytest.mark.feature("SEC-02")
def test_variables_of_workflows_may_have_dotted_names() -> None:
    settings = loaded('[yukta.var]\nregion = "eu"\n[yukta.var.team]\nname = "blue"')

    assert settings.var == {"region": "eu", "team.name": "blue"}


# --- what follows from other settings ------------------------------------------------------------


@pytest.mark.feature("DUR-05")
def test_the_profile_sets_every_store_and_a_switch_of_its_own_wins() -> None:
    settings = loaded('[yukta]\nprofile = "file"\n[yukta.kv]\nstore-type = "memory"')

    assert settings.session.store_type is StoreType.FILE
    assert settings.execution_log.store_type is StoreType.FILE
    assert settings.restart.store_type is StoreType.FILE
    assert settings.session_memory.store_type is StoreType.FILE
    assert settings.kv.store_type is StoreType.MEMORY


@pytest.mark.feature("DUR-05")
def test_file_stores_live_side_by_side_below_the_data_folder() -> None:
    settings = load_settings(
        environ={}, overrides={"yukta.profile": "file", "yukta.restart.dir": "/elsewhere"}
    )

    assert settings.data.dir == Path("yukta-data")
    assert settings.session.dir == Path("yukta-data/session")
    assert settings.execution_log.dir == Path("yukta-data/execution-log")
    assert settings.restart.dir == Path("/elsewhere")


@pytest.mark.feature("DUR-01")
def test_a_folder_for_the_execution_log_makes_it_a_file_store() -> None:
    settings = load_settings(environ={}, overrides={"yukta.execution-log.dir": "/log"})

    assert settings.execution_log.store_type is StoreType.FILE
    assert settings.origin("yukta.execution-log.store-type") == "yukta.execution-log.dir"
    assert settings.data.dir is None


@pytest.mark.feature("DUR-04")
def test_migrations_use_the_address_of_the_stores_unless_they_have_their_own() -> None:
    url = "postgresql://yukta@db/yukta"

    same = load_settings(environ={}, overrides={"yukta.postgres.url": url})

    assert same.postgres.migration_url == same.postgres.url


# --- which file ----------------------------------------------------------------------------------


def test_a_named_file_wins_over_the_working_directory() -> None:
    Path("yukta.toml").touch()

    assert find_config({"YUKTA_CONFIG": "other.toml"}) == Path("other.toml")


def test_the_working_directory_wins_over_the_users_own_file(tmp_path: Path) -> None:
    own = tmp_path / "home" / "yukta" / "yukta.toml"
    own.parent.mkdir(parents=True)
    own.touch()
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home")}

    assert find_config(environ) == own
    Path("yukta.toml").touch()
    assert find_config(environ) == Path("yukta.toml")


def test_there_need_not_be_a_file() -> None:
    assert find_config({}) in (None, Path("/etc/yukta/yukta.toml"))


# --- whatever is written -------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = sorted(catalogue())


def read(environ: dict[str, str], overrides: dict[str, object]) -> Settings | ConfigError:
    try:
        return load_settings("/dev/null", environ, overrides)
    except ConfigError as refusal:
        return refusal


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=4))
def test_any_value_is_either_taken_or_refused_naming_its_setting(values: dict[str, object]) -> None:
    outcome = read({}, values)

    if isinstance(outcome, ConfigError):
        assert all(any(name in problem for name in values) for problem in outcome.problems)


@given(st.sampled_from(NAMES), st.text(st.characters(exclude_characters="\0"), max_size=12))
def test_any_text_is_either_taken_or_refused_naming_its_variable(name: str, text: str) -> None:
    variable = catalogue()[name].env

    outcome = read({variable: text}, {})

    if isinstance(outcome, ConfigError):
        assert all(variable in problem for problem in outcome.problems)


@given(st.dictionaries(st.text(max_size=30), ANYTHING, max_size=3))
def test_any_other_name_is_refused(values: dict[str, object]) -> None:
    outcome = read({}, values)

    assert isinstance(outcome, ConfigError) is bool(values.keys() - set(NAMES))


def test_a_home_that_nobody_has_is_refused_naming_the_variable() -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("/dev/null", {"YUKTA_DATA_DIR": "~nobody-of-this-name/data"})

    [problem] = refused.value.problems
    assert problem.startswith("YUKTA_DATA_DIR = '~nobody-of-this-name/data': expected a path")
