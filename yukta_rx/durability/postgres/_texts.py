"""Names as columns: what PostgreSQL has no room for is escaped, so that any name finds its row.

A NUL and half a surrogate pair cannot stand in its text. Feature: DUR-04.
"""

from __future__ import annotations

import re
from typing import Final

_ODD: Final = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\([0-9a-f]{4})")


def stored(name: str) -> str:
    """Return how a name stands in a column; different names stand there differently."""
    if name.isascii() and "\\" not in name and "\0" not in name:
        # As nearly all do.
        return name
    return _ODD.sub(lambda found: f"\\{ord(found[0]):04x}", name)


def named(column: str) -> str:
    """Return the name that stands in a column so."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), column)
