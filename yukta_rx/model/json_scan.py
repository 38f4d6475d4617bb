"""Finds the place of a fault in JSON text, once a fast parser has said that there is one.

Feature: DUR-04.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from yukta_rx.errors import json_pointer

# Possessive quantifiers: a hostile string must not make the pattern try again.
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)((?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![0-9.eE+\-])")
_WORD = re.compile(r"[A-Za-z_+\-.0-9]+")
_SPACE = re.compile(r"[ \t\n\r]*+")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS = frozenset({"true", "false", "null"})
_NOT_JSON = frozenset({"NaN", "Infinity", "-Infinity", "+Infinity", "-NaN", "inf", "-inf", "nan"})
_LONGEST_INTEGER = 4300


class JsonFault(NamedTuple):
    """Where text is at fault, why, and whether it is JSON at all."""

    pointer: str
    detail: str
    is_json: bool


class _Found(Exception):
    def __init__(self, detail: str, *, is_json: bool = False) -> None:
        super().__init__(detail)
        self.fault = detail, is_json


def find_fault(text: str, max_depth: int) -> JsonFault | None:
    """Return the first fault of a JSON text, or None when it has none.

    Args:
        text: the document.
        max_depth: how many arrays and objects may stand inside one another.
    """
    scan = _Scan(text, max_depth)
    try:
        scan.document()
    except _Found as found:
        detail, is_json = found.fault
        return JsonFault(json_pointer(scan.path), detail, is_json)
    return None


class _Scan:
    """One pass over a text; `path` is where it stands. Iterative, so depth costs no stack."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth
        self.at = 0
        self.path: list[str | int] = []
        self.closers: list[str] = []

    def document(self) -> None:
        more = self._value()
        while more or self.closers:
            more = self._value() if more else self._after_value()
        if self._peek():
            raise _Found(f"something follows the end of the document{self._here()}")

    def _peek(self) -> str:
        match = _SPACE.match(self.text, self.at)
        if match:
            self.at = match.end()
        return self.text[self.at : self.at + 1]

    def _here(self) -> str:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return f", line {line} column {column}"

    def _value(self) -> bool:
        """Read a value, or the start of one; True when the value of a member must follow."""
        sign = self._peek()
        if sign == "[" or sign == "{":
            return self._open(sign)
        if sign == '"':
            self._string()
        elif sign == "":
            raise _Found("the text ends where a value should be" if self.text else "no text at all")
        else:
            self._scalar()
        return False

    def _open(self, sign: str) -> bool:
        if len(self.closers) == self.max_depth:
            detail = f"nested deeper than {self.max_depth} arrays and objects"
            raise _Found(detail, is_json=True)
        self.at += 1
        self.closers.append("]" if sign == "[" else "}")
        if self._peek() == self.closers[-1]:
            self.path.append("")
            self._close()
            return False
        self.path.append(0 if sign == "[" else "")
        if sign == "{":
            self._member()
        return True

    def _after_value(self) -> bool:
        sign, closer = self._peek(), self.closers[-1]
        if sign == closer:
            self._close()
            return False
        if sign != ",":
            found = repr(sign) if sign else "the end of the text"
            raise _Found(f"expected a comma or {closer} and found {found}{self._here()}")
        self.at += 1
        last = self.path[-1]
        if isinstance(last, int):
            self.path[-1] = last + 1
        else:
            self._member()
        return True

    def _close(self) -> None:
        self.at += 1
        self.closers.pop()
        self.path.pop()

    def _member(self) -> None:
        if self._peek() != '"':
            raise _Found(f"expected a member name in double quotes{self._here()}")
        self.path[-1] = self._string()
        if self._peek() != ":":
            raise _Found(f"expected a colon after a member name{self._here()}")
        self.at += 1

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise _Found(
                f"a string is not closed, or holds a bare control character or a wrong "
                f"escape{self._here()}"
            )
        raw = match.group(1)
        value = _ESCAPE.sub(_unescaped, raw) if "\\" in raw else raw
        # Two halves that belong together become one character; what is left stands alone.
        try:
            value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            detail = "a string holds half of a surrogate pair, which is no character"
            raise _Found(detail) from None
        self.at = match.end()
        return value

    def _scalar(self) -> None:
        number = _NUMBER.match(self.text, self.at)
        if number:
            self._number(number)
            return
        word = _WORD.match(self.text, self.at)
        text = word.group() if word else self.text[self.at]
        if word and text in _LITERALS:
            self.at = word.end()
        elif text in _NOT_JSON:
            raise _Found(f"{text} is not JSON; send null, or a string")
        else:
            raise _Found(f"{text[:40]!a} is not a JSON value{self._here()}")

    def _number(self, number: re.Match[str]) -> None:
        text, is_float = number.group(), bool(number.group(1))
        if is_float and float(text) in (float("inf"), float("-inf")):
            raise _Found(f"the number {text[:40]} is too large for a 64-bit float")
        if not is_float and len(text) > _LONGEST_INTEGER:
            detail = f"an integer of more than {_LONGEST_INTEGER} digits"
            raise _Found(detail, is_json=True)
        self.at = number.end()


def _unescaped(match: re.Match[str]) -> str:
    code, short = match.groups()
    return chr(int(code, 16)) if code else _SHORT.get(short, short)
