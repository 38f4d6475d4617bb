"""Starter: from a request to a live run, and the owner of every live run.

Features: ADM-02, ENG-06, ENG-07.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError as PydanticError

from yukta_rx.control.idempotency import IdempotencyWindow
from yukta_rx.definitions.parse import fault_of
from yukta_rx.engine.progress import new_counts
from yukta_rx.engine.run import Run
from yukta_rx.engine.sub_workflow import Descent
from yukta_rx.errors import Fault, UnavailableError, ValidationError
from yukta_rx.model.workflow import RunOptions
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import Preparer
    from yukta_rx.definitions.service import DefinitionService
    from yukta_rx.engine.sub_workflow import ChildRequest
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.results import ResultEvent
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.streams.clock import LoopClock
    from yukta_rx.streams.pool import BlockingPool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What is asked for.

    Attributes:
        session_id: the session of the workflow.
        workflow_id: the workflow.
        payload: the start payload; members `yukta.*` are the engine's own.
        labels: shown with the run.
        step_mode: begin paused.
        options: override the document's `options`.
        idempotency_key: repeats with the same key get the first run.
        actor: who asks.
        via: REST, MCP, CLI, SUPERVISOR or ENGINE.
    """

    session_id: str
    workflow_id: str
    payload: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)
    step_mode: bool = False
    options: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    actor: str = "anonymous"
    via: str = "REST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run that was started, or found by its idempotency key."""

    execution_id: str
    session_id: str
    status: str
    definition_version: str
    replayed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The body of the answer to a start."""
        run = f"/api/executions/{self.execution_id}"
        results = f"/api/sessions/{self.session_id}/executions/{self.execution_id}/results"
        return {
            "executionId": self.execution_id,
            "status": self.status,
            "definitionVersion": self.definition_version,
            "links": {
                "self": run,
                "progress": f"{run}/progress",
                "results": results,
                "logs": f"{run}/logs",
                "stop": f"{run}/stop",
            },
        }


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where a new run says what happens: made by the one who keeps track of runs.

    Attributes:
        track: told of a run before it starts.
        emit: gets its events.
        publish: gives the function that gets its results.
        abandon: told of a run that ended without saying so, and why.
        count: told what plugins counted: node type, outcome, how many.
    """

    track: Callable[[Run], None]
    emit: Callable[[ExecutionEvent], None]
    publish: Callable[[Run], Callable[[ResultEvent], None]]
    abandon: Callable[[str, str], None]
    count: Callable[[str, str, int], None]


