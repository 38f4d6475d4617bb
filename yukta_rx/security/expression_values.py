"""What a condition can do with values: operators, methods and functions, each within a budget.

Values come from messages and may be hostile: numbers of any length, deep or cyclic containers,
classes whose methods do anything. So every function here looks at exact types first, never calls
a method that a value's own class could have replaced, never changes a value, and pays for what
grows with the size of its arguments.
Feature: SEC-02.
"""

from __future__ import annotations

import operator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from yukta_rx.security.placeholders import describe

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_STEPS: Final = 100_000
"""What one evaluation may cost; a step is about a tenth of a microsecond."""

MAX_TEXT: Final = 1_048_576
"""Characters of a text that an expression makes or changes."""

MAX_ITEMS: Final = 10_000
"""Elements of an array that an expression makes."""

MAX_INT_BITS: Final = 256
"""Bits of a whole number that takes part in arithmetic."""

MAX_DIGITS: Final = 100
"""Characters of a text that is read as a number, and places of a rounding."""

Place = tuple[int, int, int, int]
"""Line, column, last line, last column of a part of an expression, as `ast` counts them."""

Env = list[Any]
"""One evaluation: the steps that are left, the values of the names, then the loop variables."""

SCALARS: Final = frozenset({NoneType, bool, int, float, str})
NUMBERS: Final = frozenset({int, float})
ATOMS: Final = SCALARS | {bytes, datetime, date, time, timedelta, Decimal, UUID}
ARRAYS: Final = frozenset({list, tuple})
SETS: Final = frozenset({set, frozenset})
_PLAIN: Final = ATOMS | ARRAYS | SETS | {dict}
_ORDERED: Final = frozenset({str, bytes, datetime, date, time, timedelta})
_MISSING: Final = object()
_LARGEST: Final = 1 << MAX_INT_BITS


class EvaluationError(Exception):
    """An expression has no value; says why, and at which part of it."""

    def __init__(self, detail: str, at: Place) -> None:
        super().__init__(detail)
        self.detail = detail
        self.at = at


def charge(env: Env, at: Place, steps: int) -> None:
    """Pay for work.

    Raises:
        EvaluationError: the budget is used up.
    """
    env[0] -= steps
    if env[0] < 0:
        raise EvaluationError(f"takes more than {MAX_STEPS:,} steps for this message", at)


def plain(env: Env, at: Place, value: Any) -> Any:
    """Return a value as one of the exact types that are known here, without running its code.

    Raises:
        EvaluationError: it is of a class that a condition cannot read.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    made = value
    if isinstance(value, str):
        charge(env, at, len(value) >> 6)
        made = str.__str__(value)
    elif isinstance(value, int):
        made = int.__index__(value)
    elif isinstance(value, float):
        made = float.__float__(value)
    elif isinstance(value, dict):
        charge(env, at, dict.__len__(value) >> 2)
        made = dict.copy(value)
    elif isinstance(value, list):
        charge(env, at, list.__len__(value) >> 2)
        made = list.copy(value)
    elif kind is MappingProxyType:
        made = _unwrapped(env, at, value)
    if type(made) not in _PLAIN:
        raise EvaluationError(f"{describe(value)} is nothing that a condition can read", at)
    return made


def _unwrapped(env: Env, at: Place, value: Any) -> Any:
    # What a proxy wraps can be anything; only what gives a dict passes the caller's check.
    charge(env, at, len(value) >> 2)
    return value.copy()


# --- members and elements ------------------------------------------------------------------------


def member(env: Env, at: Place, holder: Any, name: str) -> Any:
    """Return the member `name` of an object."""
    if type(holder) is not dict:
        holder = plain(env, at, holder)
        if type(holder) is not dict:
            raise EvaluationError(f"{describe(holder)} has no members, so no `{name}`", at)
    value = holder.get(name, _MISSING)
    if value is _MISSING:
        detail = f'there is no member `{name}`; .get("{name}") reads one that may be missing'
        raise EvaluationError(detail, at)
    return value


def element(env: Env, at: Place, holder: Any, key: Any) -> Any:
    """Return `holder[key]`: a member of an object, an element of an array, a character."""
    holder, key = plain(env, at, holder), plain(env, at, key)
    kind = type(holder)
    if kind is dict:
        if type(key) not in SCALARS:
            raise EvaluationError(f"{describe(key)} is no name of a member", at)
        value = holder.get(key, _MISSING)
        if value is _MISSING:
            raise EvaluationError(f"there is no member {_named(key)}", at)
        return value
    if kind not in ARRAYS and kind is not str:
        raise EvaluationError(f"{describe(holder)} has no members or elements", at)
    if type(key) is not int:
        raise EvaluationError(f"{describe(key)} is no index of {describe(holder)}", at)
    if not -len(holder) <= key < len(holder):
        index = f"element {key}" if abs(key) < _LARGEST else "such element"
        raise EvaluationError(f"{describe(holder)} of length {len(holder)} has no {index}", at)
    return holder[key]


def cut(env: Env, at: Place, holder: Any, start: Any, stop: Any, step: Any) -> Any:
    """Return `holder[start:stop:step]` of a text or an array."""
    holder = plain(env, at, holder)
    if type(holder) not in ARRAYS and type(holder) is not str:
        raise EvaluationError(f"{describe(holder)} cannot be sliced", at)
    for bound in (start, stop, step):
        if bound is not None and type(bound) is not int:
            raise EvaluationError(f"{describe(bound)} is no index of {describe(holder)}", at)
    if step == 0:
        raise EvaluationError("the step of a slice is never 0", at)
    places = range(len(holder))[start:stop:step]
    if type(holder) is str:
        text_of(env, at, len(places))
    else:
        array_of(env, at, len(places))
    return holder[start:stop:step]


def items(env: Env, at: Place, value: Any) -> Any:
    """Return what a loop over `value` runs over: elements, or the names of an object's members."""
    kind = type(value)
    if kind is not list:
        value = plain(env, at, value)
        kind = type(value)
    if kind in ARRAYS or kind is dict:
        return value
    raise EvaluationError(f"{describe(value)} is no array to go through", at)


