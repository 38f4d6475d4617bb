"""TRANSFORM: a new payload from the old one, exactly."""

from __future__ import annotations

import copy
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.nodes.transform import transform
from yukta_rx.plugins.contract import bind_config, check_config, spec_of
from yukta_rx.security.variables import Scope

pytestmark = pytest.mark.feature("ENG-02")

SPEC = spec_of(transform)


def transformed(payload: Any, config: dict[str, Any]) -> Any:
    msg = Message.of(payload, {"trace": "t1"})
    cfg = bind_config(SPEC, config).resolve(Scope(msg, environ={}))
    return transform(msg, cfg, None).payload  # type: ignore[arg-type]


def test_set_adds_and_replaces_members_and_keeps_all_others() -> None:
    assert transformed({"a": 1, "b": 2}, {"set": {"b": 3, "c": None}}) == {
        "a": 1,
        "b": 3,
        "c": None,
    }


def test_members_keep_their_order_and_new_ones_come_last() -> None:
    result = transformed({"a": 1, "b": 2}, {"set": {"c": 0, "a": 9}})

    assert list(result) == ["a", "b", "c"]


def test_a_dotted_path_reaches_inside_and_makes_objects_on_the_way() -> None:
    assert transformed({"box": {"v": 1, "w": 2}}, {"set": {"box.v": 5, "new.deep.x": True}}) == {
        "box": {"v": 5, "w": 2},
        "new": {"deep": {"x": True}},
    }


def test_a_number_in_a_path_is_a_place_in_an_array() -> None:
    assert transformed({"rows": [{"n": 1}, {"n": 2}]}, {"set": {"rows.1.n": 7}}) == {
        "rows": [{"n": 1}, {"n": 7}]
    }


def test_an_expression_takes_its_value_from_the_message_as_it_came_in() -> None:
    config = {"set": {"a": "${payload.b:json}", "b": "${payload.a:json}"}}

    assert transformed({"a": 1, "b": [2]}, config) == {"a": [2], "b": 1}


def test_types_are_what_the_expression_says() -> None:
    config = {
        "set": {
            "number": "${payload.x:number}",
            "whole": "${payload.x:int}",
            "text": "${payload.x}",
            "mixed": "<${payload.x}>",
            "inner": {"deep": ["${payload.x:int}", "$${payload.x}"]},
        },
        "remove": ["x"],
    }

    assert transformed({"x": "12"}, config) == {
        "number": 12,
        "whole": 12,
        "text": "12",
        "mixed": "<12>",
        "inner": {"deep": [12, "${payload.x}"]},
    }


def test_remove_takes_members_out_and_does_not_mind_if_they_are_not_there() -> None:
    config = {"remove": ["a", "box.v", "rows.0", "nothing.here", "box.v.deeper"]}

    assert transformed({"a": 1, "box": {"v": 1, "w": 2}, "rows": [7, 8]}, config) == {
        "box": {"w": 2},
        "rows": [8],
    }


def test_remove_comes_before_set_so_a_member_can_be_renamed_onto_itself() -> None:
    config = {"remove": ["a"], "set": {"a.inner": "${payload.a:json}"}}

    assert transformed({"a": 1}, config) == {"a": {"inner": 1}}


def test_replace_starts_from_a_new_payload() -> None:
    config = {"replace": {"id": "${id}", "old": "${payload:json}"}, "set": {"x": 1}}

    result = transformed([1, 2], config)

    assert result["old"] == [1, 2]
    assert result["x"] == 1
    assert len(result["id"]) == 32


@pytest.mark.parametrize("value", [None, 0, "", [], "text", False])
def test_replace_takes_any_value_also_null(value) -> None:
    assert transformed({"a": 1}, {"replace": value}) == value


def test_the_empty_path_is_the_payload_itself() -> None:
    assert transformed({"a": {"b": 2}}, {"set": {"": "${payload.a:json}", "c": 3}}) == {
        "b": 2,
        "c": 3,
    }


