"""`yukta serve` on files: one server for a folder, what it says, and what is there after a kill."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("DUR-05", "HA-01")]

TICK = ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20})


@pytest.fixture(autouse=True)
def _files(monkeypatch) -> None:
    monkeypatch.setenv("YUKTA_PROFILE", "file")
    monkeypatch.setenv("YUKTA_DATA_DIR", "data")


@pytest.fixture
def flows(tmp_path, workflow) -> str:
    """A folder with a session `s` that has an endless workflow and a short one."""
    (tmp_path / "flows" / "s").mkdir(parents=True)
    workflow(TICK, ("show", "COLLECT_TERMINAL"), name="flows/s/flow.json")
    return "flows"


def get(server: Any, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(server.url + path, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_it_says_what_a_restart_keeps_and_the_server_says_the_same(serve, flows) -> None:
    server = serve("--apply", flows)

    _, matrix = get(server, "/api/durability")

    said = [line.removeprefix("yukta: ").rstrip("\n") for line in server.said]
    assert said[-len(matrix["summary"]) :] == matrix["summary"]
    assert matrix["summary"][0] == "a restart keeps:"
    assert [row["item"] for row in matrix["items"] if not row["survives"]] == ["live-view"]


def test_a_second_server_on_the_same_folder_is_refused_and_told_who_has_it(
    serve, yukta, flows
) -> None:
    first = serve("--apply", flows)

    refused = yukta("serve", "--port", "0", "--apply", flows)
    _, ready = get(first, "/health/ready")

    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1
    assert "yukta.session.dir: " in refused.err
    assert "/data/session: another server has this folder" in refused.err
    assert f"(pid {first.process.pid} on " in refused.err
    assert ready == {"status": "UP"}


def test_after_sigkill_the_next_server_starts_at_once_and_has_what_there_was(serve, flows) -> None:
    first = serve("--apply", flows)
    run = first.ask("start", "s/flow").out.strip()
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()

    second = serve()
    status, workflow = get(second, "/api/sessions/s/workflows/flow")
    _, history = get(second, f"/api/executions/{run}/history")

    assert (status, workflow["workflowId"]) == (200, "flow")
    assert [event["type"] for event in history["items"]][:1] == ["RUN_STARTED"]
    assert history["items"][-1]["type"] == "RUN_ABORTED"


def test_a_graceful_end_gives_the_folder_away(serve, flows) -> None:
    first = serve("--apply", flows)
    first.ask("start", "s/flow")
    code, _ = first.end(signal.SIGTERM)

    second = serve()

    assert code == 0
    assert get(second, "/health/ready") == (200, {"status": "UP"})


def test_a_store_whose_folder_is_gone_makes_the_server_not_ready_and_is_named(
    serve, flows, tmp_path
) -> None:
    server = serve("--apply", flows)
    (tmp_path / "data" / "kv").rename(tmp_path / "elsewhere")

    status, ready = get(server, "/health/ready")
    _, health = get(server, "/health")
    told = server.until("store kv cannot be used")

    assert (status, ready["code"], ready["stores"]) == (503, "store_unavailable", ["kv"])
    assert str(tmp_path) not in ready["detail"]
    assert "No such file" in health["components"]["store"]["down"]["kv"]
    assert health["components"]["disk"] == {"status": "DOWN", "used": True}
    assert str(tmp_path / "data" / "kv") in told


def test_a_file_where_the_folder_should_be_is_one_line(yukta, tmp_path) -> None:
    (tmp_path / "data").touch()

    ended = yukta("serve", "--port", "0")

    assert ended.code == 1
    assert ended.err.startswith(f"yukta: yukta.session.dir: {tmp_path / 'data' / 'session'}: ")
    assert len(ended.err.splitlines()) == 1
