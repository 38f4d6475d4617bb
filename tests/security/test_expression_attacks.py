"""Hostile conditions: whatever is written, it is refused or answered, soon, and nothing changes."""

from __future__ import annotations

import copy
import subprocess
import sys
from time import perf_counter

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.security.expressions import MAX_SOURCE, compile_condition

pytestmark = pytest.mark.feature("SEC-02")

PATIENCE = 2.0
"""Seconds; the slowest takes a twentieth of one on an idle machine."""

PAYLOAD = {
    "n": 1,
    "s": "x" * 50_000,
    "wide": "ß" * 200_000,
    "list": list(range(20_000)),
    "rows": [{"v": i, "t": ["a", i]} for i in range(5_000)],
    "rows2": [{"v": i, "t": ["a", i]} for i in range(5_000)],
    "huge": 10**4_000,
    "huges": [10**4_000 + i for i in range(500)],
    "o": {"a": {"b": 1}},
}
BEFORE = copy.deepcopy(PAYLOAD)

# Refused when they are compiled.
ESCAPES = [
    "().__class__.__bases__[0].__subclasses__()",
    "payload.__class__",
    "payload.__class__.__mro__",
    "payload.__init__.__globals__",
    "''.__class__",
    "payload.get.__self__",
    "payload.get.__func__.__globals__",
    "(1).__class__",
    "payload.a.__dict__",
    "payload.＿＿class＿＿",  # noqa: RUF001
    "__import__('os')",
    "__builtins__",
    "import os",
    "open('/etc/passwd')",
    "eval('1')",
    "exec('1')",
    "compile('1', '', 'eval')",
    "globals()",
    "locals()",
    "vars(payload)",
    "dir(payload)",
    "getattr(payload, 'x')",
    "setattr(payload, 'x', 1)",
    "type(payload)",
    "object()",
    "super()",
    "print(1)",
    "input()",
    "breakpoint()",
    "id(payload)",
    "hash(payload)",
    "isinstance(payload, dict)",
    "range(10**9)",
    "sorted(payload.list)",
    "map(len, payload)",
    "open",
    "len.__call__(payload)",
    "len(payload).__class__",
    "lambda: payload",
    "(lambda: payload)()",
    "(x := payload)",
    "[x for x in payload]",
    "{x for x in payload}",
    "{x: 1 for x in payload}",
    "[*payload.list]",
    "{**payload}",
    "f'{payload}'",
    "f'{payload!r:>100000000}'",
    "await payload",
    "(yield payload)",
    "payload.n = 2",
    "payload.n += 2",
    "del payload.n",
    "payload; payload",
    "payload.clear()",
    "payload.pop('n')",
    "payload.update({'n': 2})",
    "payload.setdefault('q', 1)",
    "payload.list.append(1)",
    "payload.list.sort()",
    "payload.list.extend(payload.list)",
    "payload.__setitem__('n', 2)",
    "payload.s.format(payload)",
    "'{0.__class__}'.format(payload)",
    "'{:>1000000000}'.format(1)",
    "payload.s.format_map(payload)",
    "payload.s.encode()",
    "payload.s.replace('x', payload.s)",
    "payload.s.join(payload.list)",
    "payload.s.ljust(10**9)",
    "payload.s.zfill(1000000000)",
    "payload.s.center(1000000000)",
    "payload.s.expandtabs(1000000000)",
    "payload.s.translate({})",
    "10**10**10",
    "2**1000000000",
    "pow(10, 10**10)",
    "1 << 1000000000",
    "1 >> 1",
    "1 | 2",
    "~1",
    "1e999",
    "-1e999",
    "9" * 4_000,
    "0x" + "f" * 4_000,
    "0b" + "1" * 4_000,
    "1" + "_0" * 2_000,
    "b'abc'",
    "1j",
    "...",
    "payload[...]",
    "payload[1:2, 3]",
    "any((x for x in payload.list), 1)",
    "any(x async for x in payload.list)",
    "min(*payload.list)",
    "payload.get(**payload)",
    "x" * (MAX_SOURCE + 1),
    "(" * 4_000,
    "[" * 4_000,
    "{" * 4_000,
    "(" * 2_000 + "1" + ")" * 2_000,
    "-" * 4_000 + "1",
    "not " * 1_000 + "1",
    "1" + "+1" * 2_000,
    "1" + "-1" * 101,
    "payload" + ".a" * 2_000,
    "payload" + "[0]" * 1_000,
    "len(" * 190 + "payload" + ")" * 190,
    "payload.s" + ".lower()" * 400,
    "1 if 1 else " * 330 + "1",
    "1" + " < 1" * 1_000,
    "1" + " and 1" * 600,
    "[" + "1," * 1_500 + "]",
    "lambda " * 500 + ": 1",
    "any(" * 100 + "payload" + ")" * 100,
    "'" * 4_000,
    "\\" * 4_000,
    "\x00",
    "\ufeffpayload",
    "payload.\u202en",
    "\ud800",
    "${payload.n} == 1",
    "#",
    "payload.n ==",
    "== 1",
]

