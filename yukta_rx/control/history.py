"""History: writes what happened to the execution log, in order, and reads it back.

A start is written, and awaited, before anybody is told its id. What runs and commands say
afterwards goes through one queue and one task, so that nobody on the event loop waits for a store.
When a write fails the queue stays as it is and is tried again until it is written: until then the
run is shown with `recorded: false`.

Feature: DUR-01.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

from yukta_rx.control.log_events import interrupted, key_of, start_event, writable
from yukta_rx.control.queries import Page
from yukta_rx.errors import (
    IdempotencyKeyReusedError,
    NotFoundError,
    StaleLeaderError,
    StoreUnavailableError,
    UnserialisablePayloadError,
    YuktaError,
)
from yukta_rx.model.execution_log import (
    ORPHANS,
    SCHEDULER,
    ControlApplied,
    ControlRejected,
    IdempotencyKey,
    LogEvent,
    NodeFinished,
    RunAborted,
    RunFinished,
    RunStarted,
)
from yukta_rx.model.status import TaskStatus
from yukta_rx.observe.write_behind import Linger
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from yukta_rx.control.start_request import Plan
    from yukta_rx.durability.stores.execution_log import ExecutionLogStore
    from yukta_rx.metrics import Meters
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.streams.clock import LoopClock

Scope: TypeAlias = tuple[str, str, str]
"""Session, workflow and key."""

log = logging.getLogger(__name__)

BATCH: Final = 100
"""Events of one write."""

WAITING: Final = 10_000
"""Events that may wait while the store gives no answer; beyond it ends of nodes are left out."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts at a write that failed: doubled from the first to the longest."""

UNHEARD: Final = 1000
"""Starts of which it may be unknown whether they are written; beyond it none is tried."""

CLOSING: Final = 5.0
"""Seconds that a shutdown waits for what is not written yet."""


