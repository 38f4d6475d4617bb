"""Runs a workflow file to its end and says how it ended.  Features: ENG-06, OBS-03, CTL-03."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.cli.console import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PIPE_CLOSED,
    EXIT_TIMEOUT,
    CliError,
    Console,
)
from yukta_rx.cli.documents import check_file, folder_of, settings_for, with_folder
from yukta_rx.cli.inputs import read_payload, read_timeout
from yukta_rx.cli.keys import Interrupts, StepKeys
from yukta_rx.cli.sub_workflows import lines_of, workflows_below
from yukta_rx.cli.views import STYLES, JsonView, LineView, View
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.local import LocalChildren
from yukta_rx.engine.run import DEADLINE, Run
from yukta_rx.engine.sub_workflow import family
from yukta_rx.engine.watchdog import Watchdog
from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.codec import dumps_plain
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.progress import RunOutcome

log = logging.getLogger(__name__)

_STOPPED: Final = (TaskStatus.STOPPED, TaskStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The command line of `yukta run`, unread."""

    file: str
    payload: str | None
    members: tuple[str, ...]
    step: bool
    timeout: str | None
    config: str | None


@dataclass(frozen=True, slots=True)
class _Job:
    prepared: PreparedWorkflow
    below: dict[str, PreparedWorkflow]
    settings: Settings
    folder: Path
    payload: Any
    timeout: float | None
    step: bool


def run_file(console: Console, request: RunRequest) -> int:
    """Run a workflow file; returns the exit code.

    Raises:
        CliError: the file, the payload or an option is refused.
        ConfigError: the settings are refused.
    """
    job = _read(request)
    return asyncio.run(_run(console, job))


def _read(request: RunRequest) -> _Job:
    settings = settings_for(request.config)
    for warning in settings.warnings:
        log.warning("%s", warning)
    timeout = read_timeout(request.timeout, DEADLINE)
    payload = read_payload(request.payload, request.members)
    registry = PluginRegistry.load(settings)
    checked = check_file(request.file, registry, settings)
    definition = checked.validation.definition if checked.validation else None
    if checked.faults or definition is None:
        raise checked.refusal()
    for finding in checked.warnings:
        log.warning("%s:%d: %s", request.file, finding.line, finding.fault)
    folder = folder_of(request.file)
    settings = with_folder(settings, folder)
    prepared = prepare(definition, registry, settings=settings, base_dir=folder)
    below = workflows_below(request.file, prepared, registry, settings, folder)
    return _Job(prepared, below, settings, folder, payload, timeout, request.step)


def view_for(console: Console) -> View:
    """Return the view that suits the streams: a table needs a terminal and `rich`."""
    if console.as_json:
        return JsonView(console)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich"):
        from yukta_rx.cli.table import TableView

        return TableView(console)
    return LineView(console)


async def _run(console: Console, job: _Job) -> int:
    view = view_for(console)
    results = _Results(console)
    run = Run(
        job.prepared,
        payload=job.payload,
        settings=job.settings,
        emit=view.event,
        publish=results.publish,
        base_dir=job.folder,
        timeout=job.timeout,
        step_mode=job.step,
        start_child=LocalChildren(
            job.below,
            settings=job.settings,
            emit=view.event if console.as_json else lines_of(view.event),
            base_dir=job.folder,
            timeout=job.timeout,
        ),
    )
    console.keep_secret(run.secrets.masker)
    results.run = run
    interrupts = Interrupts(run, console)
    limit = job.settings.watchdog.limit.total_seconds()
    with interrupts, view.watching(run):
        async with Watchdog(limit, lambda: family(run)):
            if job.step:
                StepKeys(run, console).start()
            outcome = await run.execute()
            results.flush()
    _summarise(console, job.prepared, outcome, view)
    if results.closed:
        console.close_stdout()
    return _exit_code(outcome, interrupted=interrupts.count > 0, closed=results.closed)


def _exit_code(outcome: RunOutcome, *, interrupted: bool, closed: bool) -> int:
    if outcome.status is TaskStatus.SUCCESS:
        return EXIT_PIPE_CLOSED if closed else 0
    if closed and outcome.status in _STOPPED:
        return EXIT_PIPE_CLOSED
    if outcome.status is TaskStatus.TIMED_OUT:
        return EXIT_TIMEOUT
    if interrupted and outcome.status in _STOPPED:
        return EXIT_INTERRUPTED
    return EXIT_FAILED


def _summarise(
    console: Console, prepared: PreparedWorkflow, outcome: RunOutcome, view: View
) -> None:
    if outcome.error is not None:
        node = outcome.error.get("nodeId")
        detail = " ".join(str(outcome.error.get("detail", "")).split())
        place = f"node `{node}`: " if node else ""
        error = CliError(
            f"the run ended {outcome.status}: {place}{detail}",
            code=str(outcome.error.get("code", "internal")),
            members={"executionId": outcome.execution_id, **({"nodeId": node} if node else {})},
        )
        console.refuse(error)
    if console.as_json:
        return  # the last event, execution.finished, says it all
    ended: dict[str, int] = {}
    for node_state in outcome.nodes.values():
        status = str(node_state["status"])
        ended[status] = ended.get(status, 0) + 1
    nodes = ", ".join(f"{count} {status}" for status, count in sorted(ended.items()))
    totals = outcome.totals
    lost = "".join(f", {totals[name]} {name}" for name in ("failed", "dropped") if totals[name])
    console.say(
        f"{outcome.status} {prepared.definition.workflow_id}: {len(outcome.nodes)} nodes ({nodes}),"
        f" {totals['in']} messages in, {totals['out']} out{lost}, {outcome.seconds:.2f} s",
        STYLES.get(str(outcome.status)),
    )


class _Results:
    """Writes what reaches the terminals as JSON lines; a reader that is gone ends the run."""

    def __init__(self, console: Console) -> None:
        self.run: Run | None = None
        self.closed = False
        self._console = console
        self._flushing = False

    def publish(self, event: ResultEvent) -> None:
        if event.type is not ResultType.RESULT or self.closed:
            return
        try:
            self._console.result(_line(event))
        except BrokenPipeError:
            self._close()
            return
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Hand on the lines of this turn of the loop in one go."""
        self._flushing = False
        if self.closed:
            return
        try:
            self._console.flush()
        except BrokenPipeError:
            self._close()

    def _close(self) -> None:
        self.closed = True
        if self.run is not None:
            self.run.stop(StopMode.CANCEL)


def _line(event: ResultEvent) -> bytes:
    shown = {"nodeId": event.node_id, "messageId": event.message_id}
    try:
        return dumps_plain({**shown, "payload": event.payload})
    except UnserialisablePayloadError as error:
        refused = {"code": error.code, "detail": error.detail}
        return dumps_plain({**shown, "payload": None, "error": refused})