def _named(key: Any) -> str:
    if isinstance(key, str):
        return f"`{key if len(key) <= 40 else key[:37] + '...'}`"
    return describe(key)


# --- truth, equality, order ----------------------------------------------------------------------


def truth(env: Env, at: Place, value: Any) -> bool:
    """Whether a value counts as true: all but false, null, zero and what is empty."""
    return bool(plain(env, at, value))


def same(env: Env, at: Place, left: Any, right: Any) -> bool:
    """Whether two values are equal, as Python has it, members and elements included."""
    if type(left) in SCALARS and type(right) in SCALARS:
        if type(left) is str is type(right) and len(left) == len(right):
            charge(env, at, len(left) >> 9)
        return bool(left == right)
    left, right = plain(env, at, left), plain(env, at, right)
    if type(left) in ATOMS and type(right) in ATOMS:
        return bool(left == right)
    pending: list[tuple[Any, Any]] = [(left, right)]
    while pending:
        left, right = pending.pop()
        if not _alike(env, at, left, right, pending):
            return False
    return True


def _alike(env: Env, at: Place, left: Any, right: Any, pending: list[tuple[Any, Any]]) -> bool:
    """Compare one pair; what it holds is left in `pending`."""
    left, right = plain(env, at, left), plain(env, at, right)
    first, second = type(left), type(right)
    charge(env, at, 1)
    if first in ATOMS and second in ATOMS:
        if first is str is second and len(left) == len(right):
            charge(env, at, len(left) >> 9)
        return left is right or bool(left == right)
    if first in SETS and second in SETS:
        _check_set(env, at, left)
        _check_set(env, at, right)
        return bool(left == right)
    if first is not second or len(left) != len(right):
        return False
    charge(env, at, len(left))
    if first is dict:
        for key, value in left.items():
            other = right.get(key, _MISSING)
            if other is _MISSING:
                return False
            pending.append((value, other))
    else:
        pending.extend(zip(left, right, strict=True))
    return True


def _check_set(env: Env, at: Place, value: Any) -> None:
    charge(env, at, len(value))
    if not all(type(item) in ATOMS for item in value):
        raise EvaluationError("a set of such elements is nothing that a condition can read", at)


def order(
    env: Env, at: Place, compare: Callable[[Any, Any], Any], symbol: str, left: Any, right: Any
) -> bool:
    """Return `left < right` or the like, for two numbers or two values of one kind."""
    left, right = plain(env, at, left), plain(env, at, right)
    first, second = type(left), type(right)
    if first in NUMBERS and second in NUMBERS:
        return bool(compare(left, right))
    if first is second and first in _ORDERED:
        if first is str or first is bytes:
            charge(env, at, min(len(left), len(right)) >> 9)
        try:
            return bool(compare(left, right))
        except TypeError:
            raise EvaluationError("a time with a zone and one without have no order", at) from None
    if first is Decimal and (second is Decimal or second in NUMBERS):
        return bool(compare(left, right))
    if second is Decimal and first in NUMBERS:
        return bool(compare(left, right))
    raise mismatch(symbol, left, right, at)


