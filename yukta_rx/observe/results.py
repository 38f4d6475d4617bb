"""ResultStore: what reaches the terminals of each run, live and for a while afterwards.

Feature: OBS-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.observe.frames import Frame
from yukta_rx.observe.journal import Journal, JournalReader, Kept, Page
from yukta_rx.observe.ring import OVERHEAD, weigh
from yukta_rx.observe.stores import JournalStore

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings
    from yukta_rx.observe.journal import Budget
    from yukta_rx.streams.clock import Clock


class ResultChannel(Journal[ResultEvent]):
    """The results of one run, numbered from 1, ended by EXECUTION_END.

    Attributes:
        execution_id: the run.
        session_id: its session.
    """

    __slots__ = ("_clock", "_ends", "_store", "execution_id", "session_id")

    def __init__(
        self, execution_id: str, session_id: str, clock: Clock, budget: Budget, store: ResultStore
    ) -> None:
        super().__init__(budget, store.keep)
        self.execution_id = execution_id
        self.session_id = session_id
        self._clock = clock
        self._store = store
        self._ends: list[Kept[ResultEvent]] = []

    def publish(self, event: ResultEvent) -> None:
        """Add what a run published; what comes after EXECUTION_END is not accepted.

        An end gets `truncated` from this buffer, whatever it says itself.

        Raises:
            ValueError: the run ended, or the event's cursor is not the next one.
        """
        if self.ended or event.cursor != self.last + 1:
            raise ValueError(f"result {event.cursor} of {self.execution_id} after {self.last}")
        if event.type is ResultType.RESULT:
            weight = OVERHEAD + weigh(event.payload) + weigh(event.headers)
            self.add(event, self._clock.now(), weight)
            return
        event = msgspec.structs.replace(event, truncated=self.trimmed)
        self._ends.append(self.add(event, self._clock.now(), OVERHEAD, counted=False))
        if event.type is ResultType.EXECUTION_END:
            self.end()
            self._store.retire(self.execution_id)

    def read(self, after: int | None = None, limit: int = 50) -> Page:
        """Return the results behind a cursor, as `ResultEvent`; None is the beginning."""
        return self.page(after, None, limit)

    def follow(self, after: int | None = None) -> JournalReader[ResultEvent]:
        """Read on from a cursor, ended by EXECUTION_END; gives `ResultEvent` and `Gap`.

        Its frames are named RESULT, NODE_END, EXECUTION_END and `stream.gap`.
        """
        return JournalReader(self, after)

    def show(self, kept: Kept[ResultEvent]) -> ResultEvent:
        """The event itself."""
        return kept.item

    def render(self, kept: Kept[ResultEvent]) -> Frame:
        """The event as JSON; what JSON cannot show of a payload is said in its place."""
        return Frame.of(str(kept.item.type), shown(kept.item), id=str(kept.cursor))

    def lost_some(self) -> None:
        """The ends that are kept have to say so."""
        for end in self._ends:
            if not end.item.truncated:
                end.item = msgspec.structs.replace(end.item, truncated=True)
                end.frame = None


def shown(event: ResultEvent) -> dict[str, object]:
    """Return the JSON form of a result; a payload that has none becomes a sentence about it."""
    form = event.as_dict()
    try:
        Frame.of("", form)
    except UnserialisablePayloadError as error:
        form["payload"] = {"$yukta": "unserialisable", "v": str(error)}
        form["headers"] = {}
    return form
