"""Conditions: what they can say, what they give, and how they refuse."""

from __future__ import annotations

import json
from collections import OrderedDict, UserDict, defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from types import MappingProxyType
from uuid import UUID

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.security.expressions import (
    MAX_SOURCE,
    Condition,
    MessageScope,
    compile_condition,
)

pytestmark = pytest.mark.feature("SEC-02")

PAYLOAD = {
    "n": 4,
    "f": 2.5,
    "tag": "b",
    "name": "Ada Byron",
    "ok": True,
    "off": False,
    "nothing": None,
    "empty": "",
    "tags": ["a", "b", "c"],
    "pair": ("x", 1),
    "order": {"total": 120, "lines": [{"qty": 2, "sku": "x"}, {"qty": 0, "sku": "y"}]},
    "get": "a member called get",
    "items": [1, 2, 3],
    "order-id": "o-1",
    "class": "first",
    "": "nameless",
    "huge": 10**500,
    "nan": float("nan"),
    "inf": float("inf"),
    "when": datetime(2026, 5, 1, tzinfo=UTC),
    "later": datetime(2026, 6, 1, tzinfo=UTC),
    "naive": datetime(2026, 5, 1),
    "day": date(2026, 5, 1),
    "long": timedelta(hours=1),
    "price": Decimal("9.90"),
    "uid": UUID(int=7),
    "raw": b"ab",
    "kinds": {"a", "b"},
}
HEADERS = {"trace": "t-1", "status": "FAILURE", "nested": {"deep": 1}}


def scope(payload=PAYLOAD):
    return MessageScope(Message.of(payload, HEADERS, id="m-1"), attempt=2)


def value(source, payload=PAYLOAD):
    return compile_condition(source).evaluate(scope(payload))


def refusal(source, payload=PAYLOAD):
    """Why an expression has no value."""
    condition = compile_condition(source)
    with pytest.raises(BadInputError) as refused:
        condition.matches(scope(payload))
    return refused.value


def fault(source, **options):
    """Why a text is no expression."""
    with pytest.raises(BadInputError) as refused:
        compile_condition(source, **options)
    return refused.value


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("payload.n", 4),
        ("payload.order.total", 120),
        ("payload['order-id']", "o-1"),
        ("payload['class']", "first"),
        ("payload['']", "nameless"),
        ("payload.get", "a member called get"),
        ("payload.items", [1, 2, 3]),
        ("headers.trace", "t-1"),
        ("metadata.trace", "t-1"),
        ("metadata.nested.deep", 1),
        ("id", "m-1"),
        ("attempt", 2),
        ("true", True),
        ("false", False),
        ("null", None),
        ("None", None),
        ("-payload.n", -4),
        ("+payload.f", 2.5),
        ("payload.tags[0]", "a"),
        ("payload.tags[-1]", "c"),
        ("payload.tags[1:]", ["b", "c"]),
        ("payload.tags[::-1]", ["c", "b", "a"]),
        ("payload.pair[0]", "x"),
        ("payload.name[0:3]", "Ada"),
        ("payload.name[-1]", "n"),
        ("[1, payload.n]", [1, 4]),
        ("(1, payload.n)", (1, 4)),
        ("{'a': payload.n, 'b': {}}", {"a": 4, "b": {}}),
        ("payload.n if payload.ok else 0", 4),
        ("payload.n if payload.off else 0", 0),
        ("payload.nothing or 'standby'", "standby"),
        ("payload.n and payload.tag", "b"),
        ("payload.get('missing')", None),
        ("payload.get('missing', 7)", 7),
        ("(payload.get('missing') or {}).get('deep')", None),
        ("headers.get('status')", "FAILURE"),
    ],
)
def test_it_reads_members_elements_and_literals(source, result) -> None:
    assert value(source) == result
    assert type(value(source)) is type(result)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("payload.n + 1", 5),
        ("payload.n - 1.5", 2.5),
        ("payload.n * payload.f", 10.0),
        ("payload.n / 8", 0.5),
        ("payload.n // 3", 1),
        ("-7 // 2", -4),
        ("payload.n % 3", 1),
        ("-7 % 3", 2),
        ("payload.tag + 'x'", "bx"),
        ("payload.tags + ['d']", ["a", "b", "c", "d"]),
        ("(1,) + (2,)", (1, 2)),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("0x10 + 1_000", 1016),
    ],
)
def test_it_computes_as_python_does(source, result) -> None:
    assert value(source) == result
    assert type(value(source)) is type(result)


