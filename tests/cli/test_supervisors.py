"""`yukta supervisors`, `audit` and `supervise` against a real server."""

from __future__ import annotations

import json
import re
import signal

import pytest

from yukta_rx.cli.supervise_session import _form
from yukta_rx.control.commands import PauseNode, SetBreakpoint, StepWorkflow
from yukta_rx.control.supervision import Proposal

pytestmark = [pytest.mark.slow, pytest.mark.feature("CTL-07")]

CODE = """
import asyncio
from yukta_rx import PauseNode, PauseWorkflow, Proposal

async def {name}(events):
    \"\"\"Pauses each run at its first line.\"\"\"
    done = set()
    async for event in events:
        if event.type == "node.log" and event.execution_id not in done:
            done.add(event.execution_id)
{body}

{name}.types = ("node.log",)
{name}.id = {id!r}
"""
PAUSE = '            yield Proposal(PauseWorkflow(execution_id=event.execution_id), "first line")'


@pytest.fixture
def program(tmp_path):
    """Write a module with a supervisor; returns what names it."""

    def write(id: str, body: str = PAUSE) -> str:
        name = id.replace("-", "_")
        (tmp_path / f"{name}_module.py").write_text(CODE.format(name=name, id=id, body=body))
        return f"{name}_module:{name}"

    return write


@pytest.fixture
def ticking(ask):
    run = ask("start", "s/tick").out.strip()

    yield run

    ask("stop", run, "--mode", "KILL")


def until(ask, *args: str, wanted):
    """Ask until the results are what is wanted."""
    while not wanted(results := ask(*args, "--json").results):
        pass
    return results


def test_a_program_steers_and_says_what_became_of_it(ask, talk, program, rest) -> None:
    process = talk("supervise", program("first-line"))
    said = process.stderr.readline().decode()
    until(ask, "supervisors", wanted=lambda found: "first-line" in [one["id"] for one in found])
    run = ask("start", "s/tick").out.strip()

    line = process.stdout.readline().decode()
    while run not in line:  # another test's run may tick too
        line = process.stdout.readline().decode()
    audit = ask("audit", "--actor", "first-line", "--execution", run)
    listed = ask("supervisors").out
    process.send_signal(signal.SIGTERM)
    _, err = rest(process)
    ask("stop", run, "--mode", "KILL")

    assert said == "yukta: supervising as first-line\n"
    assert line == f"{run}: APPLIED PauseWorkflow: the run is RUNNING, paused\n"
    assert audit.out.endswith(
        f"APPLIED PauseWorkflow {run} by first-line (SUPERVISOR): first line\n"
    )
    header, *rows = listed.splitlines()
    assert header.split()[:4] == ["ID", "KIND", "STATE", "RATE"]
    [row] = [one for one in rows if one.startswith("first-line ")]
    assert "supervisor  running, external  20/s  APPLIED=" in row
    assert (process.returncode, err) == (0, "")
    [shown] = [one for one in ask("supervisors", "--json").results if one["id"] == "first-line"]
    assert shown["description"] == "Pauses each run at its first line."


def test_one_that_fails_says_so_and_begins_again_behind_its_last_event(
    talk, ticking, program, rest
) -> None:
    body = '            yield "no command"\n            raise ValueError("not today")'
    process = talk("supervise", program("fragile", body))

    lines = [process.stderr.readline().decode() for _ in range(4)]
    process.send_signal(signal.SIGINT)
    rest(process)

    assert lines[1] == "yukta: no command: 'no command'\n"
    assert re.fullmatch(
        r"yukta: ValueError: not today; begins again in (0\.[5-9]|1\.0) s\n", lines[2]
    )
    assert lines[3] == lines[1]
    assert process.returncode == 0


def test_a_refused_command_is_a_line_and_with_json_an_object(talk, ticking, program, rest) -> None:
    body = '            yield PauseNode(execution_id=event.execution_id, node_id="none")'
    process = talk("supervise", program("wrong", body), "--json")

    said = json.loads(process.stderr.readline())
    shown = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    rest(process)

    assert said["type"] == "supervising"
    assert (shown["type"], shown["nodeId"]) == ("urn:yukta:problem:node_not_found", "none")
    assert shown["code"] == "node_not_found"


