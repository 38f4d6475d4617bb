"""SPLIT: an array becomes messages."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.nodes.split import SplitConfig, split
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-02")


def parts(payload: Any, path: str) -> list[Message]:
    msg = Message.of(payload, {"trace": "t"})
    return list(split(msg, SplitConfig(path=path), None))  # type: ignore[arg-type]


def test_each_element_is_a_message_with_the_headers_of_the_whole() -> None:
    out = parts({"items": [1, None, [2]]}, "items")

    assert [msg.payload for msg in out] == [1, None, [2]]
    assert all(msg.headers == {"trace": "t"} for msg in out)


def test_an_empty_array_gives_nothing() -> None:
    assert parts({"items": []}, "items") == []


def test_an_empty_path_is_a_payload_that_is_an_array() -> None:
    assert [msg.payload for msg in parts([1, 2], "")] == [1, 2]


def test_a_path_may_lead_through_arrays() -> None:
    assert [msg.payload for msg in parts([{"a": [5]}], "0.a")] == [5]


@pytest.mark.parametrize("payload", [{}, {"items": "abc"}, {"items": 1}, None])
def test_what_is_no_array_is_bad_input(payload) -> None:
    with pytest.raises(BadInputError, match="items"):
        parts(payload, "items")


def test_the_path_has_to_be_given() -> None:
    (fault,) = check_config(spec_of(split), {})

    assert (fault.option, fault.detail) == ("path", "is required")
