"""`yukta dev`: files become workflows, and changes are applied again."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("DEF-01")]

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE = ("t", "SEQUENCE_TRIGGER", {"count": 1})
BAD = ("t", "SEQUENCE_TRIGGER", {"count": -1})
END = ("out", "COLLECT_TERMINAL")


def results(server, *start: str) -> list[dict[str, object]]:
    run = server.ask("start", *start, "--wait")
    assert run.code == 0, run.err
    return server.ask("result", run.out.strip()).results


def test_the_examples_run_in_the_session_dev(serve) -> None:
    server = serve(str(EXAMPLES), command="dev")

    orders = results(server, "dev/orders", "--payload", f"@{EXAMPLES}/orders/payload.json")
    airports = results(server, "dev/airports")

    assert "yukta: session dev: created airports, orders\n" in server.said
    assert Counter(line["nodeId"] for line in orders) == {"mail": 5, "ledger": 24}
    assert len(airports) == 16


def test_a_change_is_applied_and_a_fault_is_reported_and_leaves_the_last_valid_form(
    serve, workflow
) -> None:
    path = workflow(ONE, END)
    server = serve(path, command="dev")

    workflow(("t", "SEQUENCE_TRIGGER", {"count": 2}), END)
    changed = server.until("session dev")
    two = results(server, "dev/flow")
    workflow(BAD, END)
    fault = server.until("flow.json")
    still_two = results(server, "dev/flow")
    workflow(("t", "SEQUENCE_TRIGGER", {"count": 3}), END)
    mended = server.until("session dev")

    assert changed == mended == "yukta: session dev: changed flow\n"
    assert f"yukta: {path}:6: node `t`, option `count`" in fault
    assert len(two) == len(still_two) == 2
    assert len(results(server, "dev/flow")) == 3


def test_files_that_come_and_go_in_a_folder_are_followed(serve, workflow, tmp_path) -> None:
    (tmp_path / "flows" / "deep").mkdir(parents=True)
    workflow(ONE, END, name="flows/a.json", workflowId="a")
    server = serve("flows", command="dev")

    workflow(ONE, END, name="flows/deep/b.json", workflowId="b")
    (tmp_path / "flows" / "payload.json").write_text('{"no": "workflow"}')
    came = server.until("session dev")
    (tmp_path / "flows" / "a.json").unlink()
    went = server.until("session dev")

    assert came == "yukta: session dev: created b; unchanged a\n"
    assert went == "yukta: session dev: removed a; unchanged b\n"
    assert server.ask("start", "dev/a").code == 4


def test_a_file_that_is_wrong_from_the_begin_is_reported_and_served_once_it_is_right(
    serve, workflow
) -> None:
    workflow(BAD, END)
    server = serve("flow.json", command="dev")

    workflow(ONE, END)
    created = server.until("session dev")

    assert "flow.json:8: node `t`, option `count`" in server.said[0]
    assert created == "yukta: session dev: created flow\n"


def test_a_workflow_is_taken_again_when_what_it_needs_is_there(serve, workflow, tmp_path) -> None:
    workflow(("t", "FILE_TRIGGER", {"path": "in.jsonl"}), END)
    server = serve("flow.json", command="dev")

    (tmp_path / "in.jsonl").write_text("7\n")
    server.until("session dev: created flow")

    assert "cannot be read" in server.said[0]
    assert [line["payload"] for line in results(server, "dev/flow")] == [7]


def test_relative_paths_start_from_the_folder_of_each_file(serve, workflow, tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / "flows" / name).mkdir(parents=True)
        (tmp_path / "flows" / name / "in.jsonl").write_text(f'"{name}"\n')
        workflow(
            *(("t", "FILE_TRIGGER", {"path": "in.jsonl"}), END),
            name=f"flows/{name}/flow.json",
            workflowId=name,
        )
    server = serve("flows", command="dev")

    assert [line["payload"] for line in results(server, "dev/a")] == ["a"]
    assert [line["payload"] for line in results(server, "dev/b")] == ["b"]


def test_the_second_file_with_a_workflow_id_is_reported(serve, workflow, tmp_path) -> None:
    (tmp_path / "flows").mkdir()
    workflow(ONE, END, name="flows/a.json")
    workflow(ONE, END, name="flows/b.json")

    server = serve("flows", command="dev")

    said = "".join(server.said)
    assert "flows/b.json:2: /workflowId: workflow flow is also in flows/a.json" in said
    assert "session dev: created flow" in said


def test_a_workflow_with_live_runs_is_removed_once_they_have_ended(
    serve, workflow, tmp_path
) -> None:
    (tmp_path / "flows").mkdir()
    workflow(ONE, END, name="flows/keep.json", workflowId="keep")
    endless = ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20})
    workflow(endless, END, name="flows/go.json", workflowId="go")
    server = serve("flows", command="dev")
    run = server.ask("start", "dev/go").out.strip()

    (tmp_path / "flows" / "go.json").unlink()
    refused = server.until("go")
    server.ask("stop", run)
    removed = server.until("session dev")

    assert refused == "yukta: workflow go has live runs: stop them first\n"
    assert removed == "yukta: session dev: removed go; unchanged keep\n"


def test_with_json_plans_and_faults_are_objects(spawn, workflow) -> None:
    workflow(ONE, END)
    process = spawn("dev", "--port", "0", "--json", "flow.json")

    plan, serving = (json.loads(process.stderr.readline()) for _ in range(2))
    workflow(BAD, END)
    fault = json.loads(process.stderr.readline())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    assert plan["type"] == "applied"
    assert plan["created"] == ["flow"]
    assert serving["type"] == "serving"
    assert fault["code"] == "validation"
    assert fault["errors"][0]["line"] == 8
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("path", "words"),
    [("none.json", "none.json: no such file or directory"), (".", "no workflow file in .")],
)
def test_a_path_that_is_not_there_or_has_no_workflow_is_refused(yukta, path, words) -> None:
    ended = yukta("dev", "--port", "0", path)

    assert (ended.code, ended.err) == (2, f"yukta: {words}\n")
