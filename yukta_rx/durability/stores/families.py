"""Families: which runs are let go, where those that runs started go with the run at their head.

Features: DUR-01, OBS-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from yukta_rx.metrics import Meters


class Member(NamedTuple):
    """A run.

    Attributes:
        name: its id.
        order: higher for a newer one.
        parent: the run that started it; None for a root, which was started from outside.
        stays: whether it may not be let go.
        old: whether it goes, however few there are.
    """

    name: str
    order: Any
    parent: str | None = None
    stays: bool = False
    old: bool = False


class LetGo(NamedTuple):
    """What goes.

    Attributes:
        names: the runs.
        crowded: how many of them are below a run that stays, and went for the number of children,
            or with one that did.
    """

    names: list[str]
    crowded: int


def let_go(runs: Iterable[Member], roots: int, children: int, *, orphans: bool = False) -> LetGo:
    """Which runs are no longer kept.

    So many of the newest roots stay, whatever they started, and so many of the newest children
    beside them. A child goes with its root. Where orphans go, too, those below a child that is too
    many go at once: the next time nobody would know that their root stays.

    Args:
        runs: all that are kept.
        roots: how many roots stay.
        children: how many children of roots that stay.
        orphans: whether a child may stay whose parent is not among the runs.
    """
    newest = sorted(runs, key=lambda run: run.order, reverse=True)
    known = {run.name: run for run in newest}
    heads = [run for run in newest if run.parent is None]
    gone = dict.fromkeys(
        run.name for place, run in enumerate(heads) if (place >= roots or run.old) and not run.stays
    )
    dropped = set(gone)
    crowded: set[str] = set()
    place = 0
    for run in newest:
        if run.parent is None:
            continue
        goes = run.old or _follows(run, known, dropped, orphans)
        place += not goes
        if run.stays or not (goes or place > children):
            continue
        gone[run.name] = None
        if not goes:
            crowded.add(run.name)
    if crowded and not orphans:
        below = [run for run in newest if run.parent is not None and not run.stays]
        follow = {run.name for run in below if _follows(run, known, crowded, orphans=True)}
        crowded |= follow.difference(gone)
        gone |= dict.fromkeys(follow)
    return LetGo(list(gone), len(crowded))


def _follows(run: Member, known: Mapping[str, Member], dropped: set[str], orphans: bool) -> bool:
    """Whether the root of a child goes."""
    seen = {run.name}
    parent = run.parent
    while parent is not None:
        if parent in dropped:
            return True
        above = known.get(parent)
        if above is None or parent in seen:
            return not orphans
        seen.add(parent)
        parent = above.parent
    return False


class CrowdedOut:
    """Counts the children of one store that went for their number.

    Args:
        store: the store.
        meters: where; None counts nothing.
    """

    __slots__ = ("_count",)

    def __init__(self, store: str, meters: Meters | None) -> None:
        name = "yukta.store.children.dropped"
        self._count = None if meters is None else meters.counter(name, store=store)

    def add(self, number: int) -> None:
        """So many more."""
        if self._count is not None and number:
            self._count.add(number)
