"""Regular expressions in bounded time: the same answers as Python's own, without its traps."""

from __future__ import annotations

import re
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.errors import BadInputError
from yukta_rx.security.patterns import MAX_TEXT, Pattern

pytestmark = pytest.mark.feature("CTL-02")

PATTERNS = [
    *("", "a", "abc", "a|b", "a|", "(a|b)*c", "a*", "a+b", "a?b", "^a", "a$", "^$", "^a|b$"),
    *("a{2}", "a{2,}", "a{,2}b", "^a{1,3}$", "(ab){2}", "(?:ab)+", "a.c", "[abc]+", "[^abc]"),
    *("[]a]", "[a-c]b", r"\d+", r"\w\W", r"\s", r"\.", r"\[a\]", r"a\b", r"\bb", r"\Bb", r"\Aab"),
    *(r"b\Z", "a*?b", "(a*)*", "((a|b)*c)*", "{a}", "a{x}", "a{,}", "x{0}a", r"\n", r"[\]a]b"),
    *(r"\$3\.50", "(((a)))", "(a|ab)(c|bcd)$", "a{0,2}$", "^(a?){3}a{3}$", "é+"),
]
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "aabbcc",
    "c\n",
    "\n",
    "a\nb",
    "a]",
    "[a]",
    "3",
    "x1 ",
    "é",
    "{a}",
]
TEXTS += ["$3.50", "aaa", "aaaa", "abcd", "_b", "a b", "a{x}", "a{,}"]


@pytest.mark.parametrize("source", PATTERNS)
def test_it_finds_what_the_standard_engine_finds(source: str) -> None:
    pattern, standard = Pattern(source), re.compile(source)

    assert {text: pattern.found_in(text) for text in TEXTS} == {
        text: standard.search(text) is not None for text in TEXTS
    }


def trees() -> st.SearchStrategy[str]:
    atoms = st.sampled_from([*"abc.", "[ab]", "[^a]", r"\w", r"\d", r"\b", "^", "$", r"\n"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{0,}"])).map(
                "(?:{0[0]}){0[1]}".format
            ),
        ),
        max_leaves=8,
    )


@settings(max_examples=400, deadline=None)
@given(trees(), st.text("abc1 \n", max_size=8))
def test_it_agrees_with_the_standard_engine_on_any_pattern(source: str, text: str) -> None:
    assert Pattern(source).found_in(text) is (re.search(source, text) is not None)


@pytest.mark.parametrize("source", ["(a+)+$", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)x", "(a|aa)+$"])
def test_a_pattern_that_hangs_the_standard_engine_takes_a_moment(source: str) -> None:
    began = process_time()
    Pattern(source).found_in("a" * 1_500 + "!")

    assert process_time() - began < 2


@pytest.mark.parametrize(
    "source",
    [
        *("(", "a**", "[a", "*", "a{2,1}", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?i)a"),
        *("(?P<n>a)", "a++", r"\x41", "a" * 501, "(a{100}){100}", "a{5000}", "(" * 400),
    ],
)
def test_what_is_malformed_too_large_or_unbounded_is_refused(source: str) -> None:
    with pytest.raises(BadInputError):
        Pattern(source)


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    assert Pattern("b").found_in("a" * (MAX_TEXT - 1) + "b")
    assert not Pattern("b").found_in("a" * MAX_TEXT + "b")
