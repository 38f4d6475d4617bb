"""Sampler: looks at live runs while somebody wants to see them move.

A run that nobody watches costs nothing. One that is watched is looked at every 250 ms, and what
moved since then becomes samples of the feed and a snapshot in the history.

Feature: OBS-01.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.model.codec import dumps_plain, loads_external
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.times import rfc3339
from yukta_rx.observe.frames import showable
from yukta_rx.observe.losses import Ledger
from yukta_rx.observe.progress import ProgressSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from yukta_rx.model.status import TaskStatus
    from yukta_rx.observe.feed import EventFeed
    from yukta_rx.observe.progress import ProgressHistory
    from yukta_rx.observe.state import RunState
    from yukta_rx.streams.clock import LoopClock

INTERVAL: Final = 0.25
"""Seconds between two looks at a run."""

SLICE: Final = 0.002
"""Seconds of looking after which others get their turn."""

SHARE: Final = 0.1
"""Part of the time that looking may take; with many large runs the looks become rarer."""

COUNTERS: Final = (
    *("in", "out", "failed", "retried", "dropped", "deadLettered", "skipped"),
    "ratePerSec",
)
"""The members of a `NodeState` that are a `node.stats` sample."""

_RATE: Final = "ratePerSec"


class LiveRun(Protocol):
    """A run that goes on, as far as it is looked at here.

    Attributes:
        traceparent: the W3C trace context that its messages carry; None for none.
    """

    traceparent: str | None

    @property
    def suspended(self) -> bool:
        """Whether it is what is left of a run that only waits."""

    @property
    def execution_id(self) -> str:
        """Its id."""

    @property
    def session_id(self) -> str:
        """Its session."""

    @property
    def workflow_id(self) -> str:
        """Its workflow."""

    @property
    def status(self) -> TaskStatus:
        """Its status."""

    @property
    def paused(self) -> bool:
        """Whether it is paused."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What its starter says of it: actor, labels, depth, parentExecutionId."""

    def snapshot(self) -> dict[str, Any]:
        """`ProgressSnapshot` with `edges`; its version grows with each call."""

    def hold(self, on: bool) -> None:
        """Keep it from emitting anything, or let it go on."""

    def losses(self) -> Iterable[tuple[str, str, int, list[str]]]:
        """Messages lost that no event tells: node id, UNROUTED or DISCARDED, how many, some ids."""


