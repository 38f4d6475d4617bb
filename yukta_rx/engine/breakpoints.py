"""Breakpoint: which messages a node is held before. Feature: CTL-02."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError, Fault, ValidationError, YuktaError
from yukta_rx.model.codec import loads_external
from yukta_rx.plugins.conditions import Condition, MessageScope
from yukta_rx.security.expressions import compile_condition
from yukta_rx.security.patterns import Pattern
from yukta_rx.security.placeholders import as_text
from yukta_rx.security.variables import Scope, compile_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.model.message import Message

_PART: Final = re.compile(r"(payload|metadata|headers|id)(\.[^${}:=]+)?")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MOST_CHOICES: Final = 1_000

OPS: Final = ("equals", "!=", "<", ">", "in", "matches", "exists")
"""How a part of a message can be compared with a value."""


class Breakpoint:
    """Holds the messages that are as it says; without a part and a condition, every message.

    The part is `payload`, `payload.some.path`, `metadata.key` or `id`. A message that does not
    have the part is not held, except by `exists` false. How it is compared:

    - `equals`, `!=`: with the value's text: a string as it is, anything else as its JSON text.
    - `<`, `>`: a number with a number, a text with a text; what cannot be compared is not held.
      A value that is a text that reads as a number also stands for the number.
    - `in`: the text of the part equals that of one of the values in an array.
    - `matches`: the pattern is found in its text; see `security.patterns` for what it may be.
    - `exists`: whether the message has the part; the value is true, its default, or false.

    A condition (`when`) holds the messages for which it is true. One that has no value for a
    message, or another value, does not hold it.

    Attributes:
        expression: the part.
        op: one of `OPS`; None without a part.
        value: what it is compared with, as it was given.
        when: the condition, as it was written.
        hits: messages that it has held.

    Raises:
        ValidationError: it cannot be read; the pointers are `/expression`, `/op`, `/value`,
            `/equals` and `/when`.
    """

    __slots__ = ("_test", "expression", "hits", "op", "value", "when")

    def __init__(
        self,
        expression: str | None = None,
        equals: str | None = None,
        *,
        op: str | None = None,
        value: Any = None,
        when: str | None = None,
    ) -> None:
        """Compile it once.

        Args:
            expression: the part.
            equals: the seed's way to say `op` equals with this `value`.
            op: how to compare; `equals` if a value is given without it.
            value: what to compare with; None is no value (write the text null for null).
            when: a condition, in place of all others.
        """
        self._test: Callable[[Message], bool]
        self.hits = 0
        self.when = when
        given = {"expression": expression, "equals": equals, "op": op, "value": value}
        self.expression, self.op, self.value = expression, op, value
        if when is not None:
            for name, other in given.items():
                if other is not None:
                    raise _refused(name, "conflict", "a breakpoint with `when` has nothing else")
            self._test = _condition(when)
            return
        if equals is not None:
            if value is not None or op not in (None, "equals"):
                name = "value" if value is not None else "op"
                raise _refused(name, "conflict", "`equals` is both op and value in one")
            self.value = value = equals
        if expression is None:
            if value is None and op is None:
                self._test = _every
                return
            detail = "expression is missing: which part of the message, such as payload.n"
            raise _refused("expression", "missing", detail)
        self.op = op or ("equals" if value is not None else None)
        if self.op is None:
            raise _refused("equals", "missing", "equals is missing: the value to compare with")
        if self.op not in OPS:
            raise _refused("op", "invalid_value", f"must be one of {', '.join(OPS)}, not {op}")
        if value is None and self.op != "exists":
            raise _refused("value", "missing", f"value is missing: what to compare by {self.op}")
        self._test = _comparison(expression, self.op, value)

    def __call__(self, msg: Message) -> bool:
        """Whether it holds a message."""
        if not self._test(msg):
            return False
        self.hits += 1
        return True

    @property
    def reads_payload(self) -> bool:
        """Whether it may look at the payload of a message."""
        return self.when is not None or (self.expression or "").startswith("payload")

    def same(self, other: Breakpoint) -> bool:
        """Whether two hold the same messages."""
        return self._key() == other._key()

    def _key(self) -> tuple[Any, ...]:
        value = None if self.value is None else as_text(self.value)
        return self.expression, self.op, value, self.when

    def as_dict(self) -> dict[str, Any]:
        """The breakpoint as a run's detail shows it."""
        shown: dict[str, Any] = {"hits": self.hits}
        if self.when is not None:
            shown["when"] = self.when
        if self.expression is not None:
            shown |= {"expression": self.expression, "op": self.op}
            shown["value"] = True if self.value is None else self.value
        return shown

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Breakpoint:
        """Make one of an object with the members `expression`, `equals`, `op`, `value`, `when`.

        Raises:
            ValidationError: it cannot be read, or has another member.
        """
        known = ("expression", "equals", "op", "value", "when")
        for name, value in given.items():
            if name not in known:
                detail = f"a breakpoint has {', '.join(known)}"
                raise _refused(name, "unknown_field", detail)
            if name != "value" and not isinstance(value, str | None):
                raise _refused(name, "invalid_type", "must be a text")
        return cls(**given)


