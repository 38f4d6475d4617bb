"""Marbles: what a node emitted and when, drawn as one line of text.

`a-b-(c|)` with a timespan of 1: `a` in the first second, nothing in the second, `b` in the third,
`c` and the end in the fifth. Read from the left, one character is one timespan:

    -        a timespan in which nothing came
    a        a message
    (ab)     messages of one timespan, and the end if it came with them; it begins where the `(`
             stands and takes as many timespans as it has characters
    |        the node ended well: SUCCESS, SKIPPED, or STOPPED, which its children see as an end
    #        it failed: FAILURE, ERROR, TIMED_OUT, UPSTREAM_FAILED or ABORTED
    !        it was cancelled

A node that has not ended is drawn up to the last timespan that is over.

A message is drawn as the name that `lookup` gives its payload. Otherwise a payload that is one
letter or digit is its own name; the others are called a, b, c and so on, then A, B, C, in the order
in which they first came, without the names that are taken; equal payloads share a name. Beyond
that a message is drawn as `*`.

These are the marbles of `reactivex.testing.marbles` and of the operators' pages: a group begins at
its `(` and is as long as it is wide, spaces are not read, and `X`, as the operators' pages have it,
is read as `#`. As on those pages a name is one character, so letters side by side are messages of
successive timespans and a group needs no commas, where reactivex reads one long name.

Feature: EXT-01.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Moment = tuple[float, Any]
"""Seconds since the run began, and the payload."""

LONGEST: Final = 10_000
"""Timespans that are drawn at most."""

_NAMES: Final = (*string.ascii_lowercase, *(c for c in string.ascii_uppercase if c != "X"))
_OWN_NAME: Final = frozenset(_NAMES) | frozenset(string.digits)
_MARKS: Final = {
    **dict.fromkeys((TaskStatus.SUCCESS, TaskStatus.SKIPPED, TaskStatus.STOPPED), "|"),
    TaskStatus.CANCELLED: "!",
}
_FAILED: Final = "#"
_ROUNDING: Final = 1e-6
"""Seconds by which a moment may be early and still belong to the timespan that begins there."""


class Marble(str):
    """A drawn marble; equal to any text that says the same, with or without spaces."""

    __slots__ = ()
    # Texts that differ in spaces are equal and have different hashes.
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return NotImplemented
        return _plain(self) == _plain(other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _plain(text: str) -> str:
    return "".join(text.split()).replace("X", _FAILED)


def draw(
    messages: Sequence[Moment],
    *,
    end: tuple[float, TaskStatus] | None,
    now: float,
    timespan: float = 1.0,
    lookup: Mapping[str, Any] | None = None,
) -> Marble:
    """Draw what a node emitted.

    Args:
        messages: what it emitted, in order.
        end: when it ended, in seconds since the run began, and how; None if it has not.
        now: seconds since the run began; up to here a node that has not ended is drawn.
        timespan: seconds per character, above 0.
        lookup: payloads by the one letter or digit that is drawn for them, not X.

    Raises:
        ValueError: the timespan is not positive or far too short, or too long to tell what came
            apart, as a group takes the place of what came after it; or a name of `lookup` is none.
    """
    if not timespan > 0:
        raise ValueError(f"a timespan is a number of seconds above 0, not {timespan!r}")
    names = _names([payload for _, payload in messages], lookup or {})
    groups: dict[int, str] = {}
    for (time, _), name in zip(messages, names, strict=True):
        frame = _frame(time, timespan)
        groups[frame] = groups.get(frame, "") + name
    if end is not None:
        frame = _frame(end[0], timespan)
        groups[frame] = groups.get(frame, "") + _MARKS.get(end[1], _FAILED)
    last = max(groups, default=0) if end is not None else _frame(now, timespan)
    if last > LONGEST:
        raise ValueError(
            f"{last} timespans of {timespan:g} s are too many to draw, give a longer timespan"
        )
    return Marble(_line(groups, timespan).ljust(last, "-"))


def _frame(time: float, timespan: float) -> int:
    return int((time + _ROUNDING) // timespan)


def _line(groups: Mapping[int, str], timespan: float) -> str:
    line = ""
    for frame, group in sorted(groups.items()):
        if frame < len(line):
            raise ValueError(
                f"what came after {frame * timespan:g} s has no room behind {line.lstrip('-')};"
                f" give a shorter timespan than {timespan:g} s"
            )
        line = line.ljust(frame, "-") + (group if len(group) == 1 else f"({group})")
    return line


def _names(payloads: Sequence[Any], lookup: Mapping[str, Any]) -> list[str]:
    for name in lookup:
        if name not in _OWN_NAME:
            raise ValueError(f"{name!r} cannot be drawn: use one letter but X, or one digit")
    known: list[tuple[str, Any]] = list(lookup.items())
    taken = {*lookup, *(str(payload) for payload in payloads if _is_name(payload))}
    free = iter([name for name in _NAMES if name not in taken])
    found = []
    for payload in payloads:
        same = [name for name, value in known if _same(value, payload)]
        if not same:
            own = _is_name(payload) and str(payload) not in lookup
            same = [str(payload) if own else next(free, "*")]
            known.append((same[0], payload))
        found.append(same[0])
    return found


def _is_name(payload: Any) -> bool:
    return type(payload) in (int, str) and str(payload) in _OWN_NAME


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