class History:
    """The owner of the execution log, as an async context. Belongs to the loop.

    Args:
        store: where it is written.
        clock: tells the time.
        meters: where failed writes are counted.
        linger: seconds that a write waits for more, if it is of ends of nodes only.
    """

    def __init__(
        self, store: ExecutionLogStore, clock: LoopClock, meters: Meters, linger: float = 0
    ) -> None:
        self._store = store
        self._clock = clock
        self._meters = meters
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self._linger = Linger(linger)
        self._waiting: deque[LogEvent] = deque()
        self._open: set[str] = set()
        self._keyed: dict[str, IdempotencyKey] = {}
        self._unheard: dict[str, Scope | None] = {}
        """Starts, and the scopes of their keys, of which the store did not say that it has them."""
        self._ending: set[str] = set()
        self._put = self._tried = 0
        self._watchers: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._closing = self._urgent = False
        self._over = False
        """Whether another server has the log by now."""
        self.failing = False
        """Whether the last write failed."""
        self.on_left_out: Callable[[str, str], None] = lambda _execution_id, _node_id: None
        """Told of the end of a node that is not written: the run, the node."""
        self.on_start: Callable[[RunStarted], None] = lambda _event: None
        """Told of the start of a run as soon as it is written."""
        self.on_end: Callable[[str, TaskStatus], None] = lambda _execution_id, _status: None
        """Told of the end of a run, however it came to that."""
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """Awaited before the ends of runs are written: what has to be durable by then."""

    # -- life

    async def __aenter__(self) -> Self:
        """Start the task that writes."""
        self._tasks.spawn(self._write(), "yukta history")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Write what waits, for a few seconds at the most, then stop."""
        self._closing = True
        self._wake()
        self._linger.hurry()
        try:
            async with asyncio.timeout(CLOSING):
                await self._tasks.ended()
        except TimeoutError:
            log.error("%d events of the execution log were not written", len(self._waiting))
            self._tasks.cancel()
            await self._tasks.ended()

    # -- starts

    async def started(self, plan: Plan, key_ttl: timedelta | None = None) -> IdempotencyKey | None:
        """Write the start of a run; when this returns it is written.

        Args:
            plan: what is started.
            key_ttl: how long the idempotency key of the request stands for this run.

        Returns:
            None; or the same request's key that is in force for another run, and then nothing was
            written.

        Raises:
            IdempotencyKeyReusedError: the key is in force for another request.
            UnserialisablePayloadError: the payload cannot be written exactly.
            StoreUnavailableError: the store gives no answer.
        """
        event = start_event(plan, self._clock)
        key = None
        if plan.request.idempotency_key is not None and key_ttl is not None:
            key = key_of(plan, event, key_ttl)
            await self._set_free(key.scope)
        if len(self._unheard) >= UNHEARD:
            raise _no_answer()
        # Known before it is written: whoever gives up meanwhile says its end behind it.
        self._open.add(event.execution_id)
        if key is not None:
            self._keep(key)
        try:
            known = await self._store.append_start(event, key)
        except UnserialisablePayloadError:
            self._unwritten(event)
            raise
        except StaleLeaderError as error:
            self._unwritten(event)
            self._failed("run", error)
            raise
        except Exception as error:
            self._failed("run", error)
            told = error if isinstance(error, YuktaError) else _no_answer()
            self._lost(event, told)
            if told is error:
                raise
            raise told from error
        if known is None:
            self.on_start(event)
            return None
        self._unwritten(event)
        if key is not None and known.fingerprint != key.fingerprint:
            raise IdempotencyKeyReusedError(
                f"Idempotency-Key {key.key} was used for another request: use a new one"
            )
        return known

    def _unwritten(self, event: RunStarted) -> None:
        """There is no such start, and no such key."""
        self._open.discard(event.execution_id)
        self._keyed.pop(event.execution_id, None)

    def _lost(self, event: RunStarted, error: YuktaError) -> None:
        """Nobody knows whether there is such a start; if there is, it has ended, its key is free.

        The end comes last: it is with that that the start is forgotten here.
        """
        execution_id = event.execution_id
        key = self._keyed.get(execution_id)
        self._unheard[execution_id] = None if key is None else key.scope
        self.release(execution_id)
        self.ended(execution_id, TaskStatus.ERROR, error)

    async def _set_free(self, scope: Scope) -> None:
        """Wait until a key that was set free is so in the log."""
        await self.settled()
        if scope in self._unheard.values():
            await self._tried_all()
            if scope in self._unheard.values():
                raise _no_answer()

    def _keep(self, key: IdempotencyKey) -> None:
        """Remember a key until it expires, or its start fails."""
        while self._keyed and next(iter(self._keyed.values())).expires_at <= key.time:
            del self._keyed[next(iter(self._keyed))]
        self._keyed[key.execution_id] = key

    def ended(
        self, execution_id: str, status: TaskStatus, error: BaseException | None = None
    ) -> None:
        """Write the end of a run that does not say it itself; nothing if it has one."""
        shown = None
        if isinstance(error, YuktaError):
            shown = {"code": error.code, "detail": error.detail}
        self._end(
            RunFinished(
                execution_id=execution_id, time=self._clock.wall(), status=status, error=shown
            )
        )

    def reopen(self, execution_id: str, key: IdempotencyKey | None) -> None:
        """Go on with a start that an earlier server wrote, with its key, and that has not begun."""
        self._open.add(execution_id)
        if key is not None:
            self._keep(key)

    def release(self, execution_id: str) -> None:
        """Set the key free that a start was written with which has failed."""
        key = self._keyed.pop(execution_id, None)
        if key is not None:
            now = self._clock.wall()
            self.note(msgspec.structs.replace(key, time=now, expires_at=now))

    # -- what happens

    def emit(self, event: ExecutionEvent) -> None:
        """Take note of an event; those that the log does not have are passed over."""
        write = _WRITERS.get(event.type)
        if write is not None:
            write(self, event)

    def note(self, event: LogEvent) -> None:
        """Write an event that no run and no command says."""
        if self._over:
            return
        if len(self._waiting) >= WAITING and isinstance(event, NodeFinished):
            self._count("node")
            self.on_left_out(event.execution_id, event.node_id)
            return
        self._waiting.append(event)
        self._put += 1
        if not isinstance(event, NodeFinished):
            self._urgent = True
            self._linger.hurry()
        self._wake()

    def _finished(self, event: ExecutionEvent) -> None:
        data = event.data
        self._end(
            RunFinished(
                execution_id=event.execution_id,
                time=event.time,
                status=TaskStatus(data["status"]),
                error=data.get("error"),
                totals=data.get("totals") or {},
            )
        )

    def _end(self, event: RunFinished) -> None:
        if event.execution_id in self._open:
            self._open.remove(event.execution_id)
            self._ending.add(event.execution_id)
            self.note(interrupted(event) if event.status is TaskStatus.ABORTED else event)
            self.on_end(event.execution_id, event.status)

    def _node(self, event: ExecutionEvent) -> None:
        status = TaskStatus(event.data["status"])
        if status.terminal and event.execution_id in self._open:
            self.note(
                NodeFinished(
                    execution_id=event.execution_id,
                    time=event.time,
                    node_id=event.node_id or "",
                    status=status,
                    error=event.data.get("error"),
                )
            )

    def _command(self, event: ExecutionEvent) -> None:
        row = event.data
        # The target of a command is in a session; that of one for nobody is not.
        orphan = not event.session_id and event.execution_id != SCHEDULER
        kind = ControlApplied if event.type == "control.applied" else ControlRejected
        self.note(
            kind(
                execution_id=ORPHANS if orphan else event.execution_id,
                time=event.time,
                command=row["command"],
                args=row["args"],
                actor=row["actor"],
                via=row["via"],
                command_id=row["commandId"],
                node_id=event.node_id,
                reason=row.get("reason"),
                named=event.execution_id if orphan else None,
            )
        )

    # -- the writer

    async def _write(self) -> None:
        pause = FIRST_PAUSE
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
                self._idle = None
                continue
            if not (self._watchers or self._closing or self._urgent):
                await self._linger.wait()
            self._urgent = False
            batch = list(islice(self._waiting, BATCH))
            try:
                written = await self._append(batch)
            except StaleLeaderError as error:
                self._give_up(error)
                return
            except Exception as error:
                self._tell(self._put)
                self._failed_batch(batch, error)
                await self._clock.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            if written and self.failing:
                log.warning("the execution log is written again")
                self.failing = False
            self._written(batch)
            pause = FIRST_PAUSE

    async def _append(self, batch: list[LogEvent]) -> bool:
        """Write a batch; False if there was nothing to write."""
        if self._unheard and not (batch := await self._there(batch)):
            return False
        if self.before_end is not None and any(isinstance(one, RunFinished) for one in batch):
            await self.before_end()
        try:
            await self._store.append(batch)
        except UnserialisablePayloadError:
            # Only what a plugin or a client said can be so; a mark stands in its place.
            await self._store.append([writable(event) for event in batch])
        return True

    async def _there(self, batch: list[LogEvent]) -> list[LogEvent]:
        """The events of a batch without those of starts that turn out not to be written."""
        names = {event.execution_id for event in batch} & self._unheard.keys()
        missing = {name for name in names if not await self._store.read(name, limit=1)}
        return [event for event in batch if event.execution_id not in missing]

    def _give_up(self, error: StaleLeaderError) -> None:
        """Another server owns the log: what waits would be refused for ever."""
        log.error("%d events are not written: %s", len(self._waiting), error)
        self._over, self.failing = True, False
        self._waiting.clear()
        self._unheard.clear()
        self._tell(self._put)

    def _written(self, batch: list[LogEvent]) -> None:
        for event in batch:
            self._waiting.popleft()
            if isinstance(event, RunFinished | RunAborted):
                self._ending.discard(event.execution_id)
                self._unheard.pop(event.execution_id, None)
        self._tell(self._put - len(self._waiting))

    def _failed_batch(self, batch: list[LogEvent], error: Exception) -> None:
        kinds = {"node" if isinstance(event, NodeFinished) else "run" for event in batch}
        for kind in kinds:
            self._failed(kind, error)

    def _failed(self, kind: str, error: Exception) -> None:
        self._count(kind)
        if not self.failing:
            log.error("the execution log is not written, it is tried again: %r", error)
        self.failing = True

    def _count(self, kind: str) -> None:
        self._meters.counter("yukta.tracker.log.append.failed", type=kind).add(1)

    def _tell(self, tried: int) -> None:
        self._tried = max(self._tried, tried)
        while self._watchers and self._watchers[0][0] <= self._tried:
            watcher = self._watchers.popleft()[1]
            if not watcher.done():
                watcher.set_result(None)

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    # -- reads

    def fault(self) -> str | None:
        """What is wrong with the execution log, None if it is written."""
        return "it cannot be written; the log says why" if self.failing else None

    def recorded(self, execution_id: str) -> bool:
        """Whether no end of this run waits to be written."""
        return execution_id not in self._ending

    def lacks(self, execution_id: str, command_id: str) -> bool:
        """Whether a command of a run waits to be written because writes fail; counted if so."""
        lacking = any(
            isinstance(event, ControlApplied)
            and (event.execution_id, event.command_id) == (execution_id, command_id)
            for event in self._waiting
        )
        if lacking:
            self._meters.counter("yukta.control.unrecorded").add(1)
        return lacking

    async def settled(self) -> None:
        """Return once all that was said so far is written; at once while writes fail."""
        if not self.failing:
            await self._tried_all()

    async def _tried_all(self) -> None:
        """Return once it was tried to write all that was said so far."""
        if self._tried < self._put:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append((self._put, watcher))
            self._linger.hurry()
            await watcher

    async def session_of(self, execution_id: str) -> str | None:
        """The session of a run that the log has, None if it has none such."""
        await self.settled()
        entries = await self._store.read(execution_id, limit=1)
        first = entries[0].event if entries else None
        return first.session_id if isinstance(first, RunStarted) else None

    async def start_of(self, execution_id: str) -> RunStarted | None:
        """The start of a run with its payload; None if the log has none, or not any more."""
        return await self._store.start_of(execution_id)

    async def page(self, execution_id: str, after: int, limit: int, *, known: bool) -> Page:
        """The events of a run, oldest first, each `{seq, type, time, executionId, ...}`.

        Args:
            execution_id: the run.
            after: `seq` of the last event of the page before, 0 at first.
            limit: how many at most.
            known: whether there is such a run, also if the log has nothing of it.

        Raises:
            NotFoundError: there is no such run.
        """
        await self.settled()
        entries = await self._store.read(execution_id, after=after, limit=limit + 1)
        if not entries and not after and not known:
            raise NotFoundError(
                f"there is no run {execution_id}",
                code="execution_not_found",
                executionId=execution_id,
            )
        shown = [{"seq": entry.seq, **entry.event.as_dict()} for entry in entries[:limit]]
        more = len(entries) > limit
        return Page(shown, str(shown[-1]["seq"]) if more else None)


_WRITERS: Final = {
    "execution.finished": History._finished,
    "node.status": History._node,
    "control.applied": History._command,
    "control.rejected": History._command,
}


def _no_answer() -> StoreUnavailableError:
    detail = "the execution log gives no answer, so nothing can be started"
    return StoreUnavailableError(detail, retry_after=1)
