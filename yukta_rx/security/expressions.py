"""Conditions: a small expression language that is safe to take from anyone.

    payload.n % 2 == 0 and payload.tag in ["a", "b"]
    payload.get("vip") or any(item.price > 100 for item in payload.items)
    headers.get("status") != "FAILURE" and len(payload.text) <= 4000

The syntax is Python's, read by `ast` and checked against a list of what is allowed; `true`,
`false` and `null` are names for what they say. A dot reads a member of an object and nothing else.
An expression changes nothing, always ends, and costs at most `MAX_STEPS`. It is compiled once, to
closures.

Feature: SEC-02.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError
from yukta_rx.security.expression_compiler import Compiler, Run
from yukta_rx.security.expression_syntax import MAX_DEPTH, MAX_NODES, SyntaxRefusal, parse
from yukta_rx.security.expression_values import MAX_STEPS, EvaluationError, Place
from yukta_rx.security.placeholders import describe

if TYPE_CHECKING:
    from yukta_rx.model.message import Message

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "MAX_SOURCE",
    "MAX_STEPS",
    "MESSAGE_NAMES",
    "Condition",
    "MessageScope",
    "compile_condition",
]

MAX_SOURCE: Final = 4096
"""Characters of an expression."""

MESSAGE_NAMES: Final = ("payload", "headers", "id", "attempt")
"""What a condition over a message reads; `metadata` is another name for `headers`."""

_ALIASES: Final[Mapping[str, str]] = {"metadata": "headers"}
_SHOWN: Final = 80


class MessageScope(Mapping[str, Any]):
    """What a condition reads of a message; an id is worked out only if it is read.

    Args:
        message: the message at hand.
        attempt: which attempt of the plugin this is, from 1.
    """

    __slots__ = ("_attempt", "_message")

    def __init__(self, message: Message, attempt: int = 1) -> None:
        self._message = message
        self._attempt = attempt

    def __getitem__(self, name: str) -> Any:
        if name == "payload":
            return self._message.payload
        if name in ("headers", "metadata"):
            return self._message.headers
        if name == "id":
            return self._message.id
        if name == "attempt":
            return self._attempt
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*MESSAGE_NAMES, *_ALIASES))

    def __len__(self) -> int:
        return len(MESSAGE_NAMES) + len(_ALIASES)


class Condition:
    """A compiled expression; immutable, usable from any thread.

    Attributes:
        source: as it was written.
        names: what it reads of its scope.
    """

    __slots__ = ("_loops", "_run", "names", "source")

    def __init__(self, source: str, run: Run, names: tuple[str, ...], loops: int) -> None:
        self.source = source
        self.names = names
        self._run = run
        self._loops = [None] * loops

    def __repr__(self) -> str:
        return f"<Condition {self.source!r}>"

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Return the value; parts of it may be shared with the scope, so do not change it.

        Raises:
            BadInputError: it has none; names the expression, the part of it, and why.
        """
        try:
            env = [MAX_STEPS, *[scope[name] for name in self.names], *self._loops]
            return self._run(env)
        except EvaluationError as error:
            raise self._error(error.detail, error.at) from None
        except Exception as error:
            # Values of classes that are not ours can fail in ways of their own.
            raise self._error(f"{type(error).__name__}: {str(error)[:_SHOWN]}", None) from error

    def matches(self, scope: Mapping[str, Any]) -> bool:
        """Whether the condition holds; null counts as false.

        Raises:
            BadInputError: it has no value, or one that is neither true nor false.
        """
        value = self.evaluate(scope)
        if value is True or value is False:
            return bool(value)
        if value is None:
            return False
        detail = f"gives {describe(value)}, not true or false; compare it, or use bool(...)"
        raise self._error(detail, None)

    def _error(self, detail: str, at: Place | None) -> BadInputError:
        part = _segment(self.source, at) if at is not None else self.source
        where = f" in `{_short(part)}`" if part != self.source else ""
        return BadInputError(
            f"condition `{_short(self.source)}`{where}: {_clean(detail)}",
            expression=_clean(self.source),
        )


def compile_condition(source: str, names: tuple[str, ...] = MESSAGE_NAMES) -> Condition:
    """Compile an expression; the same text twice gives the same object.

    Args:
        source: the expression, at most `MAX_SOURCE` characters.
        names: what it may read.

    Raises:
        BadInputError: it is malformed, too large, or uses what is not allowed; says where, and
            where it can what to write instead.
    """
    if not isinstance(source, str):
        raise BadInputError(f"a condition is a text, not {describe(source)}")
    if len(source) > MAX_SOURCE:
        raise BadInputError(
            f"a condition of {len(source)} characters is longer than {MAX_SOURCE}",
            expression=_clean(source[:_SHOWN]),
        )
    return _compiled(str(source), names)


@lru_cache(maxsize=1024)
def _compiled(source: str, names: tuple[str, ...]) -> Condition:
    text = source.replace("\r\n", "\n").replace("\r", "\n").strip()
    if not text:
        raise BadInputError("a condition is empty", expression="")
    compiler = Compiler(names, _ALIASES if "headers" in names else {})
    try:
        run, loops = compiler.compile(parse(text))
    except SyntaxRefusal as error:
        lines = text.encode(errors="replace").split(b"\n")
        column = len(lines[error.line - 1][: error.column].decode(errors="ignore")) + 1
        raise _refused(text, error.detail, error.line, column) from None
    return Condition(text, run, tuple(compiler.used), loops)


def _refused(text: str, detail: str, line: int, column: int) -> BadInputError:
    where = f"column {column}" if line == 1 else f"line {line}, column {column}"
    return BadInputError(
        f"`{_short(text)}` is no condition ({where}): {_clean(detail)}",
        expression=_clean(text),
        line=line,
        column=column,
    )


def _segment(source: str, at: Place) -> str:
    line, column, last, end = at
    lines = source.encode().split(b"\n")[line - 1 : last]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][column:]
    return b"\n".join(lines).decode(errors="replace")


def _short(text: str) -> str:
    line = _clean(" ".join(text.split()))
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."


def _clean(text: str) -> str:
    """Return a text that can be shown and sent: lone surrogates and control signs as escapes."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text
    )
