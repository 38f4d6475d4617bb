"""Lines of JSON pointers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.cli.locate import LineMap
from yukta_rx.errors import json_pointer

pytestmark = pytest.mark.feature("DEF-02")

TEXT = """{
  "a/b": 1,
  "list": [
    {"x": "} ] , : \\" {"},
    [2,
     3]
  ],
  "last": {"~": null}
}
"""


@pytest.mark.parametrize(
    ("pointer", "line"),
    [
        ("", 1),
        ("/a~1b", 2),
        ("/list", 3),
        ("/list/0", 4),
        ("/list/0/x", 4),
        ("/list/1/0", 5),
        ("/list/1/1", 6),
        ("/last/~0", 8),
    ],
)
def test_a_member_is_at_the_line_of_its_name_or_value(pointer, line) -> None:
    assert LineMap(TEXT).line(pointer) == line


@pytest.mark.parametrize(("pointer", "line"), [("/list/1/9", 5), ("/list/0/y/z", 4), ("/no", 1)])
def test_what_is_not_there_is_where_its_surroundings_are(pointer, line) -> None:
    assert LineMap(TEXT).line(pointer) == line


def test_of_a_repeated_name_the_last_one_counts_as_for_the_reader() -> None:
    assert LineMap('{"a": 1,\n"a": 2}').line("/a") == 2


def test_depth_costs_no_stack() -> None:
    depth = 5000

    assert LineMap("[\n" * depth + "]" * depth).line("/0" * (depth - 1)) == depth


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=30,
    )
)
def test_every_place_of_any_document_has_its_own_line(value) -> None:
    lines = LineMap(json.dumps(value, indent=1))
    pending = [((), value)]
    seen = set()
    while pending:
        path, item = pending.pop()
        seen.add(lines.line(json_pointer(path)))
        members = (
            item.items()
            if isinstance(item, dict)
            else enumerate(item)
            if isinstance(item, list)
            else ()
        )
        pending += [((*path, key), below) for key, below in members]

    text = json.dumps(value, indent=1)
    closers = sum(line.strip().rstrip(",") in ("]", "}") for line in text.splitlines())
    assert len(seen) == len(text.splitlines()) - closers