def test_one_that_is_switched_off_ends_and_comes_back_only_when_it_is_on(
    ask, talk, ticking, program, rest
) -> None:
    process = talk("supervise", program("naughty"))
    process.stdout.readline()

    off = ask("supervisors", "set", "naughty", "--disabled")
    _, err = rest(process)
    again = talk("supervise", program("naughty"))
    _, refused = rest(again)
    on = ask("supervisors", "set", "naughty", "--enabled", "--rate", "3", "--json").results[0]

    assert "supervisor  disabled, external" in off.out
    assert process.returncode == 6
    assert err.splitlines()[-1] == "yukta: supervisor naughty is switched off"
    assert again.returncode == 6
    assert "supervisor naughty is switched off" in refused
    assert (on["enabled"], on["maxCommandsPerSecond"]) == (True, 3)


def test_an_id_that_is_in_use_is_refused(ask, talk, program, rest) -> None:
    what = program("twice")
    first = talk("supervise", what)
    first.stderr.readline()

    second = talk("supervise", what)
    _, err = rest(second)
    first.send_signal(signal.SIGINT)
    rest(first)

    assert second.returncode == 6
    assert err.startswith("yukta: supervisor twice is in use: its lease lasts until")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["supervise", "nothing"], 2, "nothing: write MODULE:NAME or FILE.py:NAME"),
        (["supervise", "no_such_module:x"], 2, "cannot be loaded: No module named"),
        (["supervise", "json:nothing"], 2, "json:nothing: cannot be loaded"),
        (["supervise", "none.py:x"], 2, "none.py:x: cannot be loaded"),
        (["supervise", "json:__doc__"], 1, "no method `supervise(events)`"),
        (["supervisors", "set", "none", "--disabled"], 4, "there is no supervisor none"),
        (["supervisors", "set", "none"], 2, "say what to set"),
        (["supervisors", "set", "a b", "--disabled"], 2, "ID 'a b' is not an id"),
        (["audit", "--since", "yesterday"], 1, "must be an RFC 3339 time"),
    ],
)
def test_a_refusal_is_one_line_and_its_exit_code(ask, args, code, words) -> None:
    ended = ask(*args)

    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("yukta: ")
    assert words in ended.err


@pytest.mark.feature("CTL-01")
def test_the_audit_is_filtered_and_followed(ask, talk, ticking, rest) -> None:
    ask("pause", ticking, "--reason", "first")
    follower = talk("audit", "-f", "--execution", ticking, "--json")
    first = json.loads(follower.stdout.readline())
    ask("resume", ticking)
    second = json.loads(follower.stdout.readline())
    ask("pause", ticking, "none")
    third = json.loads(follower.stdout.readline())
    follower.send_signal(signal.SIGINT)
    rest(follower)

    rejected = ask("audit", "--execution", ticking, "--outcome", "rejected").out
    none = ask("audit", "--execution", ticking, "--command", "StopWorkflow").out

    assert [one["command"] for one in (first, second, third)] == [
        *("PauseWorkflow", "ResumeWorkflow", "PauseNode")
    ]
    assert first["reason"] == "first"
    assert f"REJECTED PauseNode {ticking} none by anonymous (CLI): " in rejected
    assert len(rejected.splitlines()) == 1
    assert none == ""


def test_a_command_as_it_is_sent_has_an_id_and_leaves_defaults_out() -> None:
    plain = _form(Proposal(StepWorkflow(execution_id="r", n=3), "why", "c"))
    bare = _form(Proposal(PauseNode(execution_id="r", node_id="n")))
    point = _form(Proposal(SetBreakpoint(execution_id="r", node_id="n", expression="payload.x")))

    assert plain == {
        "type": "StepWorkflow",
        "executionId": "r",
        "n": 3,
        "reason": "why",
        "commandId": "c",
    }
    assert set(bare) == {"type", "executionId", "nodeId", "commandId"}
    assert "equals" not in point
    assert point["expression"] == "payload.x"


def test_a_command_about_a_node_of_any_run_is_sent_with_its_node_and_reason() -> None:
    from yukta_rx.cli.supervise_session import _form
    from yukta_rx.control.commands import RetryNode
    from yukta_rx.control.supervision import Proposal

    form = _form(Proposal(RetryNode("run-1", "price", reason="it may work now")))

    assert form.pop("commandId")
    assert form == {
        "type": "RetryNode",
        "executionId": "run-1",
        "nodeId": "price",
        "reason": "it may work now",
    }
