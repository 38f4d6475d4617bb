"""Runs below a run: one per message of a SUB_WORKFLOW node, alive only while the node waits for it.

Whoever starts runs implements `StartChild`; a run that is given none cannot have children. A child
is a run like any other. What binds it to its parent is here: depth, the cap on a whole family,
collecting its results, and passing on what is done to the parent.

Feature: ENG-07.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.errors import (
    BadInputError,
    NotFoundError,
    SubWorkflowDepthError,
    SubWorkflowError,
    ValidationError,
)
from yukta_rx.model.message import child_lineage, copy_payload
from yukta_rx.model.results import ResultType
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.weight import weigh
from yukta_rx.plugins.context import ChildResult
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from yukta_rx.config.run_settings import SubWorkflowGroup
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.run import Run
    from yukta_rx.model.message import Message
    from yukta_rx.model.results import ResultEvent
    from yukta_rx.plugins.context import RunChild

BEAT: Final = 0.25
"""Seconds between two looks at whether a child does anything, for a node with an idle limit."""


@dataclass(slots=True)
class Family:
    """A run that was started from outside, and all runs below it.

    Attributes:
        live: how many of those below are alive.
        lineage: that of the run that was started from outside; what plugins do once they do for it.
    """

    live: int = 0
    lineage: str = ""

    def of(self, lineage: str) -> Family:
        """The family of a run with this lineage; the first one to ask is that at its head."""
        self.lineage = self.lineage or lineage
        return self


@dataclass(frozen=True, slots=True)
class Descent:
    """Where a run stands in its family.

    Attributes:
        depth: 0 for a run that was started from outside.
        parent: execution id of the run that started it, None if none did.
        family: shared by all of them.
    """

    depth: int = 0
    parent: str | None = None
    family: Family = field(default_factory=Family)

    def about(self) -> dict[str, Any]:
        """Return what is shown of it with the run."""
        known = {} if self.parent is None else {"parentExecutionId": self.parent}
        return {"depth": self.depth, **known}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRequest:
    """What a parent wants to be run.

    Attributes:
        parent: the run that wants it.
        workflow_id: the workflow, of the parent's session.
        payload: the start payload; as an object it has `yukta.depth` and `yukta.parentExecutionId`.
        lineage: what the child's message ids derive from.
        descent: where the child stands.
        begins: to be told of the run before it is executed.
        collect: gets each result, besides whoever else does.
    """

    parent: Run
    workflow_id: str
    payload: Any
    lineage: str
    descent: Descent
    begins: Callable[[Run], None]
    collect: Callable[[ResultEvent], None]


class StartChild(Protocol):
    """Makes runs for parents."""

    async def __call__(self, request: ChildRequest) -> None:
        """Make a run and execute it to its end.

        Raises:
            NotFoundError: there is no such workflow.
            ValidationError: it, or a member of the payload, is refused.
        """


class _Child:
    """One child from the decision to start it to its end."""

    __slots__ = ("_bytes", "_limits", "_signs", "error", "excess", "held", "results", "run", "task")

    def __init__(self, limits: SubWorkflowGroup) -> None:
        self.run: Run | None = None
        self.task: asyncio.Task[None] | None = None
        self.error: Exception | None = None
        self.excess: str | None = None
        """What it gave that is not collected."""
        self.results: list[Any] = []
        self.held = False
        """Paused because its parent was."""
        self._limits = limits
        self._bytes = 0
        self._signs = 0.0

    def begins(self, run: Run) -> None:
        self.run = run
        if self.held:
            run.pause()

    def collect(self, event: ResultEvent) -> None:
        if event.type is not ResultType.RESULT or self.excess is not None:
            return
        try:
            # Whoever shows the child's own results holds them too.
            self.results.append(copy_payload(event.payload))
        except BadInputError:
            self._exceed("a result that is nested too deep to be copied")
            return
        self._bytes += weigh(event.payload)
        limits = self._limits
        if len(self.results) > limits.max_results:
            self._exceed(f"more than {limits.max_results} results (yukta.sub-workflow.max-results)")
        elif self._bytes > limits.max_result_bytes:
            shown = f"more than {int(limits.max_result_bytes)} bytes of results"
            self._exceed(f"{shown} (yukta.sub-workflow.max-result-bytes)")

    def _exceed(self, excess: str) -> None:
        self.excess = excess
        self.results.clear()
        # Later, because this is inside the emission of one of the run's nodes.
        asyncio.get_running_loop().call_soon(self.stop, StopMode.CANCEL)

    def stop(self, mode: StopMode) -> None:
        if self.run is not None:
            self.run.stop(mode)
        elif self.task is not None:
            self.task.cancel()

    def pause(self) -> None:
        if self.run is None or not self.run.paused:
            self.held = True
            if self.run is not None:
                self.run.pause()

    def resume(self) -> None:
        if self.held:
            self.held = False
            if self.run is not None:
                self.run.resume()

    def stirs(self) -> bool:
        """Whether it did anything since the last look, or need not because it is paused."""
        if self.run is None:
            return False
        signs, self._signs = self._signs, _signs_of_life(self.run)
        return signs != self._signs or _is_held(self.run)


class Children:
    """The children of one run.

    Attributes:
        descent: where the run itself stands.
    """

    __slots__ = ("_limits", "_live", "_start", "_tasks", "descent")

    def __init__(
        self, descent: Descent, start: StartChild | None, limits: SubWorkflowGroup
    ) -> None:
        self.descent = descent
        self._start = start
        self._limits = limits
        self._tasks: Tasks | None = None
        self._live: dict[_Child, None] = {}

    def runner(self, parent: Run, node: NodeRuntime) -> RunChild | None:
        """What a node of the run starts children with; None where nothing can."""
        return None if self._start is None else _Runner(self, self._start, parent, node)

    @property
    def runs(self) -> list[Run]:
        """Those that have begun and not ended."""
        return [child.run for child in self._live if child.run is not None]

    # -- one child

    async def run(
        self,
        start: StartChild,
        parent: Run,
        node: NodeRuntime,
        workflow_id: str,
        payload: Any,
        message: Message,
    ) -> ChildResult:
        """Run a workflow to its end for a message that a node is working on."""
        if node.context is None or node.context.cancelled:
            # A call that ignored its cancellation: nobody would wait for the child.
            raise SubWorkflowError(
                f"node {node.id} has ended and starts no more runs", code="sub_workflow_failed"
            )
        self._check_room()
        child = _Child(self._limits)
        request = self._request(child, parent, node, workflow_id, payload, message)
        child.task = self._spawn(child, start, request)
        try:
            await _ended(child, node)
        except asyncio.CancelledError:
            child.stop(StopMode.CANCEL)
            # A second cancellation leaves here; the parent waits for the child all the same.
            await asyncio.wait((child.task,))
            raise
        return _result(child, workflow_id)

    def _check_room(self) -> None:
        depth, deepest = self.descent.depth + 1, self._limits.max_depth
        if depth > deepest:
            raise SubWorkflowDepthError(
                f"a run at depth {depth} is not started: yukta.sub-workflow.max-depth is "
                f"{deepest}; does a workflow run itself?"
            )
        live, most = self.descent.family.live, self._limits.max_children
        if 0 < most <= live:
            raise SubWorkflowError(
                f"{live} runs are alive below the one that was started from outside, and "
                f"yukta.sub-workflow.max-children is {most}",
                code="sub_workflow_limit",
            )

    def _request(
        self,
        child: _Child,
        parent: Run,
        node: NodeRuntime,
        workflow_id: str,
        payload: Any,
        message: Message,
    ) -> ChildRequest:
        above = self.descent
        descent = Descent(above.depth + 1, parent.execution_id, above.family)
        payload = copy_payload(payload)
        if isinstance(payload, Mapping):
            own = {f"yukta.{name}": value for name, value in descent.about().items()}
            payload = {**payload, **own}
        return ChildRequest(
            parent=parent,
            workflow_id=workflow_id,
            payload=payload,
            lineage=child_lineage(message.id, node.id),
            descent=descent,
            begins=child.begins,
            collect=child.collect,
        )

    def _spawn(self, child: _Child, start: StartChild, request: ChildRequest) -> asyncio.Task[None]:
        async def work() -> None:
            try:
                await start(request)
            except Exception as error:
                child.error = error

        family = self.descent.family

        def gone(_task: asyncio.Task[None]) -> None:
            # Not in `work`, which a task that is cancelled at once never enters.
            self._live.pop(child, None)
            family.live -= 1

        if self._tasks is None:
            self._tasks = Tasks(asyncio.get_running_loop())
        task = self._tasks.spawn(work(), f"yukta child {request.workflow_id}")
        task.add_done_callback(gone)
        self._live[child] = None
        family.live += 1
        return task

    # -- what is done to the parent

    def pause(self) -> None:
        """Pause those that are not paused by a command of their own."""
        for child in self._live:
            child.pause()

    def resume(self) -> None:
        """Undo `pause`; what a command of its own paused stays paused."""
        for child in self._live:
            child.resume()

    def kill(self) -> None:
        """End all of them without waiting for calls."""
        for child in tuple(self._live):
            child.stop(StopMode.KILL)

    async def ended(self) -> None:
        """Wait until none is left."""
        if self._tasks is not None:
            await self._tasks.ended()


class _Runner:
    """What the plugin of one node starts runs with; there is one for each node of each run."""

    __slots__ = ("_children", "_node", "_parent", "_start")

    def __init__(
        self, children: Children, start: StartChild, parent: Run, node: NodeRuntime
    ) -> None:
        self._children = children
        self._start = start
        self._parent = parent
        self._node = node

    def __call__(self, workflow_id: str, payload: Any, message: Message) -> Awaitable[ChildResult]:
        return self._children.run(
            self._start, self._parent, self._node, workflow_id, payload, message
        )


def family(run: Run) -> Iterator[Run]:
    """Yield a run and all that are alive below it."""
    yield run
    for child in run.children.runs:
        yield from family(child)


async def _ended(child: _Child, node: NodeRuntime) -> None:
    """Wait for the end of a child; what it does counts as a sign of life of the node."""
    task, context = child.task, node.context
    assert task is not None
    timed = node.prepared.idle_timeout is not None or node.prepared.timeout_template is not None
    while not task.done():
        await asyncio.wait((task,), timeout=BEAT if timed else None)
        if context is not None and child.stirs():
            context.heartbeat()


def _result(child: _Child, workflow_id: str) -> ChildResult:
    run, error = child.run, child.error
    if error is not None:
        if isinstance(error, NotFoundError | ValidationError):
            raise BadInputError(f"workflow {workflow_id} cannot be run: {error}") from error
        raise error
    if run is None:
        raise SubWorkflowError(
            f"workflow {workflow_id} was cancelled before it began", code="sub_workflow_failed"
        )
    name = f"run {run.execution_id} of workflow {workflow_id}"
    if child.excess is not None:
        raise BadInputError(f"{name} gave {child.excess}")
    if run.status is TaskStatus.SUCCESS:
        return ChildResult(run.execution_id, child.results)
    # One that had a defect may not have got to its end.
    status = run.status if run.status.terminal else TaskStatus.ERROR
    reason = run.error or {}
    told = f"{name} ended {status}" + (f": {reason['detail']}" if reason else "")
    if reason.get("code") in SubWorkflowDepthError.codes:
        # The same at each level: trying again at every one of them would be a lot of runs.
        raise SubWorkflowDepthError(told)
    raise SubWorkflowError(
        told,
        code="sub_workflow_failed",
        childExecutionId=run.execution_id,
        childStatus=str(status),
    )


def _signs_of_life(run: Run) -> float:
    """A number that changes whenever a run, or one below it, does something."""
    total = sum(map(_signs_of_life, run.children.runs))
    for node in run.nodes.values():
        if node.stage is not None:
            total += node.stage.activity()
        if node.context is not None:
            total += node.context.last_beat
    return total


def _is_held(run: Run) -> bool:
    """Whether a command keeps a run, one of its nodes, or a run below it, from going on."""
    return any(node.paused for node in run.nodes.values()) or any(map(_is_held, run.children.runs))


__all__ = ["ChildRequest", "Children", "Descent", "Family", "StartChild", "family"]