def contains(env: Env, at: Place, item: Any, holder: Any) -> bool:
    """Return `item in holder`: a member's name, an element, a part of a text."""
    item, holder = plain(env, at, item), plain(env, at, holder)
    kind = type(holder)
    if kind is str:
        if type(item) is not str:
            raise mismatch("in", item, holder, at)
        charge(env, at, search_cost(len(holder), len(item)))
        return item in holder
    if kind is dict or kind in SETS:
        if type(item) not in ATOMS:
            raise mismatch("in", item, holder, at)
        if type(item) is str:
            charge(env, at, len(item) >> 6)
        return item in holder
    if kind not in ARRAYS:
        raise mismatch("in", item, holder, at)
    for other in holder:
        charge(env, at, 1)
        if item is other or same(env, at, item, other):
            return True
    return False


def search_cost(size: int, wanted: int) -> int:
    """Return the steps that it takes to find a text of `wanted` characters in one of `size`."""
    # Python searches short texts the quadratic way, long ones in linear time.
    return size * min(wanted, 100) >> 8 if size < 30_000 else size >> 6


# --- arithmetic ----------------------------------------------------------------------------------


def mismatch(symbol: str, left: Any, right: Any, at: Place) -> EvaluationError:
    """Return the error of an operator that does not go with its two operands."""
    return EvaluationError(
        f"`{symbol}` does not go with {describe(left)} and {describe(right)}", at
    )


def checked(at: Place, number: Any) -> Any:
    """Return a number that came out of arithmetic.

    Raises:
        EvaluationError: it is too large, or not finite.
    """
    if type(number) is int:
        if -_LARGEST < number < _LARGEST:
            return number
        raise EvaluationError(f"a whole number of more than {MAX_INT_BITS} bits", at)
    if number - number == 0:
        return number
    raise EvaluationError("the result is no finite number", at)


def _numbers(env: Env, at: Place, symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    left, right = plain(env, at, left), plain(env, at, right)
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        raise mismatch(symbol, left, right, at)
    return checked(at, left), checked(at, right)


def add(env: Env, at: Place, left: Any, right: Any) -> Any:
    """Return the sum of two numbers, or two texts or arrays joined."""
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        left, right = plain(env, at, left), plain(env, at, right)
        kind = type(left)
        if kind is type(right):
            if kind is str:
                text_of(env, at, len(left) + len(right))
                return left + right
            if kind in ARRAYS:
                array_of(env, at, len(left) + len(right))
                return left + right
    left, right = _numbers(env, at, "+", left, right)
    return checked(at, left + right)


def _calculation(symbol: str, compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(env: Env, at: Place, left: Any, right: Any) -> Any:
        left, right = _numbers(env, at, symbol, left, right)
        try:
            return checked(at, compute(left, right))
        except ZeroDivisionError:
            raise EvaluationError("division by zero", at) from None

    return run


subtract: Final = _calculation("-", operator.sub)
multiply: Final = _calculation("*", operator.mul)
divide: Final = _calculation("/", operator.truediv)
floor_divide: Final = _calculation("//", operator.floordiv)
modulo: Final = _calculation("%", operator.mod)


def signed(env: Env, at: Place, symbol: str, value: Any) -> Any:
    """Return a number with `+` or `-` in front of it."""
    value = plain(env, at, value)
    if type(value) not in NUMBERS:
        raise EvaluationError(f"`{symbol}` does not go with {describe(value)}", at)
    return checked(at, -value if symbol == "-" else value)


def text_of(env: Env, at: Place, size: int) -> None:
    """Pay for a text of `size` characters that is about to be made."""
    if size > MAX_TEXT:
        raise EvaluationError(f"a text of more than {MAX_TEXT:,} characters", at)
    charge(env, at, size >> 6)


def array_of(env: Env, at: Place, size: int) -> None:
    """Pay for an array of `size` elements that is about to be made."""
    if size > MAX_ITEMS:
        raise EvaluationError(f"an array of more than {MAX_ITEMS:,} elements", at)
    charge(env, at, size >> 2)
