"""Commands that talk to a real server: what they write, and their exit codes."""

from __future__ import annotations

import json
import os
import pty
import select
import signal

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("OBS-01")]


@pytest.fixture
def ticking(ask):
    """The id of an endless run, which is stopped at the end."""
    run = ask("start", "s/tick").out.strip()

    yield run

    ask("stop", run, "--mode", "KILL")


# --- start ---------------------------------------------------------------------------------------


def test_start_writes_the_id_and_nothing_else_to_stdout(server) -> None:
    ended = server.run("start", "s/echo", "--payload", '{"a": 1}', "--set", "b.c=2")

    assert (ended.code, ended.err) == (0, "")
    assert server.run("wait", ended.out.strip()).code == 0
    results = server.run("result", ended.out.strip()).results
    assert [line["payload"] for line in results] == [{"a": 1, "b": {"c": 2}}]
    assert set(results[0]) == {"nodeId", "messageId", "payload"}


def test_start_with_wait_ends_as_the_run_does(ask) -> None:
    good, bad = ask("start", "s/echo", "--wait"), ask("start", "s/split", "--wait")

    assert (good.code, good.last) == (0, "SUCCESS s/echo")
    assert bad.code == 1
    assert "FAILURE s/split\n" in bad.err
    assert "yukta: the run ended FAILURE: node `s`: no `items` in the payload" in bad.last
    assert len(bad.out.splitlines()) == 1


def test_start_with_json_gives_the_answer_and_with_wait_the_run(ask) -> None:
    started, detail = ask(
        *("start", "s/echo", "--wait", "--json", "--priority", "5"),
        *("--label", "team=billing", "--label", "empty="),
    ).results

    assert started["links"]["self"] == f"/api/executions/{started['executionId']}"
    assert detail["status"] == "SUCCESS"
    assert detail["labels"] == {"team": "billing", "empty": ""}
    assert detail["executionId"] == started["executionId"]


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize("key", ["k-1", '"quoted"', "back\\slash"])
def test_a_repeated_idempotency_key_gives_the_first_run_back(ask, key) -> None:
    first = ask("start", "s/echo", "--idempotency-key", key)
    second = ask("start", "s/echo", "--idempotency-key", key)
    other = ask("start", "s/echo", "--idempotency-key", key, "--set", "a=1")

    assert second.out == first.out
    assert "has started that run before" in second.err
    assert other.code == 1
    assert "yukta: " in other.err


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["start", "s"], 2, "s: write SESSION/WORKFLOW"),
        (["start", "s/a/b"], 2, "WORKFLOW 'a/b' is not an id"),
        (["start", "s/echo", "--payload", "[1]"], 2, "the payload of a start is an object"),
        (["start", "s/echo", "--label", "x"], 2, "--label x: write NAME=TEXT"),
        (["start", "s/echo", "--idempotency-key", "a b"], 2, "visible ASCII characters"),
        (["start", "s/none"], 4, "session s has no workflow none"),
        (["start", "none/echo"], 4, "there is no session none"),
        (["status", "../x"], 2, "ID '../x' is not an id"),
        (["status", "none"], 4, "there is no run none"),
        (["wait", "none"], 4, "there is no run none"),
        (["result", "none", "-f"], 4, "there is no run none"),
        (["logs", "none", "-f"], 4, "there is no run none"),
        (["pause", "none"], 4, "there is no run none"),
        (["events", "--type", "no.such"], 1, "no.such"),
        (["ls", "--status", "DONE"], 2, "'DONE' is not one of"),
    ],
)
def test_a_refusal_is_one_line_and_its_exit_code(ask, args, code, words) -> None:
    ended = ask(*args)

    assert (ended.code, ended.out) == (code, "")
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("yukta: ")
    assert words in ended.err


def test_with_json_a_refusal_is_the_problem_of_the_server(ask) -> None:
    problem = json.loads(ask("status", "none", "--json").err)

    assert problem["code"] == "execution_not_found"
    assert problem["status"] == 404
    assert problem["executionId"] == "none"
    assert problem["instance"]


