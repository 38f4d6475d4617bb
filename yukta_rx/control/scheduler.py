"""Scheduler: gives slots to starts, or lets them wait, or refuses them.

A slot belongs to an execution id, so it cannot leak: whoever ends a run, or fails before it has
begun, releases the id, and a second release does nothing. Slots change hands within one step of
the loop, so no start waits that would fit, and two never get the last one.

Features: ADM-01, ADM-03.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.run_settings import OnLimit
from yukta_rx.control.queue_view import QueueView
from yukta_rx.control.tickets import Outlook, Source, Ticket
from yukta_rx.control.waiting_line import Cap, Caps, Place, WaitingLine
from yukta_rx.errors import (
    ConflictError,
    EngineError,
    RejectedError,
    StoreUnavailableError,
    UnavailableError,
)
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.stores.queued_starts import QueuedStart, QueuedStartStore
    from yukta_rx.errors import YuktaError
    from yukta_rx.metrics import Meters
    from yukta_rx.streams.clock import LoopClock

log = logging.getLogger(__name__)

SCHEDULER: Final = "scheduler"
"""What stands in place of an execution id where the scheduler itself is meant."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts to claim a start: doubled from the first to the longest."""

_SPAN: Final = 16
"""Ends of runs by which it is guessed when the next slot comes free."""