def test_removing_the_payload_itself_leaves_null() -> None:
    assert transformed({"a": 1}, {"remove": [""]}) is None


def test_headers_and_message_stay_what_they_were() -> None:
    msg = Message.of({"a": 1}, {"trace": "t1"})
    cfg = bind_config(SPEC, {"set": {"a": 2}}).constant

    out = transform(msg, cfg, None)  # type: ignore[arg-type]

    assert out.headers == {"trace": "t1"}
    assert msg.payload == {"a": 1}


def test_a_value_of_the_configuration_is_a_fresh_object_each_time() -> None:
    cfg = bind_config(SPEC, {"set": {"list": []}}).constant
    first = transform(Message.of({}), cfg, None).payload  # type: ignore[arg-type]

    first["list"].append("changed by a careless plugin")

    assert transform(Message.of({}), cfg, None).payload == {"list": []}  # type: ignore[arg-type]


def test_exact_values_stay_exact() -> None:
    payload = {"big": 2**80, "dec": Decimal("1.10"), "float": 0.1 + 0.2, "bytes": b"\x00"}

    result = transformed(payload, {"set": {"copy": "${payload.big:json}"}})

    assert result == {**payload, "copy": 2**80}
    assert result["dec"] is payload["dec"]


@pytest.mark.parametrize(
    ("payload", "config", "complaint"),
    [
        (None, {"set": {"a": 1}}, "cannot set or remove `a`: it lies inside null"),
        ("text", {"set": {"a": 1}}, "it lies inside text"),
        ({"a": 5}, {"set": {"a.b": 1}}, "`a.b`: it lies inside a number"),
        ({"a": [1]}, {"set": {"a.1": 1}}, "`a.1`: the array has 1 elements and no `1`"),
        ({"a": [1]}, {"set": {"a.x": 1}}, "no `x`"),
        ({"a": [1]}, {"set": {"a.-1": 1}}, "no `-1`"),
        ({}, {"set": {"a": "${payload.b}"}}, "`set`: `..payload.b.` has no value"),
    ],
)
def test_a_target_that_cannot_be_reached_is_bad_input(payload, config, complaint) -> None:
    with pytest.raises(BadInputError, match=complaint):
        transformed(payload, config)


@pytest.mark.parametrize(
    ("config", "detail"),
    [
        ({}, "needs at least one of set, remove and replace"),
        ({"set": {"a..b": 1}}, "the path `a..b` has an empty part"),
        ({"set": {"${id}": 1}}, "the path `..id.` holds an expression; a path is fixed text"),
        ({"set": [1]}, "must be an object"),
        ({"remove": "a"}, "must be an array"),
        ({"remove": [1]}, "must be text"),
        ({"sets": {}}, "is not an option; did you mean `set`?"),
    ],
)
def test_wrong_options_are_refused_before_the_run(config, detail) -> None:
    import re

    found = [fault.detail for fault in check_config(SPEC, config)]

    assert any(re.search(detail.replace("?", r"\?"), text) for text in found), found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "0", "1"]), inner, max_size=3)
    ),
    max_leaves=12,
)
paths = st.lists(st.sampled_from(["a", "b", "0", "1"]), min_size=1, max_size=3).map(".".join)


@given(
    payload=json_values,
    sets=st.dictionaries(paths, json_values, max_size=4),
    remove=st.lists(paths, max_size=3),
)
def test_the_old_payload_is_never_changed_whatever_is_asked(payload, sets, remove) -> None:
    before = copy.deepcopy(payload)
    config = {"set": sets, "remove": remove}
    asked = copy.deepcopy(config)
    cfg = bind_config(SPEC, config).constant

    for _ in range(2):
        with suppress(BadInputError):
            transform(Message.of(payload), cfg, None)  # type: ignore[arg-type]

    assert payload == before
    assert cfg.model_dump() == {**asked, "replace": None}  # type: ignore[union-attr]
