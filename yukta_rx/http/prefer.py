"""Prefer: how long a client wants to wait for the slot of its start (RFC 7240). Feature: ADM-01."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WAIT: Final = re.compile(r"[0-9]{1,9}")

PREFER_DOC: Final = (
    "`respond-async` answers at once, `wait=30` after so many seconds at most: 202 if the run still"
    " waits for its slot."
)


@dataclass(frozen=True, slots=True)
class Preference:
    """What a client prefers.

    Attributes:
        patience: seconds that it waits for a slot; None is for as long as it takes.
        asynchronous: it asked not to wait, so far as `patience` does not say otherwise.
    """

    patience: float | None = None
    asynchronous: bool = False

    def applied(self, *, waiting: bool) -> str | None:
        """The value of `Preference-Applied`; None if nothing was preferred, or nothing came of it.

        Args:
            waiting: whether the answer is that the run still waits.
        """
        if self.asynchronous and waiting:
            return "respond-async"
        if self.patience is None or self.asynchronous:
            return None
        return f"wait={self.patience:.0f}"


def preference(header: str | None) -> Preference:
    """Read the header; preferences that are unknown or cannot be read are passed over."""
    wait: float | None = None
    asynchronous = False
    for part in (header or "").lower().split(","):
        name, _, value = part.partition(";")[0].partition("=")
        value = value.strip().strip('"')
        if name.strip() == "respond-async" and not value:
            asynchronous = True
        elif name.strip() == "wait" and wait is None and _WAIT.fullmatch(value):
            wait = float(value)
    if wait is None and asynchronous:
        wait = 0.0
    return Preference(wait, asynchronous)
