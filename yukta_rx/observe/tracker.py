"""Tracker: one ordered queue for what runs say, one consumer, and what is known of every run.

`emit` only appends. The consumer works in two steps. The first applies events to the state of
their run; it is cheap, and every read does it for itself first, so a read shows all that was
emitted before it. The second hands events to the feed, at most so many per turn of the loop that
a subscriber who keeps up finds room for them.

Features: OBS-01, OBS-02, OBS-04, OBS-05.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yukta_rx.model.codec import loads_external
from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.observe.backlog import ENVELOPE, Backlog
from yukta_rx.observe.frames import state_json
from yukta_rx.observe.line_quota import Dropped, LineQuota
from yukta_rx.observe.losses import LossBook
from yukta_rx.observe.progress import ProgressSnapshot
from yukta_rx.observe.sampler import LiveRun, Sampler, Watched, bare, complete, without_edges
from yukta_rx.observe.sessions import SessionBook
from yukta_rx.observe.shelf import Shelf
from yukta_rx.observe.state import OWN, NodeMark, RunState
from yukta_rx.observe.telemetry import RunTelemetry
from yukta_rx.observe.tracing import Tracing
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yukta_rx.config.settings import Settings
    from yukta_rx.errors import YuktaError
    from yukta_rx.metrics import Meters
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.execution_log import RunFinished, RunStarted
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.observe.feed import EventFeed
    from yukta_rx.observe.logs import LogStore
    from yukta_rx.observe.progress import ProgressHistory
    from yukta_rx.observe.results import ResultStore
    from yukta_rx.streams.clock import LoopClock

log = logging.getLogger(__name__)

TURN: Final = 0.002
"""Seconds of work after which others get their turn."""

PER_TURN: Final = 128
"""Events per turn for a feed that somebody reads: half of what a subscriber has room for."""

_LOOK_AT_CLOCK: Final = 16
_OPENING: Final = frozenset({"execution.queued", "execution.started"})


class Tracker:
    """Knows every run. Belongs to the thread of the loop.

    Args:
        settings: the settings in force.
        clock: tells the time.
        feed: gets every event that was accepted.
        results: told of runs that are forgotten before their time.
        logs: gets the lines.
        progress: gets the snapshots.
        meters: where nodes, runs and losses are counted.

    Attributes:
        losses: what each run lost.
    """

    def __init__(
        self,
        settings: Settings,
        clock: LoopClock,
        feed: EventFeed,
        results: ResultStore,
        logs: LogStore,
        progress: ProgressHistory,
        meters: Meters,
    ) -> None:
        group = settings.tracker
        self._clock = clock
        self._wall = clock.wall
        self._feed = feed
        self._results = results
        self._logs = logs
        self._progress = progress
        self._telemetry = RunTelemetry(meters)
        self._tracing = Tracing()
        self._sessions = SessionBook(group.max_sessions)
        self._runs: Shelf[Watched] = Shelf(
            clock,
            ttl=group.cleanup_ttl.total_seconds(),
            capacity=group.max_executions,
            gone=self._gone,
        )
        crowded = meters.counter("yukta.store.children.dropped", store="tracker")
        self._runs.on_crowded = lambda: crowded.add(1)
        self.losses = LossBook(self._runs, self._find, results, logs, self._telemetry)
        self._backlog = Backlog(int(group.queue_max_bytes), meters, self._runs)
        self._published = 0
        self._lines = LineQuota()
        self._waiter: asyncio.Future[None] | None = None
        self._drained: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._stopping = self._stopped = False
        self._consumer: asyncio.Task[None] | None = None
        self._tasks: Tasks | None = None
        self._sampler = Sampler(clock, feed, progress, self._runs.live)
        self.swap = self._sampler.swap
        feed.on_listen = self._sampler.wake
        if feed.log is not None:
            feed.log.on_full = self._backlog.behind
        progress.on_follow = self._followed
        meters.watch("yukta.tracker.queue.age", lambda: self._backlog.age(clock.wall()))

    # -- life

    async def start(self) -> None:
        """Start the consumer and the sampler."""
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self._consumer = self._tasks.spawn(self._consume(), "yukta tracker")
        self._tasks.spawn(self._sampler.run(), "yukta sampler")

    async def stop(self) -> None:
        """Hand on what waits, then end; what is emitted afterwards is lost and counted."""
        self._stopping = True
        self._wake()
        if self._consumer is not None and self._tasks is not None:
            await asyncio.wait([self._consumer])
            self._tasks.cancel()
            await self._tasks.ended()
        self._apply_all()
        self._publish(len(self._backlog.outbox))
        self._tracing.close()
        self._stopped = True
        for shelf in (self._runs, self._results, self._logs, self._progress):
            shelf.close()

    # -- what runs say

    def emit(self, event: ExecutionEvent) -> None:
        """Take an event; only appends it, and holds its run back where too much waits."""
        if self._stopped:
            self._telemetry.dropped("log" if event.type == "node.log" else "state", "ended")
            return
        if event.type == "node.log":
            waiting = self._lines.take(event, crowded=self._backlog.crowded)
            if waiting is not event:
                self.losses.dropped("log", "overflow", event)
            if waiting is None:
                return
            self._backlog.come(waiting)
        else:
            self._backlog.come(event)
        if self._waiter is not None:
            self._wake()

    def track(self, run: LiveRun) -> None:
        """Register a run that is about to begin, or has just begun."""
        self._apply_all()
        ids, parent = (run.execution_id, run.session_id), run.about.get("parentExecutionId")
        watched = self._runs.get(run.execution_id) or self._open(*ids, run.workflow_id, parent)
        state = watched.state
        if state.ended:
            return
        watched.run = run
        state.describe(run.about)
        shown = run.snapshot()
        state.definition_version = shown["execution"].get("definitionVersion", "")
        for node in shown["nodes"]:
            state.nodes.setdefault(node["nodeId"], NodeMark()).module = node["type"]
        self._tracing.opened(run, state, self._wall())
        complete(shown, state, paused=run.paused)
        del shown["edges"]
        self._progress.record(run.execution_id, ProgressSnapshot.of(shown), parent)
        if self._sampler.watches(watched):
            self._sampler.wake()

    def announce(
        self, execution_id: str, session_id: str, workflow_id: str, about: Mapping[str, Any]
    ) -> None:
        """Register a run that waits for its slot; `execution.queued` follows.

        Args:
            execution_id: the run.
            session_id: its session.
            workflow_id: its workflow.
            about: see `RunState.describe`.
        """
        self._apply_all()
        self._open(execution_id, session_id, workflow_id).state.describe(about)
        self._results.channel(execution_id, session_id)

    def restore(self, started: RunStarted, ended: RunFinished | None) -> None:
        """Register a run of an earlier server, with its end unless that is yet to be said."""
        ids, parent = (started.execution_id, started.session_id), started.parent_execution_id
        watched = self._open(*ids, started.workflow_id, parent)
        watched.state.restore(started, ended)
        if ended is not None:
            self._put_away(watched, self._bare(watched.state))

    def dismiss(self, execution_id: str, status: TaskStatus, error: YuktaError) -> None:
        """End a run that will not say so itself; nothing if it has ended.

        Args:
            execution_id: the run.
            status: how it ends.
            error: why; not shown of a run that was cancelled.
        """
        watched = self._find(execution_id)
        if watched is None or watched.state.ended:
            return
        event = watched.state.end(status, error, self._wall())
        channel = self._results.get(execution_id)
        if channel is not None:
            channel.publish(
                ResultEvent(
                    cursor=channel.last + 1,
                    type=ResultType.EXECUTION_END,
                    time=event.time,
                    status=status,
                    totals=event.data["totals"],
                )
            )
        self.emit(event)

    # -- reads; each applies first what was emitted before it

    def state(self, execution_id: str) -> RunState | None:
        """Return what is known of a run, None if there is none (any more)."""
        watched = self._find(execution_id)
        return watched.state if watched is not None else None

    def runs(self) -> list[RunState]:
        """Return every run that is kept, the newest first."""
        self._apply_all()
        states = [watched.state for watched in self._runs.values()]
        states.sort(key=lambda state: state.execution_id, reverse=True)
        return states

    def live(self, execution_id: str) -> LiveRun | None:
        """Return a run that goes on, None if it does not."""
        watched = self._find(execution_id)
        return watched.run if watched is not None else None

    def snapshot(self, execution_id: str) -> dict[str, Any] | None:
        """Return a run as `ProgressSnapshot` with `edges`: as it is now, or as it ended."""
        watched = self._find(execution_id)
        if watched is None:
            return None
        if watched.run is not None:
            return complete(watched.run.snapshot(), watched.state, paused=watched.run.paused)
        if watched.final is None:
            return self._bare(watched.state)
        return {**watched.final.as_dict(), "edges": loads_external(watched.edges)}

    async def drained(self) -> None:
        """Return once everything emitted so far is applied and handed to the feed."""
        self._apply_all()
        waiting = len(self._backlog.outbox)
        if not waiting:
            return
        # Where nobody has to find room for them, a few events need not wait for the consumer.
        alone = waiting <= PER_TURN and not self._feed.listening
        if alone or self._consumer is None or self._consumer.done():
            self._publish(waiting)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained.append((self._published + waiting, waiter))
        await waiter

    async def wait(self, execution_id: str, seconds: float | None) -> bool:
        """Wait for the end of a run.

        Args:
            execution_id: the run.
            seconds: how long; None has no limit.

        Returns:
            Whether it has ended; False also if there is no such run.
        """
        watched = self._find(execution_id)
        return watched is not None and (watched.state.ended or await watched.wait(seconds))

    # -- the consumer

    async def _consume(self) -> None:
        while True:
            if not self._backlog.empty:
                self._turn()
            if not self._backlog.empty:
                await asyncio.sleep(0)
            elif self._stopping:
                return
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _turn(self) -> None:
        """Work for a while: half of it on what came in, then on what goes out."""
        inbox, outbox = self._backlog.inbox, self._backlog.outbox
        end = perf_counter() + TURN / 2
        while inbox:
            for _ in range(min(_LOOK_AT_CLOCK, len(inbox))):
                self._apply_next()
            if perf_counter() > end:
                break
        limit = PER_TURN if self._feed.listening else len(outbox)
        limit = 0 if self._feed.pace.crowded else limit
        end = perf_counter() + TURN / 2
        while limit > 0 and outbox:
            n = min(_LOOK_AT_CLOCK, limit, len(outbox))
            self._publish(n)
            limit -= n
            if perf_counter() > end:
                break

    def _apply_all(self) -> None:
        while self._backlog.inbox:
            self._apply_next()

    def _apply_next(self) -> None:
        backlog = self._backlog
        event, size = backlog.inbox.popleft()
        if isinstance(event, Dropped):
            self._lines.closed(event)
            event = event.as_event()
        try:
            told = self._line(event) if event.type == "node.log" else self._apply(event)
        except Exception:
            told = None
            self._defect(event)
            if event.type == "node.log":
                self._lines.gone(event)
        if told is event:
            # It waits on, for the feed.
            backlog.outbox.append((event, size))
            return
        if told is not None:
            backlog.add(told)
        backlog.gone(size)

    def _apply(self, event: ExecutionEvent) -> ExecutionEvent | None:
        """Let the run know of an event; returns what the feed gets, None for nothing."""
        watched = self._runs.get(event.execution_id)
        if watched is None and event.type in _OPENING:
            watched = self._open(event.execution_id, event.session_id, event.workflow_id)
        if watched is None:
            # What belongs to no run that is kept: at least nothing of a run's own.
            if event.type.startswith(OWN):
                self.losses.dropped("state", "late", event)
                return None
        elif not watched.state.apply(event):
            self.losses.dropped("state", "late", event)
            return None
        elif event.type == "node.status":
            node = watched.state.nodes[event.node_id or ""]
            if node.status.terminal:
                self._telemetry.node_ended(node)
        elif event.type == "edge.dropped":
            self.losses.edge_dropped(watched, event)
        elif event.type == "execution.queued":
            # Before all that the run itself will show.
            shown = {**without_edges(self._bare(watched.state)), "version": 0}
            self._progress.record(event.execution_id, ProgressSnapshot.of(shown))
        elif event.type == "execution.started":
            self._telemetry.run_started(watched.state)
        elif event.type == "execution.finished":
            event = self.losses.finished(watched, event, self._lines.lost(event.execution_id))
            self._finish(watched)
        if self._tracing.spans and watched is not None:
            self._tracing.applied(event, watched.state)
        return event

    def _publish(self, n: int) -> None:
        backlog, freed = self._backlog, 0
        for _ in range(n):
            event, size = backlog.outbox.popleft()
            freed += size
            if event.type == "node.log":
                self._lines.gone(event)
            try:
                self._feed.publish(event, size - ENVELOPE)
            except Exception:
                self._defect(event)
        backlog.gone(freed)
        self._published += n
        while self._drained and self._drained[0][0] <= self._published:
            waiter = self._drained.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)

    def _defect(self, event: ExecutionEvent) -> None:
        about = log_fields(event.execution_id, event.node_id)
        log.exception("an event could not be handed on and is lost: %r", event, extra=about)
        self.losses.dropped("state", "defect", event)

    # -- log lines

    def _line(self, event: ExecutionEvent) -> ExecutionEvent | None:
        watched = self._runs.get(event.execution_id)
        if watched is None or watched.state.ended:
            self._lines.gone(event)
            self.losses.dropped("log", "late", event)
            return None
        channel = self._logs.channel(event.execution_id, event.session_id)
        data = {"cursor": str(channel.append(event)), **event.data}
        return msgspec.structs.replace(event, data=data)

    # -- beginnings and ends

    def _open(
        self, execution_id: str, session_id: str, workflow_id: str, parent: str | None = None
    ) -> Watched:
        watched = Watched(RunState(execution_id, session_id, workflow_id, self._wall))
        self._sessions.began(session_id, execution_id)
        self._runs.put(execution_id, watched, parent)
        self._logs.channel(execution_id, session_id, parent)
        self._forget_sessions()
        return watched

    def _finish(self, watched: Watched) -> None:
        """The run ended: its last snapshot is taken, and it is let go."""
        state, run = watched.state, watched.run
        watched.run = None
        self._backlog.release(state.execution_id)
        shown = None
        if run is not None:
            try:
                shown = complete(run.snapshot(), state, paused=False)
            except Exception:
                about = log_fields(state.execution_id)
                log.exception("run %s: no snapshot of its end", state.execution_id, extra=about)
        if shown is None:
            shown = self._bare(state)
        if run is not None:
            for sample in self._sampler.samples(watched, shown):
                self._backlog.add(sample)
        self._telemetry.run_ended(state, shown["nodes"])
        self._put_away(watched, shown)

    def _put_away(self, watched: Watched, shown: dict[str, Any]) -> None:
        state = watched.state
        watched.edges = state_json(shown.pop("edges"))
        watched.final = ProgressSnapshot.of(shown)
        watched.last = None
        self._progress.record(state.execution_id, watched.final, state.parent_execution_id)
        self._logs.end(state.execution_id)
        self._runs.retire(state.execution_id)
        self._sessions.ended(state.session_id)
        self._forget_sessions()
        watched.wake()

    def _gone(self, watched: Watched) -> None:
        """A run is kept no longer."""
        state = watched.state
        self._sessions.gone(state.session_id, state.execution_id)
        self._lines.lost(state.execution_id)

    def _bare(self, state: RunState) -> dict[str, Any]:
        newest = self._progress.newest(state.execution_id)
        return bare(state, newest.version if newest is not None else 0, self._wall())

    def _forget_sessions(self) -> None:
        for execution_id in self._sessions.excess():
            self._runs.forget(execution_id)
            self._results.forget(execution_id)
            self._logs.forget(execution_id)
            self._progress.forget(execution_id)

    def _followed(self, execution_id: str) -> None:
        """Somebody begins to follow a run: show it as it is now."""
        watched = self._find(execution_id)
        if watched is not None:
            for event in self._sampler.look(watched):
                self._feed.publish(event)
        self._sampler.wake()

    def _find(self, execution_id: str) -> Watched | None:
        self._apply_all()
        return self._runs.get(execution_id)


__all__ = ["LiveRun", "Tracker"]
