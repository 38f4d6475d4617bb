"""File names of ids: one name for one id, on every file system. Feature: DEF-01."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from yukta_rx.model.ids import id_fault

LONGEST: Final = 200
"""Characters of a name; file systems take 255 bytes, and a suffix is put behind it."""

# Names that Windows keeps for devices, whatever follows behind a dot.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)")
_UPPER = re.compile(r"[A-Z]")
_CASE_MARK = "~"


def name_of(legal_id: str) -> str:
    """Return the name of an id: the id, URL-encoded.

    Capital letters are encoded too, for file systems that take `Ab` and `ab` for the same. Where
    that becomes too long, the name is in small letters and the places of the capitals follow
    behind a tilde, as the bits of a hexadecimal number.
    """
    name = _UPPER.sub(lambda found: f"%{ord(found[0]):02X}", legal_id)
    mask = ""
    if len(name) > LONGEST:
        name = legal_id.lower()
        capitals = sum(1 << at for at, letter in enumerate(legal_id) if letter.isupper())
        mask = f"{_CASE_MARK}{capitals:x}"
    if _DEVICES.match(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name.endswith("."):
        name = f"{name[:-1]}%2E"
    return name + mask


def id_of(name: str) -> str | None:
    """Return the id that a name stands for, None if it stands for none.

    Names that people or other programs gave are understood too: the plain id, or the id URL-encoded
    in another way. `name_of` of the result says whether the name is the one that is used here.
    """
    body, mark, mask = name.partition(_CASE_MARK)
    found = unquote(body)
    if mark:
        try:
            bits = int(mask, 16)
        except ValueError:
            return None
        found = "".join(
            letter.upper() if bits >> at & 1 else letter for at, letter in enumerate(found)
        )
    return None if id_fault("id", found) else found
