"""Marbles: one line of text that says what came when."""

from __future__ import annotations

from typing import Any

import pytest
from reactivex.testing.marbles import marbles_testing

from yukta_rx.model.status import TaskStatus
from yukta_rx.testing.marble import LONGEST, Marble, draw

pytestmark = pytest.mark.feature("EXT-01")


def drawn(
    *messages: tuple[float, Any],
    end: float | None = None,
    status: str = "SUCCESS",
    now: float = 0.0,
    **options: Any,
) -> str:
    """What is drawn, as a plain text: a Marble would equal more than itself."""
    ended = None if end is None else (end, TaskStatus(status))
    return str.__str__(draw(messages, end=ended, now=now, **options))


# -- time


def test_one_character_is_one_timespan() -> None:
    assert list(drawn((0, "a"), (2, "b"), (4, "c"), end=6)) == list("a-b-c-|")


def test_what_comes_within_one_timespan_is_a_group_with_the_end() -> None:
    assert list(drawn((0, "a"), (2, "b"), (4.2, "c"), end=4.9)) == list("a-b-(c|)")
    assert list(drawn((1, "a"), (1, "b"), end=7)) == list("-(ab)--|")


def test_a_group_takes_as_many_timespans_as_it_has_characters() -> None:
    assert list(drawn((1, "a"), (1, "b"), (5, "c"), end=6)) == list("-(ab)c|")


def test_what_has_no_room_behind_a_group_asks_for_a_shorter_timespan() -> None:
    with pytest.raises(ValueError, match=r"after 4 s has no room behind \(ab\); give a shorter"):
        drawn((1, "a"), (1, "b"), (4, "c"))

    assert list(drawn((1, "a"), (1, "b"), (4, "c"), end=4.5, timespan=0.5)) == list("--(ab)--c|")


def test_the_timespan_is_in_seconds() -> None:
    assert drawn((0.1, "a"), (0.3, "b"), end=0.4, timespan=0.1) == "-a-b|"
    assert drawn((60, "a"), (180, "b"), end=240, timespan=60) == "-a-b|"


def test_rounding_does_not_move_a_message_into_the_timespan_before() -> None:
    assert drawn((0.1 + 0.2, "a"), (0.7 - 1e-9, "b"), end=0.8, timespan=0.1) == "---a---b|"


@pytest.mark.parametrize("timespan", [0, -1, float("nan")])
def test_a_timespan_that_is_none_is_refused(timespan: float) -> None:
    with pytest.raises(ValueError, match="a number of seconds above 0"):
        drawn(timespan=timespan)


def test_a_timespan_that_is_far_too_short_is_refused() -> None:
    assert len(drawn((LONGEST, "a"), end=LONGEST)) > LONGEST
    with pytest.raises(ValueError, match=r"3600000 timespans of 0\.001 s are too many"):
        drawn((3600, "a"), end=3600, timespan=0.001)


# -- ends


@pytest.mark.parametrize(
    ("status", "mark"),
    [
        *(("SUCCESS", "|"), ("STOPPED", "|"), ("SKIPPED", "|")),
        *(("FAILURE", "#"), ("ERROR", "#"), ("TIMED_OUT", "#"), ("UPSTREAM_FAILED", "#")),
        *(("ABORTED", "#"), ("CANCELLED", "!")),
    ],
)
def test_the_end_says_how_it_ended(status: str, mark: str) -> None:
    assert drawn((0, "a"), end=2, status=status) == f"a-{mark}"


def test_every_end_has_a_mark() -> None:
    ends = [status for status in TaskStatus if status.terminal]

    assert {drawn(end=0, status=status) for status in ends} == {"|", "#", "!"}


def test_what_goes_on_is_drawn_up_to_now() -> None:
    assert drawn((1, "a"), now=4.5) == "-a--"
    assert drawn(now=0.5) == ""
    assert drawn((2, "a"), now=2.5) == "--a"


# -- names


def test_payloads_that_are_no_names_are_called_a_b_c() -> None:
    assert drawn((0, {"n": 1}), (1, [2]), (2, "long"), end=3) == "abc|"


def test_equal_payloads_share_a_name() -> None:
    assert drawn((0, {"n": 1}), (1, {"n": 2}), (2, {"n": 1}), end=3) == "aba|"


def test_a_payload_of_one_letter_or_digit_is_its_own_name() -> None:
    assert drawn((0, 1), (1, "k"), (2, 9), end=3) == "1k9|"


def test_what_only_looks_alike_does_not_share_a_name() -> None:
    assert drawn((0, 1), (1, True), (2, 1.0), end=3) == "1ab|"
    assert drawn((0, "X"), (1, 10), (2, -1), end=3) == "abc|"


def test_names_that_are_taken_are_not_given_again() -> None:
    assert drawn((0, {"n": 1}), (1, "a"), (2, {"n": 2}), end=3) == "bac|"


def test_lookup_gives_the_names() -> None:
    lookup = {"p": {"n": 1}, "q": {"n": 2}}

    assert drawn((0, {"n": 2}), (1, {"n": 1}), (2, {"n": 3}), end=3, lookup=lookup) == "qpa|"


@pytest.mark.parametrize("name", ["X", "ab", "", "-", "|", "é"])
def test_a_name_that_cannot_be_drawn_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        drawn(lookup={name: 1})


def test_beyond_the_alphabet_names_are_stars() -> None:
    line = drawn(*((n, {"n": n}) for n in range(60)), end=60)

    assert line[25:28] == "zAB"
    assert "X" not in line
    assert line.endswith("Z*********|")


# -- comparing


@pytest.mark.parametrize("text", ["a-b-(c|)", "a - b - (c|)", " a-b-( c | ) ", "a-b-(c|)\n"])
def test_spaces_say_nothing(text: str) -> None:
    marble = Marble("a-b-(c|)")

    assert marble == text
    assert text == marble
    assert (marble != text) is False


@pytest.mark.parametrize("text", ["a-b-c|", "a-b--(c|)", "a-b-(c#)", "a-b-(d|)", "a-b-(c,|)", ""])
def test_everything_else_says_something(text: str) -> None:
    assert Marble("a-b-(c|)") != text
    assert text != Marble("a-b-(c|)")


def test_an_x_is_a_failure_as_in_the_operators_pages() -> None:
    assert Marble("--a--#") == "--a--X"
    assert Marble("--a--#") != "--a--|"


def test_a_marble_is_equal_to_no_other_thing() -> None:
    assert Marble("a") != 1
    assert Marble("1") != 1


# -- the same language as reactivex


@pytest.mark.parametrize("line", ["-a-b--c-|", "a--b--#", "-1-2-3-|", "|", "---#"])
def test_what_reactivex_reads_is_drawn_as_it_was_written(line: str) -> None:
    with marbles_testing(timespan=1.0) as (_start, _cold, _hot, exp):
        records = exp(line, None, None)

    begin = 200
    messages = [(r.time - begin, r.value.value) for r in records if r.value.kind == "N"]
    last = records[-1]
    end = (last.time - begin, TaskStatus.SUCCESS if last.value.kind == "C" else TaskStatus.FAILURE)
    assert draw(messages, end=end, now=0) == line
