"""`yukta serve` as a process: what it says, how it ends, what it refuses; followers that resume."""

from __future__ import annotations

import json
import select
import signal
import socket

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("HA-01")]

TICK = ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20})


@pytest.fixture
def flows(tmp_path, workflow):
    """A folder with a session `s` that has one endless workflow."""
    (tmp_path / "flows" / "s").mkdir(parents=True)
    workflow(TICK, ("show", "CONSOLE_TERMINAL"), name="flows/s/flow.json")
    return "flows"


# --- start ---------------------------------------------------------------------------------------


def test_it_says_where_it_serves_and_what_a_restart_loses(serve, flows) -> None:
    said = "".join(serve("--apply", flows).said)

    assert said.startswith("yukta: session s: created flow\n")
    assert ", profile memory\n" in said
    assert "yukta: a restart loses:\n" in said
    for store in ("session", "execution-log", "restart", "kv", "session-memory"):
        assert f"(yukta.{store}.store-type = memory)" in said
    assert "(yukta.session.store-type = memory); the workflows in flows are applied again\n" in said


def test_with_json_it_says_so_in_one_object(spawn, flows, rest) -> None:
    process = spawn("serve", "--port", "0", "--json")

    shown = json.loads(process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    _, err = rest(process)

    assert shown["type"] == "serving"
    assert shown["url"].startswith("http://127.0.0.1:")
    assert shown["profile"] == "memory"
    assert shown["loses"][0] == {
        "item": "definitions",
        "what": "workflows with their versions",
        "store": "memory",
        "settings": ["yukta.session.store-type"],
        "because": "yukta.session.store-type = memory",
        "folder": None,
        "survives": [],
        "note": shown["loses"][0]["note"],
    }
    assert shown["keeps"] == []
    assert (process.returncode, err) == (0, "")


def test_settings_come_from_the_file_and_options_win(serve, tmp_path) -> None:
    (tmp_path / "own.toml").write_text('[yukta.http]\nhost = "127.0.0.9"\nport = 1\n')

    server = serve("--config", "own.toml")

    assert server.url.startswith("http://127.0.0.9:")
    assert server.port > 1


# --- end -----------------------------------------------------------------------------------------


def test_sigterm_ends_streams_and_runs_and_the_exit_code_is_0(serve, spawn, flows) -> None:
    server = serve("--apply", flows)
    run = server.ask("start", "s/flow").out.strip()
    follower = spawn("logs", run, "-f", env=server.environ)
    follower.stdout.readline()

    code, err = server.end(signal.SIGTERM)
    reconnecting = follower.stderr.readline()

    assert code == 0
    assert err == "yukta: shutting down; runs get 30s to finish\n"
    assert b"the server ended the stream: shutting down; connecting again" in reconnecting


def test_a_second_signal_cancels_runs_that_do_not_finish(serve, workflow, tmp_path) -> None:
    (tmp_path / "flows").mkdir()
    workflow(
        ("t", "SEQUENCE_TRIGGER", {"count": 1}),
        ("d", "DELAY", {"ms": 60_000}),
        ("e", "NULL_TERMINAL"),
        name="flows/flow.json",
    )
    server = serve("--apply", "flows")
    run = server.ask("start", "default/flow").out.strip()
    while "d     DELAY             RUNNING" not in server.ask("status", run).out:
        pass

    server.process.send_signal(signal.SIGTERM)
    server.until("shutting down")
    code, err = server.end(signal.SIGTERM)

    assert code == 0
    assert "yukta: cancelling the runs\n" in err


def test_runs_that_outlast_the_shutdown_timeout_are_cancelled(serve, flows, monkeypatch) -> None:
    monkeypatch.setenv("YUKTA_EXECUTION_SHUTDOWN_TIMEOUT", "50ms")
    server = serve("--apply", flows)
    server.ask("start", "s/flow")

    code, err = server.end()

    assert code == 0
    assert "runs get 50ms to finish" in err


# --- refusals ------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_one_line(yukta) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = yukta("serve", "--port", str(port))

    assert ended.code == 1
    assert ended.err == f"yukta: cannot listen on 127.0.0.1:{port}: address already in use\n"


def test_a_host_that_is_not_there_is_one_line(yukta) -> None:
    ended = yukta("serve", "--host", "no-such-host.invalid", "--port", "0")

    assert ended.code == 1
    assert ended.last.startswith("yukta: cannot listen on no-such-host.invalid:0: ")


@pytest.mark.parametrize(
    ("folder", "words"),
    [("none", "none: no such folder"), ("file", "file: not a folder"), (".", "no workflow file")],
)
def test_a_folder_that_is_not_there_or_empty_is_refused(yukta, tmp_path, folder, words) -> None:
    (tmp_path / "file").touch()

    ended = yukta("serve", "--apply", folder)

    assert ended.code == 2
    assert ended.err.startswith(f"yukta: {words}")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.feature("DEF-02")
def test_definitions_that_are_not_valid_are_refused_with_file_and_line(
    yukta, workflow, tmp_path
) -> None:
    (tmp_path / "flows" / "s").mkdir(parents=True)
    good = (("t", "SEQUENCE_TRIGGER", {"count": 1}), ("e", "NULL_TERMINAL"))
    workflow(("t", "SEQUENCE_TRIGGER", {"count": -1}), ("e", "NUL"), name="flows/s/a.json")
    workflow(*good, name="flows/s/b.json")
    workflow(*good, name="flows/s/c.json")
    workflow(*good, name="flows/d.json")
    (tmp_path / "flows" / "s" / "payload.json").write_text("{}")
    (tmp_path / "flows" / ".git").mkdir()
    (tmp_path / "flows" / ".git" / "x.json").write_text("{")

    ended = yukta("serve", "--apply", "flows")

    lines = ended.err.splitlines()
    assert ended.code == 3
    assert len(lines) == 3
    assert "flows/s/a.json:8: node `t`, option `count`" in ended.err
    assert "flows/s/c.json:2: /workflowId: workflow flow is also in flows/s/b.json" in ended.err


@pytest.mark.feature("DEF-02")
def test_a_folder_whose_name_cannot_be_a_session_is_refused(yukta, workflow, tmp_path) -> None:
    (tmp_path / "flows" / "a b").mkdir(parents=True)
    workflow(TICK, ("e", "NULL_TERMINAL"), name="flows/a b/flow.json")

    ended = yukta("serve", "--apply", "flows")

    assert ended.code == 3
    assert "the name of a session folder 'a b' is not an id" in ended.err


@pytest.mark.feature("SEC-03")
def test_a_served_workflow_reads_files_only_where_the_settings_allow(
    yukta, serve, workflow, tmp_path, monkeypatch
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.jsonl").write_text("1\n")
    workflow(
        ("t", "FILE_TRIGGER", {"path": "in.jsonl"}),
        ("out", "COLLECT_TERMINAL"),
        name="flows/flow.json",
    )

    refused = yukta("serve", "--apply", "flows")
    monkeypatch.setenv("YUKTA_DATA_DIR", "data")
    monkeypatch.setenv("YUKTA_FILES_ALLOWED_DIRS", "data")
    server = serve("--apply", "flows")
    run = server.ask("start", "default/flow", "--wait").out.strip()

    assert refused.code == 3
    assert "yukta.files.allowed-dirs" in refused.err
    assert [line["payload"] for line in server.ask("result", run).results] == [1]


def test_a_database_that_does_not_answer_is_told_with_its_setting(yukta, monkeypatch) -> None:
    monkeypatch.setenv("YUKTA_PROFILE", "postgres")
    without = yukta("serve", "--port", "0")
    monkeypatch.setenv("YUKTA_POSTGRES_URL", "postgresql://yukta:s3cr3t@127.0.0.1:1/yukta")
    ended = yukta("serve", "--port", "0")

    assert (without.code, ended.code) == (1, 1)
    assert "needs yukta.postgres.url" in without.err
    assert "yukta.postgres.url: the database gives no answer: " in ended.err
    assert "s3cr3t" not in ended.err


# --- following over a restart --------------------------------------------------------------------


@pytest.mark.feature("OBS-01")
def test_followers_survive_a_restart_and_say_what_is_lost(serve, spawn, flows, rest) -> None:
    first = serve("--apply", flows)
    run = first.ask("start", "s/flow").out.strip()
    results = spawn("result", run, "-f", env=first.environ)
    results.stdout.readline()
    kind = ("--type", "control.applied")
    events = spawn("events", "-f", "--json", *kind, env=first.environ)
    first.ask("pause", run)
    while not select.select([events.stdout], [], [], 0.05)[0]:  # until it is there
        first.ask("pause", run)
    before = events.stdout.readline()

    first.process.kill()
    lost = json.loads(events.stderr.readline())
    second = serve("--apply", flows, port=first.port)
    reset = json.loads(events.stderr.readline())
    later = second.ask("start", "s/flow").out.strip()
    second.ask("pause", later)
    line = events.stdout.readline()
    while json.loads(line)["executionId"] == run:
        line = events.stdout.readline()
    _, err = rest(results)

    assert json.loads(before)["executionId"] == run
    assert lost["type"] == "client.reconnecting"
    assert (reset["type"], reset["reason"]) == ("stream.reset", "epoch")
    assert json.loads(line)["executionId"] == later
    assert results.returncode == 4
    assert err.splitlines()[-1] == f"yukta: there is no run {run}"