@pytest.mark.parametrize(
    "source",
    [
        "payload.n == 4",
        "payload.n == 4.0",
        "payload.n != '4'",
        "payload.n in [1, 4]",
        "payload.n in (1, 4)",
        "payload.tag in {'a', 'b'}",
        "payload.tag in ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j']",
        "payload.tag not in ['x', payload.name]",
        "payload.tag in payload.tags",
        "payload.tags in [payload.tags, 1]",
        "payload.tags not in ['a', 'b']",
        "payload.tags not in {'a', 'b'}",
        "'Ada' in payload.name",
        "'zzz' not in payload.name",
        "'n' in payload",
        "'missing' not in payload",
        "'trace' in headers",
        "'a' in payload.kinds",
        "1 < payload.n <= 4",
        "not (1 < payload.n < 4)",
        "1 < 2 < 3 < payload.n",
        "payload.f > 2",
        "payload.tag > 'a'",
        "payload.name >= 'Ada'",
        "payload.nothing is None",
        "payload.nothing is null",
        "payload.n is not null",
        "payload.ok is true",
        "payload.ok == true",
        "payload.tags == ['a', 'b', 'c']",
        "payload.tags != ['a', 'b']",
        "payload.pair == ('x', 1)",
        "payload.order == {'total': 120, 'lines': payload.order.lines}",
        "payload.order != {'total': 120, 'lines': []}",
        "payload.order != {'total': 120}",
        "payload.order != {'total': 120, 'other': 1}",
        "not payload.empty",
        "not payload.nothing",
        "payload.tags and payload.ok",
        "payload.off or payload.ok",
        "payload.n % 2 == 0 and payload.tag in ['a', 'b'] and payload.f > 1",
        "payload.huge > 10",
        "payload.huge == payload.huge",
        "payload.nan != payload.nan",
        "payload.inf > 1e300",
        "payload.when < payload.later",
        "payload.when == payload.when",
        "payload.long > payload.long or true",
        "payload.price > 9",
        "9 < payload.price",
        "payload.price == payload.price",
        "payload.uid == payload.uid",
        "payload.raw == payload.raw",
        "payload.kinds == payload.kinds",
        "payload.kinds",
        "payload.day != payload.when",
    ],
)
def test_it_compares_and_joins(source) -> None:
    assert compile_condition(f"bool({source})").matches(scope()) is True


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("len(payload.tags)", 3),
        ("len(payload.name)", 9),
        ("len(payload.order)", 2),
        ("len(headers)", 3),
        ("min(3, 1, 2)", 1),
        ("max(payload.items)", 3),
        ("max('b', 'a')", "b"),
        ("min(line.qty for line in payload.order.lines)", 0),
        ("sum(payload.items)", 6),
        ("sum(line.qty for line in payload.order.lines)", 2),
        ("sum(1 for t in payload.tags if t != 'b')", 2),
        ("abs(-3)", 3),
        ("abs(2.5)", 2.5),
        ("round(2.567, 1)", 2.6),
        ("round(2.6)", 3),
        ("round(1234, -2)", 1200),
        ("int('42')", 42),
        ("int(2.9)", 2),
        ("int(payload.ok)", 1),
        ("float('2.5')", 2.5),
        ("float(payload.price)", 9.9),
        ("str(payload.n)", "4"),
        ("str(payload.tag)", "b"),
        ("bool(payload.empty)", False),
        ("any(line.qty == 0 for line in payload.order.lines)", True),
        ("all(line.qty == 0 for line in payload.order.lines)", False),
        ("any([false, payload.ok])", True),
        ("all([])", True),
        ("any(any(c == t for c in ['c']) for t in payload.tags)", True),
        ("any(name == 'total' for name in payload.order)", True),
        ("any(t == 'b' for t in payload.tags if t > 'a' if t < 'c')", True),
        ("payload.name.lower()", "ada byron"),
        ("payload.name.upper()", "ADA BYRON"),
        ("'  x '.strip()", "x"),
        ("'--x-'.strip('-')", "x"),
        ("'  x '.lstrip()", "x "),
        ("'  x '.rstrip()", "  x"),
        ("payload.name.startswith('Ada')", True),
        ("payload.name.startswith(['B', 'A'])", True),
        ("payload.name.endswith(('x', 'n'))", True),
        ("payload.name.split()", ["Ada", "Byron"]),
        ("'a,b,c'.split(',')", ["a", "b", "c"]),
        ("'a,b,c'.split(',', 1)", ["a", "b,c"]),
        ("payload.name.count('a')", 1),
        ("payload.tags.count('a')", 1),
        ("payload.pair.count(1)", 1),
        ("'42'.isdigit()", True),
        ("payload.order.keys()", ["total", "lines"]),
        ("{'a': 1}.values()", [1]),
        ("payload.order.get('total')", 120),
    ],
)
def test_it_has_a_few_functions_and_methods(source, result) -> None:
    assert value(source) == result
    assert type(value(source)) is type(result)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