class Starter:
    """Starts runs and owns them until they end."""

    def __init__(
        self,
        *,
        settings: Settings,
        definitions: DefinitionService,
        preparer: Preparer,
        outlets: Outlets,
        pool: BlockingPool,
        clock: LoopClock,
    ) -> None:
        self._settings = settings
        self._definitions = definitions
        self._preparer = preparer
        self._outlets = outlets
        self._pool = pool
        self._clock = clock
        self._idempotency = IdempotencyWindow(settings, clock.now)
        self._loop = asyncio.get_running_loop()
        self._all_ended = asyncio.Event()
        self._tasks = Tasks(self._loop, self._all_ended.set)
        self._closing = False
        self._starting = 0
        self._none_starting = asyncio.Event()
        self._none_starting.set()
        self.live: dict[str, Run] = {}
        """Runs that have not ended, by execution id; those that runs started are among them."""

    @property
    def roots(self) -> list[Run]:
        """Live runs that were started from outside; those below them borrow their slots."""
        return [run for run in self.live.values() if not run.borrowed]

    def in_use(self, session_id: str, workflow_id: str | None) -> bool:
        """Whether the session, or one workflow of it, has live runs."""
        return any(
            run.session_id == session_id and workflow_id in (None, run.workflow_id)
            for run in self.live.values()
        )

    async def start(self, request: StartRequest) -> Started:
        """Start a run; the id is handed out once it has begun.

        Raises:
            NotFoundError: there is no such session or workflow.
            ValidationError: the workflow, the options or a payload member is refused.
            IdempotencyKeyReusedError: the key was used for another request.
            UnavailableError: the server is shutting down.
        """
        if request.idempotency_key is None:
            return await self._start(request)
        body = {
            "payload": request.payload,
            "labels": dict(request.labels),
            "stepMode": request.step_mode,
            "options": None if request.options is None else dict(request.options),
        }
        scope = (request.session_id, request.workflow_id, request.idempotency_key)
        started: Started
        started, replayed = await self._idempotency.run(scope, body, lambda: self._start(request))
        return replace(started, replayed=replayed)

    def _check_open(self) -> None:
        if self._closing:
            raise UnavailableError("the server is shutting down", code="shutting_down")

    async def _start(self, request: StartRequest) -> Started:
        self._check_open()
        self._starting += 1
        self._none_starting.clear()
        try:
            return await self._begin(request)
        finally:
            self._starting -= 1
            if not self._starting:
                self._none_starting.set()

    async def _begin(self, request: StartRequest) -> Started:
        run = await self._make(request)
        self._all_ended.clear()
        self._tasks.spawn(self._execute(run), f"yukta run {run.execution_id}")
        # One turn of the loop, in which the run begins.
        await asyncio.sleep(0)
        return Started(
            execution_id=run.execution_id,
            session_id=run.session_id,
            status=str(run.status),
            definition_version=run.prepared.version,
        )

    async def run_child(self, request: ChildRequest) -> None:
        """Run a workflow below another run, to its end; see `StartChild`.

        It takes no slot, and a shutdown leaves it to its parent, which may need it to drain.
        """
        parent = request.parent
        run = await self._make(
            StartRequest(
                session_id=parent.session_id,
                workflow_id=request.workflow_id,
                payload=request.payload,
                actor=parent.about["actor"],
                via="ENGINE",
            ),
            request,
        )
        request.begins(run)
        await self._execute(run)

    async def _make(self, request: StartRequest, child: ChildRequest | None = None) -> Run:
        """Make a run and register it as live; nothing is awaited after that."""
        _check_request(request)
        session = await self._definitions.session_record(request.session_id)
        record = await self._definitions.get(request.session_id, request.workflow_id)
        base_dir = record.base_dir or self._definitions.base_dir
        prepared = await self._preparer.prepare(record.definition, base_dir)
        # Nothing is awaited from here to where `live` has the run, so a shutdown sees it.
        if child is None:
            self._check_open()
        descent = Descent() if child is None else child.descent
        about = {"actor": request.actor, "via": request.via, "labels": dict(request.labels)}
        listeners = [] if child is None else [child.collect]

        def publish(result: ResultEvent) -> None:
            for listener in listeners:
                listener(result)

        run = Run(
            prepared,
            payload=request.payload,
            settings=self._settings,
            emit=self._outlets.emit,
            publish=publish,
            session_id=request.session_id,
            lineage=None if child is None else child.lineage,
            base_dir=base_dir,
            timeout=session.config.execution_timeout,
            options=_options_of(record.definition, request),
            step_mode=request.step_mode,
            about={**about, **descent.about()},
            pool=self._pool,
            start_child=self.run_child,
            descent=descent,
        )
        listeners.append(self._outlets.publish(run))
        self.live[run.execution_id] = run
        self._outlets.track(run)
        return run

    async def _execute(self, run: Run) -> None:
        try:
            await run.execute()
        except Exception as error:
            log.exception("run %s ended with a defect of the engine", run.execution_id)
            self._outlets.abandon(run.execution_id, f"a defect of the engine: {error!r}")
        finally:
            self._report(run)
            del self.live[run.execution_id]

    def report_counts(self) -> None:
        """Pass on what the plugins of live runs counted; the end of a run does so by itself."""
        for run in self.live.values():
            self._report(run)

    def _report(self, run: Run) -> None:
        for plugin, outcome, n in new_counts(run.nodes.values()):
            self._outlets.count(plugin, outcome, n)

    async def shutdown(self, grace: float) -> None:
        """Refuse what would start, wait for the live runs `grace` seconds, then cancel them."""
        self._closing = True
        for run in self.roots:
            run.stop(StopMode.DRAIN)
        try:
            async with asyncio.timeout(grace):
                await self._none_starting.wait()
                if self.live:
                    await self._all_ended.wait()
        except TimeoutError:
            late = self.roots
            log.warning("cancelling %d runs that did not drain in time", len(late))
            for run in late:
                run.stop(StopMode.CANCEL)
            if self.live:
                await self._all_ended.wait()


def _check_request(request: StartRequest) -> None:
    faults: list[Fault] = []
    if request.options:
        try:
            options = RunOptions.model_validate(dict(request.options))
        except PydanticError as error:
            found = (fault_of(dict(request.options), item) for item in error.errors())
            faults += [Fault(f"/options{item.pointer}", item.code, item.detail) for item in found]
        else:
            if options.lossless:
                detail = "this version does not check that nothing is lost"
                faults.append(Fault("/options/lossless", "not_supported", detail))
    if isinstance(request.payload, Mapping):
        priority = request.payload.get("yukta.priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, int | float):
            detail = "must be a number, higher first"
            faults.append(Fault("/payload/yukta.priority", "invalid_value", detail))
        if "yukta.version" in request.payload:
            detail = "this version keeps only the current form of a workflow"
            faults.append(Fault("/payload/yukta.version", "not_supported", detail))
    if faults:
        raise ValidationError(faults)


def _options_of(definition: WorkflowDefinition, request: StartRequest) -> RunOptions:
    """The definition's options, each overridden by what the request says."""
    own = definition.options.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return RunOptions.model_validate({**own, **(request.options or {})})
