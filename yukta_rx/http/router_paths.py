"""The paths of routes as aiohttp's router takes them.

A word that is a path of its own (`/versions/note`) is no id of the path beside it
(`/versions/{version}`): the router would let the methods of both answer there, and say so.

Feature: DEF-01.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def router_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return what the router is given for each of all paths."""
    split = {path: path.rpartition("/") for path in paths}
    made = {}
    for path, (above, _, last) in split.items():
        words = sorted(
            re.escape(word)
            for beside, _, word in split.values()
            if beside == above and not word.startswith("{")
        )
        if last.startswith("{") and words:
            path_of_ids = f"{last[:-1]}:(?!(?:{'|'.join(words)})$)[^{{}}/]+}}"
            made[path] = f"{above}/{path_of_ids}"
        else:
            made[path] = path
    return made
