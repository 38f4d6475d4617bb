"""The plugin contract as checks that any plugin can be put through.

`check_processor(plugin, payloads=[...])` runs them all, in the engine itself and in virtual time,
so call it from a plain test function. `PLUGIN_CHECKS` names each check, for tests that want to
run them one by one with `check_plugin`.

Feature: EXT-01.
"""

from __future__ import annotations

import asyncio
import copy
import json
import tempfile
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.load import load_settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.local import LocalChildren
from yukta_rx.engine.run import Run
from yukta_rx.engine.steering import CANCEL_GRACE
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import (
    NodeContext,
    PluginConfig,
    PluginKind,
    PluginSpec,
    check_config,
    spec_of,
    terminal,
    trigger,
)
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import run_virtual
from yukta_rx.testing.signal_bench import SignalBench

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.progress import RunOutcome
    from yukta_rx.model.message import Message
    from yukta_rx.model.results import ResultEvent

SOME: Final = 500
"""Messages of a run that is cancelled on its way."""

MANY: Final = 20_000
"""Messages of which a plugin must leave some, while nobody takes what it emits."""

PAYLOADS: Final[Sequence[Any]] = ({"n": 1}, {"n": 2}, {"n": 3})
"""Inputs for a plugin that is not particular."""

BAD_PAYLOADS: Final[Sequence[Any]] = (
    *(None, [], {}, "", 0, -1.5, True),
    *([[{}]], {"items": None}, {"a": {"b": [1]}}),
)
"""Payloads that few plugins expect."""


ENDLESS: Final = 5.0
"""Seconds of virtual time after which a run without end is drained."""


class ContractViolation(AssertionError):
    """A plugin broke its contract; `check` names the check that shows it."""

    def __init__(self, check: str, fault: str) -> None:
        super().__init__(f"{check}: {fault}")
        self.check = check


@dataclass(frozen=True, slots=True)
class PluginCase:
    """A plugin and what it is tried with.

    Attributes:
        plugin: a decorated function or class, or its spec.
        config: its configuration; the declared example if None.
        payloads: inputs that it can work with; for a trigger the first is the start payload.
        bad_payloads: inputs that it may refuse, but must not choke on.
        files: contents of files that its configuration names, by relative path.
        endless: a trigger that does not end by itself; its runs are drained after `ENDLESS`.
        settings: settings that it needs, by their dotted names.
        workflows: definitions that it may run.
    """

    plugin: Any
    config: Mapping[str, Any] | None = None
    payloads: Sequence[Any] = PAYLOADS
    bad_payloads: Sequence[Any] = BAD_PAYLOADS
    files: Mapping[str, bytes] = field(default_factory=dict)
    endless: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    workflows: Sequence[Mapping[str, Any]] = ()

    @property
    def spec(self) -> PluginSpec:
        """The spec of the plugin."""
        return spec_of(self.plugin)

    @property
    def options(self) -> dict[str, Any]:
        """The configuration in use."""
        return dict(self.spec.example or {} if self.config is None else self.config)


