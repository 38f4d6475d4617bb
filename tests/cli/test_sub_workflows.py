"""`yukta run` of a workflow that runs others: where they are looked for, and what is shown."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.feature("ENG-07")

TICK = ("t", "SEQUENCE_TRIGGER", {"count": 2})
OUT = ("out", "COLLECT_TERMINAL")


def sub(workflow_id: str) -> tuple[object, ...]:
    return ("sub", "SUB_WORKFLOW", {"workflowId": workflow_id})


@pytest.fixture
def child(workflow) -> str:
    nodes = [("in", "API_TRIGGER"), ("say", "CONSOLE_TERMINAL")]
    return workflow(*nodes, name="any-name.json", workflowId="child")


def test_a_workflow_of_the_same_folder_is_run_for_each_message(yukta, workflow, child) -> None:
    ended = yukta("run", workflow(TICK, sub("child"), OUT))

    assert ended.code == 0
    assert [line["payload"]["results"] for line in ended.results] == [[{"n": 0}], [{"n": 1}]]


def test_lines_of_its_nodes_are_shown_behind_both_names(yukta, workflow, child) -> None:
    ended = yukta("run", workflow(TICK, sub("child"), OUT))

    shown = [line for line in ended.err.splitlines() if " | " in line]
    assert shown == ['child/say | {"n":0}', 'child/say | {"n":1}']
    assert not any(line.startswith("say:") for line in ended.err.splitlines())


def test_with_json_its_events_are_in_the_feed_and_the_parents_end_is_the_last(
    yukta, workflow, child
) -> None:
    ended = yukta("run", "--json", workflow(TICK, sub("child"), OUT))

    events = [json.loads(line) for line in ended.err.splitlines()]
    finished = [event["workflowId"] for event in events if event["type"] == "execution.finished"]
    assert finished == ["child", "child", "flow"]


def test_it_may_run_further_ones_and_itself(yukta, workflow, child) -> None:
    workflow(("in", "API_TRIGGER"), sub("child"), OUT, name="middle.json", workflowId="middle")

    ended = yukta("run", workflow(TICK, sub("middle"), OUT))
    looping = yukta("run", workflow(TICK, sub("flow"), OUT))

    assert ended.code == 0
    assert looping.code == 1
    assert "yukta.sub-workflow.max-depth is 5" in looping.err


def test_one_that_is_in_no_file_refuses_the_run(yukta, workflow, tmp_path) -> None:
    (tmp_path / "broken.json").write_text("{")
    path = workflow(TICK, sub("child"), OUT)

    ended = yukta("run", path)

    lines = (tmp_path / "flow.json").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if '"workflowId": "child"' in text)
    place = f"{path}:{line}: node `sub`, option `workflowId` (/nodes/1/config/workflowId)"
    assert ended.code == 3
    assert ended.err.strip() == f"yukta: {place}: no file in {tmp_path} has the workflow child"


def test_one_that_is_in_two_files_refuses_the_run(yukta, workflow, child) -> None:
    nodes = [("in", "API_TRIGGER"), ("say", "CONSOLE_TERMINAL")]
    second = workflow(*nodes, name="copy.json", workflowId="child")

    ended = yukta("run", workflow(TICK, sub("child"), OUT))

    assert ended.code == 3
    assert f"the workflow child is in several files: {child}, {second}" in ended.err


def test_one_that_is_not_valid_refuses_the_run_and_names_its_file(yukta, workflow) -> None:
    path = workflow(("in", "API_TRIGGER"), ("say", "WHAT"), name="child.json", workflowId="child")

    ended = yukta("run", workflow(TICK, sub("child"), OUT))

    assert ended.code == 3
    assert ended.err.startswith(f"yukta: {path}:")
    assert "no plugin type WHAT" in ended.err
