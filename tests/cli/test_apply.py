"""`yukta apply`, `diff` and `export`: a folder and a server kept the same."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.feature("DEF-01", "DUR-05")]


def flow(workflow_id: str, count: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "workflowId": workflow_id,
        "nodes": [
            {"nodeId": "t", "type": "SEQUENCE_TRIGGER", "config": {"count": count}},
            {"nodeId": "e", "type": "NULL_TERMINAL"},
        ],
        "edges": [{"source": "t", "target": "e"}],
        **more,
    }


@pytest.fixture
def write(tmp_path):
    """Write files below a folder; the folder's path."""

    def make(files: dict[str, Any], name: str = "flows") -> str:
        folder = tmp_path / name
        for path, document in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            text = document if isinstance(document, str) else json.dumps(document, indent=2)
            place.write_text(text)
        return str(folder)

    return make


@pytest.fixture
def session(request, ask) -> str:
    """A session that no other test has."""
    return "a." + request.node.name.replace("[", "-").replace("]", "")[:90]


# --- apply and diff ------------------------------------------------------------------------------


def test_apply_shows_a_plan_stores_the_folder_and_then_has_nothing_to_do(
    ask, write, session
) -> None:
    settings = {"executionTimeoutMs": 7000}
    files = {f"{session}/one.json": flow("one"), f"{session}/_session.json": settings}
    folder = write({**files, f"{session}/two.json": flow("two")})

    first = ask("apply", folder)
    again = ask("apply", folder)
    same = ask("diff", folder)

    assert (first.code, first.err) == (0, "yukta: applied\n")
    assert first.out.splitlines() == [f"session {session} (new)", "  + one", "  + two"]
    assert (again.code, again.err) == (0, "yukta: nothing to change\n")
    assert again.out.splitlines() == [f"session {session}", "  2 unchanged"]
    assert (same.code, same.err) == (0, "")


def test_a_changed_workflow_is_shown_as_a_diff_and_a_dry_run_changes_nothing(
    ask, write, session
) -> None:
    ask("apply", write({f"{session}/one.json": flow("one")}))
    changed = flow("one", 5, description="new")
    changed["nodes"].append({"nodeId": "x", "type": "CONSOLE_TERMINAL"})
    changed["edges"][0]["required"] = False
    changed["edges"].append({"source": "t", "target": "x"})
    folder = write({f"{session}/one.json": changed})

    plan = ask("apply", folder, "--dry-run")
    differs = ask("diff", folder)
    as_json = ask("diff", folder, "--json")

    assert (plan.code, plan.err) == (0, "yukta: not applied: --dry-run\n")
    assert plan.out.splitlines() == [
        f"session {session}",
        "  ~ one",
        '      description: "new"',
        "      + node x",
        "      ~ node t /config/count = 5",
        "      + edge t -> e (not required)",
        "      + edge t -> x",
        "      - edge t -> e",
    ]
    assert (differs.code, differs.out) == (1, plan.out)
    [shown] = as_json.results
    assert (as_json.code, shown["changed"][0]["workflowId"]) == (1, "one")
    assert shown["changed"][0]["diff"]["nodesAdded"] == ["x"]
    assert ask("apply", folder).code == 0
    assert ask("diff", folder).code == 0


def test_what_the_folder_does_not_have_stays_unless_it_is_pruned(ask, write, session) -> None:
    both = {f"{session}/one.json": flow("one"), f"{session}/two.json": flow("two")}
    ask("apply", write(both))
    folder = write({f"{session}/one.json": flow("one")}, "fewer")

    stays = ask("apply", folder)
    asked = ask("apply", folder, "--prune")
    planned = ask("diff", folder, "--prune")
    pruned = ask("apply", folder, "--prune", "-y")

    assert stays.out.splitlines()[1:] == ["  not in the folder, stays: two", "  1 unchanged"]
    assert stays.err == "yukta: nothing to change\n"
    assert (asked.code, asked.err) == (
        2,
        f"yukta: this removes {session}/two: -y says that it may\n",
    )
    assert (planned.code, planned.out.splitlines()[1]) == (1, "  - two")
    assert (pruned.code, pruned.err) == (0, "yukta: applied\n")
    assert ask("versions", "ls", f"{session}/two").code == 4


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_on_a_terminal_it_asks_before_it_removes(
    ask, server, write, session, answer: str, code: int
) -> None:
    ask("apply", write({f"{session}/one.json": flow("one"), f"{session}/two.json": flow("two")}))
    folder = write({f"{session}/one.json": flow("one")}, "fewer")
    ours, theirs = pty.openpty()

    process = subprocess.Popen(
        [sys.executable, "-m", "yukta_rx", "apply", folder, "--prune"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=server.environ,
    )
    os.write(ours, f"{answer}\n".encode())
    _, err = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)

    assert process.returncode == code
    assert f"yukta: remove {session}/two? [y/N]" in err.decode()
    left = ask("versions", "ls", f"{session}/two").code
    assert left == (4 if answer == "y" else 0)


