"""FILE_TERMINAL: whole lines, only where that is allowed, and a replacement all at once."""

from __future__ import annotations

import asyncio
import os
import resource
from codecs import BOM_UTF8
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.errors import BadInputError, DefinitionError
from yukta_rx.model.codec import dumps_plain
from yukta_rx.model.message import Message
from yukta_rx.model.status import TaskStatus
from yukta_rx.nodes._lines import checked_members, csv_line, csv_row, jsonl_line, text_line
from yukta_rx.nodes._output_files import MAX_OPEN
from yukta_rx.nodes._records import READERS
from yukta_rx.nodes.file_terminal import file_terminal
from yukta_rx.plugins.contract import (
    bind_config,
    check_config,
    check_environment,
    processor,
    spec_of,
)
from yukta_rx.security.variables import Scope
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.feature("ENG-01")

SPEC = spec_of(file_terminal)


class Writing:
    """One node from its `open` to its `close`, called as the engine calls it."""

    def __init__(self, b: Any, **config: Any) -> None:
        self.b = b
        self.bound = bind_config(SPEC, {"path": "out.dat"} | config)
        self.fixed = None if self.bound.reads_message else self.bound.constant
        SPEC.open(self.fixed, b.ctx)

    def write(self, *payloads: Any) -> Writing:
        for payload in payloads:
            msg = Message.of(payload)
            file_terminal(msg, self.bound.resolve(Scope(msg)), self.b.ctx)
        return self

    def finish(self) -> None:
        SPEC.finish(self.fixed, self.b.ctx)
        self.close()

    def close(self) -> None:
        SPEC.close(self.fixed, self.b.ctx)


@pytest.fixture
def writing(bench) -> Iterator[Any]:
    made: list[Writing] = []

    def make(**config: Any) -> Writing:
        made.append(Writing(bench(), **config))
        return made[-1]

    yield make
    for each in made:
        each.close()


def refusal(made: Writing, *payloads: Any) -> str:
    with pytest.raises(BadInputError) as refused:
        made.write(*payloads)
    return str(refused.value)


# --- formats -------------------------------------------------------------------------------------


def test_jsonl_is_one_line_of_json_per_message(writing, tmp_path) -> None:
    writing().write({"a": [1, "x\ny"]}, None, "text", 2**70, "a\0b", "é\u2028").finish()

    lines = (tmp_path / "out.dat").read_bytes().split(b"\n")
    assert lines == [
        b'{"a":[1,"x\\ny"]}',
        b"null",
        b'"text"',
        b"1180591620717411303424",
        b'"a\\u0000b"',
        '"é\\u2028"'.encode(),
        b"",
    ]


def test_what_json_cannot_say_is_shown_with_its_tag(writing, tmp_path) -> None:
    writing().write({"x": float("nan")}).finish()

    assert (tmp_path / "out.dat").read_bytes() == dumps_plain({"x": float("nan")}) + b"\n"
    assert b"$yukta" in (tmp_path / "out.dat").read_bytes()


@pytest.mark.parametrize("format", ["jsonl", "text"])
@pytest.mark.parametrize("value", ["\ud800", {"a": "\ud800"}, object(), {1: 2}])
def test_what_has_no_form_at_all_is_bad_input_and_writes_nothing(
    writing, tmp_path, format, value
) -> None:
    text = refusal(writing(format=format), value)

    assert text.startswith(f"option `format`: the message cannot be written as {format}: ")
    assert (tmp_path / "out.dat").read_bytes() == b""


def test_text_is_written_as_it_is_and_other_values_as_json(writing, tmp_path) -> None:
    writing(format="text").write("a", "", "two\nlines", {"n": 1}, 1.0, None, "\0").finish()

    assert (tmp_path / "out.dat").read_bytes() == b'a\n\ntwo\nlines\n{"n":1}\n1.0\nnull\n\0\n'


def test_the_first_message_names_the_columns_and_the_others_fill_them(writing, tmp_path) -> None:
    rows = [{"b": 1, "a": 'say "hi", all'}, {"a": "x\ry\nz", "b": None}, {"a": [1, {"k": True}]}]

    writing(format="csv").write(*rows).finish()

    assert (tmp_path / "out.dat").read_bytes() == (
        b'b,a\n1,"say ""hi"", all"\n,"x\ry\nz"\n,"[1,{""k"":true}]"\n'
    )


