"""Reads the text of an expression into a syntax tree that is small enough, or says what is wrong.

The syntax is Python's; what of it means something is the business of `expression_compiler`.
Feature: SEC-02.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.security.expression_values import EvaluationError, Place, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_NODES: Final = 500
"""Nodes of an expression's syntax tree."""

MAX_DEPTH: Final = 100
"""Levels of an expression's syntax tree."""

CONSTANTS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}
"""Names for JSON's words; Python's own are part of the syntax."""

NOT_ALLOWED: Final[Mapping[type[ast.AST], str]] = {
    ast.Pow: "`**` is not available",
    ast.MatMult: "`@` is not available",
    ast.LShift: "`<<` is not available",
    ast.RShift: "`>>` is not available",
    ast.BitAnd: "`&` is not available; `and` joins two conditions",
    ast.BitOr: "`|` is not available; `or` joins two conditions",
    ast.BitXor: "`^` is not available",
    ast.Invert: "`~` is not available; `not` turns a condition round",
    ast.Lambda: "a lambda is not available",
    ast.ListComp: "a list comprehension is not available; any(), all(), sum(), min() and max()"
    " take `... for x in ...`",
    ast.SetComp: "a set comprehension is not available",
    ast.DictComp: "a dictionary comprehension is not available",
    ast.GeneratorExp: "`... for x in ...` stands in any(), all(), sum(), min() and max() only",
    ast.JoinedStr: "an f-string is not available; `+` joins texts, str() makes a number one",
    ast.NamedExpr: "`:=` is not available; `==` compares",
    ast.Set: "a set stands behind `in` only; write an array: [...]",
    ast.Starred: "`*` is not available here",
    ast.Slice: "a slice is not available here",
}
"""What is said of some parts of Python that are no part of the language."""

_MARKS: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_LITERALS: Final = (str, int, float, bool, type(None))

# Where the parser would warn: escapes that are none, and a number that runs into a word.
_DUBIOUS: Final = re.compile(r"\\|[0-9][A-Za-z]")
_QUOTED: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_KEYWORD_MEMBER: Final = re.compile(r"\.\s*(" + "|".join(keyword.kwlist) + r")\b")
_HINTS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\$\{"), "names are read without `${}`: payload.x"),
    (re.compile(r"[=!]=="), "`==` compares, `!=` tells apart"),
    (re.compile(r"&&"), "write `and` for `&&`"),
    (re.compile(r"\|\|"), "write `or` for `||`"),
    (re.compile(r"!(?!=)"), "write `not` for `!`"),
    (re.compile(r"(?<![=!<>:])=(?!=)"), "`==` compares"),
    (re.compile(r"<>"), "write `!=` for `<>`"),
    (re.compile(r"\?"), "write `a if condition else b` for `condition ? a : b`"),
    (re.compile(r"\n"), "put brackets around a condition of several lines"),
    (re.compile(r";"), "a condition is one expression"),
)


class SyntaxRefusal(Exception):
    """An expression is not one of this language.

    Attributes:
        detail: what is wrong.
        line: the line, from 1.
        column: the column in bytes, from 0.
    """

    def __init__(self, detail: str, line: int = 1, column: int = 0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.line = line
        self.column = column


def parse(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises:
        SyntaxRefusal: it is malformed or too large.
    """
    try:
        body = _parsed(text)
    except SyntaxError as error:
        line, offset = error.lineno or 1, error.offset or 1
        start = (text.split("\n")[line - 1 : line] or [""])[0][: max(offset - 1, 0)]
        raise SyntaxRefusal(_hint(text) or error.msg, line, len(start.encode())) from None
    except (RecursionError, MemoryError):
        # The parser's own limits depend on where it is called; what is said of them does not.
        raise SyntaxRefusal(f"nested deeper than {MAX_DEPTH} levels") from None
    except (ValueError, OverflowError) as error:
        raise SyntaxRefusal(str(error)) from None
    _measure(body)
    return body


def place(node: Any) -> Place:
    """Return where a node stands."""
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def size(node: ast.AST) -> int:
    """Return how many nodes a part of a tree has."""
    return sum(1 for part in ast.walk(node) if not isinstance(part, _MARKS))


def refusal(node: ast.AST, detail: str) -> SyntaxRefusal:
    """Return the error that a node is not allowed."""
    return SyntaxRefusal(detail, getattr(node, "lineno", 1), getattr(node, "col_offset", 0))


def literal(node: ast.Constant) -> Any:
    """Return the value of a constant.

    Raises:
        SyntaxRefusal: it is none of JSON's, or too large a number.
    """
    value = node.value
    if type(value) not in _LITERALS:
        what = {bytes: "bytes", complex: "a complex number"}.get(type(value), "this")
        raise refusal(node, f"{what} cannot be written here")
    if type(value) in (int, float):
        try:
            checked(place(node), value)
        except EvaluationError as error:
            detail = error.detail if type(value) is int else "a number that is too large"
            raise refusal(node, detail) from None
    return value


def literals(node: ast.List | ast.Tuple | ast.Set) -> tuple[Any, ...] | None:
    """Return the elements of an array of constants, None if there is anything else in it."""
    if not all(isinstance(item, ast.Constant) for item in node.elts):
        return None
    return tuple(literal(item) for item in node.elts if isinstance(item, ast.Constant))


def member_name(node: ast.Attribute) -> str:
    """Return what follows the dot.

    Raises:
        SyntaxRefusal: a name that Python itself gives a meaning.
    """
    if node.attr.startswith("__"):
        raise refusal(node, f"`{node.attr}` cannot be read")
    return node.attr


def is_named_constant(node: ast.expr) -> bool:
    """Whether a node is None, True or False, or one of JSON's words for them."""
    if isinstance(node, ast.Name):
        return node.id in CONSTANTS
    return isinstance(node, ast.Constant) and type(node.value) in (bool, type(None))


def _parsed(text: str) -> ast.expr:
    if not _DUBIOUS.search(text):
        return ast.parse(text, mode="eval").body
    with warnings.catch_warnings():
        # Makes a syntax error of each warning.
        warnings.simplefilter("error")
        return ast.parse(text, mode="eval").body


def _measure(body: ast.expr) -> None:
    level: list[ast.AST] = [body]
    nodes = depth = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH:
            raise SyntaxRefusal(f"nested deeper than {MAX_DEPTH} levels")
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, _MARKS)
        ]
    if nodes > MAX_NODES:
        raise SyntaxRefusal(f"{nodes} parts are more than the {MAX_NODES} that are allowed")


def _hint(text: str) -> str | None:
    bare = _QUOTED.sub('""', text)
    if found := _KEYWORD_MEMBER.search(bare):
        return f'`{found[1]}` is a word of the language; read the member as ["{found[1]}"]'
    return next((hint for pattern, hint in _HINTS if pattern.search(bare)), None)
