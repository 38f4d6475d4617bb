"""Identifiers: their one shape, and execution ids that sort by time."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.errors import BadRequestError
from yukta_rx.model.ids import ID_PATTERN, check_id, id_fault, new_execution_id

pytestmark = pytest.mark.feature("DEF-02")

HOSTILE = [
    *("", " ", "a b", "a/b", "a\\b", "x:y@z", "é", "%2F", "..", ".", "-a", "_a", "../../x"),
    *("a\n", "a\r\nevent: x", "a\x00b", "a\u2028b", "\uff41", "a" * 129, "a" * 300, "a'b", 'a"b'),
]


@pytest.mark.parametrize("text", ["a", "A", "0", "a.b_c-d", "a..b", "x" * 128, "CON"])
def test_an_id_of_the_documented_shape_is_returned_as_it_is(text):
    assert check_id("nodeId", text) == text


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_case_37_an_id_of_another_shape_is_refused_naming_its_kind(text):
    with pytest.raises(BadRequestError) as refusal:
        check_id("sessionId", text)

    assert refusal.value.code == "invalid_parameter"
    assert refusal.value.members == {"parameter": "sessionId"}
    assert refusal.value.detail.startswith("sessionId ")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_case_37_the_refusal_shows_no_control_characters_and_stays_short(text):
    fault = id_fault("nodeId", text)

    assert fault is not None
    assert fault.isprintable()
    assert fault.isascii()
    assert len(fault) < 300


@pytest.mark.parametrize("value", [None, 3, 1.5, True, ["a"], {"a": 1}, b"a"])
def test_an_id_that_is_no_text_is_a_fault(value):
    assert "must be a string" in str(id_fault("nodeId", value))


@given(st.text(max_size=140))
def test_the_check_agrees_with_the_published_pattern(text):
    published = re.match(ID_PATTERN.replace("$", r"\Z"), text) is not None

    assert (id_fault("nodeId", text) is None) == published


def test_execution_ids_are_uuid_version_7_and_valid_ids():
    made = UUID(new_execution_id())

    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert check_id("executionId", str(made)) == str(made)


def test_execution_ids_made_one_after_another_grow():
    made = [new_execution_id() for _ in range(20_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_execution_ids_grow_even_when_the_clock_steps_back(monkeypatch):
    first = new_execution_id()
    monkeypatch.setattr("yukta_rx.model.ids.time.time_ns", lambda: 0)

    assert new_execution_id() > first
