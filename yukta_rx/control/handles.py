"""Handles on runs and nodes, for programs that embed the engine. Features: CTL-02, OV-15."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from yukta_rx.control.commands import (
    ClearBreakpoint,
    DropHeld,
    EditHeld,
    PauseNode,
    PauseWorkflow,
    ReleaseHeld,
    RestartFromNode,
    RestartWorkflow,
    ResumeNode,
    ResumeWorkflow,
    RetryNode,
    SetBreakpoint,
    SignalNode,
    SkipNode,
    StepNode,
    StepWorkflow,
    StopNode,
    StopWorkflow,
    UnskipNode,
)
from yukta_rx.errors import ConflictError, CursorExpiredError
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from yukta_rx.control.commands import Command, CommandResult
    from yukta_rx.control.gateway import ControlGateway
    from yukta_rx.control.queries import RunQueries
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.results import ResultEvent
    from yukta_rx.observe.journal import Gap
    from yukta_rx.observe.results import ResultStore


class BreakpointHandle:
    """The breakpoints of one node of a run, and the message that one holds.

    Args:
        queries: reads of runs.
        send: gives a command.
        execution_id: the run.
        node_id: the node.
    """

    def __init__(
        self,
        queries: RunQueries,
        send: Callable[[Command], Awaitable[CommandResult]],
        execution_id: str,
        node_id: str,
    ) -> None:
        self._queries = queries
        self._send = send
        self._ids = {"execution_id": execution_id, "node_id": node_id}

    async def set_breakpoint(
        self, expression: str | None = None, equals: str | None = None, **more: Any
    ) -> CommandResult:
        """Hold the node before messages; `more` is `op`, `value` or `when`, see `Breakpoint`."""
        return await self._send(
            SetBreakpoint(**self._ids, expression=expression, equals=equals, **more)
        )

    async def clear_breakpoint(self) -> CommandResult:
        """Clear the breakpoints of the node."""
        return await self._send(ClearBreakpoint(**self._ids))

    @property
    def breakpoints(self) -> list[dict[str, Any]]:
        """The breakpoints of the node, with what each has held."""
        return self._queries.breakpoints(**self._ids)

    @property
    def held(self) -> dict[str, Any]:
        """The message that a breakpoint holds: `{id, payload, headers, since}`.

        In a run whose large payloads are kept apart, what stands for one is a `Claim`: use
        `fetch_held`.

        Raises:
            NotFoundError: it holds none.
        """
        return self._queries.held_message(**self._ids)

    async def fetch_held(self) -> dict[str, Any]:
        """As `held`, with the payload in any case, of its own.

        Raises:
            NotFoundError: it holds none.
            StoreUnavailableError: the payload cannot be read; names the blob.
        """
        return await self._queries.fetch_held_message(**self._ids)

    async def release_held(self) -> CommandResult:
        """Let the held message through; ConflictError if there is none."""
        return await self._send(ReleaseHeld(**self._ids))

    async def drop_held(self) -> CommandResult:
        """Discard the held message; ConflictError if there is none."""
        return await self._send(DropHeld(**self._ids))

    async def edit_held(self, payload: Any) -> CommandResult:
        """Give the held message another payload; ConflictError if there is none."""
        return await self._send(EditHeld(**self._ids, payload=payload))


class Home(Protocol):
    """The engine, as far as handles need it."""

    gateway: ControlGateway
    results: ResultStore

    def listen(self, execution_id: str | None) -> AsyncIterator[ExecutionEvent]:
        """The events of one run from now on."""


class Execution:
    """A handle on one run, for programs that embed the engine."""

    def __init__(self, engine: Home, execution_id: str) -> None:
        self._engine = engine
        self.execution_id = execution_id

    async def events(self) -> AsyncIterator[ExecutionEvent]:
        """Its events from now on, until it has ended."""
        if self._engine.gateway.summary(self.execution_id)["status"] in _TERMINAL:
            return
        async for event in self._engine.listen(self.execution_id):
            yield event
            if event.type == "execution.finished":
                return

    async def wait(self, timeout: float | None = None) -> TaskStatus:  # noqa: ASYNC109
        """Its status once it has ended.

        Raises:
            TimeoutError: it has not within `timeout` seconds.
        """
        seconds = float("inf") if timeout is None else timeout
        ended = await self._engine.gateway.end_of(self.execution_id, seconds)
        if ended is None:
            raise TimeoutError(f"run {self.execution_id} has not ended within {seconds:g} s")
        return ended

    async def results(self) -> AsyncIterator[ResultEvent | Gap]:
        """What reaches its terminals, until its end; a `Gap` where retention took some.

        Raises:
            CursorExpiredError: nothing of it is kept any more.
        """
        channel = await self._engine.results.open(self.execution_id)
        if channel is None:
            raise CursorExpiredError(
                f"the results of run {self.execution_id} are no longer kept", oldest=None
            )
        with channel.follow() as items:
            async for item in items:
                yield item

    @property
    def detail(self) -> dict[str, Any]:
        """The run as API.md's `ExecutionDetail`, with nodes and edges."""
        return self._engine.gateway.detail(self.execution_id, ("nodes", "edges"))

    def node(self, node_id: str) -> NodeHandle:
        """A handle on one of its nodes."""
        return NodeHandle(self, node_id)

    async def pause(self) -> CommandResult:
        """Pause the run."""
        return await self.send(PauseWorkflow(execution_id=self.execution_id))

    async def resume(self) -> CommandResult:
        """Resume the run."""
        return await self.send(ResumeWorkflow(execution_id=self.execution_id))

    async def step(self, n: int = 1) -> CommandResult:
        """Let `n` messages through each node."""
        return await self.send(StepWorkflow(execution_id=self.execution_id, n=n))

    async def stop(self, mode: StopMode = StopMode.DRAIN) -> CommandResult:
        """Stop the run."""
        return await self.send(StopWorkflow(execution_id=self.execution_id, mode=mode))

    async def restart(self, *, version: str = "same", payload: Any = None) -> Execution:
        """Run it again from its beginning, cancelling it if it is live; the new run.

        Args:
            version: of its workflow: `same`, `current` or a number.
            payload: the start payload; the same if None.

        Raises:
            ConflictError: it is not kept.
        """
        command = RestartWorkflow(execution_id=self.execution_id, version=version, payload=payload)
        return self.begun(await self.send(command))

    def begun(self, result: CommandResult) -> Execution:
        """A handle on the run that a command has started.

        Raises:
            ConflictError: it has started none; a reviewer holds it.
        """
        if result.started is None:
            raise ConflictError(
                f"{result.command} is {result.outcome}", code="execution_not_running"
            )
        return Execution(self._engine, result.started.execution_id)

    async def send(self, command: Command) -> CommandResult:
        """Send any command."""
        return await self._engine.gateway.command(command, actor="embedded", via="ENGINE")


