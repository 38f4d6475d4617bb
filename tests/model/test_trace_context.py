"""traceparent: what the W3C recommendation allows, and that all else is ignored."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.message import NO_HEADERS
from yukta_rx.model.trace_context import parse_traceparent, trace_headers

pytestmark = pytest.mark.feature("OBS-05")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("header", "read"),
    [
        (GOOD, GOOD),
        (f" {GOOD}\t", GOOD),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-ff"),
        # A later version is read as far as this one goes.
        (f"01-{TRACE}-{SPAN}-01", GOOD),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", GOOD),
    ],
)
def test_a_good_header_is_taken(header: str, read: str) -> None:
    assert parse_traceparent(header) == read


@pytest.mark.parametrize(
    "header",
    [
        None,
        7,
        "",
        "nonsense",
        GOOD.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00_{TRACE}_{SPAN}_01",
        f"{GOOD}, {GOOD}",
        f"{GOOD}\r\nX-Other: 1",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 600}",
        GOOD.replace("4", "\u0664"),
    ],
)
def test_a_malformed_header_counts_as_none(header: Any) -> None:
    assert parse_traceparent(header) is None


@given(st.text(alphabet="0123456789abcdefg- \n\u00e9", max_size=70))
def test_whatever_is_taken_is_safe_to_send_on(header: str) -> None:
    read = parse_traceparent(header)

    assert read is None or re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", read)


def test_a_message_carries_it_in_its_headers() -> None:
    assert trace_headers(GOOD) == {"traceparent": GOOD}
    assert trace_headers(None) is NO_HEADERS
