"""WorkflowHarness: a whole workflow in memory and in virtual time, with stand-ins for its edges.

    @virtual_time
    async def test_every_order_is_confirmed():
        async with WorkflowHarness(definition, {"HTTP_REQUEST": lambda msg: {"status": 200}}) as h:
            await h.until(status="SUCCESS")

            assert h.results("out").payloads == [{"status": 200}] * 3
            assert h.node("pace").marble == "a-a-(a|)"

The run is the engine's own, so nothing differs from production but the clock and what was
replaced.

Feature: EXT-01.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.config.load import load_settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.local import LocalChildren
from yukta_rx.model.events import EVENT_TYPES
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.workflow import WorkflowDefinition
from yukta_rx.plugins.signals import APPROVE
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.marble import Marble, draw
from yukta_rx.testing.observed import Failure, LogLine, Output, Outputs, lines_of
from yukta_rx.testing.signal_bench import SignalBench
from yukta_rx.testing.stand_in import registry_with
from yukta_rx.testing.watched_run import PATIENCE, WatchedRun, virtual_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.input_requests import InputRequestStore
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.message import Message
    from yukta_rx.plugins.keeping import Keeping

EXECUTION_ID: Final = "harness"


class WorkflowHarness:
    """Runs a workflow from `async with` on; inside a coroutine in virtual time.

    Args:
        definition: the workflow, as a document or a WorkflowDefinition.
        plugins: stand-ins by the node type that they stand for: a decorated plugin, a function of
            a message, or a list of payloads for a trigger; or decorated plugins of further types.
        workflows: further workflows, which nodes of it may run.
        payload: the start payload.
        settings: settings by their full names; the defaults otherwise.
        base_dir: folder that relative paths start from, and that files may be read from.
        timespan: seconds per character of a marble.
        lookup: payloads by the letter that marbles draw for them.
        step_mode: begin paused.
        answers: what was asked and answered; of a harness before, as if its run went on here.
        keeping: what plugins left behind; `run.keeping` of a harness before, to the same end.

    Raises:
        DefinitionError: the definition is refused; lists every fault.
        TypeError: something cannot stand in for a type.
        ValueError: a stand-in is given for a type that no node has.
        ConfigError: a setting is refused, or two plugins have one type.
    """

    def __init__(
        self,
        definition: WorkflowDefinition | Mapping[str, Any],
        plugins: Mapping[str, Any] | Iterable[Any] | None = None,
        *,
        workflows: Iterable[WorkflowDefinition | Mapping[str, Any]] = (),
        payload: Any = None,
        settings: Mapping[str, Any] | None = None,
        base_dir: Path | None = None,
        timespan: float = 1.0,
        lookup: Mapping[str, Any] | None = None,
        step_mode: bool = False,
        answers: InputRequestStore | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self._store = answers
        overrides = dict(settings or {})
        if base_dir is not None:
            overrides.setdefault("yukta.files.allowed-dirs", [str(base_dir)])
        in_force = load_settings(environ={}, overrides=overrides)
        definitions = [_parsed(it) for it in (definition, *workflows)]
        if isinstance(plugins, Mapping):
            _check_used(plugins, definitions)
        registry = registry_with(plugins, in_force)
        self._prepared, *others = (
            prepare(it, registry, settings=in_force, base_dir=base_dir) for it in definitions
        )
        self._options = {
            "payload": payload,
            "settings": in_force,
            "base_dir": base_dir,
            "step_mode": step_mode,
            "keeping": keeping,
            "start_child": LocalChildren(
                {it.definition.workflow_id: it for it in others},
                settings=in_force,
                emit=self._below,
                base_dir=base_dir,
                timeout=None,
            ),
        }
        self.timespan = timespan
        self.lookup = dict(lookup or {})
        self.events: list[ExecutionEvent] = []
        """Everything that happened so far, in order; also in runs below this one."""
        self._outputs = {node_id: Outputs() for node_id in self._prepared.order}
        self._ends: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._over = False
        self._run: WatchedRun | None = None

    async def __aenter__(self) -> Self:
        """Start the run.

        Raises:
            RuntimeError: it was started before.
            TypeError: the running loop is not in virtual time.
        """
        if self._run is not None:
            raise RuntimeError("a WorkflowHarness runs its workflow once; make another")
        self._loop = virtual_loop("WorkflowHarness")
        self._began = self._loop.time()
        self._signals = SignalBench(self._loop, self._store)
        self._run = WatchedRun(
            self._prepared,
            watch=self._watch,
            emit=self._event,
            execution_id=EXECUTION_ID,
            timeout=None,
            signals=self._signals.waits,
            **self._options,
        )
        self._tasks = Tasks(self._loop, lambda: None)
        self._tasks.spawn(self._execute(self._run), "yukta run of a harness")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Cancel the run if it has not ended."""
        self.run.stop(StopMode.CANCEL)
        await self._tasks.ended()

    async def _execute(self, run: WatchedRun) -> None:
        try:
            await run.execute()
        finally:
            self._over = True
            self._changed.set()

    # -- what the test looks at

    @property
    def run(self) -> WatchedRun:
        """The engine's run.

        Raises:
            RuntimeError: it has not been started.
        """
        if self._run is None:
            raise RuntimeError("write `async with WorkflowHarness(...) as h`: that starts the run")
        return self._run

    @property
    def status(self) -> TaskStatus:
        """Status of the run."""
        return self.run.status

    @property
    def error(self) -> dict[str, Any] | None:
        """Why the run failed: `{code, detail, nodeId?}`; None if it has not."""
        return self.run.error

    @property
    def now(self) -> float:
        """Seconds of virtual time since the run began."""
        return self._loop.time() - self._began

    def node(self, node_id: str) -> NodeProbe:
        """One node, to look at and to steer.

        Raises:
            NotFoundError: there is no such node.
        """
        return NodeProbe(self, self.run.node(node_id))

    def results(self, node_id: str) -> Outputs:
        """What a terminal took so far.

        Raises:
            NotFoundError: there is no such node.
        """
        return self.node(node_id).outputs

    # -- what the test waits for

    async def until(
        self,
        holds: Callable[[WorkflowHarness], object] | None = None,
        *,
        node: str | None = None,
        status: str | None = None,
        event: str | None = None,
        within: float = PATIENCE,
    ) -> None:
        """Let the run go on until what is named has happened; at once if it has.

            await h.until(node="approve", status="RUNNING")
            await h.until(status="SUCCESS")
            await h.until(event="node.log", node="say")
            await h.until(lambda h: len(h.results("out")) == 3)

        A status counts as reached once the run, or the node, has had it. The run may be a few
        messages further when this returns; `step` is exact.

        Args:
            holds: asked whenever something has happened.
            node: the node that is meant; the run as a whole if None.
            status: the status to wait for.
            event: the type of event to wait for.
            within: seconds of virtual time to wait at most.

        Raises:
            AssertionError: it cannot happen any more, or did not in time; says how things are.
            NotFoundError: there is no such node.
            ValueError: no status or event of that name exists, or not exactly one condition is
                given.
        """
        wanted = self._wanted(holds, node, status, event)
        try:
            async with asyncio.timeout(within):
                while not wanted.reached():
                    if self._over or wanted.impossible():
                        raise AssertionError(f"{wanted.name} cannot come any more: {self._told()}")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            told = f"{wanted.name} did not come in {within:g} s of virtual time: {self._told()}"
            raise AssertionError(told) from None

    def _wanted(
        self,
        holds: Callable[[WorkflowHarness], object] | None,
        node: str | None,
        status: str | None,
        event: str | None,
    ) -> _Wanted:
        if sum(it is not None for it in (holds, status, event)) != 1:
            raise ValueError("until waits for one thing: a status, an event or a condition")
        if holds is not None:
            return _Wanted("what the condition asks for", lambda: bool(holds(self)))
        at = "" if node is None else f" of node {node}"
        runtime = None if node is None else self.run.node(node)
        if event is not None:
            if event not in EVENT_TYPES:
                raise ValueError(f"no event {event!r}; there are {', '.join(sorted(EVENT_TYPES))}")
            came = self._seeker(
                lambda it: it.type == event and (node is None or (_own(it) and it.node_id == node))
            )
            return _Wanted(f"an event {event}{at}", came)
        if status not in list(TaskStatus):
            raise ValueError(f"no status {status!r}; there are {', '.join(TaskStatus)}")
        kind = "execution.status" if node is None else "node.status"
        had = self._seeker(
            lambda it: (
                it.type == kind and _own(it) and it.node_id == node and it.data["status"] == status
            )
        )
        owner = runtime or self.run
        return _Wanted(
            f"status {status}{at}",
            lambda: owner.status == status or had(),
            lambda: owner.status.terminal,
        )

    def _seeker(self, fits: Callable[[ExecutionEvent], bool]) -> Callable[[], bool]:
        """What tells whether an event that fits has come; looks at each event once."""
        place = 0

        def came() -> bool:
            nonlocal place
            new, place = self.events[place:], len(self.events)
            return any(map(fits, new))

        return came

    def _told(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        nodes = ", ".join(f"{node} {state.status}" for node, state in self.run.nodes.items())
        return f"the run is {self.status}{error}; {nodes}"

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass; a run that is busy for ever never is.

        For what follows a `step` or a `resume`.
        """
        await self._loop.quiet()

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass, and everything happen that is due until then."""
        await asyncio.sleep(seconds)
        await self._loop.quiet()

    # -- steering; in force when the call returns

    def pause(self) -> bool:
        """Pause the run; False if that was so already."""
        return self.run.pause()

    def resume(self) -> bool:
        """Resume the run and every node; False if nothing was paused."""
        return self.run.resume()

    def step(self, n: int = 1) -> None:
        """Let exactly `n` messages through each node, then stay paused.

        Raises:
            ValueError: `n` is below 1.
        """
        self.run.step(n)

    def stop(self, mode: StopMode = StopMode.DRAIN) -> bool:
        """Stop the run; False if it has ended or drains already."""
        return self.run.stop(mode)

    async def signal(
        self, node: str, name: str, decision: str = APPROVE, data: Any = None, by: str = "test"
    ) -> bool:
        """Send a signal to a node: to the message that has waited longest for it.

        Args:
            node: the node.
            name: of the signal.
            decision: `reject`, or any other word for a yes.
            data: any JSON value.
            by: who answers.

        Returns:
            False if no message waits for it; the signal is kept for ten minutes then.

        Raises:
            NotFoundError: there is no such node.
            SignalBufferFullError: the node keeps too many already.
        """
        accepted = await self._signals.send(self.run, node, name, decision, data, by=by)
        await self.settle()
        return accepted

    async def answer(self, approval_id: str, decision: str = APPROVE, data: Any = None) -> None:
        """Answer one approval, as `signal` does.

        Raises:
            ConflictError: it is not open.
        """
        await self._signals.answer(self.run, approval_id, decision, data)
        await self.settle()

    @property
    def approvals(self) -> list[dict[str, Any]]:
        """The messages that wait for a signal, as `GET /api/approvals` shows them."""
        return self._signals.approvals

    # -- told by the run

    def _below(self, event: ExecutionEvent) -> None:
        self.events.append(event)
        self._changed.set()

    def _event(self, event: ExecutionEvent) -> None:
        self.events.append(event)
        if event.type == "node.status" and TaskStatus(event.data["status"]).terminal:
            self._ends[str(event.node_id)] = self.now
        self._changed.set()

    def _watch(self, node_id: str, port: str | None, messages: Sequence[Message]) -> None:
        now = self.now
        self._outputs[node_id].extend(Output(msg, port, now) for msg in messages)
        self._changed.set()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a test waits for: whether it has come, and whether it still can."""

    name: str
    reached: Callable[[], bool]
    impossible: Callable[[], bool] = lambda: False


class NodeProbe:
    """One node of a WorkflowHarness, to look at and to steer."""

    def __init__(self, harness: WorkflowHarness, runtime: NodeRuntime) -> None:
        self._harness = harness
        self._runtime = runtime

    @property
    def status(self) -> TaskStatus:
        """Its status."""
        return self._runtime.status

    @property
    def error(self) -> Failure | None:
        """What it failed of; None if it has not."""
        return Failure.of_node(self._runtime)

    @property
    def outputs(self) -> Outputs:
        """What it emitted so far; of a terminal, what it took."""
        return self._harness._outputs[self._runtime.id]

    @property
    def logs(self) -> list[LogLine]:
        """The lines that its plugin logged so far."""
        return list(lines_of(self._harness.events, self._runtime.id))

    @property
    def marble(self) -> Marble:
        """What it emitted and when, as `testing.marble` draws it.

        Raises:
            ValueError: the harness's timespan does not fit.
        """
        harness, runtime = self._harness, self._runtime
        ended = harness._ends.get(runtime.id)
        return draw(
            [(output.time, output.payload) for output in self.outputs],
            end=None if ended is None else (ended, runtime.status),
            now=harness.now,
            timespan=harness.timespan,
            lookup=harness.lookup,
        )

    def pause(self) -> bool:
        """Pause it; False if it was paused or has ended."""
        return self._runtime.pause()

    def resume(self) -> bool:
        """Resume it; False if it was not paused."""
        return self._runtime.resume()

    def step(self, n: int = 1) -> None:
        """Let exactly `n` messages through it, then keep it paused.

        Raises:
            ValueError: `n` is below 1.
        """
        self._harness.run.step(n, self._runtime.id)

    def stop(self, mode: StopMode = StopMode.DRAIN) -> bool:
        """End it alone; its children see a normal end. False if it has ended."""
        return self._runtime.stop(mode)


def _own(event: ExecutionEvent) -> bool:
    """Whether an event is of the run itself and not of one below it."""
    return event.execution_id == EXECUTION_ID


def _parsed(definition: WorkflowDefinition | Mapping[str, Any]) -> WorkflowDefinition:
    if isinstance(definition, WorkflowDefinition):
        return definition
    return parse_definition(definition)


def _check_used(plugins: Mapping[str, Any], definitions: Iterable[WorkflowDefinition]) -> None:
    types = {node.type for definition in definitions for node in definition.nodes}
    if unused := [type for type in plugins if type not in types]:
        raise ValueError(
            f"no node has the type {', '.join(unused)}; the workflow has {', '.join(sorted(types))}"
        )
