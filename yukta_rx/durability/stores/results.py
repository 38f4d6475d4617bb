"""ResultStore: what reached the terminals of runs, beyond the life of the process.

Feature: OBS-03.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from yukta_rx.durability.stores.families import LetGo, Member, let_go
from yukta_rx.model.results import ResultEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence
    from datetime import datetime


class StoredResults(msgspec.Struct, frozen=True):
    """A part of the results of a run.

    Attributes:
        items: the results, in the order of their cursors.
        ended: whether the run's results are closed: no more will come.
    """

    items: tuple[ResultEvent, ...]
    ended: bool


class ResultPart(NamedTuple):
    """The next results of one run, for a write of several.

    Attributes:
        execution_id: the run.
        results: in the order of their cursors.
        ended_at: when it ended, if these are its last ones.
        parent: for an end, the run that started it; None for a root.
    """

    execution_id: str
    results: Sequence[ResultEvent]
    ended_at: datetime | None
    parent: str | None


class ResultStore(Protocol):
    """Keeps the results of the newest runs; a place is the `cursor` of a result.

    Guarantees:
        R1. `read` gives the results of a run in the order of their cursors, each once, from any
            place on.
        R2. When a write has returned, `read` shows it; on a durable store it also survives the
            process.
        R3. A result whose cursor is not above the last one is passed over, so a write whose
            answer was lost can be repeated.
        R4. `end` writes the last results and closes the run, in one write; what is appended
            afterwards changes nothing.
        R5. `trim` removes only runs that have ended. Of those that no run started, the roots, the
            newest `retained` stay, and of those that runs started, so many `children`, unless they
            are too old. A child goes when its root does; one that goes for the number of children
            alone is counted.
        R6. A failure raises. A run of which nothing is kept gives None, one without further
            results an empty part: the two are never taken for one another. `last` agrees.
        R7. Values come back as they were, of the same types; what cannot be written exactly is
            refused with the place.
        R8. A write is all or nothing.
        R9. `cut` removes no result behind the cursor that it was given, never the newest of a run,
            and none of another run. What it says is gone is not read any more, also after a
            restart; `last` stays as it is.
        R10. `write` does for each of its parts what `append` or `end` would; when it raises, any
            of them may be written or not, but none in part.

    Not guaranteed: that cursors have no gaps.
    """

    durable: bool
    """Whether what is written survives the process."""

    async def append(self, execution_id: str, results: Sequence[ResultEvent]) -> None:
        """Write results of a run, in the order of their cursors, in one write.

        Raises:
            UnserialisablePayloadError: one cannot be written exactly; none was.
            StoreUnavailableError: the store gives no answer.
        """

    async def end(
        self,
        execution_id: str,
        results: Sequence[ResultEvent],
        ended_at: datetime,
        parent: str | None = None,
    ) -> None:
        """Write the last results of a run, and that it has ended; see `append`.

        Args:
            execution_id: the run.
            results: its last ones.
            ended_at: when it ended.
            parent: the run that started it; None for a root.
        """

    async def write(self, parts: Sequence[ResultPart]) -> None:
        """Write results of several runs at the same time, one part of each; see `append`."""

    async def read(
        self, execution_id: str, after: int = 0, limit: int = 100
    ) -> StoredResults | None:
        """Results of a run with a cursor above `after`, at most `limit`; None if none is kept."""

    async def last(self, execution_id: str) -> int | None:
        """The cursor of the newest result of a run, 0 before the first; None if none is kept."""

    async def cut(self, execution_id: str, upto: int) -> int:
        """Remove the oldest results of a run: those up to a cursor, or fewer, as suits the store.

        Returns:
            The cursor up to which none is kept any more; 0 if none was ever removed.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """

    async def trim(
        self, retained: int, ended_before: datetime | None = None, children: int = 0
    ) -> Sequence[str]:
        """Remove what is no longer kept.

        Args:
            retained: so many of the roots that ended last stay.
            ended_before: runs that ended before this go in any case; None for no such limit.
            children: so many of the children that ended last stay beside those.

        Returns:
            The ids of the runs that were removed.
        """


async def all_written(writes: Iterable[Awaitable[None]]) -> None:
    """Wait for several writes; then raise what the first of those that failed has raised."""
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def part_written(store: ResultStore, part: ResultPart) -> Awaitable[None]:
    """Write one part by itself."""
    execution_id, results, ended_at, parent = part
    if ended_at is None:
        return store.append(execution_id, results)
    return store.end(execution_id, results, ended_at, parent)


def results_to_drop(
    ended: Iterable[tuple[str, datetime, str | None]],
    retained: int,
    ended_before: datetime | None,
    children: int,
) -> LetGo:
    """Return the runs whose results go: all but those that ended last, and those too old.

    Args:
        ended: id, end and parent of every run that has ended.
        retained: so many roots stay.
        ended_before: what ended before goes in any case.
        children: so many children stay.
    """
    runs = (
        Member(
            name,
            (ended_at, name),
            parent,
            old=ended_before is not None and ended_at < ended_before,
        )
        for name, ended_at, parent in ended
    )
    # A root that goes on may have none yet.
    return let_go(runs, retained, children, orphans=True)
