"""FILE_TRIGGER: records from a file, read exactly and only where that is allowed."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.nodes._records import MAX_LINE
from yukta_rx.nodes.file_trigger import FileTriggerConfig, file_trigger
from yukta_rx.plugins.contract import check_config, check_environment, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.feature("ENG-01")

SPEC = spec_of(file_trigger)


@pytest.fixture
def read(bench, tmp_path: Path) -> Callable[..., Any]:
    """Write bytes to a file and read it; returns payloads and the bench."""

    def run(data: bytes, **options: Any) -> tuple[list[Any], Any]:
        (tmp_path / "in.dat").write_bytes(data)
        b = bench()
        cfg = FileTriggerConfig.model_validate({"path": "in.dat"} | options)
        return [msg.payload for msg in file_trigger(cfg, b.ctx)], b

    return run


# --- jsonl ---------------------------------------------------------------------------------------


def test_each_line_of_jsonl_is_a_value(read) -> None:
    payloads, _ = read(b'{"a":1}\n\n[2]\r\n"x"\nnull\n  \n7')

    assert payloads == [{"a": 1}, [2], "x", None, 7]


def test_numbers_keep_all_their_digits(read) -> None:
    payloads, _ = read(b'{"n":123456789012345678901234567890,"f":1.0}\n')

    assert payloads == [{"n": 123456789012345678901234567890, "f": 1.0}]
    assert isinstance(payloads[0]["f"], float)


@pytest.mark.parametrize("line", [b"{nope}", b"NaN", b'{"a":Infinity}', b'"\\ud800"', b'"\xff"'])
def test_a_line_that_is_not_json_fails_and_names_file_and_line(read, line) -> None:
    with pytest.raises(BadInputError, match=r"^in\.dat line 2: "):
        read(b"1\n" + line + b"\n3\n")


def test_skipped_lines_are_counted_and_named(read) -> None:
    payloads, b = read(b"1\nx\n3\n{\n5\n", onBadLine="SKIP")

    assert payloads == [1, 3, 5]
    assert b.counts == [("bad_line", 1), ("bad_line", 1)]
    assert [(line.split(":")[0], stream) for line, stream in b.lines] == [
        ("in.dat line 2 skipped", "stderr"),
        ("in.dat line 4 skipped", "stderr"),
    ]


def test_a_line_beyond_the_bound_is_bad_and_the_next_one_is_read_again(read) -> None:
    long = b'"' + b"x" * MAX_LINE * 3 + b'"\n'

    payloads, b = read(b"1\n" + long + b"2\n" + long[:-1], onBadLine="SKIP")

    assert payloads == [1, 2]
    assert b.lines[0][0] == f"in.dat line 2 skipped: longer than {MAX_LINE} bytes"
    assert b.lines[1][0].startswith("in.dat line 4 ")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_of_just_the_bound_is_fine(read, end) -> None:
    payloads, _ = read(BOM_UTF8 + b"y" * MAX_LINE + end, format="text")

    assert [len(text) for text in payloads] == [MAX_LINE]


def test_a_byte_order_mark_is_no_part_of_the_first_line(read) -> None:
    assert read(BOM_UTF8 + b'{"a":1}\n')[0] == [{"a": 1}]
    assert read(BOM_UTF8 + b"a,b\n1,2\n", format="csv")[0] == [{"a": "1", "b": "2"}]
    assert read(BOM_UTF8 + b"a", format="text")[0] == ["a"]


@pytest.mark.parametrize("format", ["jsonl", "csv", "text"])
def test_an_empty_file_gives_no_message(read, format) -> None:
    assert read(b"", format=format)[0] == []
    assert read(BOM_UTF8, format=format)[0] == []


# --- text ----------------------------------------------------------------------------------------


def test_each_line_of_text_is_its_text_without_the_newline(read) -> None:
    payloads, _ = read("a\r\n\n b \u2028c\rd\n".encode(), format="text")

    assert payloads == ["a", "", " b \u2028c\rd"]


def test_a_line_of_text_beyond_the_bound_is_bad(read) -> None:
    payloads, b = read(b"a\n" + b"x" * (MAX_LINE + 1) + b"\nb", format="text", onBadLine="SKIP")

    assert payloads == ["a", "b"]
    assert b.counts == [("bad_line", 1)]


def test_text_that_is_not_utf8_is_bad_and_the_byte_is_named(read) -> None:
    with pytest.raises(BadInputError, match=r"line 1: not UTF-8 \(byte 0xe9 at column 4\)"):
        read(b"caf\xe9\n", format="text")


# --- csv -----------------------------------------------------------------------------------------


def test_each_row_of_csv_is_an_object_named_by_the_first_row(read) -> None:
    payloads, _ = read(b'id,name\n1,"Smith, J."\n\n2,"two\nlines ""here"""\n', format="csv")

    assert payloads == [{"id": "1", "name": "Smith, J."}, {"id": "2", "name": 'two\nlines "here"'}]


def test_what_a_short_row_lacks_is_null(read) -> None:
    assert read(b"a,b,c\n1\n", format="csv")[0] == [{"a": "1", "b": None, "c": None}]


def test_a_row_with_too_many_values_is_bad_and_the_line_it_begins_in_is_named(read) -> None:
    data = b'a,b\n1,"x\ny"\n1,2,3\n4,5\n'

    with pytest.raises(BadInputError, match=r"^in\.dat line 4: 3 values for 2 columns"):
        read(data, format="csv")
    payloads, b = read(data, format="csv", onBadLine="SKIP")

    assert payloads == [{"a": "1", "b": "x\ny"}, {"a": "4", "b": "5"}]
    assert b.counts == [("bad_line", 1)]


