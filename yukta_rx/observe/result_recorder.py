"""ResultRecorder: results of runs on their way to a durable store, and back from there.

Runs whose results come faster than the store takes them are held back; nothing is left out.

Feature: OBS-03.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from yukta_rx.durability.stores.results import ResultPart
from yukta_rx.errors import StoreUnavailableError, UnserialisablePayloadError, YuktaError
from yukta_rx.model.opened_results import is_closed, opened_result
from yukta_rx.model.result_lines import claim_in, encode_result
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.observe.frames import showable
from yukta_rx.observe.write_behind import WriteBehind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.stores.results import ResultStore
    from yukta_rx.metrics import Meters
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.streams.clock import LoopClock

WAITING: Final = 32 << 20
"""Bytes of results that may wait to be written before their runs are held back."""

TRIM_EVERY: Final = 100
"""Runs that end between two looks at what is too old."""

LOOK_EVERY: Final = 60.0
"""Seconds between two looks at what is too old, if age counts and there is something to write."""

log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    execution_id: str
    event: ResultEvent
    parent: str | None


class ResultRecorder:
    """Owns a store of results, as an async context. Belongs to the loop.

    Args:
        store: where they are kept.
        clock: tells the time.
        settings: how much is kept.
        meters: where failed writes are counted.
        linger: seconds that a write waits for more results; the end of a run does not wait.

    Attributes:
        on_altered: told of each result that was written with marks in place of what JSON cannot
            say: the run, its node.
        on_cut: told of a run whose oldest results had to go: the run, how many by cursor now, how
            many of these just now.
    """

    def __init__(
        self,
        store: ResultStore,
        clock: LoopClock,
        settings: Settings,
        meters: Meters,
        linger: float = 0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._kept = settings.results
        self._behind: WriteBehind[_Waiting] = WriteBehind(
            "results", self._write, clock, meters, WAITING, linger
        )
        self._behind.on_room = self._let_go
        self._held: dict[str, Callable[[bool], None]] = {}
        self._holds = meters.counter("yukta.tracker.holds")
        self._ended = TRIM_EVERY
        self._trimmed_at = float("-inf")
        self._cuts: dict[str, tuple[int, int]] = {}
        """Of runs with more results than are kept: the cursor up to which they went, and the one at
        which to look again."""
        self.on_altered: Callable[[str, str | None], None] = lambda _run, _node: None
        self.on_cut: Callable[[str, int, int], None] = lambda _run, _upto, _count: None

    async def __aenter__(self) -> Self:
        """Start to write."""
        await self._behind.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Write what waits, for a few seconds at the most."""
        await self._behind.__aexit__(*exc)

    # -- what runs say

    def add(
        self,
        execution_id: str,
        event: ResultEvent,
        weight: int,
        hold: Callable[[bool], None] | None,
        parent: str | None = None,
    ) -> None:
        """Have a result written; its run is held back with `hold` if too much waits."""
        self._behind.put(_Waiting(execution_id, event, parent), weight)
        if event.type is ResultType.EXECUTION_END:
            self._release(execution_id)
        elif self._behind.full and hold is not None and execution_id not in self._held:
            self._held[execution_id] = hold
            self._holds.add(1)
            hold(True)

    def _release(self, execution_id: str) -> None:
        hold = self._held.pop(execution_id, None)
        if hold is not None:
            hold(False)

    def _let_go(self) -> None:
        for execution_id in tuple(self._held):
            self._release(execution_id)

    async def written(self) -> None:
        """Return once all that was said so far is written; at once while writes fail."""
        await self._behind.written()

    def fault(self) -> str | None:
        """Why nothing can be written; None if it can, as far as is known."""
        return self._behind.fault()

    def unwritten(self, execution_id: str) -> int:
        """While writes fail: how many results of a run are not written."""
        if not self._behind.failing:
            return 0
        return sum(one.execution_id == execution_id for one, _ in self._behind.waiting)

    def runs(self) -> set[str]:
        """The runs of which results wait to be written, and those whose payloads these refer to."""
        waiting = [one for one, _ in self._behind.waiting]
        owners = {one.owner for one in map(claim_in, [one.event for one in waiting]) if one}
        return owners.union([one.execution_id for one in waiting])

    def gone(self, execution_id: str) -> int:
        """The cursor up to which results of a live run had to go; 0 if none had to."""
        return self._cuts.get(execution_id, (0, 0))[0]

    # -- the writer

    async def _write(self, batch: list[_Waiting]) -> None:
        parts = _parts(batch)
        try:
            await self._store.write(parts)
        except UnserialisablePayloadError:
            await self._write_marked(parts)
        for part in parts:
            self._ended += part.ended_at is not None
            await self._bound(part.execution_id, part.results[-1])
        aging = self._kept.stored_for is not None
        late = aging and self._clock.now() - self._trimmed_at >= LOOK_EVERY
        if self._ended >= TRIM_EVERY or late:
            await self._trim()

    async def _write_marked(self, parts: Sequence[ResultPart]) -> None:
        """Write what cannot be written with a mark in its place; only a plugin can emit that."""
        made = [part._replace(results=[*map(_writable, part.results)]) for part in parts]
        await self._store.write(made)
        for part, marked in zip(parts, made, strict=True):
            for event, written in zip(part.results, marked.results, strict=True):
                if written is not event:
                    self.on_altered(part.execution_id, event.node_id)

    async def _bound(self, execution_id: str, newest: ResultEvent) -> None:
        """Let the oldest results of a run go that has more of them than are kept."""
        most, last = self._kept.stored_per_run, newest.cursor
        gone, look = self._cuts.get(execution_id, (0, most + most // 4))
        if newest.type is ResultType.EXECUTION_END:
            self._cuts.pop(execution_id, None)
        elif most and last >= look:
            self._cuts[execution_id] = gone, last + most // 4 + 1
            try:
                upto = await self._store.cut(execution_id, last - most)
            except Exception as error:
                told, defect = (
                    "old results of run %s stay for now: %s",
                    not isinstance(error, YuktaError),
                )
                log.warning(told, execution_id, error, exc_info=defect)
                return
            self._cuts[execution_id] = upto, max(upto + most, last) + most // 4 + 1
            if upto > gone:
                self.on_cut(execution_id, upto, upto - gone)

    async def _trim(self) -> None:
        self._trimmed_at = self._clock.now()
        kept = self._kept
        before = None if kept.stored_for is None else self._clock.wall() - kept.stored_for
        try:
            await self._store.trim(kept.stored_runs, before, kept.stored_children)
        except Exception as error:
            told = "old results are not removed, it is tried again later: %s"
            log.warning(told, error, exc_info=not isinstance(error, YuktaError))
        self._ended = 0

    # -- back again

    async def last(self, execution_id: str) -> int | None:
        """The cursor of the newest result of a run; None if none is kept.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """
        waiting = self._waiting(execution_id, 0)
        last = await self._store.last(execution_id)
        return waiting[-1].cursor if waiting else last

    async def read(self, execution_id: str, after: int, limit: int) -> list[ResultEvent]:
        """The oldest results behind a cursor, written or not, at most `limit`.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """
        # First, since what waits now may be written by the time that the store answers.
        waiting = self._waiting(execution_id, after)
        stored = await self._store.read(execution_id, after, limit)
        if stored is not None and stored.items:
            return list(stored.items)
        return [await opened_result(event) for event in waiting[:limit]]

    def _waiting(self, execution_id: str, after: int) -> list[ResultEvent]:
        return [
            one.event
            for one, _ in self._behind.waiting
            if one.execution_id == execution_id and one.event.cursor > after
        ]

    async def close_run(
        self,
        execution_id: str,
        status: TaskStatus,
        time: datetime,
        totals: Mapping[str, int],
        *,
        known: bool,
        parent: str | None = None,
    ) -> None:
        """Give the results of a run of an earlier process their end, if they have none.

        Args:
            execution_id: the run.
            status: how it ended.
            time: when.
            totals: its counters.
            known: whether that is done also if nothing of it is kept.
            parent: the run that started it.
        """
        last = await self._store.last(execution_id)
        if last is None:
            if not known:
                return
            last = 0
        part = await self._store.read(execution_id, last, 1)
        if part is not None and part.ended:
            return
        cut = await self._cut(execution_id)
        end = ResultEvent(
            cursor=last + 1,
            type=ResultType.EXECUTION_END,
            time=time,
            status=status,
            truncated=status.value == "ABORTED" or cut,
            totals=totals,
        )
        await self._store.end(execution_id, [end], time, parent)

    async def _cut(self, execution_id: str) -> bool:
        """Whether the oldest results of a run are gone, or cannot be read."""
        try:
            first = await self._store.read(execution_id, 0, 1)
        except StoreUnavailableError as error:
            # One that is damaged is no reason not to start; a store that is down says so again.
            log.error("%s", error)
            return True
        return first is not None and bool(first.items) and first.items[0].cursor > 1


def _parts(batch: Iterable[_Waiting]) -> list[ResultPart]:
    """What waits, by run."""
    runs: dict[str, tuple[list[ResultEvent], str | None]] = {}
    for execution_id, event, parent in batch:
        runs.setdefault(execution_id, ([], parent))[0].append(event)
    return [
        ResultPart(
            execution_id,
            events,
            events[-1].time if events[-1].type is ResultType.EXECUTION_END else None,
            parent,
        )
        for execution_id, (events, parent) in runs.items()
    ]


def _writable(event: ResultEvent) -> ResultEvent:
    """The result itself if it can be written, else with a mark in place of what JSON cannot say."""
    message = event.message
    if message is None:
        return event
    shown = message
    for attempt in (None, showable, _mark):
        if attempt is not None:
            parts = {
                "payload": message.payload if is_closed(event) else attempt(message.payload),
                "headers": attempt(dict(message.headers)),
            }
            shown = msgspec.structs.replace(message, uid=message.id, **parts)
            event = msgspec.structs.replace(event, message=shown)
        try:
            encode_result(event)
        except UnserialisablePayloadError:
            continue
        break
    return event


def _mark(value: Any) -> dict[str, str]:
    return {"unserialisable": type(value).__qualname__}
