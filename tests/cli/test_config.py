"""`yukta config` and `yukta key`."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from yukta_rx.config.load import catalogue, load_settings
from yukta_rx.security.api_keys import KeyRing, hashed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.feature("SEC-02")
def test_every_setting_is_shown_with_its_value_and_no_secret(yukta: Any, tmp_path: Path) -> None:
    (tmp_path / "yukta.toml").write_text('[yukta]\napi-key = "a-very-secret-key"\n')

    ended = yukta("config", "show")

    lines = dict(line.split(" = ", 1) for line in ended.out.splitlines())
    assert lines.keys() == set(catalogue())
    assert lines["yukta.api-key"] == '"***"'
    assert lines["yukta.http.port"] == "8080"
    assert lines["yukta.postgres.url"] == "unset"
    assert "a-very-secret-key" not in ended.out + ended.err


@pytest.mark.feature("SEC-02")
def test_with_origin_it_is_said_where_each_value_comes_from(
    yukta: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text("[yukta.http]\nport = 9\n")
    monkeypatch.setenv("YUKTA_HTTP_HOST", "::1")

    ended = yukta("config", "show", "--origin", "--config", "mine.toml")

    assert "yukta.http.port = 9  # mine.toml" in ended.out
    assert 'yukta.http.host = "::1"  # YUKTA_HTTP_HOST' in ended.out
    assert 'yukta.http.session-lifetime = "12h"  # default' in ended.out


@pytest.mark.feature("SEC-02")
def test_as_json_each_setting_is_an_object(yukta: Any) -> None:
    shown = {item["name"]: item for item in yukta("config", "show", "--json").results}

    assert shown["yukta.http.port"] == {
        "name": "yukta.http.port",
        "value": 8080,
        "origin": "default",
        "default": 8080,
        "secret": False,
        "doc": catalogue()["yukta.http.port"].doc,
    }


@pytest.mark.feature("SEC-01")
def test_check_tells_good_settings_from_those_that_cannot_work(yukta: Any, tmp_path: Path) -> None:
    good = yukta("config", "check")
    (tmp_path / "yukta.toml").write_text('[yukta]\napi-keys = [{name = "a", key = "sha256:1"}]\n')
    wrong = yukta("config", "check")

    assert (good.code, good.out) == (0, "ok\n")
    assert wrong.code == 1
    assert "64 hex digits" in wrong.err


@pytest.mark.feature("SEC-01")
def test_check_warns_of_a_key_that_can_be_guessed(yukta: Any, tmp_path: Path) -> None:
    (tmp_path / "yukta.toml").write_text('[yukta]\napi-key = "short-one"\n')

    ended = yukta("config", "check", "--json")

    [found] = ended.results
    assert found["ok"]
    assert any("can be guessed" in warning for warning in found["warnings"])
    assert "short-one" not in ended.out + ended.err


@pytest.mark.feature("SEC-02")
def test_the_schema_is_one_and_takes_the_sample(yukta: Any) -> None:
    schema = json.loads(yukta("config", "schema").out)

    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["yukta"]["properties"]["http"]["properties"]["port"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 65535,
        "description": catalogue()["yukta.http.port"].doc,
        "default": 8080,
    }


# --- keys ----------------------------------------------------------------------------------------


@pytest.mark.feature("SEC-01")
def test_a_new_key_is_printed_once_with_its_hash_and_the_entry_works(
    yukta: Any, tmp_path: Path
) -> None:
    ended = yukta(
        *("key", "new", "--name", "ops", "--role", "operator"),
        *("--sessions", "a,b", "--sessions", "c", "--expires", "2099-01-01"),
    )
    key, digest = ended.out.splitlines()
    entry = ended.err[ended.err.index("[[yukta.api-keys]]") :]
    (tmp_path / "yukta.toml").write_text(entry)

    assert digest == hashed(key)
    assert key not in ended.err
    assert tomllib.loads(entry)["yukta"]["api-keys"][0]["key"] == digest
    grant = KeyRing(load_settings()).find(key, datetime(2030, 1, 1, tzinfo=UTC))
    assert (grant.name, str(grant.role)) == ("ops", "OPERATOR")
    assert grant.sessions == {"a", "b", "c"}
    assert grant.expires == datetime(2099, 1, 1, tzinfo=UTC)


@pytest.mark.feature("SEC-01")
def test_a_new_key_as_json_for_programs(yukta: Any) -> None:
    [made] = yukta("key", "new", "--json").results

    assert made["entry"] == {"name": "key", "key": hashed(made["key"]), "role": "VIEWER"}


@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize(
    "options",
    [
        ("--name", "a b"),
        ("--name", 'a"'),
        ("--sessions", "../x"),
        ("--expires", "soon"),
        ("--role", "king"),
    ],
)
def test_a_key_that_no_server_would_take_is_not_made(yukta: Any, options: tuple[str, ...]) -> None:
    ended = yukta("key", "new", *options)

    assert (ended.code, ended.out) == (2, "")


@pytest.mark.slow
@pytest.mark.feature("SEC-01")
def test_a_server_knows_the_key_that_was_made_and_tells_no_one(
    yukta: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [made] = yukta("key", "new", "--name", "ops", "--role", "viewer", "--json").results
    entry = "\n".join(f"{name} = {json.dumps(value)}" for name, value in made["entry"].items())
    (tmp_path / "yukta.toml").write_text(f"[[yukta.api-keys]]\n{entry}\n")
    server = serve()

    without = server.ask("ls")
    wrong = server.ask("ls", "--key", "another-key")
    right = server.ask("ls", "--key", made["key"])
    monkeypatch.setenv("YUKTA_KEY", made["key"])
    by_variable = server.ask("ls")
    too_much = server.ask("start", "s/flow")

    assert [ended.code for ended in (without, wrong, right, by_variable)] == [5, 5, 0, 0]
    assert too_much.code == 5
    assert "needs the role OPERATOR; key:ops has VIEWER" in too_much.err
    assert made["key"] not in "".join([*server.said, without.err, wrong.err, too_much.err])
