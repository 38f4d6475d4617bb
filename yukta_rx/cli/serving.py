"""A server from its start to its end: what it says, what signals do.  Features: HA-01, OBS-01."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.app import Engine
from yukta_rx.cli.collector import calm_collector
from yukta_rx.cli.console import CliError, Console
from yukta_rx.cli.signals import Signals
from yukta_rx.cli.tracer import set_tracer_provider
from yukta_rx.config.settings import LogFormat
from yukta_rx.config.units import show_duration
from yukta_rx.control.commands import StopWorkflow
from yukta_rx.control.queries import ExecutionQuery
from yukta_rx.durability.matrix import durability_matrix, summary
from yukta_rx.errors import ConflictError
from yukta_rx.http.server import HttpServer
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from types import TracebackType

    from yukta_rx.config.settings import Settings
    from yukta_rx.plugins.registry import PluginRegistry

log = logging.getLogger(__name__)

_ALL: Final = 500
_LIVE: Final = frozenset(status for status in TaskStatus if not status.terminal)

Work = Callable[[Engine], Coroutine[Any, Any, None]]


async def serve(
    console: Console,
    settings: Settings,
    registry: PluginRegistry,
    *,
    prepare: Work,
    meanwhile: Work | None = None,
    applied_from: str | None = None,
) -> int:
    """Serve until a signal comes; returns the exit code.

    The first signal ends event streams, then lets runs finish within
    `yukta.execution.shutdown-timeout`; a second one cancels them, a third ends the process.

    Args:
        console: where it says what it does.
        settings: the settings in force.
        registry: the node types.
        prepare: done before the server listens.
        meanwhile: goes on until the end.
        applied_from: the folder that `prepare` applies.

    Raises:
        ConfigError: the settings cannot work.
        StoreUnavailableError: a store cannot be used, or another server has its folder.
        CliError: the address cannot be had, or `prepare` refuses.
    """
    if settings.log.format is LogFormat.JSON:
        # All of stderr, so that who reads it finds nothing else between.
        console.as_json = True
    for warning in settings.warnings:
        log.warning("%s", warning)
    async with AsyncExitStack() as stack:
        # Importing it takes a while, and sending the last spans too.
        if (untrace := await asyncio.to_thread(set_tracer_provider)) is not None:
            stack.push_async_callback(asyncio.to_thread, untrace)
        signals = stack.enter_context(_Signals(console))
        engine = Engine(settings, registry=registry)
        console.keep_secret(engine.masker)
        # It listens first, so that a probe finds it alive however long a recovery takes.
        stack.push_async_callback(engine.close)
        server = HttpServer(engine)
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise _not_listening(settings, error) from error
        with engine.readiness.during("applying workflows"):
            await engine.open()
            signals.engine = engine
            await prepare(engine)
        _announce(console, settings, server.url, applied_from)
        stack.enter_context(calm_collector())
        await signals.first(meanwhile)
        # Before the server goes, so that who waits for a slot is told.
        engine.gateway.stop_admitting()
        if not console.as_json:
            grace = show_duration(settings.execution.shutdown_timeout)
            console.say(f"yukta: shutting down; runs get {grace} to finish", "yellow")
    return 0


def _announce(console: Console, settings: Settings, url: str, applied_from: str | None) -> None:
    if console.as_json:
        rows = durability_matrix(settings)
        shown: dict[str, Any] = {
            "type": "serving",
            "url": url,
            "profile": str(settings.profile),
            "loses": [row.as_dict() for row in rows if row.lost],
            "keeps": [row.as_dict() for row in rows if not row.lost],
        }
        console.say_json(shown)
        return
    console.say(f"yukta: serving on {url}, profile {settings.profile}", "green")
    for line in summary(settings, applied_from):
        console.say(f"yukta: {line}")


def _not_listening(settings: Settings, error: OSError) -> CliError:
    host = f"[{settings.http.host}]" if ":" in settings.http.host else settings.http.host
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return CliError(
        f"cannot listen on {host}:{settings.http.port}: {(reason or str(error)).lower()}",
        code="address_unavailable",
    )


class _Signals(Signals):
    """SIGINT and SIGTERM while a server runs."""

    waited_for = "the runs"

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.engine: Engine | None = None
        self._console = console
        self._first = asyncio.Event()
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tasks.cancel()
        super().__exit__(kind, error, trace)

    async def first(self, meanwhile: Work | None) -> None:
        """Wait for the first signal."""
        if meanwhile is None or self.engine is None:
            await self._first.wait()
            return
        async with asyncio.TaskGroup() as group:
            working = group.create_task(meanwhile(self.engine))
            await self._first.wait()
            working.cancel()

    def act(self, count: int) -> None:
        """End the server at the first signal, cancel the runs at the second."""
        self._first.set()
        if count > 1 and self.engine is not None:
            if not self._console.as_json:
                self._console.say("yukta: cancelling the runs", "yellow")
            self._tasks.spawn(_cancel_runs(self.engine), "yukta serve cancel")


async def _cancel_runs(engine: Engine) -> None:
    live = engine.gateway.executions(ExecutionQuery(statuses=_LIVE), _ALL)
    for run in live.items:
        command = StopWorkflow(execution_id=run["executionId"], mode=StopMode.CANCEL)
        try:
            await engine.gateway.command(command, actor="signal", via="CLI")
        except ConflictError as error:
            log.debug("%s", error)  # it ended meanwhile