def test_without_a_server_the_exit_code_is_8(yukta) -> None:
    ended = yukta("ls", "--url", "http://127.0.0.1:9")

    assert ended.code == 8
    assert ended.err == (
        "yukta: http://127.0.0.1:9: connection refused; is `yukta serve` running there?\n"
    )


# --- ls, status, wait ----------------------------------------------------------------------------


def test_ls_lists_the_newest_first(server, ask) -> None:
    runs = [ask("start", "s/echo", "--wait").out.strip() for _ in range(3)]

    ended = server.run("ls", "-n", "2", "--status", "success")

    assert ended.code == 0
    header, *lines = ended.out.splitlines()
    assert header.split() == ["EXECUTION", "WORKFLOW", "STATUS", "STARTED", "TOOK"]
    assert [line.split()[:3] for line in lines] == [
        [run, "s/echo", "SUCCESS"] for run in reversed(runs[1:])
    ]


def test_ls_with_json_gives_a_line_per_run_over_several_pages(ask, monkeypatch) -> None:
    monkeypatch.setattr("yukta_rx.cli.reading.PAGE", 2)
    runs = [ask("start", "s/echo", "--wait").out.strip() for _ in range(5)]

    results = ask("ls", "-n", "5", "--json").results

    assert [run["executionId"] for run in results] == runs[::-1]


def test_status_shows_the_run_and_its_nodes(server, ticking) -> None:
    ended = server.run("status", ticking)

    assert ended.code == 0
    assert f"run       {ticking}" in ended.out
    assert "workflow  s/tick" in ended.out
    assert "status    RUNNING" in ended.out
    assert any(
        line.split()[:3] == ["show", "CONSOLE_TERMINAL", "RUNNING"]
        for line in ended.out.splitlines()
    )


def test_status_names_the_error_of_a_run_that_failed_and_succeeds_itself(ask) -> None:
    run = ask("start", "s/split", "--wait").out.strip()

    ended = ask("status", run)

    assert ended.code == 0
    assert "error     node `s`: no `items` in the payload" in ended.out


def test_status_with_json_is_the_detail_with_nodes_and_edges(ask, ticking) -> None:
    (detail,) = ask("status", ticking, "--json").results

    assert {node["nodeId"] for node in detail["nodes"]} == {"t", "show"}
    assert detail["edges"][0]["source"] == "t"
    assert detail["waitingOn"] == []


def test_status_with_watch_writes_each_change_and_ends_with_the_run(
    talk, ask, ticking, rest
) -> None:
    process = talk("status", ticking, "--watch")

    def next_of_the_run() -> list[str]:
        lines = [process.stdout.readline().decode().strip()]
        while "s/tick" not in lines[-1]:
            lines.append(process.stdout.readline().decode().strip())
        return lines

    first = next_of_the_run()
    ask("pause", ticking)
    paused = next_of_the_run()
    ask("resume", ticking)
    ask("stop", ticking, "--mode", "CANCEL")
    out, err = rest(process)

    assert set(first) <= {"t: RUNNING", "show: RUNNING", "RUNNING s/tick"}
    assert first[-1] == "RUNNING s/tick"
    assert paused[-1] == "RUNNING, paused s/tick"
    assert out.splitlines()[-1] == "CANCELLED s/tick"
    assert process.returncode == 1
    assert "Traceback" not in err


def test_status_with_watch_and_json_gives_snapshots_that_never_go_back(
    talk, ask, ticking, rest
) -> None:
    process = talk("status", ticking, "--watch", "--json")
    first = process.stdout.readline()
    ask("stop", ticking, "--mode", "CANCEL")
    out, _ = rest(process)

    snapshots = [json.loads(line) for line in (first, *out.splitlines())]
    versions = [snapshot["version"] for snapshot in snapshots]
    assert process.returncode == 1
    assert versions == sorted(set(versions))
    assert snapshots[-1]["execution"]["status"] == "CANCELLED"


def test_status_with_watch_of_a_run_that_has_ended_shows_its_last_snapshot(ask) -> None:
    run = ask("start", "s/echo", "--wait").out.strip()

    ended = ask("status", run, "--watch")

    assert ended.code == 0
    assert ended.out.splitlines() == [
        "in: SUCCESS (in 0, out 1)",
        "out: SUCCESS (in 1, out 0)",
        "SUCCESS s/echo",
    ]