def test_values_of_derived_classes_count_as_what_they_derive_from() -> None:
    payload = OrderedDict(
        colour=Colour.RED,
        size=Size.SMALL,
        counts=defaultdict(int, a=1),
        proxy=MappingProxyType({"x": 1}),
        rows=type("Rows", (list,), {})([1, 2]),
    )

    assert value("payload.colour == 'red' and payload.colour + '!' == 'red!'", payload) is True
    assert value("payload.size + 1 == 2 and payload.size in [1]", payload) is True
    assert value("payload.proxy.x == 1 and payload.counts == {'a': 1}", payload) is True
    assert value("sum(payload.rows) == 3 and payload.rows == [1, 2]", payload) is True


def test_a_number_of_a_derived_class_computes_as_a_plain_one() -> None:
    ratio = type("Ratio", (float,), {"__mul__": lambda self, other: "hijacked"})(2.0)

    assert value("payload.ratio * 3", {"ratio": ratio}) == 6.0


def test_a_set_of_containers_cannot_be_compared() -> None:
    payload = {"a": {(1, 2)}, "b": {(1, 2)}}

    assert "a set of such elements" in refusal("payload.a == payload.b", payload).detail


def test_a_text_of_megabytes_can_be_looked_at_but_not_changed() -> None:
    payload = {"text": "x" * 2_000_000}

    assert value("payload.text.startswith('xx') and not payload.text.endswith('y')", payload)
    assert value("len(payload.text) == 2000000 and payload.text[5] == 'x'", payload) is True
    assert "more than 1,048,576 characters" in refusal("payload.text.upper() == ''", payload).detail


def test_a_look_at_a_missing_member_does_not_make_it() -> None:
    payload = {"counts": defaultdict(int)}

    refusal("payload.counts.a > 1", payload)

    assert payload == {"counts": {}}


# --- what a condition is for ---------------------------------------------------------------------


def test_null_counts_as_false() -> None:
    assert compile_condition("payload.get('vip')").matches(scope()) is False


@pytest.mark.parametrize("source", ["payload.n", "payload.tag", "payload.tags", "payload.order"])
def test_anything_else_but_true_and_false_is_refused(source) -> None:
    refused = refusal(source)

    assert "not true or false; compare it" in refused.detail
    assert refused.detail.startswith(f"condition `{source}`: gives ")


def test_a_condition_is_compiled_once_and_remembers_its_text() -> None:
    condition = compile_condition("  payload.n > 1\n")

    assert condition is compile_condition("  payload.n > 1\n")
    assert condition.source == "payload.n > 1"
    assert isinstance(condition, Condition)
    assert "payload.n > 1" in repr(condition)


def test_what_is_not_read_is_not_worked_out() -> None:
    class Lazy(dict):
        def __getitem__(self, name):
            assert name == "payload"
            return super().__getitem__(name)

    condition = compile_condition("payload.n == 1")

    assert condition.names == ("payload",)
    assert condition.matches(Lazy(payload={"n": 1}))
    assert compile_condition("metadata.x == id").names == ("headers", "id")


