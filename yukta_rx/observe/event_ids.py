"""Ids of events, `<epoch>:<number>`: made, and taken apart. Feature: OBS-01."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where somebody wants to go on: behind the event of that number."""

    epoch: str
    seq: int


def parse_id(text: str) -> Place | None:
    """Return epoch and number of an event's id, None if it is none."""
    epoch, colon, number = text.rpartition(":")
    if not colon or not (number.isascii() and number.isdecimal() and len(number) <= 18):
        return None
    return Place(epoch, int(number))


def base36(number: int) -> str:
    """Return a number of zero or more in digits and small letters."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not number:
            return digits
