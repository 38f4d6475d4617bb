"""The strict JSON boundary: a value comes back as it went in, or is refused naming the place."""

import enum
import json
import math
import tracemalloc
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from uuid import UUID

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yukta_rx.errors import BadRequestError, UnserialisablePayloadError
from yukta_rx.model.codec import (
    MAX_DEPTH,
    MAX_INPUT_DEPTH,
    PLAIN,
    Blob,
    canonical,
    decode,
    dumps_plain,
    dumps_state,
    encode,
    is_plain,
    loads_external,
)
from yukta_rx.model.tags import write

pytestmark = pytest.mark.feature("DUR-04")

offsets = st.integers(-86_340, 86_340).map(lambda s: timezone(timedelta(seconds=s)))
text = st.text(st.characters(codec="utf-8")) | st.sampled_from(["a\0b", "\0", "$yukta", "\u2028"])
plain_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**400])
    | st.floats(allow_nan=False)
    | st.sampled_from([-0.0, math.inf, -math.inf, 5e-324, 1e16, 1e22])
    | text
)
tagged_scalars = (
    st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.datetimes(timezones=offsets)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.builds(Blob, st.text("0123456789abcdef"), st.integers(0, 2**63))
)
keys = text | st.sampled_from(["$yukta", "v", "", "a/b", "~"])
tag_lookalikes = st.fixed_dictionaries(
    {"$yukta": st.sampled_from(["int", "tuple", "object", "text", "nonsense", 3, None])},
    optional={"v": st.sampled_from(["1", [1], {}, None])},
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)
values = st.recursive(
    plain_scalars | tagged_scalars | tag_lookalikes,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


def same(one, other):
    """Equal and of the same types all through, -0.0 and 0.0 told apart."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other)
    return one == other


def nested(depth, wrap=lambda inner: [inner]):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def _written(value, *, plain):
    try:
        return encode(value, plain=plain)
    except UnserialisablePayloadError as error:
        return error.detail


class TestEncodeAndDecode:
    """What is stored is what comes back."""

    @given(values)
    @example({"$yukta": "int", "v": "1"})
    @example({"$yukta": "object", "v": {"$yukta": "object", "v": 1}})
    @example({"a\0b": {"$yukta": 1}, "$yukta": ()})
    @example((((),),))
    def test_any_value_comes_back_equal_and_of_the_same_type(self, value):
        assert same(decode(encode(value)), value)

    @given(st.dictionaries(keys, plain_scalars.filter(lambda one: type(one) in PLAIN)))
    @example({"a": "$yukta", "$yukta": "int"})
    @example({"a": "\0", "b": 2**64, "c": None})
    def test_plain_values_are_written_the_same_without_being_read_back(self, value):
        assert encode({"in": value}, plain=True) == encode({"in": value})

    @given(values | st.dictionaries(keys, plain_scalars, max_size=4))
    @example(namedtuple("Pair", "one other")(1, 2))
    @example({"a": OrderedDict(b=1)})
    @example({1: "a"})
    @example({"a": enum.IntEnum("Level", "LOW").LOW})
    def test_what_is_found_plain_is_written_the_same_without_being_read_back(self, value):
        if is_plain(value):
            written, exact = [_written([value, {}], plain=plain) for plain in (True, False)]
            assert written == exact
            assert type(value) is dict or type(value) in PLAIN

    @given(values)
    def test_what_is_stored_is_json_without_nul_and_without_nonfinite_numbers(self, value):
        stored = encode(value)

        assert b"\\u0000" not in stored.replace(b"\\\\", b"")
        json.loads(stored, parse_constant=pytest.fail)

    def test_nan_comes_back_as_nan(self):
        assert math.isnan(decode(encode({"a": [{"b": math.nan}]}))["a"][0]["b"])

    @given(json_values)
    def test_the_quick_and_the_exact_way_say_the_same(self, value):
        exact = write(value, max_depth=MAX_DEPTH, plain=False, sort=False)

        assert same(decode(exact), decode(encode(value)))

    @pytest.mark.parametrize(
        ("value", "stored"),
        [
            (2**64, {"$yukta": "int", "v": "18446744073709551616"}),
            (Decimal("1.10"), {"$yukta": "decimal", "v": "1.10"}),
            (math.inf, {"$yukta": "float", "v": "inf"}),
            (-math.inf, {"$yukta": "float", "v": "-inf"}),
            (b"\x00\xff", {"$yukta": "bytes", "v": "AP8="}),
            (
                datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
                {"$yukta": "datetime", "v": "2026-01-02T03:04:05.000006+00:00"},
            ),
            (date(2026, 1, 2), {"$yukta": "date", "v": "2026-01-02"}),
            (time(3, 4), {"$yukta": "time", "v": "03:04:00"}),
            (timedelta(1, 2, 3), {"$yukta": "timedelta", "v": [1, 2, 3]}),
            (UUID(int=1), {"$yukta": "uuid", "v": "00000000-0000-0000-0000-000000000001"}),
            ((1, 2), {"$yukta": "tuple", "v": [1, 2]}),
            ("x\0y", {"$yukta": "text", "v": "eAB5"}),
            (Blob("ab", 3), {"$yukta": "blob", "v": {"sha256": "ab", "size": 3}}),
            ({"$yukta": 1}, {"$yukta": "object", "v": {"$yukta": 1}}),
            (2**64 - 1, 2**64 - 1),
        ],
        ids=repr,
    )
    def test_each_kind_has_its_documented_form(self, value, stored):
        assert json.loads(encode(value)) == stored
        assert same(decode(encode(value)), value)

    def test_an_instance_of_a_subclass_is_kept_as_the_type_that_it_equals(self):
        colour = enum.StrEnum("colour", {"RED": "RED"})
        point = namedtuple("point", "x y")
        value = {
            "s": colour.RED,
            "p": point(1, 2),
            "o": OrderedDict(a=1),
            "m": MappingProxyType({}),
        }

        assert same(decode(encode(value)), {"s": "RED", "p": (1, 2), "o": {"a": 1}, "m": {}})

    @pytest.mark.parametrize(
        ("value", "pointer"),
        [
            (object(), ""),
            ({"a": [1, {"b/c": {1, 2}}]}, "/a/1/b~1c"),
            ({"a": {1: 2}}, "/a"),
            (["\ud800"], "/0"),
            ({"a": {"\udfff": 1}}, "/a"),
            ((1, (2, complex(1, 2))), "/1/1"),
            ({"x": 10**5000}, "/x"),
            ([enum.Enum("colour", ["RED"]).RED], "/0"),
            ({"a\0b": [object()]}, "/a\0b/0"),
        ],
        ids=range(9),
    )
    def test_what_cannot_be_kept_is_refused_naming_the_place(self, value, pointer):
        with pytest.raises(UnserialisablePayloadError) as refusal:
            encode(value)

        assert refusal.value.members == {"pointer": pointer}
        assert refusal.value.detail

    def test_a_value_that_holds_itself_is_refused(self):
        value: dict = {}
        value["again"] = [value]

        with pytest.raises(UnserialisablePayloadError, match="holding itself"):
            encode(value)


class TestDepth:
    """Depth has a limit, the same on every way, and costs no stack."""

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda inner: [inner],
            lambda inner: {"a": inner},
            lambda inner: (inner,),
            lambda inner: {"$yukta": inner},
            lambda inner: {"a\0": inner},
            lambda inner: [inner, 2**70],
        ],
        ids=["list", "object", "tuple", "tag-like", "nul", "big"],
    )
    def test_the_deepest_value_comes_back_and_one_deeper_is_refused(self, wrap):
        deepest = nested(MAX_DEPTH, wrap)

        assert decode(encode(deepest)) == deepest
        with pytest.raises(UnserialisablePayloadError, match=f"deeper than {MAX_DEPTH}"):
            encode(nested(MAX_DEPTH + 1, wrap))

    @pytest.mark.parametrize("text", ['[{"a":', "["])
    def test_the_deepest_input_is_read_and_one_deeper_is_refused_naming_the_place(self, text):
        opening = (text * MAX_INPUT_DEPTH)[: MAX_INPUT_DEPTH * len(text)]
        levels = opening.count("[") + opening.count("{")
        closing = "".join("]" if sign == "[" else "}" for sign in reversed(opening) if sign in "[{")
        at_limit = opening if levels == MAX_INPUT_DEPTH else opening[: len(opening) // 2]
        closes = closing[-MAX_INPUT_DEPTH:]

        assert loads_external(f"{at_limit}1{closes}") is not None
        with pytest.raises(UnserialisablePayloadError, match="deeper than 200") as refusal:
            loads_external(f"[{at_limit}1{closes}]")
        assert refusal.value.members["pointer"].count("/") == MAX_INPUT_DEPTH

    def test_input_of_absurd_depth_is_refused_and_not_crashed_on(self):
        with pytest.raises(UnserialisablePayloadError, match="deeper than 200"):
            loads_external("[" * 100_000)

    def test_many_containers_side_by_side_are_not_deep(self):
        wide = [[{"a": []}] for _ in range(1000)]

        assert loads_external(encode(wide)) == wide

    def test_what_came_in_at_the_limit_can_be_wrapped_by_nodes_and_stored(self):
        inside = {"items": [loads_external("[" * 200 + "]" * 200)]}

        assert decode(encode(inside)) == inside


class TestInputFromOutside:
    """Read exactly or refused whole."""

    @given(json_values)
    def test_plain_json_is_read_as_it_was_written(self, value):
        assert same(loads_external(json.dumps(value)), value)

    @given(st.integers(), st.sampled_from(["[{}]", '{{"a":[{}]}}', "{}"]))
    @example(2**64, "[{}]")
    @example(-(2**63) - 1, "[{}]")
    @example(10**4299, "{}")
    def test_integers_of_any_size_are_exact(self, number, around):
        written = around.format(number)

        assert loads_external(written) == json.loads(written)

    def test_the_name_of_a_tag_means_nothing_here(self):
        written = '{"$yukta": "tuple", "v": [1]}'

        value = loads_external(written)

        assert value == {"$yukta": "tuple", "v": [1]}
        assert decode(encode(value)) == value

    def test_of_a_repeated_member_the_last_counts(self):
        assert loads_external('{"a":1,"a":2}') == {"a": 2}
        assert loads_external('{"a":18446744073709551616,"a":2}') == {"a": 2}

    def test_pairs_of_surrogates_are_one_character(self):
        assert loads_external('["\\ud83d\\ude00"]') == ["\U0001f600"]
        assert loads_external('["\\ud83d\\ude00", 18446744073709551616]')[0] == "\U0001f600"

    @pytest.mark.parametrize(
        ("written", "pointer", "said"),
        [
            ('{"a":[1,{"b":NaN}]}', "/a/1/b", "NaN is not JSON"),
            ('{"a":-Infinity}', "/a", "-Infinity is not JSON"),
            ("[1,Infinity]", "/1", "Infinity is not JSON"),
            ('{"a":[{"b":1e999}]}', "/a/0/b", "too large"),
            ("[18446744073709551616, 1e999]", "/1", "too large"),
            ("[18446744073709551616, NaN]", "/1", "NaN"),
            ('{"a":"x\\ud800y"}', "/a", "surrogate"),
            ('["ok","\\udc00\\ud800"]', "/1", "surrogate"),
            ("[" + "1" * 400 + ',"\\ud800"]', "/1", "surrogate"),
            ('{"a":{"b~/c":tru}}', "/a/b~0~1c", "'tru' is not a JSON value"),
            ('{"a":1,}', "/a", "member name"),
            ('{"a" 1}', "/a", "colon"),
            ("[1,2", "/1", "the end of the text"),
            ('["abc', "/0", "not closed"),
            ('["a\nb"]', "/0", "control character"),
            ('["\\x41"]', "/0", "wrong escape"),
            ("[01]", "/0", "not a JSON value"),
            ("[+1]", "/0", "not a JSON value"),
            ("[1.]", "/0", "not a JSON value"),
            ("[.5]", "/0", "not a JSON value"),
            ("{'a':1}", "/", "member name"),
            ("[1] 2", "", "follows the end"),
            ("", "", "no text"),
            ("  ", "", "ends where a value"),
            ("undefined", "", "not a JSON value"),
        ],
    )
    def test_what_is_not_json_is_refused_naming_the_place(self, written, pointer, said):
        with pytest.raises(BadRequestError) as refusal:
            loads_external(written)

        assert refusal.value.code == "malformed_json"
        assert refusal.value.members == {"pointer": pointer}
        assert said in refusal.value.detail

    def test_an_integer_of_absurd_length_is_refused_naming_the_place(self):
        with pytest.raises(UnserialisablePayloadError, match="4300 digits") as refusal:
            loads_external('{"a":[' + "9" * 5000 + "]}")

        assert refusal.value.members == {"pointer": "/a/0"}

    def test_bytes_that_are_not_utf_8_are_refused(self):
        with pytest.raises(BadRequestError, match="not JSON"):
            loads_external(b'["\xff"]')

    def test_a_byte_order_mark_is_refused(self):
        with pytest.raises(BadRequestError, match="not JSON"):
            loads_external("\ufeff[]")

    def test_text_with_half_a_surrogate_pair_is_refused_naming_the_place(self):
        with pytest.raises(BadRequestError) as refusal:
            loads_external('{"a":"\ud800"}')

        assert refusal.value.members == {"pointer": "/a"}

    @given(st.text(alphabet='[]{},:"\\u01d8NaIeE+-. tfn\n', max_size=30))
    @example('"\\ud800')
    def test_it_reads_what_the_standard_parser_reads_and_refuses_what_json_does_not_know(
        self, written
    ):
        try:
            expected = json.loads(written, parse_constant=_refuse_constant)
            json.dumps(expected, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            with pytest.raises((BadRequestError, UnserialisablePayloadError)):
                loads_external(written)
        else:
            assert loads_external(written) == expected


def _refuse_constant(name):
    raise ValueError(name)


class TestPlainOutput:
    """What REST, SSE and the command line show."""

    @given(json_values)
    def test_plain_json_is_shown_as_it_is_on_one_line(self, value):
        shown = dumps_plain(value)

        assert len(shown.decode().splitlines()) == 1
        if b"$yukta" not in shown:
            assert same(loads_external(shown), value)

    def test_integers_are_digits_and_nul_is_an_escape(self):
        assert dumps_plain({"n": 2**70, "a\0": "x\0y"}) == (
            b'{"n":1180591620717411303424,"a\\u0000":"x\\u0000y"}'
        )

    def test_other_tags_are_shown(self):
        assert dumps_plain([math.nan]) == b'[{"$yukta":"float","v":"nan"}]'

    def test_case_32_line_separators_are_escaped(self):
        assert dumps_plain(["a\u2028b\u2029c\u0085d"]) == b'["a\\u2028b\\u2029c\\u0085d"]'


class TestCanonicalForm:
    """One text per value."""

    @given(values)
    def test_the_order_of_members_does_not_matter(self, value):
        assert canonical({"a": 1, "b": value}) == canonical({"b": value, "a": 1})

    @pytest.mark.parametrize(
        ("one", "other"),
        [(1, 1.0), (0.0, -0.0), (True, 1), ("1", 1), ((1,), [1]), (None, "null"), ([], {})],
    )
    def test_values_that_only_seem_equal_differ(self, one, other):
        assert canonical({"a": one}) != canonical({"a": other})

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (1e16, "1e+16"),
            (1e-7, "1e-07"),
            (0.1, "0.1"),
            (100.0, "100.0"),
            ({"b": 1, "a": "é\n"}, '{"a":"é\\n","b":1}'),
        ],
    )
    def test_the_text_is_the_same_in_every_version(self, value, written):
        assert canonical(value) == written.encode()


class TestWhatIsNoEncoding:
    """Stored bytes that were damaged are told, never guessed at."""

    @pytest.mark.parametrize(
        ("stored", "pointer"),
        [
            ('[{"$yukta":"nonsense","v":1}]', "/0"),
            ('{"a":{"$yukta":"int"}}', "/a"),
            ('{"a":{"$yukta":"int","v":"1","w":2}}', "/a"),
            ('{"$yukta":"int","v":1}', ""),
            ('{"$yukta":"int","v":"x"}', ""),
            ('[[{"$yukta":"bytes","v":"*"}]]', "/0/0"),
            ('[{"$yukta":"tuple","v":[{"$yukta":"uuid","v":"1"}]}]', "/0/0"),
            ('[{"$yukta":"timedelta","v":[1,2,"3"]}]', "/0"),
            ('[{"$yukta":"blob","v":{"sha256":1}}]', "/0"),
            ('[{"$yukta":["x"],"v":1}]', "/0"),
            ('[{"$yukta":"object","v":[1]}]', "/0"),
            ('[{"$yukta":"text","v":"/w=="}]', "/0"),
            ('[{"$yukta":"decimal","v":"x"}]', "/0"),
            ("[1", "/0"),
        ],
    )
    def test_it_is_refused_naming_the_place(self, stored, pointer):
        with pytest.raises(BadRequestError) as refusal:
            decode(stored.encode())

        assert refusal.value.code == "malformed_json"
        assert refusal.value.members == {"pointer": pointer}

    def test_a_store_that_rewrote_the_tag_with_escapes_is_still_understood(self):
        assert decode(b'[{"\\u0024yukta":"tuple","v":[1]}]') == [(1,)]


states = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, 2**64, -(2**63) - 1])
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(states)
@example({"detail": "a\u2028b\u0085c\0", "$yukta": 2**70})
def test_a_state_is_written_as_anything_else(state):
    assert dumps_state(state) == dumps_plain(state)


def test_a_state_with_half_a_surrogate_pair_is_refused_naming_the_place():
    with pytest.raises(UnserialisablePayloadError) as refusal:
        dumps_state({"error": {"detail": "\ud800"}})

    assert refusal.value.members == {"pointer": "/error/detail"}


def test_the_limit_inside_is_that_of_the_fast_writer():
    orjson.dumps(nested(MAX_DEPTH))
    with pytest.raises(TypeError):
        orjson.dumps(nested(MAX_DEPTH + 1))


def test_what_is_kept_takes_the_room_that_it_needs():
    tracemalloc.start()
    try:
        kept = [encode({"n": n, "text": "x" * 40}) for n in range(1000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken < 200 * len(kept)