def test_wrong_quoting_is_bad_and_not_guessed_at(read) -> None:
    payloads, b = read(b'a,b\n"x"y,2\n3,4\n', format="csv", onBadLine="SKIP")

    assert payloads == [{"a": "3", "b": "4"}]
    assert b.lines[0][0].startswith("in.dat line 2 skipped: ")


def test_a_quote_that_is_never_closed_is_bad(read) -> None:
    with pytest.raises(BadInputError, match="line 2"):
        read(b'a,b\n1,"open\n2,3\n', format="csv")


def test_a_row_that_is_not_utf8_is_skipped_whole_even_over_several_lines(read) -> None:
    payloads, b = read(b'a,b\n1,"x\n\xff\nz"\n3,4\n', format="csv", onBadLine="SKIP")

    assert payloads == [{"a": "3", "b": "4"}]
    assert "line 2 skipped: not UTF-8" in b.lines[0][0]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"a,b,a\n1,2,3\n", "the column name `a` is there twice"),
        (b"\n1,2\n", "no column names"),
        (b"\xff,b\n1,2\n", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("policy", ["FAIL", "SKIP"])
def test_a_first_row_that_names_no_columns_fails_always(read, data, complaint, policy) -> None:
    with pytest.raises(BadInputError, match=f"line 1: {complaint}"):
        read(data, format="csv", onBadLine=policy)


def test_a_csv_line_beyond_the_bound_fails_always_since_its_row_has_no_known_end(read) -> None:
    with pytest.raises(BadInputError, match=r"in\.dat line 2: longer than"):
        read(b"a\n" + b"x" * (MAX_LINE + 10) + b"\n1\n", format="csv", onBadLine="SKIP")


# --- demand --------------------------------------------------------------------------------------


def test_no_more_is_read_than_is_asked_for(bench, tmp_path) -> None:
    (tmp_path / "in.dat").write_bytes(b"1\n2\nnot json\n")
    records = file_trigger(FileTriggerConfig(path="in.dat"), bench().ctx)

    assert [msg.payload for msg in islice(records, 2)] == [1, 2]


def test_the_file_is_closed_when_the_node_ends_early(bench, tmp_path) -> None:
    (tmp_path / "in.dat").write_bytes(b"1\n2\n")
    records = file_trigger(FileTriggerConfig(path="in.dat"), bench().ctx)
    next(records)
    opened = os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else []

    records.close()

    if opened:
        assert len(os.listdir("/proc/self/fd")) == len(opened) - 1


# --- where it may read ---------------------------------------------------------------------------

pytest_sec = pytest.mark.feature("SEC-03")


def refusal(bench: Any, path: str, **options: Any) -> str:
    with pytest.raises(BadInputError) as refused:
        list(file_trigger(FileTriggerConfig(path=path), bench(**options).ctx))
    return str(refused.value)


@pytest_sec
def test_nothing_may_be_read_where_no_folder_is_allowed(bench, tmp_path) -> None:
    (tmp_path / "in.dat").write_bytes(b"1\n")

    text = refusal(bench, "in.dat", allowed=())

    assert "yukta.files.allowed-dirs" in text


@pytest_sec
@pytest.mark.parametrize("path", ["../secret.txt", "sub/../../secret.txt", "/etc/passwd", "link"])
def test_no_path_and_no_link_leads_out_of_the_allowed_folders(bench, tmp_path, path) -> None:
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (tmp_path / "secret.txt").write_bytes(b"1\n")
    (inside / "link").symlink_to(tmp_path / "secret.txt")
    b = bench(allowed=(inside,))
    b.ctx.base_dir = inside

    with pytest.raises(BadInputError, match="outside the folders that file nodes may use"):
        list(file_trigger(FileTriggerConfig(path=path), b.ctx))


@pytest_sec
def test_a_folder_whose_name_only_begins_alike_is_not_allowed(bench, tmp_path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data-private").mkdir()
    (tmp_path / "data-private" / "x").write_bytes(b"1\n")

    assert "outside" in refusal(bench, "data-private/x", allowed=(tmp_path / "data",))


@pytest_sec
def test_an_allowed_folder_may_itself_be_a_link(bench, tmp_path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "x").write_bytes(b"1\n")
    (tmp_path / "link").symlink_to(real)
    b = bench(allowed=(tmp_path / "link",))

    cfg = FileTriggerConfig(path="link/x")

    assert [msg.payload for msg in file_trigger(cfg, b.ctx)] == [1]


@pytest_sec
def test_only_regular_files_are_read(bench, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert "cannot be read: No such file" in refusal(bench, "none.dat")
    assert "is not a regular file" in refusal(bench, "pipe")
    assert "is not a regular file" in refusal(bench, ".")
    assert "`loop" in refusal(bench, "loop").replace("'", "`")
    assert "no usable path" in refusal(bench, "a\0b")


@pytest_sec
def test_a_fixed_path_is_checked_before_the_run(bench, tmp_path) -> None:
    b = bench()
    where = {"settings": b.ctx.settings, "base_dir": tmp_path}

    (missing,) = check_environment(SPEC, {"path": "none.dat"}, **where)
    later = check_environment(SPEC, {"path": "${env.YUKTA_VAR_FILE}"}, **where)

    assert missing.option == "path"
    assert missing.code == "file_not_usable"
    assert later == []


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "path"),
        ({"path": ""}, "path"),
        ({"path": 1}, "path"),
        ({"path": "x", "format": "xml"}, "format"),
        ({"path": "x", "onBadLine": "DROP"}, "onBadLine"),
        ({"path": "x", "onBadline": "SKIP"}, "onBadline"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    (fault,) = check_config(SPEC, config)

    assert fault.option == option
