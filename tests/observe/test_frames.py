"""Frames: one block of bytes per event, whatever is in it."""

from __future__ import annotations

import decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.codec import loads_external
from yukta_rx.observe.frames import Frame, closing, json_safe, retry_line, standby

LINE_BREAKS = ["\n", "\r", "\r\n", "\u2028", "\u2029", "\x85", "\x0b", "\x0c"]


def read_events(stream: bytes) -> list[dict[str, str]]:
    """A reader as the specification of event streams has it, but cruel: every break breaks."""
    events: list[dict[str, str]] = []
    event: dict[str, str] = {}
    for line in stream.decode().splitlines():
        if not line:
            if event:
                events.append(event)
            event = {}
            continue
        name, _, value = line.partition(": ")
        event[name] = f"{event[name]}\n{value}" if name in event else value
    assert not event, "the last block has an end"
    return events


@pytest.mark.feature("OBS-01")
def test_a_frame_is_a_block_of_id_event_and_data() -> None:
    frame = Frame.of("node.status", {"a": 1}, id="e:7")

    assert frame.sse() == b'id: e:7\nevent: node.status\ndata: {"a":1}\n\n'


def test_an_unnamed_frame_leaves_out_the_event() -> None:
    frame = Frame.of("node.status", {"a": 1}, id="e:7")

    assert frame.sse(named=False) == b'id: e:7\ndata: {"a":1}\n\n'


def test_the_bytes_of_a_frame_are_made_once_per_form() -> None:
    frame = Frame.of("node.status", {"a": 1})

    assert frame.sse() is frame.sse()
    assert frame.sse(named=False) is frame.sse(named=False)


@pytest.mark.feature("OBS-01")
def test_closing_and_standby_say_when_to_come_back() -> None:
    assert read_events(closing("shutdown").sse()) == [
        {"retry": "1000", "event": "stream.closing", "data": '{"reason":"shutdown"}'}
    ]
    assert read_events(standby(None).sse()) == [
        {"retry": "5000", "event": "stream.standby", "data": '{"leader":null}'}
    ]
    assert retry_line(2000) == b"retry: 2000\n"


@pytest.mark.feature("OBS-01")
@pytest.mark.parametrize("text", [f"a{brk}event: spoof{brk}{brk}data: b" for brk in LINE_BREAKS])
def test_case_31_text_with_a_line_break_stays_one_event_and_one_string(text: str) -> None:
    stream = Frame.of("node.log", {"line": text}, id="e:1").sse()

    [event] = read_events(stream)
    assert event["event"] == "node.log"
    assert loads_external(event["data"]) == {"line": text}


@pytest.mark.parametrize("brk", ["\n", "\r", "\0"])
def test_case_31_a_type_or_id_with_a_line_break_is_refused(brk: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        Frame("x" + brk, b"{}")
    with pytest.raises(ValueError, match="line break"):
        Frame("x", b"{}", id=f"1{brk}")


def test_case_31_data_of_more_than_one_line_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        Frame("x", b'{\n"a":1}')


@pytest.mark.feature("OBS-01")
@pytest.mark.parametrize("separator", ["\u2028", "\u2029"])
def test_case_32_a_line_separator_is_sent_escaped(separator: str) -> None:
    made = Frame.of("node.log", {"line": f"a{separator}b"}).sse()
    given = Frame("node.log", f'{{"line":"a{separator}b"}}'.encode()).sse()

    assert made == given
    assert separator.encode() not in made
    assert [loads_external(event["data"]) for event in read_events(made)] == [
        {"line": f"a{separator}b"}
    ]


@pytest.mark.feature("OBS-01")
@given(st.lists(st.tuples(st.text(max_size=20), st.booleans()), max_size=5))
def test_case_32_any_text_comes_out_as_it_went_in(lines: list[tuple[str, bool]]) -> None:
    stream = b"".join(Frame.of("node.log", {"line": text}).sse(named) for text, named in lines)

    found = [loads_external(event["data"])["line"] for event in read_events(stream)]
    assert found == [text for text, _ in lines]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("half \udc80", "half \\udc80"),
        ({"a": {1}}, {"a": {"unserialisable": "set"}}),
        ([object()], [{"unserialisable": "object"}]),
        ({1: "x", "y": {2}}, {"1": "x", "y": {"unserialisable": "set"}}),
        ([decimal.Decimal("1.5"), {3}][:1], [{"$yukta": "decimal", "v": "1.5"}]),
    ],
)
def test_what_json_cannot_show_is_marked_and_the_rest_is_kept(value: Any, shown: Any) -> None:
    assert loads_external(Frame.of("x", value).data) == shown


def test_what_is_nested_too_deep_is_cut_and_marked() -> None:
    value: Any = []
    for _ in range(2000):
        value = [value]

    assert b"nested too deep" in Frame.of("x", value).data


def test_a_value_that_json_can_show_is_left_alone() -> None:
    value = {"a": [1, "x"]}

    assert json_safe(value) is value
    assert json_safe({"a": {1}}) == {"a": {"unserialisable": "set"}}