def test_a_scope_lists_what_it_holds() -> None:
    names = set(scope())

    assert names == {"payload", "headers", "metadata", "id", "attempt"}
    assert len(scope()) == 5
    assert scope()["metadata"] is scope()["headers"] or dict(scope()["metadata"]) == HEADERS
    with pytest.raises(KeyError):
        scope()["environ"]


def test_other_names_can_be_offered() -> None:
    condition = compile_condition("event.type == 'x' and count > 2", names=("event", "count"))

    assert condition.matches({"event": {"type": "x"}, "count": 3})
    assert "there are event, count" in fault("payload.n", names=("event", "count")).detail


def test_a_scope_without_a_name_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="KeyError"):
        compile_condition("attempt > 1").matches({"payload": 1})


def test_a_short_circuit_leaves_the_rest_alone() -> None:
    assert value("payload.ok or payload.missing") is True
    assert value("payload.off and payload.missing") is False
    assert value("1 if true else payload.missing") == 1
    assert value("1 > 2 < payload.missing") is False


# --- refusals at evaluation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("payload.missing == 1", "in `payload.missing`: there is no member `missing`; .get("),
        ("payload.order.missing == 1", "in `payload.order.missing`: there is no member `missing`"),
        ("payload['missing'] == 1", "there is no member `missing`"),
        ("payload[0] == 1", "there is no member the number 0"),
        ("payload[payload.tags] == 1", "an array is no name of a member"),
        ("payload.n.x == 1", "the number 4 has no members, so no `x`"),
        ("payload.nothing.x == 1", "null has no members, so no `x`"),
        ("payload.tag.x == 1", "the text 'b' has no members"),
        ("payload.n[0] == 1", "the number 4 has no members or elements"),
        ("payload.tags['a'] == 1", "the text 'a' is no index of an array"),
        ("payload.tags[true] == 1", "true is no index of an array"),
        ("payload.tags[3] == 1", "an array of length 3 has no element 3"),
        ("payload.tags[payload.huge] == 1", "an array of length 3 has no such element"),
        ("payload.name[9] == 1", "of length 9 has no element 9"),
        ("payload.n[1:] == 1", "the number 4 cannot be sliced"),
        ("payload.tags['a':] == 1", "the text 'a' is no index of an array"),
        ("payload.tags[::0] == 1", "the step of a slice is never 0"),
        ("payload.n + payload.tag == 1", "`+` does not go with the number 4 and the text 'b'"),
        ("payload.tag + 1 == 1", "`+` does not go with the text 'b' and the number 1"),
        ("payload.tags + payload.pair == 1", "`+` does not go with an array and an array"),
        ("payload.nothing + 1 == 1", "`+` does not go with null and the number 1"),
        ("payload.ok + 1 == 2", "`+` does not go with true and the number 1"),
        ("payload.tag * 3 == 1", "`*` does not go with the text 'b' and the number 3"),
        ("payload.tags * 3 == 1", "`*` does not go with an array and the number 3"),
        ("payload.tag % 2 == 1", "`%` does not go with the text 'b' and the number 2"),
        ("-payload.tag == 1", "`-` does not go with the text 'b'"),
        ("payload.n < payload.tag", "`<` does not go with the number 4 and the text 'b'"),
        ("payload.nothing > 3", "`>` does not go with null and the number 3"),
        ("payload.tags <= payload.tags", "`<=` does not go with an array and an array"),
        ("payload.ok > 0", "`>` does not go with true and the number 0"),
        ("payload.when < payload.naive", "a time with a zone and one without have no order"),
        ("payload.when < payload.day", "`<` does not go with a datetime and a date"),
        ("1 in payload.n", "`in` does not go with the number 1 and the number 4"),
        ("1 in payload.name", "`in` does not go with the number 1 and the text 'Ada Byron'"),
        ("payload.tags in payload.order", "`in` does not go with an array and an object"),
        ("payload.n / 0 == 1", "division by zero"),
        ("payload.n // 0.0 == 1", "division by zero"),
        ("payload.n % 0 == 1", "division by zero"),
        ("payload.huge + 1 == 1", "a whole number of more than 256 bits"),
        ("-payload.huge == 1", "a whole number of more than 256 bits"),
        ("payload.inf - 1 == 1", "the result is no finite number"),
        ("1e308 * 10 == 1", "the result is no finite number"),
        ("payload.n.lower() == 1", "the number 4 has no method lower()"),
        ("payload.tag.get('x') == 1", "the text 'b' has no method get()"),
        ("payload.tag.startswith(1)", "startswith() takes a text, not the number 1"),
        ("payload.tag.strip(1) == ''", "strip() takes a text, not the number 1"),
        ("payload.tag.split('') == []", "split() by an empty text"),
        ("payload.tag.split('b', 'c') == []", "the text 'c' is no number of splits"),
        ("payload.get(payload.tags) == 1", "an array is no name of a member"),
        ("len(payload.n) == 1", "len() does not go with the number 4"),
        ("abs(payload.tag) == 1", "abs() does not go with the text 'b'"),
        ("round(1.5, 10000000) == 1", "the number 10000000 is no number of places"),
        ("int('x') == 1", "the text 'x' cannot be read as a number"),
        ("float('inf') == 1", "the result is no finite number"),
        ("int(payload.inf) == 1", "the result is no finite number"),
        ("int(payload.nothing) == 1", "int() does not go with null"),
        ("str(payload.ok) == 'true'", "str() takes a number or a text, not true"),
        ("str(payload.huge) == 'true'", "a whole number of more than 256 bits"),
        ("any(payload.n)", "the number 4 is no array to go through"),
        ("any(x for x in payload.name)", "the text 'Ada Byron' is no array to go through"),
        ("any(x for x in payload.kinds)", "a set is no array to go through"),
        ("sum(payload.tags) == 1", "sum() does not go with the text 'a'"),
        ("max([]) == 1", "max() of nothing"),
        ("max(1, 'a') == 1", "`max()` does not go with the text 'a' and the number 1"),
        ("min(payload.order) == 1 or payload.n", "gives the number 4"),
        ("payload.tags[payload.missing]", "there is no member `missing`"),
    ],
)
def test_a_value_that_does_not_fit_is_bad_input_that_says_why(source, why) -> None:
    refused = refusal(source)

    assert why in refused.detail
    assert refused.detail.startswith("condition `")
    assert refused.members["expression"] == source


