"""Cleaner: takes what is needed out of files that mostly are not, and removes the files.

Feature: DUR-02.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.file._checkpoint_lines import intact
from yukta_rx.durability.file._checkpoint_records import CopyRecord
from yukta_rx.durability.file._checkpoint_scan import read_at
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterator

    from yukta_rx.durability.file._checkpoint_index import Index, Output, Place, Run, Segment
    from yukta_rx.durability.file._checkpoint_log import CheckpointLog
    from yukta_rx.durability.file._checkpoint_records import Record
    from yukta_rx.streams.aio import Tasks

    Needed = tuple[Run, Output | None, int, Place]

log = logging.getLogger(__name__)

STEP: Final = 1 << 20
"""Bytes that are copied at a time, about."""

NEEDED: Final = 0.5
"""A file of which less is needed is given up."""


class Cleaner:
    """Works in the background while there is something to do, one step after the other.

    A file is removed once the copies of what was needed in it are durable, so a crash at any
    moment leaves every line there once at least.

    Args:
        index: where everything is.
        lines: the log; the file that it writes to is never touched.
        submit: has a record written.
        hurt: called with an output of which a line turned out to be damaged.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        tasks: owner of the work.
    """

    def __init__(
        self,
        index: Index,
        lines: CheckpointLog[Any],
        submit: Callable[[Record], None],
        hurt: Callable[[Output], None],
        offload: Callable[..., Awaitable[Any]],
        tasks: Tasks,
    ) -> None:
        self._index = index
        self._lines = lines
        self._submit = submit
        self._hurt = hurt
        self._offload = offload
        self._tasks = tasks
        self._work: asyncio.Task[None] | None = None
        self._stopped = False
        self.removed = 0
        """Files that are gone."""

    def wake(self) -> None:
        """Something is not needed any more."""
        if self._work is None and not self._stopped and self._next() is not None:
            self._work = self._tasks.spawn(self._clean(), "yukta clean checkpoints")

    def stop(self) -> None:
        """Begin nothing any more."""
        self._stopped = True

    def _next(self) -> Segment | None:
        """The file that gives most room for the least copying, if one is worth it."""
        segments = self._index.segments
        if len(segments) < 2:
            return None
        current = max(segments)
        worst = min(
            (one for number, one in segments.items() if number != current),
            key=lambda one: one.live / (one.size or 1),
        )
        return worst if worst.live < worst.size * NEEDED or not worst.size else None

    async def _clean(self) -> None:
        try:
            while not self._stopped and (segment := self._next()) is not None:
                if not await self._emptied(segment):
                    return
                await self._lines.remove(segment.number)
                self._index.removed(segment.number)
                self.removed += 1
        except (StoreUnavailableError, OSError) as error:
            log.warning("checkpoint files that are not needed any more stay: %s", error)
        finally:
            self._work = None

    async def _emptied(self, segment: Segment) -> bool:
        """Copy all that is needed; False if there is still something."""
        step: list[Needed] = []
        size = 0
        for needed in self._needed(segment):
            step.append(needed)
            size += needed[3].size
            if size >= STEP:
                await self._copied(step)
                step, size = [], 0
                if self._stopped:
                    return False
        if step:
            await self._copied(step)
        return segment.live == 0

    @staticmethod
    def _needed(segment: Segment) -> Iterator[Needed]:
        """What is needed, looked up bit by bit: it may change meanwhile."""
        for run in tuple(segment.runs):
            if run.cleared is not None and run.cleared.segment == segment.number:
                yield run, None, -1, run.cleared
            for output in () if run.gone else tuple(run.outputs.values()):
                for nth, place in output.lines_in(segment.number):
                    yield run, output, nth, place

    async def _copied(self, step: list[Needed]) -> None:
        lines = await self._offload(read_at, self._lines.folder, [one[3] for one in step])
        last: CopyRecord | None = None
        for line, (run, output, nth, place) in zip(lines, step, strict=True):
            record = CopyRecord(line, run, output, nth, place)
            if not record.wanted:
                continue
            if intact(line):
                self._submit(record)
                last = record
            elif output is not None:
                self._hurt(output)
        if last is not None:
            # Those before it are settled earlier, and fail together with it.
            await last