def test_one_bad_file_refuses_all_and_is_named_with_its_line(ask, write, session) -> None:
    bad = flow("bad")
    bad["nodes"][1]["type"] = "NUL_TERMINAL"
    folder = write({f"{session}/good.json": flow("good"), f"{session}/bad.json": bad})

    refused = ask("apply", folder)
    problem = json.loads(ask("apply", folder, "--json").err)

    assert (refused.code, refused.out) == (3, "")
    assert f"{folder}/{session}/bad.json:13: node `e`, option `type` (/nodes/1/type)" in refused.err
    assert problem["errors"][0]["file"].endswith("bad.json")
    assert problem["errors"][0]["line"] == 13
    assert ask("versions", "ls", f"{session}/good").code == 4


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({}, 2, "no workflow file in"),
        ({"s/x.json": "{"}, 3, "x.json:1: "),
        ({"s/x.json": '{"workflowId": "x"}'}, 3, "x.json:1: "),
        ({"s/x.json": flow("x"), "s/y.json": flow("x")}, 3, "is also in"),
        ({"s/_session.json": "[]", "s/x.json": flow("x")}, 3, "must be the settings"),
        ({"-s/x.json": flow("x")}, 3, "the name of a session folder"),
    ],
)
def test_a_folder_that_makes_no_sense_is_refused(ask, write, files, code, words) -> None:
    folder = Path(write(files))
    folder.mkdir(exist_ok=True)

    refused = ask("apply", str(folder))

    assert (refused.code, refused.out) == (code, "")
    assert words in refused.err
    assert ask("apply", str(folder / "none")).code == 2


def test_settings_that_are_wrong_are_named_with_their_line(ask, write, session) -> None:
    folder = write(
        {f"{session}/_session.json": {"name": "x", "executionTimeoutMs": 0}},
    )

    refused = ask("apply", folder)

    assert refused.code == 3
    assert "_session.json:3: option `executionTimeoutMs` (/executionTimeoutMs)" in refused.err


def test_settings_are_part_of_the_plan(ask, write, session) -> None:
    ask("apply", write({f"{session}/_session.json": {"name": "x"}}))
    folder = write({f"{session}/_session.json": {"name": "y", "tags": {"a": "b"}}})

    plan = ask("apply", folder)

    assert plan.out.splitlines() == [f"session {session}", "  ~ settings: name, tags"]
    assert ask("diff", folder).code == 0


def test_a_session_can_be_named_for_the_whole_folder(ask, write, session) -> None:
    folder = write({"one.json": flow("one"), "below/two.json": flow("two")})

    applied = ask("apply", folder, "--session", session)

    assert applied.out.splitlines() == [f"session {session} (new)", "  + one", "  + two"]
    assert ask("apply", folder, "--session", "a/b").code == 2


def test_files_in_the_folder_itself_are_of_the_session_default(ask, write) -> None:
    plan = ask("apply", write({"one.json": flow("one")}), "--dry-run", "--json")

    assert [item["sessionId"] for item in plan.results] == ["default"]


# --- export --------------------------------------------------------------------------------------


def test_what_is_exported_to_a_folder_can_be_applied_and_is_the_same(
    ask, write, session, tmp_path
) -> None:
    exact = flow("exact", description="größe \u2028")
    exact["nodes"][0]["config"]["count"] = 2
    ask("apply", write({f"{session}/x.json": exact, f"{session}/_session.json": {"name": "N"}}))
    folder = str(tmp_path / "out")

    exported = ask("export", folder, "--session", session)

    assert (exported.code, exported.out) == (0, "")
    assert exported.err == f"yukta: 2 files of 1 session written to {folder}\n"
    written = json.loads(Path(folder, session, "exact.json").read_text())
    assert written == exact
    assert ask("diff", folder, "--prune").code == 0


def test_an_export_is_a_zip_by_default_and_on_stdout(ask, server, write, session) -> None:
    ask("apply", write({f"{session}/x.json": flow("x")}))

    whole = ask("export", "--session", session, "--json")
    piped = subprocess.run(
        [sys.executable, "-m", "yukta_rx", "export", "-", "--session", session],
        capture_output=True,
        env=server.environ,
        timeout=30,
    )

    assert json.loads(whole.err)["files"] == [f"{session}/_session.json", f"{session}/x.json"]
    with zipfile.ZipFile("yukta-export.zip") as archive:
        assert json.loads(archive.read(f"{session}/x.json")) == flow("x")
    assert piped.stdout == Path("yukta-export.zip").read_bytes()
    assert ask("export", "--session", "none").code == 4
    assert ask("export", "no/such/folder/x.zip").code == 2
