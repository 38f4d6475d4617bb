"""Reading single values of settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from yukta_rx.config.settings import OnLimit, StoreType
from yukta_rx.config.units import (
    ByteSize,
    ExpectedError,
    parse,
    parse_duration,
    parse_size,
    show_duration,
    show_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("500ms", 0.5),
        ("10m", 600),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("1.5s", 1.5),
        ("0", 0),
    ],
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("raw", ["15", 15, 1.5, "s", "15 parsecs", "-3s", "", True, None, "1s,2s"])
def test_a_duration_without_a_unit_is_refused_with_an_example(raw: object) -> None:
    with pytest.raises(ExpectedError, match="a duration with a unit, such as 500ms, 15s"):
        parse_duration(raw)


def test_a_duration_beyond_what_time_can_hold_is_refused() -> None:
    with pytest.raises(ExpectedError, match="expected a duration below"):
        parse_duration("99999999999d")


def test_a_bare_zero_turns_a_duration_off() -> None:
    assert parse_duration(0) == timedelta(0)


@given(st.integers(0, 10**12))
def test_a_duration_reads_back_as_it_is_shown(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)

    assert parse_duration(show_duration(duration)) == duration


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        ("1MiB", 1024**2),
        ("1 MiB", 1024**2),
        ("4Ki", 4096),
        ("500kB", 500_000),
        ("500KB", 500_000),
        ("2GiB", 2 * 1024**3),
        ("3TB", 3 * 10**12),
        ("17", 17),
        (17, 17),
        ("0", 0),
    ],
)
def test_a_size_is_a_number_of_bytes_with_or_without_a_unit(raw: object, size: int) -> None:
    assert parse_size(raw) == size


@pytest.mark.parametrize("raw", ["1 ton", "-1", -1, "MiB", 1.5, True, None, "1.5MiB"])
def test_what_is_no_size_is_refused_with_an_example(raw: object) -> None:
    with pytest.raises(ExpectedError, match="expected a size such as 1MiB"):
        parse_size(raw)


@given(st.integers(0, 2**60))
def test_a_size_reads_back_as_it_is_shown(size: int) -> None:
    assert parse_size(show_size(size)) == size


def test_a_choice_is_read_in_any_case() -> None:
    assert parse(OnLimit, "reject", text=True) is OnLimit.REJECT
    assert parse(StoreType, "Postgres", text=False) is StoreType.POSTGRES


def test_in_memory_is_another_word_for_memory() -> None:
    assert parse(StoreType, "in-memory", text=False) is StoreType.MEMORY


def test_a_wrong_choice_lists_the_right_ones() -> None:
    with pytest.raises(ExpectedError, match="expected one of memory, file, postgres"):
        parse(StoreType, "postgress", text=False)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("ON", True), ("0", False)])
def test_text_gives_a_truth_value_in_the_usual_words(text: str, value: bool) -> None:
    assert parse(bool, text, text=True) is value


@pytest.mark.parametrize("raw", ["true", 1, "maybe"])
def test_a_typed_source_takes_only_true_and_false(raw: object) -> None:
    with pytest.raises(ExpectedError, match="expected true or false"):
        parse(bool, raw, text=False)


@pytest.mark.parametrize("raw", ["7", 7.0, True, "x"])
def test_a_typed_source_takes_only_whole_numbers(raw: object) -> None:
    with pytest.raises(ExpectedError, match="expected a whole number"):
        parse(int, raw, text=False)


def test_text_gives_a_whole_number() -> None:
    assert parse(int, " 7 ", text=True) == 7
    assert parse(int | None, "-7", text=True) == -7


def test_text_gives_a_list_at_its_commas() -> None:
    assert parse(tuple[str, ...], "a, b,,c", text=True) == ("a", "b", "c")


def test_a_typed_list_keeps_its_commas() -> None:
    assert parse(tuple[str, ...], ["a, b"], text=False) == ("a, b",)


def test_a_single_text_is_no_list() -> None:
    with pytest.raises(ExpectedError, match="expected a list"):
        parse(tuple[str, ...], "a", text=False)


def test_a_map_reads_each_of_its_values() -> None:
    assert parse(Mapping[str, ByteSize], {"a": "1Ki"}, text=False) == {"a": 1024}


def test_what_is_no_table_is_refused_as_a_map() -> None:
    with pytest.raises(ExpectedError, match="expected a table"):
        parse(Mapping[str, int], [1], text=False)


def test_a_secret_does_not_show_itself() -> None:
    secret = parse(SecretStr, "hunter2", text=True)

    assert "hunter2" not in repr(secret)


@pytest.mark.parametrize("raw", ["", "  ", "a\0b", 3])
def test_what_is_no_path_is_refused(raw: object) -> None:
    with pytest.raises(ExpectedError, match="expected a path"):
        parse(Path, raw, text=True)


def test_a_kind_that_nobody_can_read_is_a_mistake_of_the_declaration() -> None:
    with pytest.raises(TypeError, match="not supported"):
        parse(complex, "1j", text=True)