# Compiled, and then refused or answered within the budget.
EXPENSIVE = [
    "'%100000000d' % 1",
    "payload.s % payload.n",
    "'x' * 1000000000",
    "payload.list * 1000000000",
    "[0] * 1000000000",
    "payload.huge * payload.huge",
    "payload.huge + 1",
    "payload.huge // 3",
    "payload.huge % 7",
    "-payload.huge",
    "str(payload.huge)",
    "float(payload.huge)",
    "abs(payload.huge)",
    "round(payload.huge, -10)",
    "round(1, -1000000000)",
    "round(1.5, 1000000000)",
    "int('9' + payload.s)",
    "float('1e999')",
    "int('1_' + '0' * 3)",
    "*".join(["99999999999999999999"] * 40),
    "+".join(["payload.s"] * 90),
    "+".join(["payload.list"] * 90),
    "[" + ",".join(["payload.wide + payload.wide"] * 80) + "]",
    "payload.rows == payload.rows2",
    "[payload.rows, payload.rows, payload.rows] == [payload.rows2, payload.rows2, payload.rows2]",
    "payload.rows in [payload.rows2, payload.rows2, payload.rows2, payload.rows2]",
    "payload.rows2 in payload.list",
    "payload.o in payload.rows",
    "payload.rows.count(payload.o) == 1",
    "all(x in payload.list for x in payload.list)",
    "all(any(x == y for y in payload.list) for x in payload.list)",
    "any(any(any(x == -1 for x in payload.list) for y in payload.list) for z in payload.list)",
    "all(payload.rows == payload.rows2 for x in payload.list)",
    "any(payload.huge == x + 1 for x in payload.list)",
    "any(any(x > y and false for x in payload.huges) for y in payload.huges)",
    "any(payload.s == payload.s + '' and false for x in payload.list)",
    "any(payload.s.lower() == 'y' for x in payload.list)",
    "any(payload.wide.upper() == 'y' for x in payload.list)",
    "any('xxxxxxxxxy' in payload.s for x in payload.list)",
    "any(payload.s.count('xxy') > 1 for x in payload.list)",
    "any(len(payload.s.split('x')) == 1 for x in payload.list)",
    "any(payload.s.strip('abcdefghijklmnopqrstuvwxyz') == 'y' for x in payload.list)",
    "any(payload.s[1:] == 'y' for x in payload.list)",
    "any(payload.list[::-1] == x for x in payload.list)",
    "any([x, x, x, x] == [x] for x in payload.list)",
    "any({'a': x} == x for x in payload.list)",
    "sum(sum(payload.list) for x in payload.list) < 0",
    "max(max(payload.list) for x in payload.list) < 0",
    "payload.s.startswith([" + ",".join(["payload.s"] * 90) + "])",
    "len(payload.s.split('x', 1000000000)) > 1",
    "payload.list[-10000000000000000000000]",
    "payload.list[::10000000000000000000000000] == []",
    "payload.get(payload.rows)",
    "{'a': 1}.get(payload.rows)",
    "payload.rows in payload",
    "1 / 0",
    "0.0 % 0",
    "1e308 * 1e308",
    "1e308 + 1e308 - 1e308 - 1e308",
    "payload.get('get').get('get')",
    "payload.keys().clear",
    "payload.values() == payload.values()",
]