def test_status_with_watch_on_a_terminal_is_a_live_table(server, talk, ask) -> None:
    run = ask("start", "s/echo", "--wait").out.strip()
    leader, follower = pty.openpty()
    process = talk(
        *("status", run, "--watch"),
        stdout=follower,
        env=server.environ | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            shown += os.read(leader, 65536)
        except OSError:
            break
    os.close(leader)
    process.communicate(timeout=30)

    assert process.returncode == 0
    assert b"API_TRIGGER" in shown
    assert b"\x1b[" in shown
    assert b"SUCCESS" in shown


def test_wait_gives_the_status_and_the_exit_code_of_the_end(server, ask) -> None:
    good = ask("start", "s/echo").out.strip()
    bad = ask("start", "s/split").out.strip()

    ended, failed = server.run("wait", good), ask("wait", bad)

    assert (ended.code, ended.out) == (0, "SUCCESS\n")
    assert (failed.code, failed.out) == (1, "FAILURE\n")
    assert "node `s`" in failed.err


def test_wait_ends_with_124_when_the_time_is_over(ask, ticking) -> None:
    ended = ask("wait", ticking, "--timeout", "100ms")
    problem = json.loads(ask("wait", ticking, "--timeout", "1ms", "--json").err)

    assert (ended.code, ended.out) == (124, "")
    assert ended.err == f"yukta: run {ticking} has not ended within 100ms\n"
    assert problem["code"] == "timeout"


# --- result, logs, events ------------------------------------------------------------------------


@pytest.mark.feature("OBS-03")
def test_result_with_follow_ends_with_the_run(talk, ask, ticking, rest) -> None:
    process = talk("result", ticking, "-f")
    first = json.loads(process.stdout.readline())

    ask("stop", ticking)
    out, _ = rest(process)

    numbers = [json.loads(line)["payload"]["n"] for line in out.splitlines()]
    assert first["payload"] == {"n": 0}
    assert numbers == list(range(1, len(numbers) + 1))
    assert process.returncode == 0


@pytest.mark.feature("OBS-03")
def test_result_with_json_gives_the_items_with_their_ends(ask) -> None:
    run = ask("start", "s/echo", "--wait").out.strip()

    read, followed = ask("result", run, "--json"), ask("result", run, "--json", "-f")

    assert [item["type"] for item in read.results] == ["RESULT", "NODE_END", "EXECUTION_END"]
    assert read.results == followed.results
    assert read.err == followed.err == ""


@pytest.mark.feature("OBS-03")
def test_numbers_beyond_64_bit_come_back_with_their_digits(ask) -> None:
    payload = '{"n": 123456789012345678901234567890, "x": 1.5}'
    run = ask("start", "s/echo", "--payload", payload, "--wait").out.strip()

    for args in (["result", run], ["result", run, "-f"]):
        assert ask(*args).results[0]["payload"] == json.loads(payload)


@pytest.mark.feature("OBS-02")
def test_logs_are_lines_behind_the_name_of_the_node(server, ask) -> None:
    run = ask("start", "s/split", "--payload", '{"items": [1, 2]}', "--wait").out.strip()

    ended = server.run("logs", run)

    assert (ended.code, ended.out, ended.err) == (0, "out | item 1\nout | item 2\n", "")
    assert ask("logs", run, "-f").out == ended.out
    assert ask("logs", run, "--node", "s").out == ""
    lines = ask("logs", run, "--json").results
    assert [(line["nodeId"], line["line"]) for line in lines] == [
        ("out", "item 1"),
        ("out", "item 2"),
    ]
    assert ask("logs", run, "--json", "-f").results == lines


@pytest.mark.feature("OBS-02")
def test_logs_with_follow_end_with_the_run(talk, ask, ticking, rest) -> None:
    process = talk("logs", ticking, "-f", "--node", "show")
    first = process.stdout.readline()

    ask("stop", ticking)
    out, err = rest(process)

    lines = [first.decode().strip(), *out.splitlines()]
    assert lines == [f'show | {{"n":{n}}}' for n in range(len(lines))]
    assert (process.returncode, err) == (0, "")


def test_events_are_filtered_by_type_and_run(server, ask) -> None:
    run = ask("start", "s/echo", "--wait").out.strip()

    lines = server.run("events", "--type", "execution.*", "--execution", run).out.splitlines()
    shown = ask("events", "--execution", run, "--json").results

    assert [line.split()[1] for line in lines] == [
        *("execution.started", "execution.status"),
        *("execution.status", "execution.finished"),
    ]
    assert lines[-1].endswith(f"execution.finished s/echo {run}: SUCCESS")
    numbers = [int(event["id"].partition(":")[2]) for event in shown]
    assert numbers == sorted(set(numbers))
    assert {event["executionId"] for event in shown} == {run}


def test_events_with_follow_show_what_comes_until_ctrl_c(talk, ask, rest) -> None:
    process = talk("events", "-f", "--type", "execution.finished", "--json")
    run = ask("start", "s/echo", "--wait").out.strip()
    while not select.select([process.stdout], [], [], 0.05)[0]:  # until it is there
        run = ask("start", "s/echo", "--wait").out.strip()
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = rest(process)

    event = json.loads(line)
    assert event["type"] == "execution.finished"
    assert event["executionId"] <= run
    assert process.returncode == 130
    assert err.strip() == ""


def test_a_reader_that_leaves_ends_a_follower_quietly(talk, ticking) -> None:
    process = talk("logs", ticking, "-f")
    process.stdout.readline()

    process.stdout.close()
    err = process.stderr.read()
    code = process.wait(timeout=30)

    assert (code, err) == (141, b"")


# --- steering ------------------------------------------------------------------------------------


@pytest.mark.feature("CTL-02")
def test_pause_step_and_resume_take_a_run_or_one_of_its_nodes(server, ask, ticking) -> None:
    assert server.run("pause", ticking).out == (
        "APPLIED PauseWorkflow: the run is RUNNING, paused\n"
    )
    assert ask("pause", ticking).out.startswith("NO_OP PauseWorkflow")
    assert server.run("step", ticking, "-n", "2").out.startswith("APPLIED StepWorkflow")
    assert server.run("resume", ticking).out == "APPLIED ResumeWorkflow: the run is RUNNING\n"
    assert ask("pause", ticking, "show").out.startswith("APPLIED PauseNode of node `show`")
    assert ask("step", ticking, "show").out.startswith("APPLIED StepNode of node `show`")
    assert ask("resume", ticking, "show").out.startswith("APPLIED ResumeNode of node `show`")


@pytest.mark.feature("CTL-03")
def test_stop_takes_a_mode_and_a_reason_that_the_audit_shows(server, ask, ticking) -> None:
    ended = server.run("stop", ticking, "--mode", "cancel", "--reason", "a b & c", "--json")

    (result,) = ended.results
    assert result["command"] == "StopWorkflow"
    assert result["outcome"] == "APPLIED"
    assert ask("wait", ticking).out == "CANCELLED\n"
    applied = ask("events", "--execution", ticking, "--type", "control.applied", "--json").results
    assert applied[0]["data"]["reason"] == "a b & c"
    assert applied[0]["data"]["via"] == "CLI"


@pytest.mark.feature("CTL-01")
def test_a_run_that_has_ended_takes_no_command(ask) -> None:
    run = ask("start", "s/echo", "--wait").out.strip()

    ended = ask("pause", run)

    assert ended.code == 6
    assert ended.err == f"yukta: run {run} has ended SUCCESS\n"


def test_a_node_that_is_not_there_is_not_found(ask, ticking) -> None:
    ended = ask("pause", ticking, "none")

    assert ended.code == 4
    assert "none" in ended.err


@pytest.mark.feature("CTL-02")
def test_break_holds_a_node_and_says_what_it_did_not_understand(server, ask, ticking) -> None:
    assert server.run("break", ticking, "show", "payload.n=-1").out == (
        "APPLIED SetBreakpoint of node `show`: the run is RUNNING\n"
    )
    assert ask("break", ticking, "show", "payload.n=-1").out.startswith("NO_OP SetBreakpoint")
    assert ask("break", ticking, "show", "--clear", "--reason", "seen").out.startswith("APPLIED")
    assert ask("break", ticking, "show").out.startswith("APPLIED SetBreakpoint")

    audit = json.loads(ask("status", ticking, "--json").out)["breakpoints"]
    assert [(point["nodeId"], point.get("expression")) for point in audit] == [("show", None)]
    for args, code, words in (
        (("show", "payload.n"), 2, "`payload.n` is not PART=TEXT"),
        (("show", "payload.n=1", "--clear"), 2, "--clear takes no PART=TEXT"),
        (("show", "env.HOME=1"), 3, "must be payload, payload.path, metadata.key or id"),
        (("t",), 6, "which takes no messages"),
    ):
        refused = ask("break", ticking, *args)
        assert (refused.code, refused.out) == (code, "")
        assert words in refused.err


@pytest.mark.feature("CTL-02")
def test_break_compares_by_type_pattern_or_condition(ask, ticking) -> None:
    for args in (
        ["payload.n!=-1"],
        ["payload.n>1000000"],
        ["payload.n < -5"],
        ["payload.text~^a"],
        ["payload.n in -1,-2"],
        ["payload.n in [-1, -2]"],
        ["payload.none?"],
        ["--when", "payload.n < 0"],
    ):
        # The node is held by the first of them, which does not matter here.
        assert ask("break", ticking, "show", *args).out.startswith("APPLIED SetBreakpoint"), args

    shown = json.loads(ask("status", ticking, "--json").out)["breakpoints"]
    assert [
        (point.get("expression"), point.get("op"), point.get("value"), point.get("when"))
        for point in shown
    ] == [
        ("payload.n", "!=", "-1", None),
        ("payload.n", ">", 1_000_000, None),
        ("payload.n", "<", -5, None),
        ("payload.text", "matches", "^a", None),
        ("payload.n", "in", ["-1", "-2"], None),
        ("payload.n", "in", [-1, -2], None),
        ("payload.none", "exists", True, None),
        (None, None, None, "payload.n < 0"),
    ]
    refused = ask("break", ticking, "show", "--when", "payload.n <")
    assert (refused.code, refused.out) == (3, "")
    assert "/when" in refused.err


@pytest.mark.feature("CTL-02")
def test_held_shows_edits_drops_and_lets_go(server, ask, ticking) -> None:
    nothing = ask("held", ticking, "show")
    assert (nothing.code, nothing.out) == (4, "")
    assert "holds no message" in nothing.err
    assert ask("held", ticking, "show", "release").code == 6
    ask("break", ticking, "show", "--when", "payload.n >= 0")
    while (shown := ask("held", ticking, "show", "--json")).code:
        pass

    message = json.loads(shown.out)
    assert message["payload"]["n"] >= 0
    edited = server.run("held", ticking, "show", "edit", "--payload", '{"n": -7}')
    assert edited.out.startswith("APPLIED EditHeld of node `show`")
    text = ask("held", ticking, "show").out.splitlines()
    assert text[0] == f"message     {message['id']}"
    assert text[-1] == 'payload     {"n":-7}'
    assert ask("held", ticking, "show", "drop", "--reason", "bad").out.startswith(
        "APPLIED DropHeld"
    )
    while ask("held", ticking, "show").code:
        pass
    assert ask("held", ticking, "show", "release").out.startswith("APPLIED ReleaseHeld")
    for args in (("edit",), ("release", "--payload", "1")):
        refused = ask("held", ticking, "show", *args)
        assert (refused.code, refused.out) == (2, "")
        assert "edit takes --payload, and nothing else does" in refused.err


@pytest.mark.feature("CTL-02")
def test_skip_and_unskip_are_for_processors(ask, ticking) -> None:
    for verb in ("skip", "unskip"):
        refused = ask(verb, ticking, "show")
        assert (refused.code, refused.out) == (6, "")
        assert "only a processor can be skipped" in refused.err