class NodeHandle(BreakpointHandle):
    """A handle on one node of a run."""

    def __init__(self, run: Execution, node_id: str) -> None:
        super().__init__(run._engine.gateway, run.send, run.execution_id, node_id)
        self._run = run

    async def pause(self) -> CommandResult:
        """Pause the node."""
        return await self._run.send(PauseNode(**self._ids))

    async def resume(self) -> CommandResult:
        """Resume the node."""
        return await self._run.send(ResumeNode(**self._ids))

    async def step(self, n: int = 1) -> CommandResult:
        """Let `n` messages through the node."""
        return await self._run.send(StepNode(**self._ids, n=n))

    async def stop(self, mode: StopMode = StopMode.DRAIN) -> CommandResult:
        """Stop the node."""
        return await self._run.send(StopNode(**self._ids, mode=mode))

    async def skip(self) -> CommandResult:
        """Send messages round the plugin of the node."""
        return await self._run.send(SkipNode(**self._ids))

    async def unskip(self) -> CommandResult:
        """Send messages into the plugin of the node again."""
        return await self._run.send(UnskipNode(**self._ids))

    async def signal(
        self, name: str, decision: str | None = None, data: Any = None
    ) -> CommandResult:
        """Give the node a signal; `answer` is ACCEPTED if a message waited for it, else QUEUED.

        Raises:
            ConflictError: the node waits for no signals.
            SignalBufferFullError: it keeps too many that it has not waited for yet.
        """
        command = SignalNode(**self._ids, signal=name, decision=decision, data=data)
        return await self._run.send(command)

    async def retry(self) -> Execution:
        """Run the node, which has failed, and all behind it again; the new run.

        Raises:
            ConflictError: it has not failed, or what it needs is not kept.
        """
        return self._run.begun(await self._run.send(RetryNode(**self._ids)))

    async def restart(self, *, version: str = "same") -> Execution:
        """Run the node and all behind it again; the new run.

        Raises:
            ConflictError: what it needs is not kept, or has not finished.
        """
        command = RestartFromNode(**self._ids, version=version)
        return self._run.begun(await self._run.send(command))


_TERMINAL = {str(status) for status in TaskStatus if status.terminal}