def test_the_same_message_gives_the_same_refusal_each_time() -> None:
    assert len({str(refusal("payload.n + payload.tag > 3")) for _ in range(3)}) == 1


def test_a_long_condition_is_shortened_in_the_refusal_and_the_part_is_shown() -> None:
    source = " and ".join(["payload.ok"] * 50) + " and payload.missing"

    refused = refusal(source)

    assert "payload.ok and payload.ok" in refused.detail
    assert "..." in refused.detail
    assert "in `payload.missing`" in refused.detail
    assert len(refused.detail) < 300


def test_the_part_is_found_behind_wide_characters_and_on_later_lines() -> None:
    refused = refusal("('äöü€😀' == payload.tag or\n  payload['größe'] == 1)")

    assert "in `payload['größe']`" in refused.detail


def test_a_foreign_object_cannot_be_read() -> None:
    class Thing:
        secret = 1

        def __eq__(self, other):
            raise AssertionError("code of the value ran")

        def __bool__(self):
            raise AssertionError("code of the value ran")

        __hash__ = None

    payload = {"thing": Thing(), "list": [Thing()], "user": UserDict(a=1), "gen": iter([1])}

    for source in (
        "payload.thing.secret == 1",
        "payload.thing == 1",
        "payload.thing",
        "not payload.thing",
        "payload.thing in [1, 2]",
        "1 in payload.list",
        "payload.list == [1]",
        "payload.user.a == 1",
        "any(payload.gen)",
        "any(x for x in payload.gen)",
        "len(payload.thing) == 1",
    ):
        refused = refusal(source, payload)
        assert "a condition can read" in refused.detail or "not true or false" in refused.detail
    assert next(payload["gen"]) == 1, "an iterator in a payload was not drawn from"


def test_a_value_that_fails_in_its_own_way_is_bad_input() -> None:
    refused = refusal("payload.a == payload.b", {"a": Decimal("sNaN"), "b": Decimal(1)})

    assert "InvalidOperation" in refused.detail


