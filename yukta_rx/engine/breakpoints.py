"""Breakpoint: which messages a node is held before. Feature: CTL-02."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError, Fault, ValidationError
from yukta_rx.security.variables import Scope, compile_template

if TYPE_CHECKING:
    from yukta_rx.model.message import Message

_PART: Final = re.compile(r"(payload|metadata|headers|id)(\.[^${}:=]+)?")


class Breakpoint:
    """Holds the messages of which a part equals a text; without a part, every message.

    The part is `payload`, `payload.some.path`, `metadata.key` or `id`. A string is compared as it
    is, anything else as its JSON text; a part that a message does not have equals nothing.

    Attributes:
        expression: the part.
        equals: the text.
        hits: messages that it has held.

    Raises:
        ValidationError: the expression cannot be read, or one of the two is missing.
    """

    __slots__ = ("_scope", "_template", "equals", "expression", "hits")

    def __init__(self, expression: str | None = None, equals: str | None = None) -> None:
        self.expression = expression
        self.equals = equals
        self.hits = 0
        self._scope = Scope()
        self._template = None
        if (expression is None) is not (equals is None):
            missing = "equals" if equals is None else "expression"
            detail = f"{missing} is missing: a breakpoint has both, or neither to hold everything"
            raise ValidationError([Fault(f"/{missing}", "missing", detail)])
        if expression is not None:
            try:
                if not _PART.fullmatch(expression):
                    raise BadInputError("not a part of a message")
                self._template = compile_template("${" + expression + ":text}")
            except BadInputError:
                detail = f"must be payload, payload.path, metadata.key or id, not {expression[:80]}"
                fault = Fault("/expression", "invalid_expression", detail)
                raise ValidationError([fault]) from None

    def __call__(self, msg: Message) -> bool:
        """Whether it holds a message."""
        if self._template is not None:
            try:
                if self._template.resolve(self._scope.for_message(msg)) != self.equals:
                    return False
            except BadInputError:
                return False
        self.hits += 1
        return True

    def same(self, other: Breakpoint) -> bool:
        """Whether two hold the same messages."""
        return (self.expression, self.equals) == (other.expression, other.equals)

    def as_dict(self) -> dict[str, Any]:
        """The breakpoint as a run's detail shows it."""
        shown: dict[str, Any] = {"hits": self.hits}
        if self.expression is not None:
            shown |= {"expression": self.expression, "op": "equals", "value": self.equals}
        return shown