class _Trial:
    """Runs of one plugin: from a source of given payloads, to a sink, with a witness beside it."""

    def __init__(self, case: PluginCase, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.results: list[ResultEvent] = []
        self.payloads: Iterable[Any] = ()
        allowed = {"yukta.files.allowed-dirs": [str(folder)]}
        self.settings = load_settings(environ={}, overrides={**allowed, **case.settings})
        self.prepared = self._prepare()
        self.children = LocalChildren(self._at_hand(), settings=self.settings, base_dir=folder)

    def _prepare(self) -> PreparedWorkflow:
        kind = self.case.spec.kind
        registry = PluginRegistry.load(self.settings, extra=[*self._own(), *self._unregistered()])
        nodes = [{"nodeId": "plugin", "type": self.case.spec.type, "config": self.case.options}]
        edges = []
        if kind is not PluginKind.TRIGGER:
            nodes += [{"nodeId": "source", "type": "CHECK_SOURCE", "config": {}}]
            nodes += [{"nodeId": "witness", "type": "CHECK_SINK", "config": {}}]
            edges += [{"source": "source", "target": "plugin"}]
            edges += [{"source": "source", "target": "witness"}]
        if kind is not PluginKind.TERMINAL:
            nodes += [{"nodeId": "sink", "type": "CHECK_SINK", "config": {}}]
            edges += [{"source": "plugin", "target": "sink"}]
        document = {"workflowId": "check", "nodes": nodes, "edges": edges}
        return prepare(
            parse_definition(document), registry, settings=self.settings, base_dir=self.folder
        )

    def _at_hand(self) -> dict[str, PreparedWorkflow]:
        registry = PluginRegistry.load(self.settings, extra=self._unregistered())
        found = (
            prepare(parse_definition(document), registry, settings=self.settings)
            for document in self.case.workflows
        )
        return {prepared.definition.workflow_id: prepared for prepared in found}

    def run(self, payloads: Iterable[Any]) -> Run:
        """A run over `payloads`; a trigger has none but the first, as its start payload."""
        self.payloads = payloads
        triggered = self.case.spec.kind is PluginKind.TRIGGER
        return Run(
            self.prepared,
            payload=next(iter(payloads), None) if triggered else None,
            settings=self.settings,
            publish=self.results.append,
            execution_id="check-run",
            base_dir=self.folder,
            start_child=self.children,
            signals=SignalBench(asyncio.get_running_loop()).waits,
        )

    async def execute(self, payloads: Iterable[Any]) -> RunOutcome:
        """A whole run."""
        run = self.run(payloads)
        async with asyncio.TaskGroup() as group:
            execution = group.create_task(run.execute())
            if self.case.endless:
                await asyncio.sleep(ENDLESS)
                run.stop(StopMode.DRAIN)
        return execution.result()

    def taken(self, node_id: str) -> list[Any]:
        """Payloads that reached a terminal."""
        return [item.payload for item in self.results if self._is_message(item, node_id)]

    def ids(self, node_id: str) -> list[str]:
        """Ids of the messages that reached a terminal."""
        return [str(item.message_id) for item in self.results if self._is_message(item, node_id)]

    def _is_message(self, item: ResultEvent, node_id: str) -> bool:
        return item.node_id == node_id and item.message_id is not None

    def _own(self) -> list[Any]:
        @trigger("CHECK_SOURCE", blocking=False, pure=True)
        def source(cfg: PluginConfig, ctx: NodeContext) -> Iterator[Any]:
            """Emit the payloads of the check."""
            return iter(self.payloads)

        @terminal("CHECK_SINK", blocking=False, pure=True)
        def sink(msg: Message, cfg: PluginConfig, ctx: NodeContext) -> None:
            """Take everything."""

        return [source, sink]

    def _unregistered(self) -> list[Any]:
        spec = self.case.spec
        return [] if spec.type in PluginRegistry.load(self.settings).types() else [spec]


_ORDERLY: Final = (TaskStatus.SUCCESS, TaskStatus.FAILURE, TaskStatus.STOPPED)


def _expect(check: str, holds: object, fault: str) -> None:
    if not holds:
        raise ContractViolation(check, fault)


# -- the checks


async def _example_is_valid(trial: _Trial) -> None:
    faults = check_config(trial.case.spec, trial.case.options)
    told = "; ".join(f"option {fault.option}: {fault.detail}" for fault in faults)
    _expect("example_is_valid", not faults, told)


async def _schema_is_complete(trial: _Trial) -> None:
    spec = trial.case.spec
    entry = json.loads(json.dumps(spec.describe()))
    options = entry["configSchema"].get("properties", {})
    bare = [name for name, option in options.items() if not option.get("description")]
    _expect("schema_is_complete", spec.summary.strip(), "it has no summary")
    _expect("schema_is_complete", not bare, f"options without description: {', '.join(bare)}")


async def _it_runs(trial: _Trial) -> None:
    outcome = await trial.execute(trial.case.payloads)
    wanted = TaskStatus.STOPPED if trial.case.endless else TaskStatus.SUCCESS
    _expect("it_runs", outcome.status is wanted, f"{outcome.status}: {outcome.error}")


async def _ids_are_derived(trial: _Trial) -> None:
    node = "plugin" if trial.case.spec.kind is PluginKind.TERMINAL else "sink"
    await trial.execute(trial.case.payloads)
    first = trial.ids(node)
    trial.results.clear()
    await trial.execute(trial.case.payloads)
    second = trial.ids(node)
    _expect("ids_are_derived", first == second, "a second run over the same inputs has other ids")
    _expect("ids_are_derived", len(set(first)) == len(first), "two messages have one id")


async def _inputs_stay_as_they_are(trial: _Trial) -> None:
    check = "inputs_stay_as_they_are"
    case = trial.case
    if case.spec.kind is PluginKind.TRIGGER:
        return
    given = [copy.deepcopy(payload) for payload in case.payloads]
    await trial.execute(given)
    seen = trial.taken("witness")
    _expect(check, seen == list(case.payloads[: len(seen)]), "another branch saw a change")
    _expect(check, given == list(case.payloads), "it changed a payload that it was given")


async def _cancellation_arrives(trial: _Trial) -> None:
    check = "cancellation_arrives"
    loop = asyncio.get_running_loop()
    for wait in (0.0, 1e-3, 0.1, 1.0):
        run = trial.run(islice(cycle(trial.case.payloads), SOME))
        async with asyncio.TaskGroup() as group:
            execution = group.create_task(run.execute())
            await asyncio.sleep(wait)
            stopped = loop.time()
            run.stop(StopMode.CANCEL)
        took = loop.time() - stopped
        _expect(check, took < CANCEL_GRACE, f"it went on for {took:g} s after a cancellation")
        _expect(check, execution.result().status.terminal, "the run did not end")


async def _no_task_is_left(trial: _Trial) -> None:
    await trial.execute(trial.case.payloads)
    run = trial.run(islice(cycle(trial.case.payloads), SOME))
    async with asyncio.TaskGroup() as group:
        group.create_task(run.execute())
        await asyncio.sleep(0.1)
        run.stop(StopMode.CANCEL)
    left = sorted(task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()})
    _expect("no_task_is_left", not left, f"tasks go on after the run: {', '.join(left)}")


