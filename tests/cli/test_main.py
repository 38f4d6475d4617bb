"""The command itself: help, unknown words, errors as lines."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from yukta_rx.cli.console import Console
from yukta_rx.cli.main import COMMANDS
from yukta_rx.errors import BadInputError


def test_help_names_every_command_and_the_short_form_works(yukta) -> None:
    ended = yukta("-h")

    assert ended.code == 0
    assert all(f"\n  {name} " in ended.out for name in COMMANDS)
    assert ended.err == ""


def test_no_command_shows_the_help_and_counts_as_wrong_use(yukta) -> None:
    ended = yukta()

    assert ended.code == 2
    assert "Commands:" in ended.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["rnu"], "no command `rnu`; there is run, validate, serve, dev, start, ls, status,"),
        (["run"], "Missing argument 'FILE'. (see yukta run --help)"),
        (["run", "--paylod", "{}", "f"], "No such option '--paylod'"),
        (["version", "extra"], "unexpected extra argument"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(yukta, args, words) -> None:
    ended = yukta(*args)

    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("yukta: ")
    assert words in ended.err


def test_with_json_a_refusal_is_a_problem_object(yukta) -> None:
    ended = yukta("plugins", "show", "TRANSFROM", "--json")

    problem = json.loads(ended.err)
    assert ended.code == 1
    assert problem["type"] == "urn:yukta:problem:plugin_not_found"
    assert problem["code"] == "plugin_not_found"
    assert problem["pluginType"] == "TRANSFROM"
    assert "did you mean TRANSFORM" in problem["detail"]


def test_a_wrong_option_is_a_problem_object_too(yukta) -> None:
    assert json.loads(yukta("run", "--json").err)["code"] == "invalid_parameter"


def test_an_unexpected_error_is_one_line_and_debug_shows_the_rest(
    yukta, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("of all\nthings")

    monkeypatch.setattr("platform.python_version", broken)

    quiet = yukta("version")
    loud = yukta("version", "--debug")

    assert quiet.code == loud.code == 1
    assert quiet.err == (
        "yukta: unexpected error: ZeroDivisionError: of all; --debug or YUKTA_DEBUG=1 shows where\n"
    )
    assert "Traceback" in loud.err


def test_the_variable_for_debug_is_no_unknown_setting(
    yukta, workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YUKTA_DEBUG", "1")

    ended = yukta(
        "validate", workflow(("t", "SEQUENCE_TRIGGER", {"count": 1}), ("e", "NULL_TERMINAL"))
    )

    assert (ended.code, ended.err) == (0, "")


def test_refused_settings_are_one_line_each(yukta, tmp_path, workflow) -> None:
    (tmp_path / "bad.toml").write_text("[yukta.execution]\nprefetch = 0\nprefech = 1\n")

    ended = yukta(
        "run", "--config", "bad.toml", workflow(("t", "API_TRIGGER"), ("e", "NULL_TERMINAL"))
    )

    assert ended.code == 1
    lines = ended.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("yukta: bad.toml") for line in lines)
    assert "did you mean yukta.execution.prefetch?" in ended.err


def test_control_characters_are_shown_and_not_sent_to_the_terminal(capsys) -> None:
    Console().say("a\x1b[2Jb\rc\x00")

    assert capsys.readouterr().err == "a\\x1b[2Jb\\x0dc\\x00\n"


@pytest.mark.parametrize(
    ("environ", "choice", "colored"),
    [
        ({}, "auto", False),
        ({}, "always", True),
        ({"FORCE_COLOR": "1"}, "auto", True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", False),
        ({"FORCE_COLOR": "1"}, "never", False),
        ({"NO_COLOR": "1"}, "always", True),
    ],
)
def test_colours_follow_the_option_then_the_environment_then_the_terminal(
    capsys, monkeypatch, environ, choice, colored
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    console = Console()
    console.color = choice

    console.refuse(BadInputError("no"))

    assert ("\x1b[31m" in capsys.readouterr().err) is colored


@pytest.mark.slow
@pytest.mark.parametrize("args", [["--help"], ["version"], ["validate", "flow.json"]])
def test_what_is_not_needed_is_not_imported(args, workflow, tmp_path) -> None:
    workflow(("t", "API_TRIGGER"), ("e", "NULL_TERMINAL"))
    code = (
        "import sys; from yukta_rx.cli.main import execute; execute(sys.argv[1:]);"
        "print(sorted({m.split('.')[0] for m in sys.modules}"
        " & {'sqlalchemy', 'alembic', 'aiohttp', 'mcp', 'rich', 'reactivex', 'prometheus_client'}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"
