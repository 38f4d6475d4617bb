"""`yukta validate`: every fault with its file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.feature("DEF-02")

GOOD = (("t", "SEQUENCE_TRIGGER", {"count": 1}), ("e", "NULL_TERMINAL"))
BAD = (("t", "SEQUENCE_TRIGGER", {"count": -1, "strat": 1}), ("e", "NUL_TERMINAL"))


def test_a_valid_file_is_said_to_be_so(yukta, workflow) -> None:
    path = workflow(*GOOD)

    ended = yukta("validate", path)

    assert (ended.code, ended.out) == (0, f"{path}: valid, 2 nodes, 1 edges\n")


def test_every_fault_is_a_line_with_file_line_node_and_option(yukta, workflow) -> None:
    path = workflow(*BAD)
    text = Path(path).read_text().splitlines()

    ended = yukta("validate", path)

    assert ended.code == 3
    lines = ended.out.splitlines()
    assert len(lines) == 3
    for line, words, place in zip(
        lines,
        ["node `t`, option `count`", "node `t`, option `strat`", "did you mean NULL_TERMINAL"],
        ['"count"', '"strat"', '"NUL_TERMINAL"'],
        strict=True,
    ):
        number = int(line.removeprefix(path + ":").split(":")[0])
        assert words in line
        assert place in text[number - 1]


@pytest.mark.parametrize(
    ("text", "line"), [("{", 1), ('{"a": 1,\n "b": NaN}', 1), ('{\n"a": 1\n"b": 2}', 3), ("", 1)]
)
def test_text_that_is_not_json_is_a_fault_with_its_line(yukta, tmp_path, text, line) -> None:
    (tmp_path / "f.json").write_text(text)

    ended = yukta("validate", "f.json")

    assert ended.code == 3
    assert ended.out.startswith(f"f.json:{line}: ")
    assert "not JSON" in ended.out


def test_a_file_that_is_not_there_is_one_line(yukta) -> None:
    ended = yukta("validate", "none.json")

    assert (ended.code, ended.err) == (2, "yukta: none.json: no such file or directory\n")


def test_a_folder_gives_its_workflows_and_passes_over_other_json(yukta, workflow, tmp_path) -> None:
    (tmp_path / "sub").mkdir()
    workflow(*GOOD, name="sub/a.json")
    workflow(*BAD, name="b.json")
    (tmp_path / "payload.json").write_text('{"orders": []}')
    (tmp_path / "list.json").write_text("[1]")

    ended = yukta("validate", ".")

    assert ended.code == 3
    assert "sub/a.json: valid" in ended.out
    assert "payload" not in ended.out
    assert ended.out.splitlines()[-1] == "1 of 2 files are not valid"


def test_a_folder_without_workflows_is_refused(yukta, tmp_path) -> None:
    (tmp_path / "empty").mkdir()

    ended = yukta("validate", "empty")

    assert (ended.code, ended.err) == (2, "yukta: no workflow file in empty\n")


def test_a_warning_does_not_fail(yukta, workflow) -> None:
    path = workflow(
        ("t", "API_TRIGGER"),
        ("e", "NULL_TERMINAL"),
        edges=[{"source": "t", "target": "e"}, {"source": "t", "target": "lost"}],
        nodes=[
            {"nodeId": "t", "type": "API_TRIGGER"},
            {"nodeId": "e", "type": "NULL_TERMINAL"},
            {"nodeId": "lost", "type": "TRANSFORM", "config": {"set": {}}},
        ],
    )

    ended = yukta("validate", path)

    assert ended.code == 0
    assert "warning: node `lost`" in ended.out


def test_a_file_that_a_node_reads_has_to_be_there_already(yukta, workflow, tmp_path) -> None:
    path = workflow(("t", "FILE_TRIGGER", {"path": "in.jsonl"}), ("e", "NULL_TERMINAL"))

    missing = yukta("validate", path)
    (tmp_path / "in.jsonl").write_text("")
    there = yukta("validate", path)

    assert missing.code == 3
    assert "option `path`" in missing.out
    assert there.code == 0


def test_json_gives_one_object_per_file(yukta, workflow) -> None:
    path = workflow(*BAD)

    by_format = yukta("validate", path, "--format", "json")
    by_option = yukta("validate", path, "--json")

    (report,) = by_format.results
    assert by_option.results == [report]
    assert report["file"] == path
    assert report["valid"] is False
    first = report["errors"][0]
    assert first["pointer"] == "/nodes/0/config/count"
    assert first["nodeId"] == "t"
    assert first["line"] > 1


def test_github_gives_annotations_with_escaped_text(yukta, workflow) -> None:
    path = workflow(*BAD, name="a,b.json")

    ended = yukta("validate", path, "--format", "github")

    first = ended.out.splitlines()[0]
    assert first.startswith("::error file=")
    assert "a%2Cb.json,line=" in first
    assert ",title=invalid_option::" in first


def test_sarif_gives_one_log_with_a_place_for_each_fault(yukta, workflow) -> None:
    ended = yukta("validate", workflow(*BAD), "--format", "sarif")

    log = json.loads(ended.out)
    results = log["runs"][0]["results"]
    assert log["version"] == "2.1.0"
    assert len(results) == 3
    assert results[0]["level"] == "error"
    assert results[0]["locations"][0]["physicalLocation"]["region"]["startLine"] > 1


def test_a_file_that_is_not_text_is_refused_by_its_first_wrong_byte(yukta, tmp_path) -> None:
    (tmp_path / "f.json").write_bytes(b'{"a": "caf\xe9"}')

    ended = yukta("validate", "f.json")

    assert (ended.code, ended.err) == (3, "yukta: f.json: not UTF-8 text (at byte 10)\n")


def test_a_byte_order_mark_is_no_fault(yukta, workflow, tmp_path) -> None:
    path = workflow(*GOOD)
    text = Path(path).read_bytes()
    Path(path).write_bytes(b"\xef\xbb\xbf" + text)

    assert yukta("validate", path).code == 0
