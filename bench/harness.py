"""Forms, rounds and figures: what every family of benchmarks shares.

All forms of a family run one after the other in each round, so that a noisy machine is noisy for
all of them. Two forms are compared round by round, and the median is of the comparisons.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Figure = float | Awaitable[float]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to do the work.

    Attributes:
        name: what it is.
        measure: does it with so many messages, or runs, and gives a figure in the family's unit.
        share: of the family's number of messages; slow forms get less.
        back_pressure: whether it has any, where that is of interest.
    """

    name: str
    measure: Callable[[int], Figure]
    share: float = 1
    back_pressure: str = ""


class Spread(NamedTuple):
    """A figure over all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The median of `values`, and the range they are in."""
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1])

    def show(self, digits: int = 2) -> str:
        """As a cell of a table."""
        return f"{self.median:,.{digits}f}"

    def range(self, digits: int = 2) -> str:
        """The range as a cell of a table."""
        return f"{self.low:,.{digits}f}..{self.high:,.{digits}f}"


class Found:
    """The figures of one family: by form and number of messages, one per round."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, int], list[float]] = {}
        self.size = 0
        """The largest number of messages, which a figure is of unless another is asked for."""

    def add(self, name: str, size: int, figure: float) -> None:
        """One more round."""
        self._figures.setdefault((name, size), []).append(figure)
        self.size = max(self.size, size)

    def __contains__(self, name: str) -> bool:
        return (name, self.size) in self._figures

    def rounds(self, name: str, size: int | None = None) -> list[float]:
        """The figures of a form, round by round."""
        return self._figures[name, size or self.size]

    def spread(self, name: str, size: int | None = None) -> Spread:
        """The figure of a form."""
        return Spread.of(self.rounds(name, size))

    def ratio(self, name: str, other: str) -> Spread:
        """How often `other` goes into `name`."""
        pairs = zip(self.rounds(name), self.rounds(other), strict=True)
        return Spread.of(one / two for one, two in pairs)

    def more(self, name: str, other: str) -> Spread:
        """By how much `name` is above `other`."""
        pairs = zip(self.rounds(name), self.rounds(other), strict=True)
        return Spread.of(one - two for one, two in pairs)


class Bar(NamedTuple):
    """A promise about a figure, and whether it is kept."""

    about: str
    asked: str
    measured: str
    held: bool


def at_least(about: str, limit: float, found: Spread, unit: str = "") -> Bar:
    """A bar that the median must reach."""
    return _bar(about, f"at least {limit:g}{unit}", found, unit, found.median >= limit)


def at_most(about: str, limit: float, found: Spread, unit: str = "") -> Bar:
    """A bar that the median must not exceed."""
    return _bar(about, f"at most {limit:g}{unit}", found, unit, found.median <= limit)


def _bar(about: str, asked: str, found: Spread, unit: str, held: bool) -> Bar:
    return Bar(about, asked, f"{found.show()}{unit} ({found.range()})", held)


def _no_bars(_found: Found) -> list[Bar]:
    return []


@dataclass(frozen=True, slots=True)
class Family:
    """Forms that are compared with each other.

    Attributes:
        name: what `--only` calls it.
        title: heading of its tables.
        sizes: numbers of messages, or of runs, that the forms are measured with.
        forms: all of them.
        tables: lines of Markdown that show what was found.
        bars: the promises that it shows.
    """

    name: str
    title: str
    sizes: tuple[int, ...]
    forms: tuple[Form, ...]
    tables: Callable[[Found], list[str]]
    bars: Callable[[Found], list[Bar]] = field(default=_no_bars)

    def run(self, rounds: int, scale: float = 1) -> Found:
        """Measure every form in each round."""
        found = Found()
        for _ in range(rounds):
            for size in self.sizes:
                for form in self.forms:
                    count = max(1, round(size * scale * form.share))
                    found.add(form.name, size, figure(form, count))
        return found


def figure(form: Form, count: int) -> float:
    """Measure one form once."""
    gc.collect()
    made = form.measure(count)
    return made if isinstance(made, float) else asyncio.run(_awaited(made))


async def _awaited(made: Awaitable[float]) -> float:
    return await made


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = [head, ["-"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]
