"""The log of `yukta serve` as JSON: an object per line, with what it is about."""

from __future__ import annotations

import json
import logging
import signal
from typing import Any

import pytest

from yukta_rx.cli.console import Console, LogHandler
from yukta_rx.model.log_fields import log_fields

pytestmark = pytest.mark.feature("OBS-02")


@pytest.fixture
def logger() -> Any:
    console = Console()
    console.as_json = True
    made = logging.Logger("yukta_rx.somewhere")
    made.addHandler(LogHandler(console))
    return made


def test_a_record_is_one_object_with_the_ids_as_members(logger: Any, capsys: Any) -> None:
    logger.warning("run %s\nis late", "r1", extra=log_fields("r1", "n", request_id="q"))

    [line] = capsys.readouterr().err.splitlines()
    shown = json.loads(line)
    assert shown.pop("time").endswith("Z")
    assert shown == {
        "type": "log",
        "level": "WARNING",
        "logger": "yukta_rx.somewhere",
        "line": "run r1\nis late",
        "executionId": "r1",
        "nodeId": "n",
        "requestId": "q",
    }


def test_a_traceback_is_one_string_in_its_object(logger: Any, capsys: Any) -> None:
    try:
        raise ValueError("a\u2028b")
    except ValueError:
        logger.exception("it failed")

    [line] = capsys.readouterr().err.splitlines()
    shown = json.loads(line)
    assert shown["exception"].startswith("Traceback")
    assert "ValueError: a\u2028b" in shown["exception"]
    assert not {"executionId", "nodeId", "requestId"} & set(shown)


@pytest.mark.slow
def test_serve_writes_nothing_but_objects_if_the_setting_says_so(
    spawn: Any, rest: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("YUKTA_LOG_FORMAT", "json")
    # Makes a warning.
    monkeypatch.setenv("YUKTA_SOMETHING_ELSE_ENTIRELY", "1")

    process = spawn("serve", "--port", "0")
    first = json.loads(process.stderr.readline())
    second = json.loads(process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    _, err = rest(process)

    assert (first["type"], first["level"]) == ("log", "WARNING")
    assert second["type"] == "serving"
    assert all(json.loads(line) for line in err.splitlines())
