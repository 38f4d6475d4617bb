"""Starter: from a request to a live run, and the owner of every live run.

A start is planned (everything is looked up, checked and made ready), admitted (it has a slot, or
waits for one, or is refused), recorded, and made: a run that begins at once. Callers wait for that
and may go away; the start goes on.

Features: ADM-01, ADM-02, ENG-06, ENG-07.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.idempotency import IdempotencyWindow
from yukta_rx.control.live_runs import LiveRuns
from yukta_rx.control.outlets import Outlets
from yukta_rx.control.pending_start import PendingStart, Started, end_of
from yukta_rx.control.planner import Planner
from yukta_rx.control.run_maker import RunMaker
from yukta_rx.control.start_request import Plan, StartRequest
from yukta_rx.control.suspensions import Suspensions
from yukta_rx.engine.interrupt import interrupt, is_calm
from yukta_rx.engine.progress import new_counts
from yukta_rx.engine.run import Run
from yukta_rx.errors import EngineError, YuktaError
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from yukta_rx.config.settings import Settings
    from yukta_rx.control.approvals import Approvals
    from yukta_rx.control.history import History
    from yukta_rx.control.scheduler import Scheduler
    from yukta_rx.control.suspended import Suspended
    from yukta_rx.control.tickets import Ticket
    from yukta_rx.definitions.prepare import Preparer
    from yukta_rx.definitions.service import DefinitionService
    from yukta_rx.durability.archive import ExecutionArchive
    from yukta_rx.durability.stores.queued_starts import QueuedStart
    from yukta_rx.engine.sub_workflow import ChildRequest
    from yukta_rx.model.execution_log import IdempotencyKey
    from yukta_rx.plugins.keeping import Keeping
    from yukta_rx.security.secrets import SecretProvider
    from yukta_rx.streams.clock import LoopClock
    from yukta_rx.streams.pool import BlockingPool

CALM: Final = 0.05
"""Seconds between two looks whether the calls of paused runs have returned."""

log = logging.getLogger(__name__)


class Starter:
    """Starts runs and owns them until they end."""

    def __init__(
        self,
        *,
        settings: Settings,
        definitions: DefinitionService,
        preparer: Preparer,
        scheduler: Scheduler,
        outlets: Outlets,
        approvals: Approvals,
        pool: BlockingPool,
        clock: LoopClock,
        archive: ExecutionArchive,
        history: History,
        secrets: SecretProvider,
        keeping: Keeping,
    ) -> None:
        self._settings = settings
        self._planner = Planner(settings, definitions, preparer, pool)
        self.scheduler = scheduler
        self._outlets = outlets
        self.approvals = approvals
        self._clock = clock
        self.archive = archive
        self.history = history
        self._over: dict[str, asyncio.Event] = {}
        self._idempotency = IdempotencyWindow(settings, clock.now)
        self._loop = asyncio.get_running_loop()
        self._all_ended = asyncio.Event()
        self._tasks = Tasks(self._loop, self._all_ended.set)
        self._starting = 0
        self._none_starting = asyncio.Event()
        self._none_starting.set()
        self.refusal: Callable[[], YuktaError | None] = lambda: None
        """What every start is refused with for the moment; None if it may be admitted."""
        self.live = LiveRuns()
        """Runs that have not ended, by execution id; those that runs started are among them."""
        parts = {"pool": pool, "keeping": keeping, "secrets": secrets}
        self._maker = RunMaker(settings, outlets, archive, self.run_child, approvals.signals, parts)
        after = settings.execution.suspend_after.total_seconds()
        self.suspensions = Suspensions(
            after, self.live, self._maker, approvals.signals, clock, self
        )

    @property
    def roots(self) -> list[Run]:
        """Live runs that were started from outside; those below them borrow their slots."""
        return [run for run in self.live.values() if not run.borrowed]

    def in_use(self, session_id: str, workflow_id: str | None) -> bool:
        """Whether the session, or one workflow of it, has runs that go on or wait for a slot."""
        return bool(self.scheduler.waiting_ids(session_id, workflow_id)) or any(
            run.session_id == session_id and workflow_id in (None, run.workflow_id)
            for run in self.live.every()
        )

    async def start(self, request: StartRequest, patience: float | None = None) -> Started:
        """Start a run; the id is handed out once it has begun, or waits longer than that.

        A caller that is cancelled while the start waits for a slot leaves it waiting.

        Args:
            request: what to start.
            patience: seconds to wait for a slot; then the answer has status QUEUED. None waits
                for as long as it takes.

        Raises:
            NotFoundError: there is no such session or workflow.
            ValidationError: the workflow, the options or a payload member is refused.
            IdempotencyKeyReusedError: the key was used for another request.
            RejectedError: it does not fit the limits, or waited too long.
            ConflictError: it was stopped while it waited.
            UnavailableError: the server is shutting down.
        """
        if request.idempotency_key is None:
            return await (await self.admitted(request)).answer(patience)
        scope = (request.session_id, request.workflow_id, request.idempotency_key)
        pending: PendingStart
        pending, replayed = await self._idempotency.run(
            scope, request.body(), lambda: self.admitted(request, scope)
        )
        replayed = replayed or pending.repeated
        return replace(await pending.answer(patience), replayed=replayed)

    # -- the steps of a start

    async def admitted(
        self, request: StartRequest, scope: tuple[str, str, str] | None = None
    ) -> PendingStart:
        """Plan a start and let it in: its run has begun, or it waits for its slot; see `start`."""
        if (refusal := self.refusal()) is not None:
            raise refusal
        self.scheduler.check_open(request.session_id, request.workflow_id)
        self._starting += 1
        self._none_starting.clear()
        try:
            return await self._admit(await self._planner.plan(request), scope)
        finally:
            self._starting -= 1
            if not self._starting:
                self._none_starting.set()

    async def take_back(self, start: QueuedStart, request: StartRequest) -> None:
        """Let a start wait again that an earlier server stored; nobody here waits for it.

        Raises:
            YuktaError: it cannot be planned any more; it is still in the store.
        """
        execution_id = start.execution_id
        plan = await self._planner.plan(request, execution_id=execution_id)
        ticket = self.scheduler.readmit(
            start, lambda status, error: self._outlets.dismiss(execution_id, status, error)
        )
        ticket.told = True
        pending = PendingStart(
            execution_id,
            request.session_id,
            plan.prepared.version,
            self.scheduler,
            lambda _pending: self.history.release(execution_id),
        )
        self._announce(plan, ticket)
        self._let_wait(plan, ticket, pending)

    async def _admit(self, plan: Plan, scope: tuple[str, str, str] | None) -> PendingStart:
        asked, execution_id = plan.request, plan.execution_id
        announced = False

        def refused(status: TaskStatus, error: YuktaError) -> None:
            if announced:
                self._outlets.dismiss(execution_id, status, error)
            else:
                self.history.ended(execution_id, status, error)

        def forget(pending: PendingStart) -> None:
            if scope is not None:
                self._idempotency.forget(scope, pending)
                self.history.release(execution_id)

        ticket = self.scheduler.admit(
            execution_id,
            asked.session_id,
            asked.workflow_id,
            priority=asked.priority,
            refused=refused,
        )
        pending = PendingStart(
            execution_id, asked.session_id, plan.prepared.version, self.scheduler, forget
        )
        ticket.shown = False
        try:
            waits = ticket.waiting
            if not waits:
                await self._carry_over(plan)
            if (known := await self._record(plan, ticket)) is not None:
                self.scheduler.drop(ticket)
                return pending.repeat_of(known.execution_id)
            if not waits:
                # Nothing is awaited from here to where `live` has the run.
                self.scheduler.check_open(asked.session_id, asked.workflow_id)
                self._begin(self._make(plan), pending)
        except BaseException as error:
            self.scheduler.drop(ticket)
            self.history.ended(execution_id, end_of(error), error)
            self.history.release(execution_id)
            if asked.continuation is not None:
                self._spawn(self.archive.drop(execution_id), f"yukta forget {execution_id}")
            raise
        if not waits:
            # One turn of the loop, in which the run begins.
            await asyncio.sleep(0)
            return pending
        announced = self._announce(plan, ticket)
        self._let_wait(plan, ticket, pending)
        return pending

    async def _carry_over(self, plan: Plan) -> None:
        """Let the run begin with what is recorded of the one that it takes up."""
        taken_up = plan.request.continuation
        if taken_up is None or taken_up.source is None or not self.archive.durable:
            return
        await self.archive.carry_over(taken_up.source, plan.execution_id, taken_up.carried)
        await self.archive.leave_alone(plan.execution_id, taken_up.replay.alone)

    async def _record(self, plan: Plan, ticket: Ticket) -> IdempotencyKey | None:
        """Write down that the start was admitted, before anybody is told its id.

        The row of one that waits comes first, and means nothing without the start in the log: so
        one write of the log decides whether there is such a start, its key and its place.

        Returns:
            None; or the request's key that stands for an earlier run, and nothing was written.

        Raises:
            YuktaError: it cannot be written, or was refused meanwhile; there is no such start.
        """
        # It may get its slot meanwhile; what began to wait is stored all the same, and claimed.
        if not ticket.waiting:
            return await self.history.started(plan, self._settings.start.idempotency_ttl)
        try:
            await self.scheduler.store(ticket, plan.queued(ticket.queued_at))
            # Who was refused meanwhile has no start that could be given an end.
            ticket.check()
            known = await self.history.started(plan, self._settings.start.idempotency_ttl)
        except BaseException:
            self._spawn(self.scheduler.forget(ticket), f"yukta forget {plan.execution_id}")
            raise
        if known is not None:
            await self.scheduler.forget(ticket)
        return known

    def _announce(self, plan: Plan, ticket: Ticket) -> bool:
        """Let a run be seen that waits for its slot, or has it by now; False if it was refused."""
        waiting = self.scheduler.waiting(plan.execution_id)
        if waiting is None and not ticket.given:
            return False
        ticket.shown = True
        asked, execution_id = plan.request, plan.execution_id
        about = {**plan.about, "definitionVersion": plan.prepared.version}
        self._outlets.announce(execution_id, asked.session_id, asked.workflow_id, about)
        if waiting is not None:
            self._outlets.emit(
                ExecutionEvent(
                    type="execution.queued",
                    time=ticket.queued_at,
                    session_id=asked.session_id,
                    workflow_id=asked.workflow_id,
                    execution_id=execution_id,
                    data={"position": waiting.position, "reason": str(waiting.reason)},
                )
            )
        return True

    def _let_wait(self, plan: Plan, ticket: Ticket, pending: PendingStart) -> None:
        """Let a start wait; what is recorded of the run that it takes up stays meanwhile."""
        work, taken_up = self._begin_later(plan, ticket, pending), plan.request.continuation
        if taken_up is not None and taken_up.source is not None:
            work = self.archive.keeping(taken_up.source, work)
        self._spawn(work, f"yukta start {plan.execution_id}")

    async def _begin_later(self, plan: Plan, ticket: Ticket, pending: PendingStart) -> None:
        """Wait for the slot, then run to the end."""
        try:
            await ticket.granted
        except YuktaError as error:
            pending.failed(error)
            await self.scheduler.forget(ticket)
            return
        except asyncio.CancelledError:
            if not ticket.granted.cancelled():
                raise
            pending.left()
            return
        try:
            # Before it leaves the queue: until then the next server would do this again.
            await self._carry_over(plan)
            await self.scheduler.claim(ticket)
            self.scheduler.check_open(plan.request.session_id, plan.request.workflow_id)
            run = self._make(plan)
        except Exception as error:
            self.scheduler.release(plan.execution_id)
            self._fail_late(ticket, pending, error)
            return
        except BaseException:
            self.scheduler.release(plan.execution_id)
            raise
        pending.begun(str(TaskStatus.RUNNING))
        await self._execute(run)

    def _fail_late(self, ticket: Ticket, pending: PendingStart, error: Exception) -> None:
        """A start that waited and had its slot could not begin."""
        known = error if isinstance(error, YuktaError) else EngineError(f"{error!r}")
        if known is not error:
            about = log_fields(pending.execution_id)
            told = "start %s failed with a defect of the engine"
            log.exception(told, pending.execution_id, extra=about)
        ticket.refused(end_of(known), known)
        pending.failed(error)

    def begin(self, run: Run) -> None:
        """Let a run that is live execute."""
        self._spawn(self._execute(run), f"yukta run {run.execution_id}")

    def _begin(self, run: Run, pending: PendingStart) -> None:
        self.begin(run)
        pending.begun(str(TaskStatus.RUNNING))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._all_ended.clear()
        self._tasks.spawn(work, name)

    async def run_child(self, request: ChildRequest) -> None:
        """Run a workflow below another run, to its end; see `StartChild`.

        It takes no slot, and a shutdown leaves it to its parent, which may need it to drain.
        """
        parent = request.parent
        asked = StartRequest(
            session_id=parent.session_id,
            workflow_id=request.workflow_id,
            payload=request.payload,
            actor=parent.about["actor"],
            via="ENGINE",
            traceparent=parent.traceparent,
        )
        plan = await self._planner.plan(asked, request)
        try:
            await self.history.started(plan)
            run = self._make(plan)
        except BaseException as error:
            self.history.ended(plan.execution_id, end_of(error), error)
            raise
        request.begins(run)
        await self._execute(run)

    def _make(self, plan: Plan) -> Run:
        """Make a run and register it as live."""
        run = self._maker.make(plan)
        self._outlets.track(run)
        self.live[run.execution_id] = run
        self.suspensions.watch()
        return run

    async def _execute(self, run: Run) -> None:
        try:
            await run.execute()
        except Exception as error:
            about = log_fields(run.execution_id)
            log.exception("run %s ended with a defect of the engine", run.execution_id, extra=about)
            if not run.suspended:
                self._dismiss(run.execution_id, error)
        finally:
            if run.suspended:
                self.suspensions.closed(run)
            else:
                try:
                    nodes = {node.id: node.status for node in run.nodes.values()}
                    await self.archive.end(run.execution_id, run.status, nodes, run.ended_at)
                finally:
                    self._ended(run)

    def _dismiss(self, execution_id: str, error: Exception) -> None:
        defect = EngineError(f"a defect of the engine: {error!r}")
        self._outlets.dismiss(execution_id, TaskStatus.ERROR, defect)

    def lost(self, left: Suspended, error: Exception) -> None:
        """What is left of a run cannot be taken up: it is over."""
        execution_id = left.execution_id
        left.end()
        self._dismiss(execution_id, error)
        for node_id in left.plan.prepared.nodes:
            self.approvals.signals.withdraw(execution_id, node_id)
        self._let_go(left)
        wall = self._clock.wall()
        ended = self.archive.end(execution_id, TaskStatus.ERROR, left.statuses(), wall)
        self._spawn(ended, f"yukta end {execution_id}")

    def _ended(self, run: Run) -> None:
        """The run is over, however it came to that; its slot is free."""
        try:
            self.report(run)
        finally:
            del self.live[run.execution_id]
            self._let_go(run)

    def _let_go(self, run: Run | Suspended) -> None:
        self.approvals.ended(run)
        self.scheduler.release(run.execution_id)
        if (over := self._over.pop(run.execution_id, None)) is not None:
            over.set()

    async def ended(self, execution_id: str) -> None:
        """Wait until a run is not live, and its slot is free."""
        if execution_id in self.live:
            await self._over.setdefault(execution_id, asyncio.Event()).wait()

    def report_counts(self) -> None:
        """Pass on what the plugins of live runs counted; the end of a run does so by itself."""
        for run in self.live.values():
            self.report(run)

    def report(self, run: Run) -> None:
        """Pass on what the plugins of a run counted."""
        for plugin, outcome, n in new_counts(run.nodes.values()):
            self._outlets.count(plugin, outcome, n)

    async def shutdown(self, grace: float) -> None:
        """Refuse what would start or waits, and bring live runs to an end within `grace` seconds.

        What has not ended by then is cancelled or, where its record outlives the server,
        interrupted, so that it can be resumed. With `yukta.restart.auto-resume` the next server
        goes on anyway, so runs are not drained, but paused until their calls have returned.
        """
        self.scheduler.close()
        durable = self.archive.durable
        resumed = durable and self._settings.restart.auto_resume
        self.suspensions.close()
        # What is taken up from now on ends like the others.
        steer = self.suspensions.steer = Run.pause if resumed else Run.stop
        for run in self.roots:
            steer(run)
        try:
            async with asyncio.timeout(grace):
                await self._none_starting.wait()
                while self._tasks and not (resumed and all(map(is_calm, self.roots))):
                    await self._ended_or_calm(CALM if resumed else None)
        except TimeoutError:
            told = "interrupting" if durable else "cancelling"
            log.warning("%s %d runs that did not end in time", told, len(self.roots))
        await self.cut_off(interrupt if durable else partial(Run.stop, mode=StopMode.CANCEL))
        if self._tasks:
            await self._all_ended.wait()

    async def cut_off(self, end: Callable[[Run], object]) -> None:
        """End each run from outside at once with `end`; what durable ones wait for stays open."""

        def cut(run: Run) -> None:
            if self.archive.durable:
                self.approvals.signals.keep_open(run.execution_id)
            end(run)

        # A command that comes meanwhile may take one up too.
        self.suspensions.steer = cut
        for run in self.roots:
            cut(run)
        await self.suspensions.take_up_all()

    async def _ended_or_calm(self, seconds: float | None) -> None:
        """Wait until every run has ended, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._all_ended.wait()
        except TimeoutError:
            return


__all__ = ["Outlets", "Plan", "StartRequest", "Started", "Starter"]