# --- refusals at compilation ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "column", "why"),
    [
        ("payload.n = 3", 11, "`==` compares"),
        ("payload.n === 3", 13, "`==` compares, `!=` tells apart"),
        ("payload.n !== 3", 13, "`==` compares, `!=` tells apart"),
        ("payload.a && payload.b", 12, "write `and` for `&&`"),
        ("payload.a || payload.b", 12, "write `or` for `||`"),
        ("!payload.a", 1, "write `not` for `!`"),
        ("payload.a <> 1", 11, "write `!=` for `<>`"),
        ("payload.a ? 1 : 2", 11, "write `a if condition else b`"),
        ("${payload.a} > 1", 1, "names are read without `${}`: payload.x"),
        ("payload.class == 1", 9, 'read the member as ["class"]'),
        ("payload.a == 1\nand payload.b", 1, "put brackets around a condition of several lines"),
        ("payload.a; payload.b", 10, "a condition is one expression"),
        ("n > 3", 1, "there is no `n` here; did you mean `payload.n`?"),
        ("paylod.n > 3", 1, "did you mean `payload`?"),
        ("True and undefined", 10, "did you mean `null`?"),
        ("len > 3", 1, "`len` is a function: len(...)"),
        ("payload.tag.replace('a', 'b')", 1, "there is no method replace(); there are"),
        ("payload.tag.startsWith('a')", 1, "did you mean startswith()?"),
        ("size(payload)", 1, "there is no function size(); there are len, any"),
        ("length(payload)", 1, "there is no function length()"),
        ("len()", 1, "len() takes 1 argument, not 0"),
        ("payload.get()", 1, "get() takes 1 to 2 arguments, not 0"),
        ("payload.n ** 2", 1, "`**` is not available"),
        ("payload.a & payload.b", 1, "`and` joins two conditions"),
        ("payload.n is 3", 14, "`is` goes with None, True and False only"),
        ("{1, 2}", 1, "a set stands behind `in` only"),
        ("(x for x in payload)", 1, "stands in any(), all(), sum(), min() and max() only"),
        ("any(payload for payload in id)", 17, "`payload` is taken; give the loop another name"),
        ("any(x for x in id for y in id)", 23, "one `for` at a time"),
        ("any(x for x, y in id)", 11, "a loop has one plain name"),
        ("x and any(x for x in payload)", 1, "there is no `x` here"),
        ("any(x for x in x)", 16, "there is no `x` here"),
        ("{payload: 1}", 2, "the names of an object's members are texts in quotes"),
        ("payload.get(name='x')", 18, "arguments are given without names here"),
        ("payload.a()()", 1, "this cannot be called"),
        ("(payload.a", 1, "was never closed"),
        ("'abc", 1, "unterminated string literal"),
        ("'\\d'", 1, "invalid escape sequence"),
        ("1if 1else 2", 1, "invalid decimal literal"),
        ("('ä' == id or\nq)", 1, "did you mean `payload.q`"),
        ("'äöü' == q", 10, "did you mean `payload.q`"),
    ],
)
def test_a_fault_says_where_it_is_and_what_would_be_right(source, column, why) -> None:
    found = fault(source)

    assert why in found.detail
    assert "is no condition" in found.detail
    assert found.members["column"] == column
    assert f"column {column})" in found.detail


@pytest.mark.parametrize("source", ["", "  \n"])
def test_an_empty_text_is_no_condition(source) -> None:
    assert fault(source).detail == "a condition is empty"


def test_a_long_text_is_refused_before_it_is_read() -> None:
    assert "5000 characters is longer than 4096" in fault("(" * 5000).detail
    assert compile_condition("true" + " " * (MAX_SOURCE - 4)).source == "true"


def test_something_else_than_text_is_no_condition() -> None:
    assert "not the number 5" in fault(5).detail


@pytest.mark.parametrize("source", ["\ud800", "payload.a == '\x00'", "payload.\x1b == 1"])
def test_a_refusal_can_always_be_sent(source) -> None:
    found = fault(source)

    assert json.dumps(found.detail).isprintable()
    found.detail.encode()
    found.members["expression"].encode()