class Watched:
    """One run that is tracked.

    Attributes:
        state: what its events say.
        run: the run itself while it goes on.
        last: the last look at it, whole; None if nobody has looked since it began.
        final: the snapshot at its end.
        edges: the edges at its end, as JSON.
        losses: what it lost, as far as it is not read from the run itself.
    """

    __slots__ = ("_last", "_waiters", "edges", "final", "losses", "run", "state")

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.run: LiveRun | None = None
        self._last: dict[str, Any] | bytes | None = None
        self.final: ProgressSnapshot | None = None
        self.edges = b"[]"
        self.losses = Ledger()
        self._waiters: set[asyncio.Future[None]] | None = None

    @property
    def last(self) -> dict[str, Any] | None:
        """The last look."""
        last = self._last
        if isinstance(last, bytes):
            return dict(loads_external(zlib.decompress(last)))
        return last

    @last.setter
    def last(self, shown: dict[str, Any] | None) -> None:
        """There was another look."""
        self._last = shown

    def swap(self, run: LiveRun) -> None:
        """Another object goes on as the run; beside a suspended one the last look is small."""
        last, self.run = self.last, run
        if last is not None and run.suspended:
            self._last = zlib.compress(dumps_plain(showable(last)))
        else:
            self._last = last

    @property
    def in_use(self) -> bool:
        """Nobody needs it longer than it is kept."""
        return False

    async def wait(self, seconds: float | None) -> bool:
        """Wait for its end, at most so long; returns whether it has come."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = set()
        self._waiters.add(waiter)
        try:
            if seconds is None or math.isinf(seconds):
                await waiter
            else:
                async with asyncio.timeout(seconds):
                    await waiter
        except TimeoutError:
            return False
        finally:
            if self._waiters is not None:
                self._waiters.discard(waiter)
        return True

    def wake(self) -> None:
        """It has ended: tell those who wait for that."""
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)


class Sampler:
    """Looks at live runs on behalf of the feed and of the history.

    Args:
        clock: tells the time.
        feed: gets samples, for subscribers who take them.
        progress: gets snapshots, for followers.
        live: the runs that go on.
    """

    __slots__ = ("_clock", "_feed", "_live", "_progress", "_waiter")

    def __init__(
        self,
        clock: LoopClock,
        feed: EventFeed,
        progress: ProgressHistory,
        live: Mapping[str, Watched],
    ) -> None:
        self._clock = clock
        self._feed = feed
        self._progress = progress
        self._live = live
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Somebody may want to look, or there may be something to look at."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def swap(self, run: LiveRun) -> None:
        """Another object goes on as a run that is tracked."""
        if (watched := self._live.get(run.execution_id)) is None:
            return
        watched.swap(run)
        if run.suspended:
            self._progress.compress(run.execution_id)

    def watches(self, watched: Watched) -> bool:
        """Whether anybody wants to see a run move."""
        state = watched.state
        return self._progress.followed(state.execution_id) or self._feed.samples(
            state.execution_id, state.session_id, state.workflow_id
        )

    async def run(self) -> None:
        """Look while anybody wants it, until cancelled."""
        while True:
            if not any(self.watches(watched) for watched in self._live.values()):
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
                self._waiter = None
                continue
            spent = await self._look_around()
            await self._clock.sleep(max(INTERVAL, spent / SHARE) - spent)

    async def _look_around(self) -> float:
        spent, began = 0.0, perf_counter()
        for watched in tuple(self._live.values()):
            if self.watches(watched):
                for event in self.look(watched):
                    self._feed.publish(event)
            if (slice := perf_counter() - began) > SLICE:
                spent += slice
                await asyncio.sleep(0)
                began = perf_counter()
        return spent + perf_counter() - began

    def look(self, watched: Watched) -> list[ExecutionEvent]:
        """Look at a run; a snapshot in which something moved goes into the history.

        Returns:
            The samples that the feed does not have yet, if anybody there takes them.
        """
        run, state = watched.run, watched.state
        if run is None or run.status.terminal:
            return []
        shown = complete(run.snapshot(), state, paused=run.paused)
        last = watched.last or self._first(state.execution_id)
        if last is None or moved(last, shown):
            self._progress.record(state.execution_id, ProgressSnapshot.of(without_edges(shown)))
            last = shown
        watched.last = last
        return self.samples(watched, shown)

    def _first(self, execution_id: str) -> dict[str, Any] | None:
        """The snapshot with which a run began, before it had edges."""
        newest = self._progress.newest(execution_id)
        return None if newest is None else {**newest.as_dict(), "edges": []}

    def samples(self, watched: Watched, shown: Mapping[str, Any]) -> list[ExecutionEvent]:
        """Return the samples in a snapshot that the feed does not have, if anybody takes them."""
        state = watched.state
        if not self._feed.samples(state.execution_id, state.session_id, state.workflow_id):
            return []
        return list(self._new_samples(state, shown))

    def _new_samples(self, state: RunState, shown: Mapping[str, Any]) -> Iterator[ExecutionEvent]:
        now = self._clock.wall()
        found = counts(shown["nodes"])
        data: dict[str, Any] = {"version": shown["version"], "counts": found}
        event = _sample(state, now, "execution.progress", data)
        known = self._feed.newest(event)
        if known is None or known.data["counts"] != found:
            yield event
        for node in shown["nodes"]:
            data = {name: node[name] for name in COUNTERS if name in node}
            event = _sample(state, now, "node.stats", data, node["nodeId"])
            if self._is_new(event):
                yield event
        for edge in shown["edges"]:
            event = _sample(state, now, "edge.stats", edge)
            if self._is_new(event):
                yield event

    def _is_new(self, event: ExecutionEvent) -> bool:
        known = self._feed.newest(event)
        return known is None or member_moved(known.data, event.data)


def complete(shown: dict[str, Any], state: RunState, *, paused: bool) -> dict[str, Any]:
    """Give the snapshot that a run has just made the whole `ExecutionSummary`."""
    shown["execution"] |= state.as_dict(paused=paused)
    return shown


def without_edges(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return a snapshot as API.md has it."""
    return {name: part for name, part in shown.items() if name != "edges"}


def counts(nodes: list[Mapping[str, Any]]) -> dict[str, int]:
    """How many nodes have which status."""
    found: dict[str, int] = {}
    for node in nodes:
        found[node["status"]] = found.get(node["status"], 0) + 1
    return found


def moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two snapshots of a run differ in more than time."""
    before, after = old["execution"], new["execution"]
    if any(before.get(name) != after.get(name) for name in ("status", "paused", "stepMode")):
        return True
    return any(
        len(old[part]) != len(new[part]) or any(map(member_moved, old[part], new[part]))
        for part in ("nodes", "edges")
    )


def member_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two states of a node or an edge differ; a rate that only fades does not count."""
    if old == new:
        return False
    before, after = old.get(_RATE), new.get(_RATE)
    if before == after or not before or not after:
        return True
    return {**old, _RATE: 0} != {**new, _RATE: 0}


def _sample(
    state: RunState, now: datetime, kind: str, data: dict[str, Any], node_id: str | None = None
) -> ExecutionEvent:
    return ExecutionEvent(
        type=kind,
        time=now,
        session_id=state.session_id,
        workflow_id=state.workflow_id,
        execution_id=state.execution_id,
        node_id=node_id,
        data=data,
    )


def bare(state: RunState, version: int, now: datetime) -> dict[str, Any]:
    """Return the snapshot after `version` of a run that there is no more of than its events."""
    return {
        "version": version + 1,
        "time": rfc3339(now),
        "execution": state.as_dict(),
        "nodes": [],
        "edges": [],
    }
