"""A dry run: everything that a start would do, nothing done, and no secret shown."""

from typing import Any

import pytest
from pydantic import Field

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.dry_run import dry_run
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.plugins.contract import PluginConfig, processor
from yukta_rx.plugins.registry import PluginRegistry

pytestmark = pytest.mark.feature("DEF-01", "SEC-02")

CALLS = []


class SendConfig(PluginConfig):
    """Options of SEND."""

    url: str = ""
    token: str = ""
    api_key: str | None = None
    list: Any = None
    headers: dict[str, str] = Field(default_factory=dict)
    n: int = 0


@processor("SEND", config=SendConfig, ports=["late"])
def send(msg, cfg, ctx):
    """Note that it was called."""
    CALLS.append(msg)


@pytest.fixture
def run(doc):
    settings = Settings()
    registry = PluginRegistry.load(settings, extra=[send])

    def make(config=None, payload=None, trigger=None, **more):
        nodes = [
            doc.node("in", "API_TRIGGER", config=trigger or {}),
            doc.node("first", "SEND", config=config or {}, **more),
            doc.node("second", "SEND", config=config or {}),
            doc.node("out", "COLLECT_TERMINAL"),
        ]
        edges = [doc.edge(*pair) for pair in (("in", "first"), ("first", "second"))]
        edges += [doc.edge("second", "out"), doc.edge("first", "out", "late")]
        made = prepare(parse_definition(doc.workflow(nodes, edges)), registry, settings=settings)
        shown = dry_run(made, settings, payload)
        return shown, {node["nodeId"]: node for node in shown["nodes"]}

    return make


def test_order_kinds_ports_and_clocks_are_told_and_no_plugin_runs(run):
    shown, nodes = run({"engine": {"deadlineMs": 9000, "elementTimeoutMs": 5}}, timeoutSeconds=7)

    assert shown["order"] == ["in", "first", "second", "out"]
    assert [node["kind"] for node in shown["nodes"]] == [
        *("TRIGGER", "PROCESSOR", "PROCESSOR", "TERMINAL"),
    ]
    assert nodes["first"]["ports"] == ["late"]
    assert nodes["first"]["clocks"] == {
        "idleTimeoutMs": 7000,
        "elementTimeoutMs": 5,
        "deadlineMs": 9000,
    }
    assert nodes["in"]["clocks"]["idleTimeoutMs"] is None
    assert nodes["first"]["placement"] is None
    assert CALLS == []


def test_a_clock_that_a_message_gives_is_shown_as_it_is_written(run):
    _, nodes = run(timeoutSeconds="${payload.secs:int}")

    assert nodes["first"]["clocks"]["idleTimeoutMs"] == "${payload.secs:int}"


def test_variables_are_resolved_and_those_without_a_value_are_listed(run, monkeypatch):
    monkeypatch.setenv("YUKTA_VAR_HOST", "example.org")

    _, nodes = run({"url": "http://${env.YUKTA_VAR_HOST}/${sys.yukta.var.nothing}", "n": 1})
    assert nodes["first"]["resolvedConfig"]["url"].startswith("http://${env")
    assert nodes["first"]["missingVariables"] == ["${sys.yukta.var.nothing}"]

    _, nodes = run({"url": "http://${env.YUKTA_VAR_HOST}/${env.YUKTA_VAR_NO=x}$${y}"})
    assert nodes["first"]["resolvedConfig"]["url"] == "http://example.org/x${y}"
    assert nodes["first"]["missingVariables"] == []


def test_no_secret_is_shown_and_a_missing_one_is_listed(run, monkeypatch):
    monkeypatch.setenv("YUKTA_SECRET_GIT", "hush-1")
    config = {
        "token": "decrypted:git",
        "url": "http://x/${decrypted:none}",
        "apiKey": "hush-2",
        "headers": {"Authorization": "Bearer hush-3", "Accept": "text/plain", "X-Token": "${id}"},
    }

    shown, nodes = run(config)

    assert "hush" not in repr(shown)
    assert nodes["first"]["resolvedConfig"] == {
        "token": "***",
        "url": "***",
        "apiKey": "***",
        "headers": {"Authorization": "***", "Accept": "text/plain", "X-Token": "${id}"},
    }
    assert nodes["first"]["missingVariables"] == ["${decrypted:none}"]


def test_options_are_resolved_at_any_depth(run, monkeypatch):
    monkeypatch.setenv("YUKTA_VAR_A", "x")

    _, nodes = run({"list": ["${env.YUKTA_VAR_A}", {"deep": ["${env.YUKTA_VAR_NONE}", 1]}]})

    assert nodes["first"]["resolvedConfig"]["list"] == [
        "x",
        {"deep": ["${env.YUKTA_VAR_NONE}", 1]},
    ]
    assert nodes["first"]["missingVariables"] == ["${env.YUKTA_VAR_NONE}"]


def test_the_password_of_an_address_is_not_shown(run):
    _, nodes = run({"url": "https://me:hush@host/${payload.x}"}, {"x": "a:b@c"})

    assert nodes["first"]["resolvedConfig"]["url"] == "https://me:***@host/a:b@c"
    assert nodes["second"]["resolvedConfig"]["url"] == "https://me:***@host/${payload.x}"


def test_a_start_payload_is_read_right_behind_its_trigger_and_nowhere_else(run):
    config = {"url": "${payload.u}", "n": "${payload.n:int}"}

    _, nodes = run(config, {"u": "http://a", "n": "3", "yukta.priority": 1})
    assert nodes["first"]["resolvedConfig"] == {"url": "http://a", "n": 3}
    assert nodes["second"]["resolvedConfig"] == config

    _, nodes = run(config, {"u": "http://a"})
    assert nodes["first"]["resolvedConfig"] == {"url": "http://a", "n": "${payload.n:int}"}
    _, nodes = run(config, {"u": "x", "n": 1, "l": []}, trigger={"splitPath": "l"})
    assert nodes["first"]["resolvedConfig"] == config
    _, nodes = run(config)
    assert nodes["first"]["resolvedConfig"] == config
