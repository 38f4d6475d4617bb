"""Previews: short, JSON where that is possible, and as quick for a large payload as for a small."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.preview import LONGEST, preview

pytestmark = pytest.mark.feature("CTL-05")

ANY = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
        st.characters(categories=["Cs"]),
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"n": 1, "a": [1.5, None, True, "x"]}, '{"n":1,"a":[1.5,null,true,"x"]}'),
        ("text", '"text"'),
        (None, "null"),
        (
            {1: b"x", "when": datetime(2026, 1, 1, tzinfo=UTC)},
            '{"1":"<bytes>","when":"<datetime>"}',
        ),
        (10**30, '"<a number of 100 bits>"'),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}}, None),
    ],
)
def test_a_small_payload_is_shown_as_json(payload: Any, text: str | None) -> None:
    shown = preview(payload)

    assert shown == text if text is not None else "…" in shown


@given(ANY)
def test_whatever_it_is_there_is_a_short_text_that_can_be_sent(payload: Any) -> None:
    text = preview(payload)

    assert len(text) <= LONGEST
    assert text.encode()


def test_a_large_payload_takes_no_longer_than_a_small_one() -> None:
    large = {"rows": [{"text": "x" * 100_000, "n": n} for n in range(1000)], "more": [0] * 10**6}

    began = perf_counter()
    texts = [preview(large) for _ in range(100)]

    assert perf_counter() - began < 2
    assert set(map(len, texts)) == {LONGEST}
    assert texts[0].endswith("…")
