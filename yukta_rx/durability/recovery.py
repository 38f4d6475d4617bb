"""Recovery: what a server finds in its stores when it starts, put in order before it admits.

Runs without an end are ABORTED, unless they still wait for a slot: those go on waiting.

Features: DUR-01, DUR-03.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from yukta_rx.durability.stores.execution_log import LoggedRun
from yukta_rx.model.execution_log import RunAborted

if TYPE_CHECKING:
    from datetime import datetime

    from yukta_rx.durability.stores.execution_log import ExecutionLogStore
    from yukta_rx.durability.stores.queued_starts import QueuedStart, QueuedStartStore

Closing: TypeAlias = Callable[[Sequence[LoggedRun]], Awaitable[None]]

BATCH: Final = 100
"""Ends of one write."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found.

    Attributes:
        ended: runs that have an end, in the order of their newest entries.
        aborted: ids of those that were found without one just now.
        queued: starts that wait, in their order, each with what the log says of it.
    """

    ended: Sequence[LoggedRun]
    aborted: frozenset[str]
    queued: Sequence[tuple[QueuedStart, LoggedRun]]


async def recover(
    events: ExecutionLogStore,
    queue: QueuedStartStore,
    now: datetime,
    closing: Closing | None = None,
) -> Recovered:
    """Give every run that has no end one, unless it waits in the queue.

    What else has to be closed with a run is closed before its end is written: a server that dies
    between the two finds it without an end again.

    Doing it again changes nothing. A row of the queue whose run has an end is removed, and one
    whose start the log does not have: it is written before the start, so the server died before
    there was one, and nobody was told of it.

    Args:
        events: the execution log.
        queue: the starts that wait.
        now: the time of the ends.
        closing: closes whatever else there is of runs that get an end, with that end.

    Raises:
        StoreUnavailableError: a store gives no answer; what was written until then stands.
    """
    runs = await events.runs()
    open_runs = {run.started.execution_id: run for run in runs if run.ended is None}
    queued = []
    for start in await queue.list():
        run = open_runs.pop(start.execution_id, None)
        if run is None:
            await queue.remove(start.execution_id)
        else:
            queued.append((start, run))
    ends = {name: RunAborted(execution_id=name, time=now) for name in open_runs}
    ended = [
        run if run.ended is not None else replace(run, ended=ends[run.started.execution_id])
        for run in runs
        if run.ended is not None or run.started.execution_id in ends
    ]
    if closing is not None and ends:
        await closing([run for run in ended if run.started.execution_id in ends])
    written = list(ends.values())
    for first in range(0, len(written), BATCH):
        await events.append(written[first : first + BATCH])
    return Recovered(ended, frozenset(ends), queued)
