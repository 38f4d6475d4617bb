"""ResultStore: what reaches the terminals of each run, live and for a while afterwards.

Feature: OBS-03.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.weight import weigh
from yukta_rx.observe.frames import Frame, json_safe
from yukta_rx.observe.journal import HELD, Journal, JournalReader, Kept, Page
from yukta_rx.observe.ring import OVERHEAD
from yukta_rx.observe.stores import JournalStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.config.settings import Settings
    from yukta_rx.streams.clock import Clock

log = logging.getLogger(__name__)


class ResultChannel(Journal[ResultEvent]):
    """The results of one run, numbered from 1, ended by EXECUTION_END.

    Attributes:
        execution_id: the run.
        session_id: its session.
    """

    __slots__ = ("_ends", "_store", "execution_id", "session_id")

    def __init__(self, execution_id: str, session_id: str, store: ResultStore, keep: int) -> None:
        super().__init__(store.budget, keep, HELD)
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
        event = msgspec.structs.replace(event, truncated=self.trimmed)
        self._ends.append(self.add(event, now, OVERHEAD, counted=False))
        if event.type is ResultType.EXECUTION_END:
            self.end()
            self._store.retire(self.execution_id)

    def read(self, after: int | None = None, limit: int = 50) -> Page:
        """Return the results behind a cursor, as `ResultEvent`; None is the beginning."""
        return self.page(after, None, limit)

    def follow(self, after: int | None = None) -> JournalReader[ResultEvent]:
        """Read on from a cursor until EXECUTION_END; gives `ResultEvent` and `Gap`.

        Its frames are named RESULT, NODE_END, EXECUTION_END and `stream.gap`.
        """
        return JournalReader(self, after)

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


class ResultStore(JournalStore[ResultChannel]):
    """The results of all runs.

    Args:
        settings: the settings in force.
        clock: tells the time.

    Attributes:
        on_drop: called with the id of a run of which a result came after its end.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
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

    def channel(self, execution_id: str, session_id: str) -> ResultChannel:
        """Return the channel of a run, made if it is new."""
        known = self.get(execution_id)
        if known is not None:
            return known
        made = ResultChannel(execution_id, session_id, self, self._retained)
        return self.keep(execution_id, made)

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