def _refused(name: str, code: str, detail: str) -> ValidationError:
    return ValidationError([Fault(f"/{name}", code, detail)])


def _every(_msg: Message) -> bool:
    return True


def _condition(source: str) -> Callable[[Message], bool]:
    try:
        condition: Condition = compile_condition(source)
    except BadInputError as error:
        raise _refused("when", "invalid_expression", error.detail) from None

    def holds(msg: Message) -> bool:
        try:
            return condition.matches(MessageScope(msg))
        except BadInputError:
            return False

    return holds


def _comparison(expression: str, op: str, value: Any) -> Callable[[Message], bool]:
    try:
        if not _PART.fullmatch(expression):
            raise BadInputError("not a part of a message")
        kind = "json" if op in ("<", ">", "exists") else "text"
        template = compile_template("${" + expression + f":{kind}}}")
    except BadInputError:
        detail = f"must be payload, payload.path, metadata.key or id, not {expression[:80]}"
        raise _refused("expression", "invalid_expression", detail) from None
    test = _TESTS[op](value)
    scope = Scope(environ={})
    absent = op == "exists" and not test(None)

    def holds(msg: Message) -> bool:
        try:
            found = template.resolve(scope.for_message(msg))
        except BadInputError:
            return absent
        except YuktaError:
            # It is there, but has no text.
            return False
        try:
            return not absent and test(found)
        except ArithmeticError:
            # Some decimals cannot be compared.
            return False

    return holds


def _equal_to(value: Any) -> Callable[[Any], bool]:
    text = as_text(value)
    return lambda found: bool(found == text)


def _other_than(value: Any) -> Callable[[Any], bool]:
    text = as_text(value)
    return lambda found: bool(found != text)


def _below(value: Any) -> Callable[[Any], bool]:
    number, text = _bounds(value)

    def test(found: Any) -> bool:
        if isinstance(found, str):
            return text is not None and found < text
        return _is_number(found) and number is not None and bool(found < number)

    return test


def _above(value: Any) -> Callable[[Any], bool]:
    number, text = _bounds(value)

    def test(found: Any) -> bool:
        if isinstance(found, str):
            return text is not None and found > text
        return _is_number(found) and number is not None and bool(found > number)

    return test


def _bounds(value: Any) -> tuple[Any, str | None]:
    """The number and the text that a bound stands for."""
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value) or len(value) > 300:
            return None, value
        return (int(value) if value.lstrip("+-").isdigit() else Decimal(value)), value
    if not _is_number(value):
        raise _refused("value", "invalid_value", "must be a number or a text to be compared with")
    return value, None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _one_of(value: Any) -> Callable[[Any], bool]:
    if isinstance(value, str):
        try:
            value = loads_external(value)
        except YuktaError:
            value = None
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_CHOICES:
        detail = f'must be an array of 1 to {_MOST_CHOICES} values, such as ["a", "b"]'
        raise _refused("value", "invalid_value", detail)
    return frozenset(map(as_text, value)).__contains__


def _matching(value: Any) -> Callable[[Any], bool]:
    if not isinstance(value, str):
        raise _refused("value", "invalid_value", "must be a regular expression, as text")
    try:
        return Pattern(value).found_in
    except BadInputError as error:
        raise _refused("value", "invalid_value", error.detail) from None


def _existing(value: Any) -> Callable[[Any], bool]:
    words = {"true": True, "false": False}
    wanted = True if value is None else words.get(value, value) if type(value) is str else value
    if not isinstance(wanted, bool):
        raise _refused("value", "invalid_value", "must be true or false")
    return lambda _found: wanted


_TESTS: Final[Mapping[str, Callable[[Any], Callable[[Any], bool]]]] = {
    "equals": _equal_to,
    "!=": _other_than,
    "<": _below,
    ">": _above,
    "in": _one_of,
    "matches": _matching,
    "exists": _existing,
}