async def _demand_is_respected(trial: _Trial) -> None:
    check = "demand_is_respected"
    if trial.case.spec.kind is PluginKind.TERMINAL:
        return
    run = trial.run(islice(cycle(trial.case.payloads), MANY))
    async with asyncio.TaskGroup() as group:
        group.create_task(run.execute())
        await asyncio.sleep(0)
        run.pause("sink")
        await asyncio.sleep(600)
        passed = {(e["source"], e["target"]): e["passed"] for e in run.snapshot()["edges"]}
        waiting = {(e["source"], e["target"]): e["waiting"] for e in run.snapshot()["edges"]}
        run.stop(StopMode.CANCEL)
    window = trial.settings.execution.prefetch
    emitted = waiting["plugin", "sink"]
    _expect(check, emitted <= window, f"{emitted} messages wait where {window} were asked for")
    if trial.case.spec.kind is PluginKind.PROCESSOR and emitted:
        fault = f"it took all of {MANY} messages while nobody took what it emits"
        _expect(check, passed["source", "plugin"] < MANY, fault)


async def _errors_name_the_node(trial: _Trial) -> None:
    check = "errors_name_the_node"
    for payload in trial.case.bad_payloads:
        outcome = await trial.execute([payload])
        told = f"for the payload {payload!r:.80}: {outcome.status}, {outcome.error}"
        _expect(check, outcome.status in _ORDERLY, told)
        error = outcome.error or {"nodeId": "plugin", "detail": "none"}
        _expect(check, error.get("nodeId") == "plugin" and error.get("detail"), told)


PLUGIN_CHECKS: Final[Mapping[str, Callable[[_Trial], Coroutine[Any, Any, None]]]] = {
    check.__name__.removeprefix("_"): check
    for check in (
        _example_is_valid,
        _schema_is_complete,
        _it_runs,
        _ids_are_derived,
        _inputs_stay_as_they_are,
        _cancellation_arrives,
        _no_task_is_left,
        _demand_is_respected,
        _errors_name_the_node,
    )
}
"""Every check of the plugin contract, by its name."""


def check_plugin(name: str, case: PluginCase) -> None:
    """Put a plugin through one check of `PLUGIN_CHECKS`, in virtual time.

    Raises:
        ContractViolation: the plugin breaks the contract.
        KeyError: there is no such check.
    """
    check = PLUGIN_CHECKS[name]
    # A plugin that changes what it gets must not change what the next check begins with.
    case = replace(case, payloads=copy.deepcopy(case.payloads))
    with tempfile.TemporaryDirectory() as folder:
        for path, content in case.files.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        try:
            trial = _Trial(case, Path(folder))
            run_virtual(check(trial))
        except ContractViolation:
            raise
        except Exception as error:
            raise ContractViolation(name, f"{case.spec.type} raised {error!r}") from error


def check_processor(
    plugin: Any,
    *,
    config: Mapping[str, Any] | None = None,
    payloads: Sequence[Any] = PAYLOADS,
    bad_payloads: Sequence[Any] = BAD_PAYLOADS,
    files: Mapping[str, bytes] | None = None,
    endless: bool = False,
    settings: Mapping[str, Any] | None = None,
    workflows: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Put a plugin of any kind through every check of the contract; see `PluginCase`.

    Raises:
        AssertionError: lists every check that failed.
    """
    case = PluginCase(
        plugin, config, payloads, bad_payloads, files or {}, endless, settings or {}, workflows
    )
    found = []
    for name in PLUGIN_CHECKS:
        try:
            check_plugin(name, case)
        except ContractViolation as violation:
            found.append(str(violation))
    if found:
        raise AssertionError("\n".join(found))
