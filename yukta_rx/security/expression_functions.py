"""The functions and methods that a condition may call: a short list, all of them pure.

A method is allowed for a type, not for whatever has one of that name.
Feature: SEC-02.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.security import expression_values as values
from yukta_rx.security.expression_values import (
    ARRAYS,
    MAX_DIGITS,
    MAX_ITEMS,
    NUMBERS,
    SETS,
    Env,
    EvaluationError,
    Place,
    array_of,
    charge,
    plain,
    text_of,
)
from yukta_rx.security.placeholders import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SIZED: Final = ARRAYS | SETS | {dict, str, bytes}


@dataclass(frozen=True, slots=True)
class Loop:
    """The argument `... for x in ...` of a function; never a value of a message."""

    items: Iterator[Any]


@dataclass(frozen=True, slots=True)
class Function:
    """Something that an expression may call.

    Attributes:
        run: called as `run(env, at, *arguments)`; of a method the first one is its object.
        least: how many arguments it needs, the object not counted.
        most: how many it takes.
        loops: whether one argument may be `... for x in ...`, which it gets as a `Loop`.
    """

    run: Callable[..., Any]
    least: int
    most: int
    loops: bool = False


# --- functions -----------------------------------------------------------------------------------


def _len(env: Env, at: Place, value: Any) -> int:
    value = plain(env, at, value)
    if type(value) not in _SIZED:
        raise EvaluationError(f"len() does not go with {describe(value)}", at)
    return len(value)


def _any(env: Env, at: Place, given: Any) -> bool:
    return any(values.truth(env, at, item) for item in _each(env, at, given))


def _all(env: Env, at: Place, given: Any) -> bool:
    return all(values.truth(env, at, item) for item in _each(env, at, given))


def _sum(env: Env, at: Place, given: Any) -> Any:
    total: Any = 0
    for item in _each(env, at, given):
        if type(item) not in NUMBERS:
            raise EvaluationError(f"sum() does not go with {describe(item)}", at)
        total = values.add(env, at, total, item)
    return total


def _extreme(name: str, wins: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(env: Env, at: Place, *given: Any) -> Any:
        found: Any = None
        empty = True
        for item in _each(env, at, given[0]) if len(given) == 1 else given:
            if empty:
                found, empty = item, False
                values.order(env, at, operator.eq, f"{name}()", item, item)
            elif values.order(env, at, wins, f"{name}()", item, found):
                found = item
        if empty:
            raise EvaluationError(f"{name}() of nothing", at)
        return found

    return run


def _each(env: Env, at: Place, given: Any) -> Iterable[Any]:
    if type(given) is Loop:
        return given.items
    found: Iterable[Any] = _paid(env, at, values.items(env, at, given))
    return found


def _paid(env: Env, at: Place, found: Iterable[Any]) -> Iterator[Any]:
    for item in found:
        charge(env, at, 2)
        yield item


def _abs(env: Env, at: Place, value: Any) -> Any:
    value = _number(env, at, "abs()", value)
    return -value if value < 0 else abs(value)


def _round(env: Env, at: Place, value: Any, places: Any = None) -> Any:
    value = _number(env, at, "round()", value)
    if places is None:
        return values.checked(at, round(value))
    if type(places) is not int or abs(places) > MAX_DIGITS:
        raise EvaluationError(f"{describe(places)} is no number of places", at)
    return values.checked(at, round(value, places))


def _number(env: Env, at: Place, name: str, value: Any) -> Any:
    value = plain(env, at, value)
    if type(value) not in NUMBERS:
        raise EvaluationError(f"{name} does not go with {describe(value)}", at)
    return values.checked(at, value)


def _conversion(name: str, convert: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(env: Env, at: Place, value: Any) -> Any:
        value = plain(env, at, value)
        kind = type(value)
        if kind is str:
            if len(value) > MAX_DIGITS:
                raise EvaluationError(f"{describe(value)} is too long for a number", at)
        elif kind is Decimal:
            # As a float first: a whole number of a billion digits fits in ten characters.
            value = float(value)
        elif kind not in NUMBERS and kind is not bool:
            raise EvaluationError(f"{name}() does not go with {describe(value)}", at)
        if type(value) in NUMBERS:
            values.checked(at, value)
        try:
            made = convert(value)
        except ValueError:
            raise EvaluationError(f"{describe(value)} cannot be read as a number", at) from None
        return values.checked(at, made)

    return run


def _str(env: Env, at: Place, value: Any) -> str:
    value = plain(env, at, value)
    if type(value) is str:
        return value
    if type(value) not in NUMBERS:
        raise EvaluationError(f"str() takes a number or a text, not {describe(value)}", at)
    return str(values.checked(at, value) if type(value) is int else value)


# --- methods -------------------------------------------------------------------------------------


def _text(at: Place, method: str, value: Any) -> str:
    if type(value) is not str:
        raise EvaluationError(f"{method}() takes a text, not {describe(value)}", at)
    return value


def _affix(name: str, test: Callable[[str, Any], bool]) -> Callable[..., bool]:
    def run(env: Env, at: Place, text: str, affix: Any) -> bool:
        affix = plain(env, at, affix)
        choices = affix if type(affix) in ARRAYS else (affix,)
        for choice in choices:
            choice = _text(at, name, plain(env, at, choice))
            charge(env, at, 1 + (len(choice) >> 9))
            if test(text, choice):
                return True
        return False

    return run


def _changed(change: Callable[[str], str]) -> Callable[..., str]:
    def run(env: Env, at: Place, text: str) -> str:
        text_of(env, at, len(text))
        if not text.isascii():
            charge(env, at, len(text) >> 3)
        return change(text)

    return run


def _stripped(name: str, strip: Callable[[str, str | None], str]) -> Callable[..., str]:
    def run(env: Env, at: Place, text: str, characters: Any = None) -> str:
        text_of(env, at, len(text))
        if characters is not None:
            characters = _text(at, name, plain(env, at, characters))
            charge(env, at, len(text) * len(characters) >> 6)
        return strip(text, characters)

    return run


def _split(env: Env, at: Place, text: str, by: Any = None, most: Any = None) -> list[str]:
    by, most = plain(env, at, by), plain(env, at, most)
    limit = MAX_ITEMS
    if most is not None:
        if type(most) is not int:
            raise EvaluationError(f"{describe(most)} is no number of splits", at)
        limit = MAX_ITEMS if most < 0 else min(most, MAX_ITEMS)
    text_of(env, at, len(text))
    if by is not None:
        charge(env, at, values.search_cost(len(text), len(_text(at, "split", by))))
        if not by:
            raise EvaluationError("split() by an empty text", at)
    parts = text.split(by, limit)
    array_of(env, at, len(parts))
    return parts


def _count_text(env: Env, at: Place, text: str, part: Any) -> int:
    part = _text(at, "count", plain(env, at, part))
    charge(env, at, values.search_cost(len(text), len(part)))
    return text.count(part)


def _count_items(env: Env, at: Place, items: Any, wanted: Any) -> int:
    found = 0
    for item in items:
        charge(env, at, 1)
        found += item is wanted or values.same(env, at, item, wanted)
    return found


def _is_digit(env: Env, at: Place, text: str) -> bool:
    charge(env, at, len(text) >> 6)
    return text.isdigit()


def _get(env: Env, at: Place, holder: dict[Any, Any], name: Any, default: Any = None) -> Any:
    name = plain(env, at, name)
    if type(name) not in values.SCALARS:
        raise EvaluationError(f"{describe(name)} is no name of a member", at)
    return holder.get(name, default)


def _keys(env: Env, at: Place, holder: dict[Any, Any]) -> list[Any]:
    array_of(env, at, len(holder))
    return list(holder)


def _values(env: Env, at: Place, holder: dict[Any, Any]) -> list[Any]:
    array_of(env, at, len(holder))
    return list(holder.values())


# --- the two lists -------------------------------------------------------------------------------

FUNCTIONS: Final[Mapping[str, Function]] = {
    "len": Function(_len, 1, 1),
    "any": Function(_any, 1, 1, loops=True),
    "all": Function(_all, 1, 1, loops=True),
    "sum": Function(_sum, 1, 1, loops=True),
    "min": Function(_extreme("min", operator.lt), 1, 100, loops=True),
    "max": Function(_extreme("max", operator.gt), 1, 100, loops=True),
    "abs": Function(_abs, 1, 1),
    "round": Function(_round, 1, 2),
    "int": Function(_conversion("int", int), 1, 1),
    "float": Function(_conversion("float", float), 1, 1),
    "str": Function(_str, 1, 1),
    "bool": Function(values.truth, 1, 1),
}

_STRIPS: Final[Mapping[str, Callable[[str, str | None], str]]] = {
    "strip": str.strip,
    "lstrip": str.lstrip,
    "rstrip": str.rstrip,
}

_METHODS: Final[Mapping[tuple[type, str], Function]] = {
    (str, "startswith"): Function(_affix("startswith", str.startswith), 1, 1),
    (str, "endswith"): Function(_affix("endswith", str.endswith), 1, 1),
    (str, "lower"): Function(_changed(str.lower), 0, 0),
    (str, "upper"): Function(_changed(str.upper), 0, 0),
    **{(str, name): Function(_stripped(name, run), 0, 1) for name, run in _STRIPS.items()},
    (str, "split"): Function(_split, 0, 2),
    (str, "count"): Function(_count_text, 1, 1),
    (str, "isdigit"): Function(_is_digit, 0, 0),
    (dict, "get"): Function(_get, 1, 2),
    (dict, "keys"): Function(_keys, 0, 0),
    (dict, "values"): Function(_values, 0, 0),
    (list, "count"): Function(_count_items, 1, 1),
    (tuple, "count"): Function(_count_items, 1, 1),
}


def _by_name() -> Mapping[str, Function]:
    """Return each method as one function, which picks by the type of its object."""
    found: dict[str, Function] = {}
    for name in dict.fromkeys(name for _, name in _METHODS):
        kinds = {kind: one for (kind, other), one in _METHODS.items() if other == name}
        runs = {kind: one.run for kind, one in kinds.items()}
        least = min(one.least for one in kinds.values())
        most = max(one.most for one in kinds.values())
        found[name] = Function(_picking(name, runs), least, most)
    return found


def _picking(name: str, runs: Mapping[type, Callable[..., Any]]) -> Callable[..., Any]:
    def run(env: Env, at: Place, holder: Any, *given: Any) -> Any:
        method = runs.get(type(holder))
        if method is None:
            holder = plain(env, at, holder)
            method = runs.get(type(holder))
            if method is None:
                raise EvaluationError(f"{describe(holder)} has no method {name}()", at)
        return method(env, at, holder, *given)

    return run


METHODS: Final = _by_name()
"""The methods by name; each refuses objects of types that it is not allowed for."""
