"""Regular expressions whose time is bounded by the text, whatever the pattern.

The standard engine backtracks: `(a+)+$` on thirty letters takes minutes, and for that time no
other code of the process runs. Here a pattern becomes a list of instructions, and all places in
it that the text so far allows are followed side by side, so each character costs at most one look
at each instruction. The price is that nothing can look back: no back references, no lookaround.

Feature: CTL-02.
"""

from __future__ import annotations

import re
from typing import Final

from yukta_rx.errors import BadInputError

MAX_PATTERN: Final = 500
"""Characters of a pattern."""

MAX_TEXT: Final = 2_000
"""Characters of a text that are looked at; what is behind them matches nothing."""

MAX_SIZE: Final = 300
"""Instructions of a compiled pattern; `{m,n}` writes its part so often."""

_CLASSES: Final = "dDwWsS"
_PLACES: Final = {"^": "start", "$": "end", r"\A": "start", r"\Z": "whole", r"\b": "b", r"\B": "B"}
_COUNT: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_PLAIN_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)

# An instruction: ("char", text or compiled class), ("split", places), ("place", name) or ("match",)
_Code = list[tuple[str, object]]


class Pattern:
    """A compiled pattern; matches if it is found anywhere in a text.

    Attributes:
        source: as it was written.
    """

    __slots__ = ("_code", "source")

    def __init__(self, source: str) -> None:
        """Compile a pattern in the syntax of Python's `re`.

        Raises:
            BadInputError: it is too long, malformed, or uses what is not supported; says what.
        """
        self.source = source
        if len(source) > MAX_PATTERN:
            raise BadInputError(f"a pattern has at most {MAX_PATTERN} characters")
        try:
            re.compile(source)
        except (re.error, RecursionError, OverflowError) as error:
            raise BadInputError(f"`{source[:80]}` is no regular expression: {error}") from None
        self._code: _Code = [*_Parser(source).parsed(), ("match", None)]

    def found_in(self, text: str) -> bool:
        """Whether the first `MAX_TEXT` characters of a text have a match."""
        code, end = self._code, min(len(text), MAX_TEXT)
        active: set[int] = set()
        for at in range(end + 1):
            if self._follow(active, text, at, end):
                return True
            if at < end:
                letter = text[at]
                active = {place + 1 for place in active if _takes(code[place], letter)}
        return False

    def _follow(self, active: set[int], text: str, at: int, end: int) -> bool:
        """Add to `active` what is reached without a character; True at a match."""
        pending = [*active, 0]
        seen: set[int] = set()
        active.clear()
        while pending:
            place = pending.pop()
            if place in seen:
                continue
            seen.add(place)
            kind, what = self._code[place]
            if kind == "match":
                return True
            if kind == "split":
                pending += [place + step for step in what]  # type: ignore[attr-defined]
            elif kind == "char":
                active.add(place)
            elif _is_at(str(what), text, at, end):
                pending.append(place + 1)
        return False


def _takes(instruction: tuple[str, object], letter: str) -> bool:
    what = instruction[1]
    if isinstance(what, re.Pattern):
        return what.match(letter) is not None
    return what == letter


def _is_at(what: str, text: str, at: int, end: int) -> bool:
    if what == "start":
        return at == 0
    if what == "whole":
        return at == end
    if what == "end":
        return at == end or (at == end - 1 and text[at] == "\n")
    before = at > 0 and _is_word(text[at - 1])
    behind = at < end and _is_word(text[at])
    return (before is not behind) is (what == "b")


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


class _Parser:
    """Turns a pattern that `re` accepts into instructions."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def parsed(self) -> _Code:
        return self._choice()

    def _choice(self) -> _Code:
        made = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            made = self._fits(
                [
                    ("split", (1, len(made) + 2)),
                    *made,
                    ("split", (len(other) + 1,)),
                    *other,
                ]
            )
        return made

    def _sequence(self) -> _Code:
        made: _Code = []
        while self._peek() not in ("", "|", ")"):
            made = self._fits([*made, *self._repeated(self._atom())])
        return made

    def _atom(self) -> _Code:
        source, at = self._source, self._at
        letter = source[at]
        if letter == "(":
            return self._group()
        if letter == "[":
            found = _CLASS.match(source, at)
            if found is None:
                raise self._unsupported(source[at : at + 20])
            self._at = found.end()
            return [("char", re.compile(found[0], re.DOTALL))]
        if letter == "\\":
            return self._escape()
        self._at += 1
        if letter in _PLACES:
            return [("place", _PLACES[letter])]
        return [("char", re.compile(".") if letter == "." else letter)]

    def _group(self) -> _Code:
        self._at += 1
        if self._peek() == "?":
            if not self._source.startswith("?:", self._at):
                raise self._unsupported("(" + self._source[self._at : self._at + 3])
            self._at += 2
        made = self._choice()
        self._at += 1
        return made

    def _escape(self) -> _Code:
        text = self._source[self._at : self._at + 2]
        self._at += 2
        if text in _PLACES:
            return [("place", _PLACES[text])]
        letter = text[1]
        if letter in _CLASSES:
            return [("char", re.compile(text))]
        if letter in _PLAIN_ESCAPES:
            return [("char", _PLAIN_ESCAPES[letter])]
        if letter.isalnum():
            raise self._unsupported(text)
        return [("char", letter)]

    def _repeated(self, part: _Code) -> _Code:
        least, most = 1, 1
        sign = self._peek()
        if sign and sign in "*+?":
            least, most = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[sign]
            self._at += 1
        elif (found := _COUNT.match(self._source, self._at)) and (found[1] or found[2]):
            least = int(found[1] or 0)
            most = least if not found[2] else int(found[3]) if found[3] else -1
            self._at = found.end()
        else:
            return part
        if self._peek() == "+":
            raise self._unsupported("a possessive repeat")
        if self._peek() == "?":
            # How much it takes does not matter to whether there is a match.
            self._at += 1
        if (least + max(0, most - least)) * (len(part) + 1) > MAX_SIZE:
            raise BadInputError("the pattern is too large: its repeats count too far")
        made = part * least
        size = len(part)
        if most < 0:
            return [*made, ("split", (1, size + 2)), *part, ("split", (-size - 1,))]
        for left in range(most - least, 0, -1):
            made = [*made, ("split", (1, left * (size + 1))), *part]
        return made

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _fits(self, made: _Code) -> _Code:
        if len(made) > MAX_SIZE:
            raise BadInputError("the pattern is too large")
        return made

    def _unsupported(self, what: str) -> BadInputError:
        return BadInputError(f"a pattern cannot have `{what}` here: its time could not be bounded")
