"""ResultStore: what reaches the terminals of each run, live and for a while afterwards.

Feature: OBS-03.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.opened_results import is_closed, opened_result
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.weight import weigh
from yukta_rx.observe.frames import Frame, json_safe
from yukta_rx.observe.journal import HELD, Gap, Journal, JournalReader, Kept, Page
from yukta_rx.observe.ring import OVERHEAD, Ring
from yukta_rx.observe.stores import JournalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from yukta_rx.config.settings import Settings
    from yukta_rx.observe.result_recorder import ResultRecorder
    from yukta_rx.streams.clock import Clock

log = logging.getLogger(__name__)


class ResultChannel(Journal[ResultEvent]):
    """The results of one run, numbered from 1, ended by EXECUTION_END.

    Attributes:
        execution_id: the run.
        session_id: its session.
    """

    __slots__ = ("_ends", "_store", "execution_id", "session_id")

    def __init__(
        self,
        execution_id: str,
        session_id: str,
        store: ResultStore,
        keep: int,
        ring: Ring[Kept[ResultEvent]] | None = None,
    ) -> None:
        super().__init__(store.budget, keep, HELD, ring)
        self.execution_id = execution_id
        self.session_id = session_id
        self._store = store
        self._ends: list[Kept[ResultEvent]] = []

    def publish(self, event: ResultEvent) -> None:
        """Add what a run published; after EXECUTION_END nothing is accepted any more.

        The cursor is the place in this channel, and an end gets `truncated` from this buffer,
        whatever the event says itself. Never raises: the run must not suffer.
        """
        if self.ended:
            self._store.refuse(self.execution_id)
            return
        if event.cursor != self.last + 1:
            event = msgspec.structs.replace(event, cursor=self.last + 1)
        now = self._store.clock.now()
        if event.type is ResultType.RESULT:
            headers = event.headers
            weight = OVERHEAD + weigh(event.payload)
            self.add(event, now, weight + weigh(dict(headers)) if headers else weight)
            return
        if event.truncated != self.trimmed:
            event = msgspec.structs.replace(event, truncated=self.trimmed)
        self._ends.append(self.add(event, now, OVERHEAD, counted=False))
        if event.type is ResultType.EXECUTION_END:
            self.end()
            self._store.retire(self.execution_id)

    def read(self, after: int | None = None, limit: int = 50) -> Page:
        """Return the results behind a cursor, as `ResultEvent`; None is the beginning.

        In place of a large payload of a durable run there may be a `Claim`; `fetch` and `follow`
        read it.
        """
        return self.page(after, None, limit)

    async def fetch(self, after: int | None = None, limit: int = 50) -> Page:
        """As `read`, and what is no longer in memory comes from where it is stored, if it is.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """
        return await opened_page(self.read(after, limit))

    def follow(self, after: int | None = None) -> JournalReader[ResultEvent]:
        """Read on from a cursor until EXECUTION_END; gives `ResultEvent` and `Gap`.

        Its frames are named RESULT, NODE_END, EXECUTION_END and `stream.gap`.
        """
        return ResultReader(self, after)

    def show(self, kept: Kept[ResultEvent]) -> ResultEvent:
        """The event itself."""
        return kept.item

    def render(self, kept: Kept[ResultEvent]) -> Frame:
        """The event as JSON."""
        return Frame.of(str(kept.item.type), kept.item.as_dict(), id=str(kept.cursor))

    def lost_some(self) -> None:
        """The ends that are kept have to say so."""
        for end in self._ends:
            if not end.item.truncated:
                end.item = msgspec.structs.replace(end.item, truncated=True)
                end.frame = None


class ResultReader(JournalReader[ResultEvent]):
    """Follows a channel, and opens what came to a terminal as a reference."""

    __slots__ = ()

    async def _next(self, limit: int) -> list[Any]:
        return [
            one
            if isinstance(one, Gap) or not is_closed(one.item)
            else msgspec.structs.replace(one, item=await opened_result(one.item), frame=None)
            for one in await super()._next(limit)
        ]


class RecordedChannel(ResultChannel):
    """The results of one run, which are also written to a store; memory holds the newest.

    Readers see no difference: what memory does not hold comes from the store. Nothing is missing
    here, and no end says that something was, unless the run has more results than are stored.

    Attributes:
        hold: holds the run back, or lets it go on.
    """

    __slots__ = ("_cut", "_parent", "_recorder", "hold")

    def __init__(
        self,
        execution_id: str,
        session_id: str,
        store: ResultStore,
        keep: int,
        recorder: ResultRecorder,
        last: int = 0,
        parent: str | None = None,
    ) -> None:
        super().__init__(execution_id, session_id, store, keep, Ring(last))
        self._recorder = recorder
        self._cut = False
        self._parent = parent
        self.hold: Callable[[bool], None] | None = None

    @property
    def trimmed(self) -> bool:
        """Whether the oldest items are gone."""
        return self._cut or self._recorder.gone(self.execution_id) > 0

    @property
    def lost(self) -> int:
        """How many items were here and are gone; those that were stored are told apart."""
        return 0

    def end(self) -> None:
        """Nothing follows, so there is nobody to be held back: the run need not be kept."""
        super().end()
        self.hold = None

    def cut(self) -> None:
        """The oldest results are not stored any more."""
        self._cut = True
        super().lost_some()

    def lost_some(self) -> None:
        """Memory has let go of some; they are stored."""

    def add(
        self, item: ResultEvent, at: float, weight: int, *, counted: bool = True
    ) -> Kept[ResultEvent]:
        """Add an item, and have it written."""
        kept = super().add(item, at, weight, counted=counted)
        self._recorder.add(self.execution_id, item, weight, self.hold, self._parent)
        return kept

    async def fetch(self, after: int | None = None, limit: int = 50) -> Page:
        """Return the results behind a cursor, from the store where memory does not hold them."""
        cursor = min(after or 0, self.last)
        items = [] if self.holds(cursor) else await self.past(cursor, limit)
        if not items:
            return await opened_page(self.read(cursor, limit))
        over = self.ended and items[-1].cursor >= self.last
        gap = gap_before(items[0].cursor, cursor)
        return Page(items, None if over else items[-1].cursor, gap)

    def holds(self, cursor: int) -> bool:
        """Whether memory has everything behind a cursor."""
        return cursor + 1 >= self._ring.first

    async def past(self, after: int, limit: int) -> list[ResultEvent]:
        """Results behind a cursor, from the store."""
        return await self._recorder.read(self.execution_id, after, limit)

    def follow(self, after: int | None = None) -> JournalReader[ResultEvent]:
        """Read on from a cursor until the end."""
        return RecordedReader(self, after)


class RecordedReader(ResultReader):
    """Follows a recorded channel: first what only the store has, then what memory has."""

    __slots__ = ()

    _journal: RecordedChannel

    async def _next(self, limit: int) -> list[Any]:
        channel = self._journal
        while not self.closed and not channel.holds(self.cursor):
            items = await channel.past(self.cursor, limit)
            if not items:
                # Retention took them; what memory has says so.
                break
            gap = gap_before(items[0].cursor, self.cursor)
            if gap is not None and self._tells_gaps:
                self.cursor = gap.stop
                return [gap]
            self.cursor = items[-1].cursor
            return [Kept(item.cursor, item, 0.0, False) for item in items]
        return await super()._next(limit)


async def opened_page(page: Page) -> Page:
    """A page whose results have payloads, and no references to them.

    Raises:
        StoreUnavailableError: one cannot be read.
    """
    if not any(map(is_closed, page.items)):
        return page
    return page._replace(items=[await opened_result(item) for item in page.items])


def gap_before(first: int, after: int) -> Gap | None:
    """What is missing between a cursor and the first result behind it, if anything is."""
    return Gap(after + 1, first - 1, first - 1 - after) if first > after + 1 else None


class ResultStore(JournalStore[ResultChannel]):
    """The results of all runs.

    Args:
        settings: the settings in force.
        clock: tells the time.
        recorder: writes them to a durable store; None where there is none.

    Attributes:
        on_drop: called with the id of a run of which a result came after its end.
        recorder: the same.
    """

    def __init__(
        self, settings: Settings, clock: Clock, recorder: ResultRecorder | None = None
    ) -> None:
        group = settings.results
        super().__init__(
            clock,
            ttl=group.retention.total_seconds(),
            capacity=group.max_executions,
            max_bytes=group.max_bytes,
            renew=True,
        )
        self._retained = group.retained_events
        self.on_drop: Callable[[str], None] = lambda _execution_id: None
        self.recorder = recorder

    def channel(
        self,
        execution_id: str,
        session_id: str,
        hold: Callable[[bool], None] | None = None,
        parent: str | None = None,
    ) -> ResultChannel:
        """Return the channel of a run, made if it is new.

        Args:
            execution_id: the run.
            session_id: its session.
            hold: holds the run back while a durable store is behind, or lets it go on.
            parent: the run that started it; None if none did.
        """
        channel = self.get(execution_id)
        if channel is None:
            made = self._made(execution_id, session_id, parent=parent)
            channel = self.keep(execution_id, made, parent)
        if hold is not None and isinstance(channel, RecordedChannel):
            channel.hold = hold
        return channel

    def _made(
        self, execution_id: str, session_id: str, last: int = 0, parent: str | None = None
    ) -> ResultChannel:
        about = execution_id, session_id, self, self._retained
        if self.recorder is None:
            return ResultChannel(*about)
        return RecordedChannel(*about, self.recorder, last, parent)

    async def open(self, execution_id: str) -> ResultChannel | None:
        """Return the channel of a run, also of one that only a durable store still has.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """
        channel = self.get(execution_id)
        if channel is None and self.recorder is not None:
            last = await self.recorder.last(execution_id)
            # By now it may have begun to publish.
            channel = self.get(execution_id)
            if channel is None and last is not None:
                channel = self._made(execution_id, "", last)
                channel.ended = True
        return channel

    def cut(self, execution_id: str) -> None:
        """The oldest results of a run are not stored any more: its ends say so."""
        channel = self.get(execution_id)
        if isinstance(channel, RecordedChannel):
            channel.cut()

    def unwritten(self, execution_id: str) -> int:
        """How many results of a run could not be written to their durable store so far."""
        return 0 if self.recorder is None else self.recorder.unwritten(execution_id)

    def waiting(self) -> Collection[str]:
        """The runs of which results wait to be written, or to whose payloads such results refer."""
        return () if self.recorder is None else self.recorder.runs()

    def refuse(self, execution_id: str) -> None:
        """Count a result that came after the end of its run."""
        self.on_drop(execution_id)
        told = "run %s: a result came after EXECUTION_END and was dropped"
        log.warning(told, execution_id, extra=log_fields(execution_id))


def json_form(event: ResultEvent) -> dict[str, Any]:
    """Return a result as `as_dict` does, so that it can surely be shown as JSON."""
    form = event.as_dict()
    for member in ("payload", "headers"):
        if member in form:
            form[member] = json_safe(form[member])
    return form
