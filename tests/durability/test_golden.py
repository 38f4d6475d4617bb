"""What older versions wrote is read by this one: a committed sample of every form."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.formats import FORMS, plain
from tests.golden.write import EXPECTED, FILES, GOLDEN, made
from yukta_rx.durability.file import _checkpoint_lines as checkpoint_lines
from yukta_rx.model.execution_log import EVENTS
from yukta_rx.model.results import ResultType

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden.formats import Form

pytestmark = [pytest.mark.feature("DUR-01"), pytest.mark.feature("DUR-05")]

SAMPLES = [
    pytest.param(form, sample, id=f"{form.name}-{sample.name}")
    for form in FORMS
    for sample in sorted((GOLDEN / form.name).iterdir())
]


def covers(found: Any, expected: Any, at: str = "") -> list[str]:
    """Where what was read is not what was expected; members that came later do not count."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return [
            fault
            for name, value in expected.items()
            for fault in (
                covers(found[name], value, f"{at}/{name}")
                if name in found
                else [f"{at}/{name}: gone"]
            )
        ]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [fault for number, pair in pairs for fault in covers(*pair, f"{at}/{number}")]
    # 1 is not 1.0, and not true.
    same = type(found) is type(expected) and found == expected
    return [] if same else [f"{at}: {found!r}, not {expected!r}"]


async def read(form: Form, files: Path, below: Path) -> Any:
    """What today's code reads of a copy of the files; as if it had gone through JSON."""
    await asyncio.to_thread(shutil.copytree, files, below / "copy")
    return json.loads(json.dumps(await form.read(below / "copy")))


@pytest.mark.parametrize(("form", "sample"), SAMPLES)
async def test_what_was_written_then_is_read_today(
    form: Form, sample: Path, tmp_path: Path
) -> None:
    expected = json.loads((sample / EXPECTED).read_text(encoding="utf-8"))

    assert covers(await read(form, sample / FILES, tmp_path), expected) == []


@pytest.mark.parametrize(("form", "sample"), SAMPLES)
async def test_members_that_a_later_version_adds_are_passed_over(
    form: Form, sample: Path, tmp_path: Path
) -> None:
    expected = json.loads((sample / EXPECTED).read_text(encoding="utf-8"))
    shutil.copytree(sample / FILES, tmp_path / "later")
    for path in (tmp_path / "later").rglob("*.json*"):
        if path.name != "current.json":
            path.write_bytes(later(form, path))

    assert covers(await read(form, tmp_path / "later", tmp_path), expected) == []


def later(form: Form, path: Path) -> bytes:
    """A file as a later version might write it: with a member more in every row of ours."""
    if form.name == "checkpoints":
        sum_ends = len(b'{"crc":"00000000",')
        lines = path.read_bytes().splitlines()
        return b"".join(
            checkpoint_lines.sealed(b'"later":[1],' + line[sum_ends:]) for line in lines
        )
    if path.suffix == ".json":
        return json.dumps({"later": [1], **json.loads(path.read_bytes())}).encode()
    rows = (_extended(json.loads(line), form.rows) for line in path.read_bytes().splitlines())
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def _extended(row: Any, below: tuple[str, ...]) -> Any:
    inner = {name: _extended(row[name], below) for name in below if isinstance(row.get(name), dict)}
    return {**row, **inner, "later": [1]}


# --- that the samples are whole, and stay --------------------------------------------------------


def lines_of(name: str) -> list[Any]:
    return [
        json.loads(line)
        for path in sorted((GOLDEN / name).rglob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]


def test_every_form_has_a_sample_and_every_sample_a_form() -> None:
    folders = {path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name[0] not in "._"}

    assert folders == {form.name for form in FORMS}
    assert all(any((GOLDEN / name).iterdir()) for name in folders)


def test_every_event_of_the_log_and_every_kind_of_line_is_in_a_sample() -> None:
    kinds = {
        "execution-log": ("type", {*EVENTS}),
        "checkpoints": ("kind", {"row", "done", "incomplete", "clear", "group"}),
        "queued-starts": ("op", {"put", "take", "move"}),
        "input-requests": ("op", {"ask", "answer", "close", "keep"}),
        "input-requests-compacted": ("op", {"asked", "closed", "kept"}),
        "archive": ("op", {"put", "remove"}),
        "effects": ("op", {"begin", "effect", "forget"}),
        "key-values": ("op", {"begin", "put", "remove", "forget", "clear"}),
        "key-values-compacted": ("op", {"effect", "done"}),
        "histories": ("op", {"begin", "append", "clear", "sweep", "drop", "forget"}),
        "histories-compacted": ("op", {"history", "effect"}),
    }
    for name, (member, wanted) in kinds.items():
        assert wanted <= {line[member] for line in lines_of(name)}, name
    results = {line["result"]["type"] for line in lines_of("results") if "result" in line}
    assert results == {str(kind) for kind in ResultType}
    assert {"epochs", "event"} <= {name for line in lines_of("events") for name in line}


async def test_a_sample_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    form = FORMS[-1]
    await made(form, tmp_path / "x")
    before = (tmp_path / "x" / EXPECTED).read_bytes()

    with pytest.raises(FileExistsError):
        await made(form, tmp_path / "x")

    assert (tmp_path / "x" / EXPECTED).read_bytes() == before


def test_a_difference_is_seen_and_a_member_that_came_later_is_none() -> None:
    assert covers({"a": [1], "new": 2}, {"a": [1]}) == []
    assert covers({"a": [1.0]}, {"a": [1]}) == ["/a/0: 1.0, not 1"]
    assert covers({"a": True}, {"a": 1}) == ["/a: True, not 1"]
    assert covers({}, {"a": None}) == ["/a: gone"]
    assert covers([1, 2], [1]) == [": [1, 2], not [1]"]


def test_no_two_values_have_the_same_portrait() -> None:
    values = [1, True, 1.0, "1", b"1", (1,), [1], {"1": 1}, None, "None"]
    shown = [json.dumps(plain(value)) for value in values]

    assert len(set(shown)) == len(values)
    with pytest.raises(TypeError, match="portrait of a object"):
        plain(object())
