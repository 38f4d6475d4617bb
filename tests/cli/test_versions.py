"""`yukta versions` and `yukta graph`."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("DEF-01")]


@pytest.fixture
def place(request, ask, tmp_path) -> str:
    """SESSION/WORKFLOW of a workflow with three versions."""
    session = "v." + request.node.name.replace("[", "-").replace("]", "")[:90]
    for count in (1, 2, 3):
        document = {
            "workflowId": "w",
            "nodes": [
                {"nodeId": "t", "type": "SEQUENCE_TRIGGER", "config": {"count": count}},
                {"nodeId": "e", "type": "NULL_TERMINAL"},
            ],
            "edges": [{"source": "t", "target": "e"}],
        }
        folder = tmp_path / "flows"
        (folder / session).mkdir(parents=True, exist_ok=True)
        (folder / session / "w.json").write_text(json.dumps(document))
        assert ask("apply", str(folder)).code == 0
    return f"{session}/w"


def test_versions_are_listed_newest_first_with_the_current_marked(ask, place) -> None:
    listed = ask("versions", "ls", place)
    rows: list[dict[str, Any]] = ask("versions", "ls", place, "--json").results

    lines = listed.out.splitlines()
    assert lines[0].split() == ["VERSION", "TIME", "CONTENT", "ACTOR", "NOTE"]
    assert [line.split()[0] for line in lines[1:]] == ["3*", "2", "1"]
    assert lines[1].split()[2] == rows[0]["definitionVersion"][:12]
    assert [row["version"] for row in rows] == [3, 2, 1]


def test_a_version_is_shown_noted_compared_and_taken_back(ask, place) -> None:
    shown = ask("versions", "show", place, "1")
    noted = ask("versions", "note", place, "1", "the good one")
    detail = ask("versions", "show", place, "1", "--json").results[0]
    differs = ask("versions", "diff", place, "1")
    between = ask("versions", "diff", place, "1", "2", "--json").results[0]
    back = ask("versions", "rollback", place, "1")
    again = ask("versions", "rollback", place, "1")
    as_json = ask("versions", "rollback", place, "2", "--json").results[0]

    assert json.loads(shown.out)["nodes"][0]["config"] == {"count": 1}
    assert (noted.code, noted.out, noted.err) == (0, "", "")
    assert (detail["note"], detail["current"]) == ("the good one", False)
    assert differs.out == "~ node t /config/count = 3\n"
    assert (between["from"], between["to"]) == (1, 2)
    assert back.out == "version 4\n"
    assert again.out == "version 4 is that content already\n"
    assert (as_json["version"], as_json["unchanged"]) == (5, False)
    ask("versions", "note", place, "1")
    assert "note" not in ask("versions", "show", place, "1", "--json").results[0]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["ls", "x"], 2, "x: write SESSION/WORKFLOW"),
        (["ls", "s/a/b"], 2, "WORKFLOW 'a/b' is not an id"),
        (["ls", "s/none"], 4, "session s has no workflow none"),
        (["show", "s/echo", "99"], 4, "has no version"),
        (["show", "s/echo", "x"], 2, "is not a valid integer"),
        (["rollback", "s/echo", "99"], 4, "has no version"),
        (["note", "s/echo", "99", "x"], 4, "has no version"),
        (["diff", "s/echo", "99"], 4, "has no version"),
    ],
)
def test_a_refusal_is_one_line_and_its_exit_code(ask, args, code, words) -> None:
    ended = ask("versions", *args)

    assert (ended.code, ended.out) == (code, "")
    assert len(ended.err.splitlines()) == 1
    assert words in ended.err


# --- graph ---------------------------------------------------------------------------------------


def test_a_file_is_drawn_without_a_server(yukta, workflow) -> None:
    path = workflow(("in", "API_TRIGGER"), ("out", "CONSOLE_TERMINAL"))

    text = yukta("graph", path)
    mermaid = yukta("graph", path, "--mermaid")
    as_json = yukta("graph", path, "--json").results[0]

    assert text.out.splitlines() == ["in (API_TRIGGER)", "  -> out", "out (CONSOLE_TERMINAL)"]
    assert mermaid.out.splitlines()[:2] == ["flowchart LR", '  n0(["in<br/>API_TRIGGER"])']
    assert (as_json["workflowId"], as_json["layers"]) == ("flow", [["in"], ["out"]])


def test_a_file_that_is_not_valid_is_refused_with_its_line(yukta, workflow) -> None:
    path = workflow(("in", "API_TRIGGER"), ("out", "NOTHING_LIKE_IT"))

    refused = yukta("graph", path)

    assert (refused.code, refused.out) == (3, "")
    assert f"{path}:" in refused.err
    assert yukta("graph", "none.json").code == 2


def test_a_workflow_and_a_run_of_a_server_are_drawn(ask) -> None:
    run = ask("start", "s/echo").out.strip()
    ask("wait", run)

    stored = ask("graph", "s/echo")
    ran = ask("graph", run)
    mermaid = ask("graph", run, "--mermaid")
    as_json = ask("graph", run, "--json").results[0]

    assert stored.out.splitlines()[0] == "in (API_TRIGGER)"
    assert ran.out.splitlines()[0] == "in (API_TRIGGER) SUCCESS"
    assert "in<br/>API_TRIGGER<br/>SUCCESS" in mermaid.out
    assert (as_json["executionId"], as_json["status"]) == (run, "SUCCESS")
    assert ask("graph", "s/none").code == 4
    assert ask("graph", "none").code == 4
    assert ask("graph", "../x").code == 2
