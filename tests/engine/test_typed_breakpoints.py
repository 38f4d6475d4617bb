"""Breakpoints that compare by type, pattern or condition, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.engine.breakpoints import OPS, Breakpoint
from yukta_rx.errors import ValidationError
from yukta_rx.model.message import Message

pytestmark = pytest.mark.feature("CTL-02")

PAYLOAD = {
    "n": 3,
    "price": 2.5,
    "exact": Decimal("2.50"),
    "text": "order-17",
    "digits": "12",
    "on": True,
    "none": None,
    "tags": ["a", {"b": 1}],
    "odd": object(),
    "nan": float("nan"),
    "worse": Decimal("sNaN"),
}


def holds(expression: str, op: str, value: Any = None, payload: Any = PAYLOAD) -> bool:
    return Breakpoint(expression, op=op, value=value)(Message.of(payload, {"who": "me"}, "m-1"))


@pytest.mark.parametrize(
    ("expression", "op", "value"),
    [
        ("payload.n", "equals", 3),
        ("payload.n", "equals", "3"),
        ("payload.on", "equals", True),
        ("payload.none", "equals", "null"),
        ("payload.tags", "equals", ["a", {"b": 1}]),
        ("payload.tags.1.b", "equals", 1),
        ("metadata.who", "equals", "me"),
        ("headers.who", "equals", "me"),
        ("id", "equals", "m-1"),
        ("payload.n", "!=", 4),
        ("payload.text", "!=", "order"),
        ("payload.n", ">", 2),
        ("payload.n", ">", 2.9),
        ("payload.n", ">", "2"),
        ("payload.n", "<", "3.5"),
        ("payload.n", "<", 10**40),
        ("payload.price", "<", 3),
        ("payload.exact", ">", 2),
        ("payload.exact", "<", Decimal("2.51")),
        ("payload.text", ">", "order-1"),
        ("payload.digits", ">", "11"),
        ("payload.n", "in", [1, 2, 3]),
        ("payload.n", "in", '["3"]'),
        ("payload.on", "in", [False, True]),
        ("payload.text", "matches", r"^order-\d+$"),
        ("payload.n", "matches", "^3$"),
        ("payload.tags", "matches", '"b":1'),
        ("payload.n", "exists", None),
        ("payload.n", "exists", True),
        ("payload.odd", "exists", "true"),
        ("payload.none", "exists", None),
        ("payload.nothing", "exists", False),
        ("metadata.nothing", "exists", "false"),
    ],
)
def test_it_holds(expression: str, op: str, value: Any) -> None:
    assert holds(expression, op, value)


@pytest.mark.parametrize(
    ("expression", "op", "value"),
    [
        ("payload.n", "equals", 3.0),
        ("payload.on", "equals", 1),
        ("payload.n", "!=", 3),
        ("payload.n", ">", 3),
        ("payload.n", "<", 3),
        ("payload.n", ">", "x"),
        ("payload.on", ">", 0),
        ("payload.on", "<", "zebra"),
        ("payload.none", "<", 5),
        ("payload.tags", "<", "z"),
        ("payload.text", ">", 5),
        ("payload.digits", "<", 13),
        ("payload.nan", "<", 5),
        ("payload.worse", "<", 5),
        ("payload.n", "in", [1, 2]),
        ("payload.text", "matches", "^order$"),
        ("payload.n", "exists", False),
        ("payload.nothing", "exists", True),
    ],
)
def test_it_does_not_hold(expression: str, op: str, value: Any) -> None:
    assert not holds(expression, op, value)


@pytest.mark.parametrize("op", OPS)
def test_what_a_message_does_not_have_is_only_held_by_exists_false(op: str) -> None:
    value = {"in": ["x"], "exists": True}.get(op, "x")

    assert not holds("payload.nothing.at.all", op, value)
    assert not holds("payload.nothing", op, value, payload=None)


@pytest.mark.parametrize("op", ["equals", "!=", "in", "matches"])
def test_what_has_no_text_is_not_held(op: str) -> None:
    assert not holds("payload.odd", op, ["x"] if op == "in" else "x")


def test_a_condition_holds_where_it_is_true_and_nowhere_else() -> None:
    point = Breakpoint(when='payload.n > 2 and headers.who == "me"')
    messages = [Message.of({"n": n}, {"who": who}) for n in (2, 3) for who in ("me", "you")]

    assert [point(msg) for msg in messages] == [False, False, True, False]
    assert point.hits == 1
    assert point.as_dict() == {"hits": 1, "when": point.when}


@pytest.mark.parametrize(
    "when", ["payload.n", "payload.nothing > 1", "1 / 0 > 2", "payload.odd > 1"]
)
def test_a_condition_without_an_answer_for_a_message_does_not_hold_it(when: str) -> None:
    assert not Breakpoint(when=when)(Message.of(PAYLOAD))


@pytest.mark.parametrize(
    ("given_as", "pointer"),
    [
        ({"op": "equals", "value": 1}, "/expression"),
        ({"value": 1}, "/expression"),
        ({"op": "exists"}, "/expression"),
        ({"expression": "payload.n", "op": "like", "value": 1}, "/op"),
        ({"expression": "payload.n", "op": "EQUALS", "value": 1}, "/op"),
        ({"expression": "payload.n", "op": "equals"}, "/value"),
        ({"expression": "payload.n", "op": "<"}, "/value"),
        ({"expression": "payload.n", "op": ">", "value": True}, "/value"),
        ({"expression": "payload.n", "op": ">", "value": {"a": 1}}, "/value"),
        ({"expression": "payload.n", "op": "in", "value": []}, "/value"),
        ({"expression": "payload.n", "op": "in", "value": "a,b"}, "/value"),
        ({"expression": "payload.n", "op": "in", "value": list(range(1001))}, "/value"),
        ({"expression": "payload.n", "op": "matches", "value": 5}, "/value"),
        ({"expression": "payload.n", "op": "matches", "value": "["}, "/value"),
        ({"expression": "payload.n", "op": "exists", "value": "maybe"}, "/value"),
        ({"expression": "payload.n", "op": "exists", "value": 1}, "/value"),
        ({"expression": "payload.n", "equals": "1", "value": 1}, "/value"),
        ({"expression": "payload.n", "equals": "1", "op": ">"}, "/op"),
        ({"expression": "payload.n}", "op": "exists"}, "/expression"),
        ({"when": ""}, "/when"),
        ({"when": "nonsense(payload)"}, "/when"),
        ({"when": "true", "value": 1}, "/value"),
        ({"when": "true", "equals": "1"}, "/equals"),
        ({"when": "true", "op": "in"}, "/op"),
        ({"colour": "red"}, "/colour"),
        ({"expression": 3, "equals": "1"}, "/expression"),
    ],
)
def test_what_is_wrong_with_a_breakpoint_has_its_place(
    given_as: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        Breakpoint.of(given_as)

    assert [fault.pointer for fault in refused.value.errors] == [pointer]


def test_two_that_hold_the_same_messages_are_the_same() -> None:
    seed = Breakpoint("payload.n", "3")

    assert seed.same(Breakpoint("payload.n", op="equals", value=3))
    assert seed.same(Breakpoint("payload.n", value="3"))
    assert not seed.same(Breakpoint("payload.n", op="!=", value=3))
    assert not seed.same(Breakpoint("payload.m", "3"))
    assert Breakpoint(when="payload.n > 1").same(Breakpoint(when="payload.n > 1"))
    assert not Breakpoint(when="payload.n > 1").same(Breakpoint())
    assert Breakpoint().same(Breakpoint())


def test_it_is_shown_as_it_was_given() -> None:
    assert Breakpoint("payload.n", op="<", value=3).as_dict() == {
        "hits": 0,
        "expression": "payload.n",
        "op": "<",
        "value": 3,
    }
    assert Breakpoint("payload.n", op="exists").as_dict()["value"] is True
    assert Breakpoint().as_dict() == {"hits": 0}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.decimals()
    | st.just(datetime(2026, 12, 1, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@given(VALUES, st.sampled_from([op for op in OPS if op != "matches"]), VALUES)
def test_no_message_makes_a_breakpoint_raise(payload: Any, op: str, value: Any) -> None:
    try:
        point = Breakpoint("payload", op=op, value=[value] if op == "in" else value)
    except ValidationError:
        return

    assert point(Message.of(payload)) in (True, False)
