"""What a durable store holds but cannot read: set aside, counted and shown. Feature: DUR-05."""

from __future__ import annotations

import msgspec


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was left out because it cannot be read; everything else is in use.

    Attributes:
        place: where it is: a file, with the line where that is known.
        reason: one sentence: what is wrong with it and what would be right.
    """

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"
