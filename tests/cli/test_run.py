"""`yukta run`: results, progress, ends and exit codes."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.feature("OBS-03")

TICK = ("t", "SEQUENCE_TRIGGER", {"count": 3})


# --- what it writes ------------------------------------------------------------------------------


def test_results_are_json_lines_on_stdout_in_order(yukta, workflow) -> None:
    ended = yukta("run", workflow(TICK, ("out", "COLLECT_TERMINAL")))

    assert ended.code == 0
    assert [line["payload"] for line in ended.results] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert all(set(line) == {"nodeId", "messageId", "payload"} for line in ended.results)
    assert all(line["nodeId"] == "out" for line in ended.results)
    assert len({line["messageId"] for line in ended.results}) == 3


def test_each_change_of_status_is_a_line_on_stderr_and_the_last_is_the_summary(
    yukta, workflow
) -> None:
    ended = yukta("run", workflow(TICK, ("out", "NULL_TERMINAL")))

    lines = ended.err.splitlines()
    assert lines[0].startswith("run ")
    assert "t: RUNNING" in lines
    assert "t: SUCCESS (in 0, out 3)" in lines
    assert "out: SUCCESS (in 3, out 0)" in lines
    assert ended.last.startswith("SUCCESS flow: 2 nodes (2 SUCCESS), 3 messages in, 3 out, ")
    assert ended.last.endswith(" s")
    assert ended.out == ""


@pytest.mark.feature("OBS-02")
def test_lines_of_a_node_are_shown_behind_its_name(yukta, workflow) -> None:
    ended = yukta("run", workflow(TICK, ("show", "CONSOLE_TERMINAL", {"prefix": "got "})))

    shown = [line for line in ended.err.splitlines() if " | " in line]
    assert shown == [f'show | got {{"n":{n}}}' for n in range(3)]
    assert len(ended.results) == 3


def test_with_json_stderr_is_the_feed_of_events(yukta, workflow) -> None:
    ended = yukta("run", "--json", workflow(TICK, ("show", "CONSOLE_TERMINAL")))

    events = [json.loads(line) for line in ended.err.splitlines()]
    assert events[0]["type"] == "execution.started"
    assert events[-1]["type"] == "execution.finished"
    assert events[-1]["data"]["status"] == "SUCCESS"
    assert sum(event["type"] == "node.log" for event in events) == 3
    assert len(ended.results) == 3


def test_numbers_beyond_64_bit_keep_their_digits(yukta, workflow) -> None:
    path = workflow(("in", "API_TRIGGER"), ("out", "COLLECT_TERMINAL"))

    ended = yukta("run", path, "--payload", '{"n": 123456789012345678901234567890}')

    assert ended.results[0]["payload"] == {"n": 123456789012345678901234567890}


# --- what it takes -------------------------------------------------------------------------------


@pytest.fixture
def echo(workflow) -> str:
    return workflow(("in", "API_TRIGGER"), ("out", "COLLECT_TERMINAL"))


def test_without_a_payload_the_run_starts_with_an_empty_object(yukta, echo) -> None:
    assert yukta("run", echo).results[0]["payload"] == {}


def test_the_payload_may_be_json_or_a_file(yukta, echo, tmp_path) -> None:
    (tmp_path / "p.json").write_text('{"from": "file"}')

    assert yukta("run", echo, "--payload", "[1, null]").results[0]["payload"] == [1, None]
    assert yukta("run", echo, "--payload", "@p.json").results[0]["payload"] == {"from": "file"}


@pytest.mark.slow
def test_the_payload_may_come_from_stdin(spawn, echo) -> None:
    process = spawn("run", echo, "--payload", "@-")

    out, _ = process.communicate(b'{"from": "stdin"}')

    assert json.loads(out)["payload"] == {"from": "stdin"}


def test_set_adds_members_as_json_or_else_as_text(yukta, echo) -> None:
    ended = yukta(
        *("run", echo, "--payload", '{"a": {"b": 1, "c": 2}}'),
        *("--set", "a.b=[3]", "--set", "x.y=some text", "--set", "z=a=b", "--set", 'q="7"'),
    )

    assert ended.results[0]["payload"] == {
        "a": {"b": [3], "c": 2},
        "x": {"y": "some text"},
        "z": "a=b",
        "q": "7",
    }


def test_members_of_the_engine_do_not_reach_the_workflow(yukta, echo) -> None:
    payload = '{"yukta.priority": 5, "mine": 1}'

    assert yukta("run", echo, "--payload", payload).results[0]["payload"] == {"mine": 1}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--payload", "{nope"], "--payload: not JSON"),
        (["--payload", '{"a": NaN}'], "/a"),
        (["--payload", "@none.json"], "none.json: no such file"),
        (["--set", "x"], "--set x: write NAME=VALUE"),
        (["--set", "=1"], "write NAME=VALUE"),
        (["--set", "a..b=1"], "write NAME=VALUE"),
        (["--payload", "[]", "--set", "a=1"], "the payload is not an object"),
        (["--payload", '{"a": 1}', "--set", "a.b=1"], "`a` in the payload is not an object"),
        (["--timeout", "5"], "--timeout 5: expected a duration"),
        (["--timeout", "soon"], "--timeout soon: expected a duration"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it_and_nothing_runs(
    yukta, echo, args, words
) -> None:
    ended = yukta("run", echo, *args)

    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("yukta: ")
    assert words in ended.err
    assert ended.out == ""


def test_a_workflow_that_is_not_valid_is_refused_with_all_its_lines(yukta, workflow) -> None:
    path = workflow(("t", "SEQUENCE_TRIGGER", {"count": -1}), ("e", "NUL_TERMINAL"))

    ended = yukta("run", path)

    assert ended.code == 3
    lines = ended.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"yukta: {path}:") for line in lines)
    assert ended.out == ""


def test_with_json_the_refusal_lists_the_faults(yukta, workflow) -> None:
    ended = yukta("run", "--json", workflow(("t", "SEQUENCE_TRIGGER"), ("e", "NULL_TERMINAL")))

    problem = json.loads(ended.err)
    assert ended.code == 3
    assert problem["code"] == "validation"
    assert problem["errors"][0]["pointer"] == "/nodes/0/config/count"
    assert problem["errors"][0]["line"] >= 1


def test_a_file_beside_the_workflow_may_be_read_and_one_elsewhere_may_not(
    yukta, workflow, tmp_path
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "in.jsonl").write_text("1\n2\n")
    (tmp_path / "secret.jsonl").write_text("3\n")
    beside = workflow(
        ("t", "FILE_TRIGGER", {"path": "in.jsonl"}),
        ("out", "COLLECT_TERMINAL"),
        name="flows/a.json",
    )
    elsewhere = workflow(
        ("t", "FILE_TRIGGER", {"path": "../secret.jsonl"}),
        ("out", "COLLECT_TERMINAL"),
        name="flows/b.json",
    )

    read, refused = yukta("run", beside), yukta("run", elsewhere)

    assert [line["payload"] for line in read.results] == [1, 2]
    assert refused.code == 3
    assert "yukta.files.allowed-dirs" in refused.err


# --- how it ends ---------------------------------------------------------------------------------


def test_a_run_that_fails_names_node_and_reason_and_exits_with_1(yukta, workflow) -> None:
    path = workflow(
        ("in", "API_TRIGGER"), ("s", "SPLIT", {"path": "items"}), ("e", "NULL_TERMINAL")
    )

    ended = yukta("run", path)

    assert ended.code == 1
    assert "yukta: the run ended FAILURE: node `s`: no `items` in the payload" in ended.err
    assert ended.last.startswith("FAILURE flow: 3 nodes (1 FAILURE, 1 SUCCESS, 1 UPSTREAM_FAILED)")
    assert "Traceback" not in ended.err


def test_a_failure_with_json_ends_in_a_problem_object(yukta, workflow) -> None:
    path = workflow(
        ("in", "API_TRIGGER"), ("s", "SPLIT", {"path": "items"}), ("e", "NULL_TERMINAL")
    )

    problem = json.loads(yukta("run", "--json", path).last)

    assert problem["code"] == "bad_input"
    assert problem["nodeId"] == "s"


@pytest.mark.slow
@pytest.mark.feature("ENG-05")
def test_a_run_beyond_its_deadline_exits_with_124(yukta, workflow) -> None:
    path = workflow(
        ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20}), ("e", "NULL_TERMINAL")
    )

    ended = yukta("run", path, "--timeout", "300ms")

    assert ended.code == 124
    assert ended.last.startswith("TIMED_OUT flow: ")
    assert "deadline" in ended.err


# --- warnings ------------------------------------------------------------------------------------


def test_warnings_of_settings_and_workflow_are_lines_or_json_and_stop_nothing(
    yukta, workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YUKTA_SOMETHING_ELSE_ENTIRELY", "1")
    path = workflow(
        nodes=[
            {"nodeId": "t", "type": "SEQUENCE_TRIGGER", "config": {"count": 1}},
            {"nodeId": "e", "type": "NULL_TERMINAL"},
            {"nodeId": "lost", "type": "TRANSFORM", "config": {"set": {}}},
        ],
        edges=[{"source": "t", "target": "e"}, {"source": "t", "target": "lost"}],
    )

    lines, events = yukta("run", path), yukta("run", "--json", path)

    assert lines.code == events.code == 0
    warnings = [line for line in lines.err.splitlines() if line.startswith("yukta: warning: ")]
    assert len(warnings) == 2
    assert "YUKTA_SOMETHING_ELSE_ENTIRELY" in warnings[0]
    assert "node `lost`" in warnings[1]
    shown = [json.loads(line) for line in events.err.splitlines()]
    assert [line["level"] for line in shown if line["type"] == "log"] == ["WARNING", "WARNING"]
