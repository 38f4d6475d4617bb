"""Engine: the whole system without a server, as one async context; joins all rooms.

The only module that names concrete classes of several rooms. Nothing here is global: two engines
live side by side in one process. An engine installs no signal handlers and no logging.

Feature: OV-15.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.config.settings import Settings
from yukta_rx.control.approvals import Approvals
from yukta_rx.control.audit import AuditTrail
from yukta_rx.control.bus import PluginBus
from yukta_rx.control.commands.limits import restore_limits
from yukta_rx.control.commands.restart import Recover
from yukta_rx.control.desk import Desk
from yukta_rx.control.discovery import Found, discover
from yukta_rx.control.gateway import ControlGateway
from yukta_rx.control.handles import Execution, NodeHandle
from yukta_rx.control.history import History
from yukta_rx.control.idempotency import IdempotencyWindow
from yukta_rx.control.leadership import Leadership
from yukta_rx.control.reopening import Reopening
from yukta_rx.control.restart import Restarts
from yukta_rx.control.resume import Resumes
from yukta_rx.control.reviewers import Reviewers
from yukta_rx.control.scheduler import Scheduler
from yukta_rx.control.seat import Floor
from yukta_rx.control.sequencer import Sequencer
from yukta_rx.control.starter import Outlets, Starter, StartRequest
from yukta_rx.control.stepping_down import SteppingDown
from yukta_rx.control.supervisors import SupervisorHost
from yukta_rx.definitions.prepare import Preparer
from yukta_rx.definitions.service import DefinitionService
from yukta_rx.durability.archive import ExecutionArchive
from yukta_rx.durability.open import Stores, check_settings, open_stores
from yukta_rx.engine.watchdog import Watchdog
from yukta_rx.errors import NotFoundError, UnavailableError, YuktaError
from yukta_rx.metrics import Meters
from yukta_rx.model.workflow import WorkflowDefinition
from yukta_rx.observe.event_log import EventLog
from yukta_rx.observe.feed import EventFeed
from yukta_rx.observe.logs import LogStore
from yukta_rx.observe.progress import ProgressHistory
from yukta_rx.observe.readiness import Readiness
from yukta_rx.observe.result_recorder import ResultRecorder
from yukta_rx.observe.results import ResultStore
from yukta_rx.observe.tracker import Tracker
from yukta_rx.plugins.keeping import Keeping
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.security.masking import Masker
from yukta_rx.security.secrets import EnvironmentSecrets
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.flow import Flow, from_async_iterable
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from datetime import datetime

    from yukta_rx.control.reviewers import ControlReviewer
    from yukta_rx.control.suspended import Suspended
    from yukta_rx.engine.run import Run
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.results import ResultEvent
    from yukta_rx.model.status import TaskStatus

log = logging.getLogger(__name__)

TAP: Final = 10_000
"""Events that wait for a slow listener inside the process; beyond it the oldest are dropped."""


class Engine:
    """Everything but the server.

    Use it as `async with Engine(settings, plugins=[...]) as engine`. Belongs to the loop that
    entered it.

    Args:
        settings: the settings in force; the defaults if None.
        plugins: node types beside the built-in and installed ones.
        registry: the node types, where they were loaded before.
        reviewers: policies that look at every command, beside the installed ones.
        supervisors: programs that steer runs, beside the installed ones and the rules of
            `yukta.supervisor.rules.file`: instances, classes or functions.

    Raises:
        ConfigError: two plugins have one type, or settings that this version cannot honour; when
            it is entered, also a supervisor, reviewer or rule that cannot be.
    """

    settings: Settings
    stores: Stores
    masker: Masker
    registry: PluginRegistry
    definitions: DefinitionService
    tracker: Tracker
    feed: EventFeed
    results: ResultStore
    logs: LogStore
    progress: ProgressHistory
    gateway: ControlGateway
    sequencer: Sequencer
    approvals: Approvals
    keeping: Keeping
    bus: PluginBus
    supervisors: SupervisorHost
    history: History
    meters: Meters
    readiness: Readiness
    started_at: datetime
    instance_id: str

    def __init__(
        self,
        settings: Settings | None = None,
        plugins: Iterable[Any] = (),
        *,
        registry: PluginRegistry | None = None,
        reviewers: Iterable[ControlReviewer] = (),
        supervisors: Iterable[Any] = (),
    ) -> None:
        self.settings = settings or Settings()
        self.masker = Masker.of(self.settings)
        self._reviewers = tuple(reviewers)
        self._supervisors = tuple(supervisors)
        for warning in check_settings(self.settings):
            log.warning("%s", warning)
        self.registry = registry or PluginRegistry.load(self.settings, extra=plugins)
        self.instance_id = self.settings.ha.instance_id or uuid.uuid4().hex[:12]
        self.leadership = Leadership()
        self.ready = False
        self.readiness = Readiness()
        self._taps: set[_Tap] = set()
        self._dropped = 0
        self._stack = AsyncExitStack()

    # -- life

    async def __aenter__(self) -> Self:
        """Build the rooms and start what runs in the background; see `open`."""
        await self.open()
        return self

    async def open(self) -> None:
        """Do what entering it does; `close` is what leaving it does.

        Raises:
            StoreUnavailableError: a store cannot be used, or another server has its folder.
        """
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _open(self) -> None:
        settings = self.settings
        clock = LoopClock(asyncio.get_running_loop())
        self.started_at = clock.wall()
        self.meters = Meters()
        pool = BlockingPool(settings.execution.blocking_threads)
        self._stack.callback(pool.close)
        found = await pool.call(discover, settings)
        opened = open_stores(settings, pool.call, self.meters, self.instance_id)
        self.stores = await self._stack.enter_async_context(opened)
        self._stack.push_async_callback(self.readiness.close)
        for name, check in self.stores.checks.items():
            self.readiness.watch(name, check)
        self.readiness.check("postgres", self.stores.leading.why_not)
        await self._observe(clock)
        starter = self._starter = await self._admit(clock, pool)
        self.meters.watch("yukta.executions.suspended", lambda: len(starter.live.suspended))
        self._control(clock, starter, found)
        await self.tracker.start()
        self._stack.push_async_callback(self.tracker.stop)
        limit = settings.watchdog.limit.total_seconds()
        watchdog = Watchdog(limit, starter.live.values, self.meters)
        await self._stack.enter_async_context(watchdog)
        self._supervise(clock, found)
        await self._reopen(clock, starter)
        self.ready = True
        self.readiness.started()
        if settings.restart.auto_resume:
            self._reopening.resume(
                lambda name: self.gateway.command(Recover(name), actor="engine", via="ENGINE")
            )

    async def _observe(self, clock: LoopClock) -> None:
        """What is known of runs."""
        settings, stores = self.settings, self.stores
        recorder = log = None
        if stores.results.durable:
            made = ResultRecorder(stores.results, clock, settings, self.meters, stores.linger)
            recorder = await self._stack.enter_async_context(made)
            self.readiness.check("results", recorder.fault)
        if stores.events.durable:
            begun = EventLog(stores.events, clock, settings, self.meters, stores.linger)
            log = await self._stack.enter_async_context(begun)
            self.readiness.check("events", log.fault)
        self.feed = EventFeed(clock, settings=settings, meters=self.meters, log=log)
        self.results = ResultStore(settings, clock, recorder)
        self.logs = LogStore(settings, clock)
        self.progress = ProgressHistory(settings, clock)
        self.tracker = Tracker(
            settings,
            clock,
            feed=self.feed,
            results=self.results,
            logs=self.logs,
            progress=self.progress,
            meters=self.meters,
        )

    async def _admit(self, clock: LoopClock, pool: BlockingPool) -> Starter:
        """What starts runs."""
        settings, stores = self.settings, self.stores
        history = History(stores.execution_log, clock, self.meters, stores.linger)
        self.history = await self._stack.enter_async_context(history)
        self.readiness.check("execution-log", history.fault)
        if self.results.recorder is not None:
            history.before_end = self.results.recorder.written
        self.history.on_left_out = self.tracker.losses.left_out
        preparer = Preparer(self.registry, settings, offload=pool.call, meters=self.meters)
        keeping = self._keep(clock)
        self.definitions = DefinitionService(
            stores.definitions,
            stores.sessions,
            self.registry,
            settings,
            preparer,
            base_dir=settings.data.dir,
            offload=pool.call,
            in_use=lambda session_id, workflow_id: starter.in_use(session_id, workflow_id),
            now=clock.wall,
            emit=self._emit,
            going=keeping.drop_session,
        )
        scheduler = Scheduler(settings, clock, stores.queued_starts, self.meters, self._emit)
        await restore_limits(scheduler, stores.execution_log)
        self.approvals = Approvals(stores.input_requests, settings, clock)
        self._stack.push_async_callback(self.approvals.close)
        secrets = EnvironmentSecrets(masker=self.masker)
        secrets.mask_all()
        archive = ExecutionArchive(
            stores.archive, stores.checkpoints, settings, self.meters, keeping.forget
        )
        archive.referring = self.results.waiting
        starter = Starter(
            settings=settings,
            definitions=self.definitions,
            preparer=preparer,
            scheduler=scheduler,
            approvals=self.approvals,
            outlets=self._outlets(),
            pool=pool,
            clock=clock,
            archive=await self._stack.enter_async_context(archive),
            history=self.history,
            secrets=secrets,
            keeping=keeping,
        )
        self._restarts = Restarts(starter, archive, self.definitions, preparer)
        self._resumes = Resumes(
            starter,
            archive,
            self.definitions,
            preparer,
            stores.execution_log,
            clock,
            self._emit,
        )
        self._restarts.resumes = self._resumes
        self.meters.before_scrape.append(starter.report_counts)
        return starter

    def _outlets(self) -> Outlets:
        """Where runs say what they do."""
        return Outlets(
            announce=self.tracker.announce,
            track=self.tracker.track,
            emit=self._emit,
            publish=self._publisher,
            dismiss=self._dismiss,
            count=self._counted,
            swap=self.tracker.swap,
        )

    def _keep(self, clock: LoopClock) -> Keeping:
        """What plugins leave behind."""
        stores, ttl = self.stores, self.settings.session_memory.ttl
        self.keeping = Keeping(stores.effects, stores.key_values, stores.histories, clock, ttl=ttl)
        self._stack.push_async_callback(self.keeping.close)
        self.keeping.start(self.meters)
        return self.keeping

    def _control(self, clock: LoopClock, starter: Starter, found: Found) -> None:
        """The pipeline of commands."""
        settings, control = self.settings, self.settings.control
        desk = Desk(starter, self.tracker, starter.scheduler, self._restarts, self._resumes)
        self.bus = PluginBus(desk)
        trail = AuditTrail(self._emit, clock.wall, control.audit_rows, self.masker.mask_json)
        reviewers = (*self._reviewers, *found.reviewers)
        self.sequencer = Sequencer(
            settings,
            clock,
            desk,
            trail,
            Reviewers(reviewers, control.review_timeout.total_seconds()),
            IdempotencyWindow(settings, clock.now),
        )
        self._stack.push_async_callback(self.sequencer.close)
        self.gateway = ControlGateway(starter, self.sequencer, self.tracker, trail, self._resumes)

    def _supervise(self, clock: LoopClock, found: Found) -> None:
        floor = Floor(self.settings, clock, self.feed, self.gateway, self._emit, self.meters)
        self.supervisors = SupervisorHost(floor, lambda: self.sequencer.reviewers)
        self._stack.push_async_callback(self.supervisors.close)
        self.supervisors.start((*self._supervisors, *found.supervisors), found.broken)

    async def _reopen(self, clock: LoopClock, starter: Starter) -> None:
        """Put in order what an earlier server left in the stores."""
        self._reopening = Reopening(
            events=self.stores.execution_log,
            queue=self.stores.queued_starts,
            starter=starter,
            restarts=self._restarts,
            resumes=self._resumes,
            definitions=self.definitions,
            tracker=self.tracker,
            results=self.results,
            clock=clock,
        )
        self._stack.push_async_callback(self._reopening.close)
        self.history.on_start = self._resumes.begun
        self.history.on_end = self._reopening.ended
        await self._reopening.run()
        stepping = SteppingDown(self.stores.leading, self.leadership, starter, self._reopening)
        self._stack.push_async_callback(stepping.close)

    async def __aexit__(self, *exc: object) -> None:
        """Stop what runs, then the background, in this order."""
        await self.close()

    async def close(self) -> None:
        """Let live runs finish within `yukta.execution.shutdown-timeout`, then stop. Once."""
        if not self.ready:
            return
        self.ready = False
        await self._reopening.close()
        await self._starter.shutdown(self.settings.execution.shutdown_timeout.total_seconds())
        await self.tracker.drained()
        self.feed.close("shutdown")
        for tap in tuple(self._taps):
            tap.close()
        await self._stack.aclose()

    # -- what runs say

    def _emit(self, event: ExecutionEvent) -> None:
        self.tracker.emit(event)
        self.history.emit(event)
        for tap in self._taps:
            tap.put(event)

    def _dismiss(self, execution_id: str, status: TaskStatus, error: YuktaError) -> None:
        self.tracker.dismiss(execution_id, status, error)
        self.history.ended(execution_id, status, error)

    def _counted(self, plugin: str, outcome: str, n: int) -> None:
        self.meters.counter("yukta.plugin.events", plugin=plugin, outcome=outcome).add(n)

    def _publisher(self, run: Run | Suspended) -> Callable[[ResultEvent], None]:
        ids, parent = (run.execution_id, run.session_id), run.about.get("parentExecutionId")
        return self.results.channel(*ids, run.hold, parent).publish

    @property
    def events(self) -> Flow[ExecutionEvent]:
        """Every event from the moment of subscription on, as an Observable.

        A listener that falls behind by more than 10,000 events loses the oldest; the server's
        feed, which resumes by id, loses none that it still keeps.
        """
        return from_async_iterable(lambda: self.listen(None), name="events")

    async def listen(self, execution_id: str | None) -> AsyncIterator[ExecutionEvent]:
        """The events of one run, or of all, from now on; see `events`."""
        tap = _Tap(execution_id)
        self._taps.add(tap)
        try:
            async for event in tap:
                yield event
        finally:
            self._taps.discard(tap)

    # -- starting

    async def start(
        self,
        session_id: str,
        workflow: WorkflowDefinition | Mapping[str, Any] | str,
        payload: Any = None,
        *,
        step_mode: bool = False,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        patience: float | None = None,
    ) -> Execution:
        """Start a run; who is cancelled while it waits for a slot leaves it waiting.

        Args:
            session_id: made if it does not exist.
            workflow: a definition, which is saved in the session first, or the id of one.
            payload: the start payload.
            step_mode: begin paused.
            labels: shown with the run.
            idempotency_key: repeats with the same key get the first run.
            patience: seconds to wait for a slot before it is returned QUEUED; None is no limit.

        Raises:
            DefinitionError: the definition is refused.
            NotFoundError: there is no workflow of that id.
            RejectedError: it does not fit the limits.
            UnavailableError: the engine is closed, or was not entered.
        """
        if not self.ready:
            raise UnavailableError("the engine is not open", code="shutting_down")
        workflow_id = (
            workflow if isinstance(workflow, str) else await self._save(session_id, workflow)
        )
        started = await self.gateway.start(
            StartRequest(
                session_id=session_id,
                workflow_id=workflow_id,
                payload=payload,
                step_mode=step_mode,
                labels=labels or {},
                idempotency_key=idempotency_key,
                actor="embedded",
                via="ENGINE",
            ),
            patience,
        )
        return Execution(self, started.execution_id)

    async def _save(self, session_id: str, workflow: WorkflowDefinition | Mapping[str, Any]) -> str:
        try:
            await self.definitions.get_session(session_id)
        except NotFoundError:
            await self.definitions.apply_session({"sessionId": session_id})
        document = (
            workflow.as_document() if isinstance(workflow, WorkflowDefinition) else dict(workflow)
        )
        saved = await self.definitions.save(
            session_id, str(document.get("workflowId", "")), document, actor="embedded"
        )
        return saved.record.workflow_id


class _Tap:
    """Events for one listener in this process, as an async iterator."""

    def __init__(self, execution_id: str | None) -> None:
        self._execution_id = execution_id
        self._waiting: deque[ExecutionEvent] = deque(maxlen=TAP)
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, event: ExecutionEvent) -> None:
        if self._execution_id in (None, event.execution_id):
            self._waiting.append(event)
            self._changed.set()

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> _Tap:
        return self

    async def __anext__(self) -> ExecutionEvent:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft()


__all__ = ["Engine", "Execution", "NodeHandle", "check_settings"]