def test_a_member_without_a_column_is_refused_by_name(writing, tmp_path) -> None:
    made = writing(format="csv").write({"a": 1})

    assert refusal(made, {"a": 1, "extra": 2}) == (
        "option `format`: the message cannot be written as csv: the member `extra` is not among"
        " the columns of the file"
    )
    assert (tmp_path / "out.dat").read_bytes() == b"a\n1\n"


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ([1], "a row needs an object, and the payload is an array"),
        ("x", "a row needs an object, and the payload is text"),
        ({}, "a row needs an object with a member, and the payload has none"),
        ({1: 2}, "the member name 1 is no text"),
        ({"a": ["\ud800"]}, "the member `a`: "),
        ({"\ud800": 1}, "the text holds half of a surrogate pair"),
    ],
)
def test_a_payload_that_is_no_row_is_bad_input(writing, tmp_path, payload, complaint) -> None:
    assert complaint in refusal(writing(format="csv"), payload)
    assert (tmp_path / "out.dat").read_bytes() == b""


CELLS = st.text(st.characters(codec="utf-8"), max_size=10)
ROWS = st.dictionaries(CELLS, CELLS, min_size=1, max_size=4)


@given(ROWS, st.lists(CELLS, min_size=4, max_size=4))
def test_csv_rows_come_back_as_they_were(tmp_path_factory, first, cells) -> None:
    columns = checked_members(first)
    second = dict(zip(columns, cells, strict=False))
    file = tmp_path_factory.mktemp("csv") / "x"
    file.write_bytes(csv_line(columns) + csv_row(first, columns) + csv_row(second, columns))
    # What stands first in a file and looks like a byte order mark is taken for one.
    marked = file.read_bytes().startswith(BOM_UTF8)

    with file.open("rb") as reader:
        rows = [record for _, record in READERS["csv"](reader)]

    assert marked or rows == [first, second]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | CELLS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CELLS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(JSON, max_size=5), st.lists(CELLS.filter(lambda t: not set(t) & {"\r", "\n"})))
def test_jsonl_and_text_come_back_as_they_were(tmp_path_factory, values, texts) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "j").write_bytes(b"".join(map(jsonl_line, values)))
    (folder / "t").write_bytes(b"".join(map(text_line, ["", *texts])))

    with (folder / "j").open("rb") as j, (folder / "t").open("rb") as t:
        assert [record for _, record in READERS["jsonl"](j)] == values
        assert [record for _, record in READERS["text"](t)] == ["", *texts]


# --- APPEND --------------------------------------------------------------------------------------


def test_lines_are_added_to_what_is_there(writing, tmp_path) -> None:
    (tmp_path / "out.dat").write_bytes(b"1\n")

    writing().write(2).finish()
    writing().write(3).finish()

    assert (tmp_path / "out.dat").read_bytes() == b"1\n2\n3\n"


def test_a_line_is_in_the_file_as_soon_as_its_message_is_worked_off(writing, tmp_path) -> None:
    made = writing().write({"n": 1})

    assert (tmp_path / "out.dat").read_bytes() == b'{"n":1}\n'
    made.write({"n": 2})
    assert (tmp_path / "out.dat").read_bytes() == b'{"n":1}\n{"n":2}\n'


def test_rows_go_under_the_names_that_the_file_already_has(writing, tmp_path) -> None:
    (tmp_path / "out.dat").write_bytes(BOM_UTF8 + b'"a","b c"\r\n1,2\r\n')
    made = writing(format="csv").write({"b c": 4, "a": 3})

    assert "the member `z` is not among the columns" in refusal(made, {"z": 1})
    assert (tmp_path / "out.dat").read_bytes().endswith(b"1,2\r\n3,4\n")


def test_a_file_whose_first_row_names_no_columns_is_refused(writing, tmp_path) -> None:
    (tmp_path / "out.dat").write_bytes(b"a,a\n")

    text = refusal(writing(format="csv"), {"a": 1})

    assert "option `path`: `out.dat` line 1: the column name `a` is there twice" in text


def test_a_last_line_that_was_cut_short_is_ended_first_and_that_is_told(writing, tmp_path) -> None:
    (tmp_path / "out.dat").write_bytes(b'{"n":1}\n{"n":')

    made = writing().write({"n": 2}, {"n": 3})

    assert (tmp_path / "out.dat").read_bytes() == b'{"n":1}\n{"n":\n{"n":2}\n{"n":3}\n'
    assert made.b.counts == [("cut_line", 1)]
    assert made.b.lines == [("out.dat: its last line had no end; written behind it", "stderr")]


def test_a_row_that_was_cut_inside_quotes_takes_nothing_of_the_next_one(writing, tmp_path) -> None:
    (tmp_path / "out.dat").write_bytes(b'a,b\n1,"open')

    writing(format="csv").write({"a": 2, "b": 3}).finish()

    with (tmp_path / "out.dat").open("rb") as file:
        assert [row for _, row in READERS["csv"](file)][-1] == {"a": "2", "b": "3"}


