"""Folders and exports without a server: what is read, what is refused, what a plan says."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.cli.console import CliError
from yukta_rx.cli.export_command import _files
from yukta_rx.cli.folders import SessionFiles, WorkflowFile, bundle_of, read_folder, with_lines
from yukta_rx.cli.plans import diff_lines
from yukta_rx.definitions.diff import diff_definitions
from yukta_rx.definitions.parse import parse_definition

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("DEF-01", "DUR-05")


def flow(workflow_id: str, **more: Any) -> dict[str, Any]:
    return {
        "workflowId": workflow_id,
        "nodes": [{"nodeId": "t", "type": "T"}, {"nodeId": "e", "type": "E"}],
        "edges": [{"source": "t", "target": "e"}],
        **more,
    }


def write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=1))


def test_a_folder_is_read_by_session_in_the_order_of_ids(tmp_path) -> None:
    write(tmp_path / "b/z.json", flow("first"))
    write(tmp_path / "b/deep/a.json", flow("second"))
    write(tmp_path / "a/_session.json", {"name": "n", "sessionId": "a"})
    write(tmp_path / "root.json", flow("r"))
    write(tmp_path / "b/notes.json", {"just": "notes"})
    write(tmp_path / ".hidden/x.json", flow("x"))

    sessions = read_folder(str(tmp_path), None)

    names = [
        (item.session_id, [file.definition.workflow_id for file in item.files]) for item in sessions
    ]
    assert names == [("a", []), ("b", ["first", "second"]), ("default", ["r"])]
    assert sessions[0].settings == {"name": "n"}
    assert bundle_of(sessions, {"a": "tag"})["sessions"][0] == {
        "name": "n",
        "sessionId": "a",
        "etag": "tag",
        "workflows": [],
    }


def test_settings_that_cannot_be_read_are_named_with_their_line(tmp_path) -> None:
    write(tmp_path / "a/_session.json", '{\n"name": }')
    write(tmp_path / "a/w.json", flow("w"))

    with pytest.raises(CliError) as caught:
        read_folder(str(tmp_path), None)

    assert caught.value.exit_code == 3
    assert caught.value.lines[0].startswith(f"{tmp_path}/a/_session.json:2: ")


def test_what_a_server_says_is_given_its_file_where_there_is_one() -> None:
    text = json.dumps(flow("w"), indent=1)
    file = WorkflowFile("a/w.json", text, parse_definition(flow("w")))
    sessions = [SessionFiles("a", (file,))]
    errors = [
        {"pointer": pointer, "code": "x", "detail": "is wrong"}
        for pointer in (
            "/sessions/0/workflows/0/edges/0",
            "/sessions/0/name",
            "/sessions/9/workflows/9",
            "/other",
        )
    ]

    said = with_lines(CliError("x", code="validation", members={"errors": errors}), sessions)

    assert said.exit_code == 3
    assert said.lines == (
        "a/w.json:14: /edges/0: is wrong",
        "/name: is wrong",
        "/sessions/9/workflows/9: is wrong",
        "/other: is wrong",
    )
    assert [error.get("line") for error in said.members["errors"]] == [14, None, None, None]
    plain = CliError("stale", code="stale_definition")
    assert with_lines(plain, sessions) is plain


def test_a_diff_reads_as_lines() -> None:
    old = flow("w", description="a", options={"lossless": True})
    new = {**flow("w"), "nodes": flow("w")["nodes"][::-1]}
    new["nodes"][0]["config"] = {"long": "x" * 200}
    new["edges"] = [{"source": "t", "target": "e", "sourcePort": "late"}]

    diff = diff_definitions(parse_definition(old), parse_definition(new))
    lines = list(diff_lines(diff.as_dict()))

    assert lines[0] == "description: null"
    assert lines[1].startswith('~ node e /config = {"long": "xxx')
    assert len(lines[1]) < 130
    assert lines[2:] == [
        "+ edge t -late-> e",
        "- edge t -> e",
        "~ /options removed",
        "another order",
    ]


def packed(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return data.getvalue()


@pytest.mark.feature("SEC-03")
@pytest.mark.parametrize(
    "name", ["../x.json", "s/../x.json", "/s/x.json", "s/x.txt", "s/.json", "x.json", "s/a/b.json"]
)
def test_case_39_a_server_cannot_choose_where_an_export_is_written(name: str) -> None:
    with pytest.raises(CliError, match="not the name of a workflow"):
        _files(packed("s/ok.json", name))


def test_what_is_no_zip_is_not_written() -> None:
    with pytest.raises(CliError, match="is no zip"):
        _files(b"<html>")
    assert list(_files(packed("s/_session.json", "s/ok.json"))) == ["s/_session.json", "s/ok.json"]


def test_ids_that_differ_only_in_case_are_refused_where_files_cannot(monkeypatch) -> None:
    names = ("s/a.json", "s/A.json")
    assert len(_files(packed(*names))) == 2
    monkeypatch.setattr("os.path.normcase", str.lower)

    with pytest.raises(CliError, match="differ only in case"):
        _files(packed(*names))
