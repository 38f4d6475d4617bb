"""The loss ledger: what each run lost, by place, node and reason, with the ids of some.

Places: `edge` (messages), `results`, `log` (lines), `events` (facts that came too late to be told),
`recording` (outputs that are not whole, so that no restart can replay them) and `history` (rows of
the execution log). Samples that were coalesced are no losses, and a slow client of a stream is
told so itself. A ledger grows with the nodes of its run and not with what is lost.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.observe.logs import LogChannel, LogStore
    from yukta_rx.observe.results import ResultChannel, ResultStore
    from yukta_rx.observe.sampler import LiveRun, Watched
    from yukta_rx.observe.shelf import Shelf
    from yukta_rx.observe.telemetry import RunTelemetry

SAMPLE: Final = 10
"""Ids that one row names at most: the first that were lost."""

_PLACE: Final = {"log": "log", "state": "events", "result": "results"}
"""The place of what the meter `yukta.tracker.dropped` calls so."""

_HELD: Final = "DROP_HELD"
_DISCARDED: Final = "DISCARDED"


class Ledger(msgspec.Struct, gc=False, eq=False):
    """The losses of one run."""

    _rows: dict[tuple[str, str | None, str], tuple[int, list[str]]] = msgspec.field(
        default_factory=dict
    )

    def add(
        self,
        place: str,
        reason: str,
        count: int = 1,
        node_id: str | None = None,
        sample: Iterable[str] = (),
    ) -> None:
        """Add `count` losses; 0 changes nothing."""
        if count < 1:
            return
        before, ids = self._rows.get((place, node_id, reason), (0, []))
        known = [*ids, *sample][:SAMPLE]
        self._rows[place, node_id, reason] = (before + count, known)

    def add_untold(self, run: LiveRun) -> dict[str, int]:
        """Add what a run itself says was lost on its edges and no event has told.

        Returns:
            How many messages that were, by reason.
        """
        added: dict[str, int] = {}
        for node_id, reason, count, sample in run.losses():
            # What an operator dropped counts as discarded, and an event has told it.
            told = self.count("edge", node_id, _HELD) if reason == _DISCARDED else 0
            self.add("edge", reason, count - told, node_id, sample)
            added[reason] = added.get(reason, 0) + count - told
        return added

    def count(self, place: str, node_id: str | None, reason: str) -> int:
        """How many of one kind were lost."""
        return self._rows.get((place, node_id, reason), (0, []))[0]

    def copy(self) -> Ledger:
        """Another ledger with the same rows."""
        return Ledger(dict(self._rows))

    def items(self) -> Iterator[dict[str, Any]]:
        """Yield every row: `{place, nodeId?, reason, count, sample}`, in a stable order."""
        ordered = sorted(
            self._rows.items(), key=lambda row: (row[0][0], row[0][1] or "", row[0][2])
        )
        for (place, node_id, reason), (count, sample) in ordered:
            named = {} if node_id is None else {"nodeId": node_id}
            yield {"place": place, **named, "reason": reason, "count": count, "sample": sample}


class LossBook:
    """The ledgers of all runs that are kept, and the meters of what is lost.

    Args:
        runs: the runs; each holds its ledger.
        find: a run with all that was said of it so far, None if it is not kept.
        results: their results.
        logs: their log lines.
        telemetry: counts losses for all runs together.
    """

    __slots__ = ("_find", "_logs", "_results", "_runs", "_telemetry")

    def __init__(
        self,
        runs: Shelf[Watched],
        find: Callable[[str], Watched | None],
        results: ResultStore,
        logs: LogStore,
        telemetry: RunTelemetry,
    ) -> None:
        self._runs = runs
        self._find = find
        self._results = results
        self._logs = logs
        self._telemetry = telemetry
        results.on_drop = self._late_result
        if results.recorder is not None:
            results.recorder.on_altered = self._altered
            results.recorder.on_cut = self._cut
        results.on_clear = lambda channel: self._cleared("results", channel)
        logs.on_clear = lambda channel: self._cleared("log", channel)

    def of(self, execution_id: str, unrecorded: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What a run has lost so far: `{lossless, items}`; nothing of a run that is not kept.

        Args:
            execution_id: the run.
            unrecorded: nodes whose output is not recorded as a whole, and why.
        """
        watched = self._find(execution_id)
        ledger = Ledger() if watched is None else watched.losses.copy()
        if watched is not None and watched.run is not None:
            ledger.add_untold(watched.run)
        for node_id, reason in (unrecorded or {}).items():
            ledger.add("recording", reason, 1, node_id)
        for place, channel in (
            ("results", self._results.get(execution_id)),
            ("log", self._logs.get(execution_id)),
        ):
            if channel is not None:
                ledger.add(place, "retention", channel.lost)
        ledger.add("results", "unwritten", self.unwritten(execution_id))
        items = list(ledger.items())
        return {"lossless": not items, "items": items}

    def unwritten(self, execution_id: str) -> int:
        """How many results of a run could not be written to their durable store so far."""
        return self._results.unwritten(execution_id)

    # -- what was lost

    def dropped(self, type: str, kind: str, event: ExecutionEvent) -> None:
        """An event was dropped; see `RunTelemetry.dropped`."""
        self._telemetry.dropped(type, kind)
        self._add(event.execution_id, _PLACE[type], kind, 1, event.node_id)

    def edge_dropped(self, watched: Watched, event: ExecutionEvent) -> None:
        """An `edge.dropped` event came."""
        data = event.data
        self._telemetry.edge_dropped(data["overflow"], data["count"])
        count, sample = data["count"], data["sample"]
        watched.losses.add("edge", data["overflow"], count, event.node_id, sample)

    def left_out(self, execution_id: str, node_id: str) -> None:
        """The end of a node was not written to the execution log, since too much waited."""
        self._add(execution_id, "history", "overflow", 1, node_id)

    def finished(self, watched: Watched, event: ExecutionEvent, lost_lines: int) -> ExecutionEvent:
        """The run has ended, and is there for the last time.

        Args:
            watched: the run.
            event: its `execution.finished`.
            lost_lines: log lines that were dropped since too many waited.

        Returns:
            The event, which says how many lines were dropped in all, if any were.
        """
        if watched.run is not None:
            for reason, n in watched.losses.add_untold(watched.run).items():
                self._telemetry.edge_dropped(reason, n)
        # Those that never got here, since threads wrote more than the loop could take.
        before = event.data.get("droppedLines", 0)
        self._telemetry.dropped("log", "overflow", before)
        watched.losses.add("log", "overflow", before)
        if not lost_lines:
            return event
        data = {**event.data, "droppedLines": before + lost_lines}
        return msgspec.structs.replace(event, data=data)

    def _late_result(self, execution_id: str) -> None:
        self._telemetry.dropped("result", "late")
        self._add(execution_id, "results", "late", 1)

    def _altered(self, execution_id: str, node_id: str | None) -> None:
        """A result was stored with marks in place of what JSON cannot say."""
        self._telemetry.dropped("result", "unserialisable")
        self._add(execution_id, "results", "unserialisable", 1, node_id)

    def _cut(self, execution_id: str, _upto: int, count: int) -> None:
        """The oldest results of a run had to go from where they are stored."""
        self._results.cut(execution_id)
        self._add(execution_id, "results", "expired", count)

    def _cleared(self, place: str, channel: ResultChannel | LogChannel) -> None:
        """All of a channel was let go before its run was."""
        self._add(channel.execution_id, place, "expired", channel.lost)

    def _add(
        self, execution_id: str, place: str, reason: str, count: int, node_id: str | None = None
    ) -> None:
        watched = self._runs.get(execution_id)
        if watched is not None:
            watched.losses.add(place, reason, count, node_id)