def detail_of(source: str) -> str | None:
    """Why an expression is refused or has no value, None if it has one; all else is raised."""
    began = perf_counter()
    detail = None
    try:
        compile_condition(source).evaluate({"payload": PAYLOAD, "headers": {}, "id": "m"})
    except BadInputError as error:
        detail = error.detail
    assert perf_counter() - began < PATIENCE
    assert detail is None or len(detail.encode()) < 1_000, "it can be shown and sent"
    return detail


@pytest.mark.parametrize("source", ESCAPES, ids=lambda source: ascii(source)[:40])
def test_what_is_not_listed_does_not_exist(source) -> None:
    detail = detail_of(source)

    assert detail is not None
    assert "is no condition" in detail or "longer than" in detail


@pytest.mark.parametrize("source", EXPENSIVE, ids=lambda source: source[:40])
def test_what_costs_too_much_ends_soon(source) -> None:
    detail = detail_of(source)

    assert detail is None or detail.startswith("condition `")


def test_nothing_that_was_tried_changed_the_message() -> None:
    for source in (*ESCAPES, *EXPENSIVE):
        detail_of(source)

    assert PAYLOAD == BEFORE


def test_a_cycle_and_a_deep_payload_end_too() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    other: list[object] = [cycle]
    other[0] = other
    deep: list[object] = []
    twin: list[object] = []
    for _ in range(100_000):
        deep, twin = [deep], [twin]

    for payload in ({"a": cycle, "b": other}, {"a": deep, "b": twin}):
        with pytest.raises(BadInputError, match="takes more than 100,000 steps"):
            compile_condition("payload.a == payload.b").matches({"payload": payload})


def test_the_budget_is_for_one_evaluation() -> None:
    condition = compile_condition("any(x < 0 for x in payload)")
    half = {"payload": list(range(12_000))}

    assert [condition.matches(half) for _ in range(5)] == [False] * 5


def test_conditions_may_nest_up_to_the_limit() -> None:
    assert compile_condition("-" * 99 + "1").evaluate({}) == -1
    assert compile_condition(" or ".join(["1"] * 499)).evaluate({}) == 1
    with pytest.raises(BadInputError, match="501 parts are more than the 500"):
        compile_condition(" or ".join(["1"] * 500))
    with pytest.raises(BadInputError, match="nested deeper than 100 levels"):
        compile_condition("-" * 100 + "1")


def test_a_refusal_for_depth_is_the_same_wherever_it_is_found() -> None:
    details = set()
    for depth in (150, 900, 1_500, 4_000):
        with pytest.raises(BadInputError) as refused:
            compile_condition("-" * depth + "1")
        details.add(refused.value.detail.partition("is no condition")[2])

    assert len(details) == 1


@pytest.mark.slow
def test_no_source_takes_the_process_down() -> None:
    # In a process of its own: a parser that overflows its stack would end this one.
    program = """
from yukta_rx.security.expressions import compile_condition
parts = ["(", "[", "{", "-", "~", "not ", "lambda:", "a.", "a[", "f(", "1 if 1 else ", "1+", "1<",
         "1 and ", "1,", "(1,", "{1:", "*", "**", "f'{", "await ", "(yield ", "a:=", "'", '"', "#",
         "any(x for x in ", "[x for x in ", chr(92), chr(10), chr(9)]
for part in parts:
    for end in ("", "1", "a", ")"):
        try:
            compile_condition((part * 4096)[:4095] + end)
        except ValueError:
            pass
print("alive")
"""

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=50
    )

    assert (done.stdout, done.stderr, done.returncode) == ("alive\n", "", 0)
