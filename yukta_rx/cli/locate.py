"""Finds the line of a JSON pointer in the text of a document.  Feature: DEF-02."""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from yukta_rx.errors import json_pointer

# Possessive quantifiers: no text makes the pattern try again.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)


class LineMap:
    """The lines at which the members of a JSON document begin.

    Args:
        text: the document, which a parser has accepted.
    """

    def __init__(self, text: str) -> None:
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._lines: dict[str, int] = {}
        # Per open container: the name or index of the member at hand; None before a name.
        path: list[str | int | None] = []
        closers: list[str] = []
        for match in _TOKEN.finditer(text):
            token = match.group()
            if token == ",":
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
            elif token in ("}", "]"):
                closers.pop()
                path.pop()
            elif token == ":":
                continue
            else:
                if closers and closers[-1] == "}" and path[-1] is None:
                    path[-1] = json.loads(token)
                    self._mark(path, match.start())
                    continue
                if not closers or closers[-1] == "]":
                    self._mark(path, match.start())
                if token in ("{", "["):
                    closers.append("}" if token == "{" else "]")
                    path.append(None if token == "{" else 0)

    def line(self, pointer: str) -> int:
        """Return the line, from 1, of a pointer, or of the nearest thing around it."""
        while pointer and pointer not in self._lines:
            pointer = pointer.rpartition("/")[0]
        return self._lines.get(pointer, 1)

    def _mark(self, path: list[str | int | None], at: int) -> None:
        pointer = json_pointer(part for part in path if part is not None)
        self._lines[pointer] = bisect_right(self._breaks, at) + 1
