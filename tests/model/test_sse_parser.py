"""The parser of event streams: the standard's rules, however the bytes are cut."""

from __future__ import annotations

import itertools
import re
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.sse_parser import EventTooLargeError, SseEvent, SseParser

pytestmark = pytest.mark.feature("OBS-01")


def parse(text: str | bytes) -> list[SseEvent]:
    return SseParser().feed(text if isinstance(text, bytes) else text.encode())


def test_an_event_has_type_data_and_id() -> None:
    assert parse("id: e:7\nevent: node.status\ndata: {}\n\n") == [
        SseEvent("node.status", "{}", "e:7")
    ]


def test_lines_of_data_are_joined_and_one_blank_behind_the_colon_is_no_part_of_them() -> None:
    assert parse("data:a\ndata:  b\ndata\n\n") == [SseEvent("message", "a\n b\n", "")]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_each_of_the_three_line_breaks_ends_a_line(end) -> None:
    assert parse(f"data: a{end}{end}data: b{end}{end}") == [
        SseEvent("message", "a", ""),
        SseEvent("message", "b", ""),
    ]


def test_a_carriage_return_ends_an_event_before_more_is_known() -> None:
    parser = SseParser()

    assert parser.feed(b"data: a\r\r") == [SseEvent("message", "a", "")]
    assert parser.feed(b"\ndata: b\r\n\r\n") == [SseEvent("message", "b", "")]


def test_an_id_stays_in_force_until_another_one_and_an_empty_one_takes_it_away() -> None:
    events = parse("id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n")

    assert [event.id for event in events] == ["1", "1", ""]


def test_an_id_with_a_nul_is_passed_over() -> None:
    assert [event.id for event in parse("id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n")] == ["1", "1"]


def test_a_block_without_data_is_no_event_but_its_id_counts() -> None:
    parser = SseParser()

    assert parser.feed(b"id: 5\nevent: x\n\n") == []
    assert parser.last_id == "5"
    assert parser.feed(b"data: a\n\n") == [SseEvent("message", "a", "5")]


def test_an_id_counts_only_once_its_event_is_whole() -> None:
    parser = SseParser()

    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")

    assert parser.last_id == "1"


def test_comments_and_fields_that_are_not_known_are_passed_over() -> None:
    assert parse(": ping\n\nfoo: bar\ndata: a\n: more\n\n") == [SseEvent("message", "a", "")]


def test_retry_takes_digits_only() -> None:
    parser = SseParser()

    parser.feed(b"retry: 250\nretry: 3s\nretry: -1\nretry:\n")

    assert parser.retry_ms == 250


def test_one_byte_order_mark_at_the_begin_is_no_part_of_the_first_line() -> None:
    mark = b"\xef\xbb\xbf"

    assert parse(mark + b"data: a\n\n") == [SseEvent("message", "a", "")]
    assert parse(mark + mark + b"data: a\n\n") == []
    assert parse(b"data: a\n\n" + mark + b"data: b\n\n") == [SseEvent("message", "a", "")]


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert parse(b"data: caf\xe9\n\n") == [SseEvent("message", "caf\ufffd", "")]


# --- a bound -------------------------------------------------------------------------------------

TOO_LARGE = [
    b"data: 0123456789abcdef\n\n",
    b"data: 012345\ndata: 6789ab\n\n",
    b": a comment that is long\n\n",
    b"data: without any end ...",
]


@pytest.mark.parametrize("stream", TOO_LARGE)
def test_what_is_larger_than_the_bound_is_refused_however_it_is_cut(stream) -> None:
    with pytest.raises(EventTooLargeError, match="larger than 20 bytes"):
        SseParser(limit=20).feed(stream)
    bytewise = SseParser(limit=20)
    with pytest.raises(EventTooLargeError):
        deque(map(bytewise.feed, (bytes([byte]) for byte in stream)))


def test_events_and_comments_within_the_bound_never_add_up() -> None:
    parser = SseParser(limit=20)

    events = parser.feed(b"data: 0123456789abcd\n\n: ping\n" * 100)

    assert events == [SseEvent("message", "0123456789abcd", "")] * 100


@pytest.mark.parametrize("stream", TOO_LARGE)
def test_events_before_one_that_is_too_large_are_given_first(stream) -> None:
    parser = SseParser(limit=20)

    assert parser.feed(b"id: 1\ndata: a\n\n" + stream) == [SseEvent("message", "a", "1")]
    with pytest.raises(EventTooLargeError):
        parser.feed(b"")
    assert parser.last_id == "1"


# --- however it is cut ---------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("data", "event", "id", "retry", "foo", ":", " ", "\r", "\n", "\r\n", "\n\n", "\r\r"),
        *("\ufeff", "\0", "12", "ä", "\u2028", "\U0001f600", "data: x\n\n", "id: 9\r\n"),
    ]
)
STREAMS = st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(borders)]


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=12))
def test_chunking_never_matters(text, places) -> None:
    data = text.encode(errors="surrogatepass").replace(b"\xed", b"?")
    whole, pieces, single = SseParser(), SseParser(), SseParser()

    expected = whole.feed(data)
    cut_up = [event for chunk in cut(data, places) for event in pieces.feed(chunk)]
    bytewise = [event for byte in data for event in single.feed(bytes([byte]))]

    assert cut_up == bytewise == expected
    assert pieces.last_id == single.last_id == whole.last_id
    assert pieces.retry_ms == single.retry_ms == whole.retry_ms


@given(STREAMS)
def test_it_agrees_with_the_standard_told_line_by_line(text) -> None:
    data = text.encode(errors="replace")

    assert parse(data) == told(data.decode())


def told(text: str) -> list[SseEvent]:
    """The standard's own words, over the whole text at once."""
    events, buffer, kind, last = [], "", "", ""
    *lines, _unfinished = re.split("\r\n|\r|\n", text.removeprefix("\ufeff"))
    for line in lines:
        if line == "":
            if buffer != "":
                events.append(SseEvent(kind or "message", buffer.removesuffix("\n"), last))
            buffer, kind = "", ""
            continue
        field, colon, value = line.partition(":")
        if field == "" and colon:
            continue
        value = value.removeprefix(" ")
        if field == "data":
            buffer += value + "\n"
        elif field == "event":
            kind = value
        elif field == "id" and "\0" not in value:
            last = value
    return events


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(blacklist_characters="\r\n\0", codec="utf-8"), max_size=8),
            st.text(st.characters(blacklist_characters="\r\n", codec="utf-8"), max_size=20),
        ),
        max_size=8,
    )
)
def test_what_the_server_writes_comes_back(pairs) -> None:
    stream = "".join(f"id: {id}\nevent: t\ndata: {data}\n\n" for id, data in pairs)

    assert parse(stream) == [SseEvent("t", data, id) for id, data in pairs]