def test_a_fixed_file_is_there_even_without_a_message(writing, tmp_path) -> None:
    writing().finish()

    assert (tmp_path / "out.dat").read_bytes() == b""


# --- REPLACE -------------------------------------------------------------------------------------


def test_the_old_file_is_there_until_the_new_one_takes_its_place_whole(writing, tmp_path) -> None:
    out = tmp_path / "out.dat"
    out.write_bytes(b"old\n")
    out.chmod(0o640)
    made = writing(mode="REPLACE").write(1, 2)
    assert out.read_bytes() == b"old\n"

    made.finish()

    assert out.read_bytes() == b"1\n2\n"
    assert out.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["out.dat"]


def test_a_node_that_does_not_succeed_changes_nothing_and_leaves_nothing(writing, tmp_path) -> None:
    (tmp_path / "out.dat").write_bytes(b"old\n")

    writing(mode="REPLACE").write(1, 2).close()

    assert (tmp_path / "out.dat").read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["out.dat"]


def test_no_message_makes_an_empty_file(writing, tmp_path) -> None:
    (tmp_path / "out.dat").write_bytes(b"old\n")

    writing(mode="REPLACE").finish()

    assert (tmp_path / "out.dat").read_bytes() == b""


def test_a_link_stays_and_what_it_leads_to_is_replaced(writing, tmp_path) -> None:
    (tmp_path / "real.dat").write_bytes(b"old\n")
    (tmp_path / "out.dat").symlink_to("real.dat")

    writing(mode="REPLACE").write(1).finish()

    assert (tmp_path / "out.dat").is_symlink()
    assert (tmp_path / "real.dat").read_bytes() == b"1\n"


def test_a_place_that_cannot_be_taken_fails_the_node_and_leaves_nothing(writing, tmp_path) -> None:
    made = writing(mode="REPLACE").write(1)
    (tmp_path / "out.dat").mkdir()

    with pytest.raises(OSError, match=r"out\.dat` cannot be written: Is a directory"):
        made.finish()
    made.close()

    assert os.listdir(tmp_path) == ["out.dat"]


# --- paths that depend on the message ------------------------------------------------------------


def test_each_message_goes_to_the_file_that_it_names(writing, tmp_path) -> None:
    made = writing(path="${payload.to}.txt", format="csv", mode="REPLACE")

    made.write({"to": "a", "n": 1}, {"to": "b", "n": 2}, {"to": "./a", "n": 3}).finish()

    assert (tmp_path / "a.txt").read_bytes() == b"to,n\na,1\n./a,3\n"
    assert (tmp_path / "b.txt").read_bytes() == b"to,n\nb,2\n"


@pytest.mark.parametrize("mode", ["APPEND", "REPLACE"])
def test_more_files_than_may_be_open_lose_no_line(writing, tmp_path, mode) -> None:
    many = MAX_OPEN * 2 + 7
    made = writing(path="f${payload.n}", format="csv", mode=mode)
    before = len(os.listdir("/proc/self/fd"))

    made.write(*({"n": n, "round": r} for r in range(3) for n in range(many)))
    opened = len(os.listdir("/proc/self/fd")) - before
    made.finish()

    assert opened == MAX_OPEN
    assert len(os.listdir("/proc/self/fd")) == before
    assert sorted(os.listdir(tmp_path)) == sorted(f"f{n}" for n in range(many))
    assert all(
        (tmp_path / f"f{n}").read_bytes() == f"n,round\n{n},0\n{n},1\n{n},2\n".encode()
        for n in range(many)
    )


# --- where it may write --------------------------------------------------------------------------

SEC = pytest.mark.feature("SEC-03")


@SEC
@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("../out", "outside the folders"),
        ("/etc/passwd", "outside the folders"),
        ("link", "outside the folders"),
        ("gone", "outside the folders"),
        ("folder", "it is a folder"),
        ("pipe", "it is not a regular file"),
        ("none/x", "there is no folder"),
        ("a\0b", "no usable path"),
        ("x" * 300, "File name too long"),
    ],
)
def test_no_path_and_no_link_leads_where_it_must_not(bench, tmp_path, path, complaint) -> None:
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"s")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "gone").symlink_to(tmp_path / "not yet there")
    os.mkfifo(inside / "pipe")
    b = bench(allowed=(inside,))
    b.ctx.base_dir = inside
    made = Writing(b, path="${payload}")

    text = refusal(made, path)

    assert text.startswith("option `path`: ")
    assert complaint in text
    assert (tmp_path / "secret").read_bytes() == b"s"
    assert not (tmp_path / "not yet there").exists()