class Scheduler(QueueView):
    """The slots of this server and the queue in front of them. Belongs to the loop.

    Args:
        settings: the limits.
        clock: tells the time.
        store: keeps what waits.
        meters: where running, waiting and refused starts are counted.
        emit: gets `scheduler.*` events.
    """

    def __init__(
        self,
        settings: Settings,
        clock: LoopClock,
        store: QueuedStartStore,
        meters: Meters,
        emit: Callable[[ExecutionEvent], None],
    ) -> None:
        group = self._group = settings.execution
        self._store = store
        self._meters = meters
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        caps = Caps(
            total=group.max_concurrent,
            workflow=group.max_concurrent_per_workflow,
            session=group.max_concurrent_per_session,
        )
        super().__init__(clock, WaitingLine(caps, group.queue_ageing.total_seconds()))
        self._held: dict[str, Place] = {}
        self._at_once: asyncio.Future[None] = self._loop.create_future()
        """What those share that got their slot without waiting: it is done."""
        self._at_once.set_result(None)
        self._seq = 0
        self._ends: deque[float] = deque(maxlen=_SPAN)
        self._closed = False
        self.source = Source.CONFIG
        # What the audit says of it, as of a run.
        self.execution_id, self.session_id, self.workflow_id = SCHEDULER, "", ""
        self.status = TaskStatus.RUNNING
        meters.watch("yukta.executions.running", lambda: len(self._held))
        meters.watch("yukta.executions.queued", lambda: len(self._waiting))

    # -- slots

    def check_open(self, session_id: str, workflow_id: str) -> None:
        """Refuse a start while the server shuts down.

        Raises:
            UnavailableError: it does.
        """
        if self._closed:
            self._count("shutdown", session_id, workflow_id)
            raise _shutting_down()

    def admit(
        self,
        execution_id: str,
        session_id: str,
        workflow_id: str,
        *,
        priority: float = 0,
        refused: Callable[[TaskStatus, YuktaError], None],
    ) -> Ticket:
        """Give a slot to a start that fits, or let it wait.

        Args:
            execution_id: the run that it will be.
            session_id: its session.
            workflow_id: its workflow.
            priority: higher goes first.
            refused: told at once when it waited and gets no slot: how the run ends, and why.

        Raises:
            RejectedError: it does not fit, and may not wait.
            UnavailableError: the server shuts down.
        """
        self.check_open(session_id, workflow_id)
        cap = self._line.blocker(session_id, workflow_id)
        if cap is not None:
            self._check_room(session_id, workflow_id, cap)
        now = self._clock.now()
        self._seq += 1
        place = Place(
            execution_id, session_id, workflow_id, priority=priority, since=now, seq=self._seq
        )
        if cap is None:
            self._line.take(session_id, workflow_id, now)
            self._hold(place)
            return Ticket(place, self._clock.wall(), self._at_once, refused)
        ticket = Ticket(place, self._clock.wall(), self._loop.create_future(), refused)
        self._enqueue(ticket)
        return ticket

    def readmit(
        self, start: QueuedStart, refused: Callable[[TaskStatus, YuktaError], None]
    ) -> Ticket:
        """Let a start wait that an earlier server stored; it has waited since then.

        Whatever the queue may hold, it has room for it. Slots are given once `refill` is called,
        so that a whole queue comes back in its order.

        Raises:
            UnavailableError: the server shuts down.
        """
        self.check_open(start.session_id, start.workflow_id)
        waited = max(0.0, (self._clock.wall() - start.queued_at).total_seconds())
        self._seq += 1
        place = Place(
            start.execution_id,
            start.session_id,
            start.workflow_id,
            priority=start.priority,
            since=self._clock.now() - waited,
            seq=self._seq,
        )
        ticket = Ticket(place, start.queued_at, self._loop.create_future(), refused)
        self._enqueue(ticket)
        return ticket

    def refill(self) -> None:
        """Give away the slots that are free."""
        self._fill()

    def release(self, execution_id: str) -> None:
        """Take back the slot of a run, if it has one, and give it to who is next."""
        place = self._held.pop(execution_id, None)
        if place is None:
            return
        self._line.release(place.session_id, place.workflow_id)
        self._ends.append(self._clock.now())
        self._fill()

    def _fill(self) -> None:
        """Give away the slots that are free."""
        self._generation += 1
        while (place := self._line.next(self._clock.now())) is not None:
            ticket = self._waiting.pop(place.execution_id)
            self._claiming[place.execution_id] = ticket
            self._grant(ticket)

    def _hold(self, place: Place) -> None:
        self._generation += 1
        self._held[place.execution_id] = place

    def _grant(self, ticket: Ticket) -> None:
        self._hold(ticket.place)
        if ticket.timer is not None:
            ticket.timer.cancel()
        ticket.granted.set_result(None)

    def _enqueue(self, ticket: Ticket) -> None:
        self._generation += 1
        self._waiting[ticket.place.execution_id] = ticket
        self._line.add(ticket.place)
        limit = self._group.queue_timeout.total_seconds()
        if limit:
            due = ticket.place.since + limit
            ticket.timer = self._clock.call_at(due, lambda: self._overdue(ticket, limit))

    def _dequeue(self, ticket: Ticket) -> None:
        self._generation += 1
        del self._waiting[ticket.place.execution_id]
        self._line.remove(ticket.place)
        if ticket.timer is not None:
            ticket.timer.cancel()

    # -- refusals

    def _check_room(self, session_id: str, workflow_id: str, cap: Cap) -> None:
        """Refuse a start that does not fit `cap`, unless it may wait."""
        found = self._refusal(session_id, workflow_id)
        if found is None:
            return
        code, why = found
        self._count(code, session_id, workflow_id)
        detail = f"{self._told(cap, session_id, workflow_id)}{why}"
        raise RejectedError(detail, code=code, retry_after=self._pace())

    def _refusal(self, session_id: str, workflow_id: str) -> tuple[str, str] | None:
        """Why a start that does not fit may not wait; None if it may."""
        group = self._group
        if group.on_limit is OnLimit.REJECT:
            return "limit", ", and yukta.execution.on-limit lets none wait"
        if len(self._waiting) >= group.queue_capacity:
            return "queue_full", f", and {len(self._waiting)} starts wait already, as many as may"
        most, waiting = (
            group.queue_capacity_per_workflow,
            self._line.waiting_of(session_id, workflow_id),
        )
        if 0 < most <= waiting:
            return "workflow_queue_full", f", and {waiting} wait already, as many as may"
        return None

    def _overdue(self, ticket: Ticket, limit: float) -> None:
        place = ticket.place
        self._count("queue_timeout", place.session_id, place.workflow_id, place.execution_id)
        detail = f"the start waited {limit:g} s for a slot and got none"
        error = RejectedError(
            detail,
            code="queue_timeout",
            retry_after=self._pace(),
            executionId=place.execution_id,
        )
        self._dequeue(ticket)
        ticket.refuse(TaskStatus.TIMED_OUT, error)

    def _count(
        self, reason: str, session_id: str, workflow_id: str, execution_id: str | None = None
    ) -> None:
        self._meters.counter("yukta.executions.rejected", reason=reason).add()
        data = {"reason": reason, "sessionId": session_id, "workflowId": workflow_id}
        if execution_id is not None:
            data["executionId"] = execution_id
        self._say("scheduler.rejected", data, session_id, workflow_id)

    def _pace(self) -> float | None:
        """Seconds after which a slot comes free, by the last ends of runs; None if unknown."""
        if len(self._ends) < 2:
            return None
        return min((self._ends[-1] - self._ends[0]) / (len(self._ends) - 1), 60.0)

    def _say(self, kind: str, data: dict[str, Any], session_id: str, workflow_id: str) -> None:
        self._emit(
            ExecutionEvent(
                type=kind,
                time=self._clock.wall(),
                session_id=session_id,
                workflow_id=workflow_id,
                execution_id=SCHEDULER,
                data=data,
            )
        )

    # -- what waits

    async def store(self, ticket: Ticket, start: QueuedStart) -> None:
        """Keep a start that waits, before anybody is told that it does.

        Raises:
            StoreUnavailableError: it cannot be kept; it waits no more, and has no slot.
        """
        try:
            await self._store.put(start)
        except BaseException:
            self.drop(ticket)
            raise

    async def claim(self, ticket: Ticket) -> None:
        """Make a stored start that got a slot this server's own; then it has to begin.

        Waits with the slot for a store that gives no answer: its id was handed out.

        Raises:
            ConflictError: it was stopped meanwhile.
            EngineError: it is gone, so somebody else has it.
        """
        execution_id = ticket.place.execution_id
        try:
            claimed = await self._claim(ticket)
        finally:
            self._claiming.pop(execution_id, None)
        if ticket.stopped is not None:
            raise ticket.stopped
        if not claimed:
            raise EngineError(f"start {execution_id} got a slot, but is no longer in the queue")

    async def _claim(self, ticket: Ticket) -> bool:
        execution_id, pause = ticket.place.execution_id, FIRST_PAUSE
        while True:
            try:
                claimed = await self._store.claim(execution_id)
                # One that the store let go of unheard is not there any more, and nobody else's.
                return claimed is not None or ticket.unheard
            except StoreUnavailableError as error:
                ticket.unheard = True
                if ticket.stopped is not None:
                    raise
                log.warning("start %s waits for the queue's store: %s", execution_id, error)
            await self._clock.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def forget(self, ticket: Ticket) -> None:
        """Let the store forget a start that was refused; that it cannot is only logged."""
        try:
            await self._store.remove(ticket.place.execution_id)
        except Exception:
            log.exception("start %s stays in the queue's store", ticket.place.execution_id)

    def drop(self, ticket: Ticket) -> None:
        """Let go of a start that failed before it began, whether it waits or has a slot."""
        execution_id = ticket.place.execution_id
        if self._waiting.get(execution_id) is ticket:
            self._dequeue(ticket)
            ticket.granted.cancel()
        self._claiming.pop(execution_id, None)
        self.release(execution_id)

    def pending(self, execution_id: str) -> Ticket | None:
        """A start that has not begun, so that it can be withdrawn; None if there is none."""
        ticket = self._waiting.get(execution_id) or self._claiming.get(execution_id)
        return None if ticket is None or ticket.stopped else ticket

    async def withdraw(self, execution_id: str) -> bool:
        """Take back a start that has not begun; its run has ended CANCELLED when this returns.

        Returns:
            False if there is none.

        Raises:
            StoreUnavailableError: it cannot be taken out of the store; it goes on waiting.
        """
        error = ConflictError(
            f"run {execution_id} was stopped while it waited for a slot",
            code="execution_not_running",
            executionId=execution_id,
            status=str(TaskStatus.CANCELLED),
        )
        claiming = self._claiming.get(execution_id)
        if claiming is not None and not claiming.stopped:
            claiming.stopped = error
            claiming.refused(TaskStatus.CANCELLED, error)
            return True
        ticket = self._waiting.get(execution_id)
        if ticket is None:
            return False
        # Out of the line first, so that it gets no slot meanwhile.
        self._dequeue(ticket)
        try:
            await self._store.remove(execution_id)
        except BaseException:
            ticket.unheard = True
            if self._closed:
                ticket.refuse(TaskStatus.CANCELLED, _shutting_down())
            else:
                self._enqueue(ticket)
                self._fill()
            raise
        ticket.refuse(TaskStatus.CANCELLED, error)
        return True

    def check_waiting(self, execution_id: str) -> Ticket:
        """A start that waits.

        Raises:
            ConflictError: code `not_queued`: it does not.
        """
        ticket = self._waiting.get(execution_id)
        if ticket is None:
            raise ConflictError(
                f"run {execution_id} does not wait for a slot",
                code="not_queued",
                executionId=execution_id,
            )
        return ticket

    async def set_priority(self, execution_id: str, priority: float) -> bool:
        """Move a waiting start; how long it has waited goes on counting.

        Returns:
            False if it had that priority.

        Raises:
            ConflictError: code `not_queued`: it does not wait.
        """
        ticket = self.check_waiting(execution_id)
        if ticket.place.priority == priority:
            return False
        await self._store.set_priority(execution_id, priority)
        # It may have got a slot meanwhile.
        place = self.check_waiting(execution_id).place
        self._line.move(place, priority)
        self._generation += 1
        return True

    # -- limits

    def set_limits(self, total: int, per_workflow: int) -> bool:
        """Change how many slots there are; starts that fit now get theirs at once.

        Args:
            total: runs at the same time in all; 0 is no limit.
            per_workflow: the same for each workflow.

        Returns:
            False if that was so already.
        """
        caps = self._line.caps
        wanted = Caps(total=total, workflow=per_workflow, session=caps.session)
        if wanted == caps and self.source is Source.LOG:
            return False
        self.source = Source.LOG
        self._line.caps = wanted
        self._fill()
        self._say("scheduler.limits_changed", self.limits(), "", "")
        return True

    def limits(self) -> dict[str, Any]:
        """The limits in force and how far they are used."""
        caps = self._line.caps
        return {
            "maxConcurrent": caps.total,
            "perWorkflow": caps.workflow,
            "perSession": caps.session,
            "onLimit": str(self._group.on_limit),
            "queueCapacity": self._group.queue_capacity,
            "running": len(self._held),
            "queued": len(self._waiting),
            "source": str(self.source),
        }

    def outlook(self, session_id: str, workflow_id: str) -> Outlook:
        """What would become of a start now; nothing changes."""
        if self._closed:
            return Outlook.WOULD_REJECT
        if self._line.blocker(session_id, workflow_id) is None:
            return Outlook.WOULD_RUN
        refused = self._refusal(session_id, workflow_id) is not None
        return Outlook.WOULD_REJECT if refused else Outlook.WOULD_QUEUE

    # -- the end

    def close(self) -> None:
        """Admit nothing any more.

        What waits is refused, and its runs end CANCELLED; but a start whose id was handed out
        stays in a store that outlives the server, and waits there for the next one.
        """
        self._closed = True
        for ticket in tuple(self._waiting.values()):
            self._dequeue(ticket)
            if ticket.told and self._store.durable:
                ticket.granted.cancel()
                continue
            self._count("shutdown", ticket.place.session_id, ticket.place.workflow_id)
            ticket.refuse(TaskStatus.CANCELLED, _shutting_down())


def _shutting_down() -> UnavailableError:
    return UnavailableError("the server is shutting down", code="shutting_down")
