"""A node's configuration: checked early, resolved per message, described by a schema."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, field_validator, model_validator

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.plugins.contract import (
    ConfigFault,
    PluginConfig,
    PluginSpec,
    bind_config,
    check_config,
    check_environment,
    fixed,
    processor,
    spec_of,
    trigger,
)
from yukta_rx.security.variables import Scope

pytestmark = [pytest.mark.feature("EXT-01"), pytest.mark.feature("SEC-02")]


class Case(PluginConfig):
    port: Annotated[str, fixed()]
    when: str


class Options(PluginConfig):
    url: str
    timeout_ms: Annotated[int, Field(strict=True, ge=1, description="How long.")] = 1000
    method: Annotated[str, fixed()] = "GET"
    headers: dict[str, str] = Field(default_factory=dict)
    cases: list[Case] = Field(default_factory=list)
    body: Any = None
    limit: int | float | None = None

    @field_validator("url")
    @classmethod
    def _has_scheme(cls, url: str) -> str:
        if "://" not in url:
            raise ValueError("has no scheme")
        return url

    @model_validator(mode="after")
    def _body_needs_post(self) -> Options:
        if self.body == "forbidden":
            raise ValueError("body is forbidden")
        return self


@processor("FETCH", config=Options)
def fetch(msg: Any, cfg: Any, ctx: Any) -> Any:
    return msg


@trigger("WATCH", config=Options)
def watch(cfg: Any, ctx: Any) -> Any:
    return iter(())


FETCH, WATCH = spec_of(fetch), spec_of(watch)


def faults(config: Any, spec: PluginSpec = FETCH) -> list[tuple[Any, str]]:
    return [(fault.loc, fault.code) for fault in check_config(spec, config)]


def scope(payload: Any) -> Scope:
    return Scope(Message.of(payload), environ={"HOME": "/home/me"})


# --- checked before the run ----------------------------------------------------------------------


def test_a_valid_configuration_has_no_fault() -> None:
    assert faults({"url": "http://x", "timeoutMs": 5, "cases": [{"port": "a", "when": "1"}]}) == []


def test_all_faults_are_found_at_once_in_the_order_of_the_document() -> None:
    config = {"timeoutMs": 0, "url": "x", "headers": 3, "cases": [{"port": "a"}], "methd": "PUT"}

    assert faults(config) == [
        (("timeoutMs",), "invalid_option"),
        (("url",), "invalid_option"),
        (("headers",), "invalid_option"),
        (("cases", 0, "when"), "missing_option"),
        (("methd",), "unknown_option"),
    ]


def test_details_are_sentences_about_the_option() -> None:
    found = check_config(FETCH, {"url": "x", "timeoutMs": "5", "methd": "PUT"})

    assert [fault.detail for fault in found] == [
        "has no scheme",
        "must be a whole number",
        "is not an option; did you mean `method`?",
    ]


def test_an_option_unlike_any_other_is_refused_with_the_list() -> None:
    (fault,) = check_config(FETCH, {"url": "http://x", "zzz": 1})

    assert fault.detail.startswith("is not an option; there is url, timeoutMs, method")
    assert fault.option == "zzz"


def test_the_spelling_of_python_is_no_option_of_a_document() -> None:
    assert faults({"url": "http://x", "timeout_ms": 5}) == [(("timeout_ms",), "unknown_option")]


def test_python_may_use_the_field_names() -> None:
    assert Options(url="http://x", timeout_ms=5).timeout_ms == 5


def test_no_configuration_is_an_empty_one_and_a_list_is_none() -> None:
    assert faults(None) == [(("url",), "missing_option")]
    assert faults([]) == [((), "invalid_option")]


def test_the_place_of_a_fault_holds_no_tags_of_the_model() -> None:
    places = {loc for loc, _ in faults({"url": "http://x", "limit": [1]})}

    assert places == {("limit",)}


def test_what_comes_from_an_expression_is_left_for_the_run() -> None:
    config = {
        "url": "${payload.url}",
        "timeoutMs": "${payload.ms:int}",
        "headers": {"a": "${id}"},
        "body": {"deep": ["${payload.x:json}"]},
    }

    assert faults(config) == []


def test_an_expression_excuses_only_its_own_place() -> None:
    assert faults({"url": "${payload.url}", "timeoutMs": 0, "x": "${id}"}) == [
        (("timeoutMs",), "invalid_option"),
        (("x",), "unknown_option"),
    ]


def test_a_malformed_expression_is_a_fault_wherever_it_stands() -> None:
    (fault,) = check_config(FETCH, {"url": "http://${payload.x", "headers": {}})

    assert fault.loc == ("url",)
    assert fault.code == "invalid_expression"
    assert "${payload.x" in fault.detail


def test_an_expression_in_a_fixed_option_is_refused_also_inside_a_list() -> None:
    config = {
        "url": "http://x",
        "method": "${payload.m}",
        "cases": [{"port": "${id}", "when": "${id}"}],
    }

    assert faults(config) == [
        (("method",), "fixed_option"),
        (("cases", 0, "port"), "fixed_option"),
    ]


def test_a_trigger_may_read_the_environment_but_no_message() -> None:
    config = {"url": "http://${env.HOME}", "body": "${payload.x}", "headers": {"a": "${id}"}}

    found = check_config(WATCH, config)

    assert [(fault.loc, fault.code) for fault in found] == [
        (("body",), "invalid_expression"),
        (("headers", "a"), "invalid_expression"),
    ]
    assert "a trigger has none at hand" in found[0].detail


def test_nothing_that_a_document_says_is_altered_by_the_check() -> None:
    config = {"url": "http://x", "headers": {"a": "$${b}"}}

    check_config(FETCH, config)

    assert config == {"url": "http://x", "headers": {"a": "$${b}"}}


def test_faults_of_the_place_are_found_apart_and_only_for_a_known_configuration() -> None:
    def check(cfg: Options, settings: Any, base_dir: Any) -> list[ConfigFault]:
        return [ConfigFault(("url",), "far_away", f"{cfg.url} is not in {settings}")]

    @processor("NEAR", config=Options, check=check)
    def near(msg: Any, cfg: Any, ctx: Any) -> Any:
        return msg

    known = check_environment(spec_of(near), {"url": "http://x"}, settings="here", base_dir=None)
    later = check_environment(spec_of(near), {"url": "${id}"}, settings="here", base_dir=None)

    assert [fault.detail for fault in known] == ["http://x is not in here"]
    assert later == []


def test_an_invalid_configuration_cannot_be_bound() -> None:
    with pytest.raises(BadInputError, match="option `url` is required"):
        bind_config(FETCH, None)


# --- in the run ----------------------------------------------------------------------------------


def test_a_configuration_without_expressions_is_made_once() -> None:
    bound = bind_config(FETCH, {"url": "http://x", "headers": {"a": "$${b}"}})

    assert bound.constant is not None
    assert bound.constant is bound.resolve(scope({}))
    assert bound.constant.headers == {"a": "${b}"}  # type: ignore[attr-defined]


def test_expressions_are_resolved_for_each_message() -> None:
    bound = bind_config(FETCH, {"url": "http://${payload.host}", "timeoutMs": "${payload.ms:int}"})

    first = bound.resolve(scope({"host": "a", "ms": 5}))
    second = bound.resolve(scope({"host": "b", "ms": "7"}))

    assert bound.constant is None
    assert bound.reads_message
    assert (first.url, first.timeout_ms) == ("http://a", 5)  # type: ignore[attr-defined]
    assert (second.url, second.timeout_ms) == ("http://b", 7)  # type: ignore[attr-defined]


def test_a_configuration_that_reads_no_message_need_be_resolved_only_once_per_run() -> None:
    bound = bind_config(FETCH, {"url": "http://${env.HOME}"})

    assert bound.constant is None
    assert not bound.reads_message


def test_what_an_expression_gives_is_not_read_for_further_expressions() -> None:
    bound = bind_config(FETCH, {"url": "http://${payload.x}"})

    assert bound.resolve(scope({"x": "${env.HOME}"})).url == "http://${env.HOME}"  # type: ignore[attr-defined]


def test_a_missing_value_is_bad_input_that_names_option_and_expression() -> None:
    bound = bind_config(FETCH, {"url": "http://${payload.host}"})

    with pytest.raises(BadInputError, match=r"option `url`: `\$\{payload\.host\}` has no value"):
        bound.resolve(scope({}))


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"ms": 0}, r"option `timeoutMs` .*greater than or equal to 1.*\$\{payload\.ms:json\}"),
        ({"ms": "5"}, r"option `timeoutMs` must be a whole number"),
        ({"ms": True}, r"option `timeoutMs` must be a whole number"),
    ],
)
def test_a_value_that_the_option_does_not_take_is_bad_input(payload, complaint) -> None:
    bound = bind_config(FETCH, {"url": "http://x", "timeoutMs": "${payload.ms:json}"})

    with pytest.raises(BadInputError, match=complaint):
        bound.resolve(scope(payload))


def test_a_refused_value_that_looks_like_an_expression_is_still_refused() -> None:
    bound = bind_config(FETCH, {"url": "${payload.x}"})

    with pytest.raises(BadInputError, match=r"option `url` has no scheme.*`\$\{payload\.x\}`"):
        bound.resolve(scope({"x": "${id}"}))


def test_a_secret_is_fetched_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind_config(FETCH, {"url": "http://x", "headers": {"Authorization": "decrypted:key"}})

    resolved = bound.resolve(Scope(environ={"YUKTA_SECRET_KEY": "s3cret"}))

    assert resolved.headers == {"Authorization": "s3cret"}  # type: ignore[attr-defined]
    assert not bound.reads_message


def test_exact_values_pass_through_an_open_option() -> None:
    bound = bind_config(FETCH, {"url": "http://x", "body": "${payload.v:json}"})
    value = {"big": 2**70, "list": [1, 1.0, None]}

    assert bound.resolve(scope({"v": value})).body is value  # type: ignore[attr-defined]


# --- the schema ----------------------------------------------------------------------------------


def test_the_schema_speaks_camel_case_and_refuses_unknown_members() -> None:
    schema = FETCH.json_schema()

    assert schema["additionalProperties"] is False
    assert schema["required"] == ["url"]
    assert "timeoutMs" in schema["properties"]


def test_the_schema_allows_an_expression_where_the_check_does() -> None:
    properties = FETCH.json_schema()["properties"]

    assert {"type": "string", "pattern": r"\$\{"} in properties["timeoutMs"]["anyOf"]
    assert properties["timeoutMs"]["description"] == "How long."
    assert {"type": "string", "pattern": r"\$\{"} in properties["limit"]["anyOf"]
    assert properties["url"]["type"] == "string"
    assert properties["method"]["x-yukta-fixed"] is True
    assert "anyOf" not in properties["method"]