@SEC
def test_nothing_may_be_written_where_no_folder_is_allowed(bench) -> None:
    b = bench(allowed=())

    with pytest.raises(BadInputError, match=r"yukta\.files\.allowed-dirs"):
        SPEC.open(SPEC.config(path="out"), b.ctx)


@SEC
def test_a_fixed_path_is_checked_before_the_run(bench, tmp_path) -> None:
    where = {"settings": bench().ctx.settings, "base_dir": tmp_path}

    (fault,) = check_environment(SPEC, {"path": "none/out"}, **where)
    fine = check_environment(SPEC, {"path": "new"}, **where)
    later = check_environment(SPEC, {"path": "${payload.p}"}, **where)

    assert (fault.option, fault.code) == ("path", "file_not_usable")
    assert fine == later == []


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "path"),
        ({"path": ""}, "path"),
        ({"path": "x", "format": "xml"}, "format"),
        ({"path": "x", "mode": "append"}, "mode"),
        ({"path": "x", "fsync": True}, "fsync"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    (fault,) = check_config(SPEC, config)

    assert fault.option == option


# --- a disk that takes no more -------------------------------------------------------------------


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: the system refuses as it does when a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_with_path_and_reason_and_leaves_whole_lines(writing, tmp_path) -> None:
    made = writing(format="text").write("a" * 50)

    with (
        largest_file(80),
        pytest.raises(OSError, match=r"^`out\.dat` cannot be written: File too large$"),
    ):
        made.write("b" * 50)
    after = (tmp_path / "out.dat").read_bytes()
    made.write("c")

    assert after == b"a" * 50 + b"\n"
    assert (tmp_path / "out.dat").read_bytes() == after + b"c\n"


def test_a_header_that_did_not_fit_is_written_again(writing, tmp_path) -> None:
    made = writing(format="csv")
    with largest_file(6), pytest.raises(OSError, match="File too large"):
        made.write({"name": "x"})

    made.write({"name": "y"})

    assert (tmp_path / "out.dat").read_bytes() == b"name\ny\n"


# --- in whole runs -------------------------------------------------------------------------------

REPLACING = ("FILE_TERMINAL", {"path": "out", "mode": "REPLACE"})


def test_a_run_that_succeeds_replaces_the_file(line, tmp_path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    outcome = line.complete(REPLACING, payloads=list(range(1000)))

    assert outcome.status is TaskStatus.SUCCESS
    assert (tmp_path / "out").read_text().split() == [str(n) for n in range(1000)]


def test_a_run_that_fails_on_its_way_leaves_the_old_file_alone(line, tmp_path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    config = {"path": "out", "mode": "REPLACE", "format": "csv"}

    outcome = line.complete(("FILE_TERMINAL", config), payloads=[{"n": 1}, {"n": 2}, [3]])

    assert outcome.status is TaskStatus.FAILURE
    assert "option `format`" in outcome.error["detail"]
    assert (tmp_path / "out").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_run_whose_other_node_fails_leaves_the_old_file_alone(line, tmp_path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    @processor("FUSSY", blocking=False)
    def fussy(msg, cfg, ctx):
        """Refuse the number 5."""
        if msg.payload == 5:
            raise LookupError("five")
        return msg

    outcome = line.complete(("FUSSY", {}), REPLACING, payloads=list(range(10)), plugins=[fussy])

    assert outcome.status is TaskStatus.FAILURE
    assert (tmp_path / "out").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_run_that_is_cancelled_leaves_the_old_file_alone(line, tmp_path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    start = line.prepared(("DELAY", {"ms": 100}), REPLACING, payloads=list(range(100)))

    async def cancelled() -> None:
        run = start()
        async with asyncio.TaskGroup() as group:
            group.create_task(run.execute())
            await asyncio.sleep(1)
            run.stop(StopMode.CANCEL)

    run_virtual(cancelled())

    assert len(line.payloads) > 5
    assert (tmp_path / "out").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


def test_rows_that_a_trigger_reads_are_written_as_they_were(line, tmp_path) -> None:
    (tmp_path / "in").write_bytes(b'a,b\n1,"x\ny"\n2,\n')
    read = ("FILE_TRIGGER", {"path": "in", "format": "csv"})

    line.complete(read, ("FILE_TERMINAL", {"path": "out", "format": "csv"}))

    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


@SEC
def test_a_definition_with_a_path_that_is_not_allowed_is_refused(line) -> None:
    with pytest.raises(DefinitionError) as refused:
        line.run(("FILE_TERMINAL", {"path": "/etc/x"}), payloads=[])

    (fault,) = refused.value.errors
    assert (fault.node_id, fault.option, fault.code) == ("n0", "path", "file_not_usable")
