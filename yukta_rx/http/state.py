"""What the routes of one app share: the engine, running work, open streams.

Features: OBS-01, SEC-01.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from aiohttp import web

from yukta_rx.observe.frames import standby
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from yukta_rx.config.settings import Settings
    from yukta_rx.control.gateway import ControlGateway
    from yukta_rx.control.history import History
    from yukta_rx.control.leadership import Leadership
    from yukta_rx.control.supervisors import SupervisorHost
    from yukta_rx.definitions.service import DefinitionService
    from yukta_rx.durability.open import Stores
    from yukta_rx.http.auth import Guard
    from yukta_rx.http.host_origin import HostOrigin
    from yukta_rx.http.pulse import Pulse
    from yukta_rx.http.sse import OpenStreams
    from yukta_rx.metrics import Meters
    from yukta_rx.observe.feed import EventFeed
    from yukta_rx.observe.frames import Frame
    from yukta_rx.observe.logs import LogStore
    from yukta_rx.observe.progress import ProgressHistory
    from yukta_rx.observe.readiness import Readiness
    from yukta_rx.observe.results import ResultStore
    from yukta_rx.observe.tracker import Tracker
    from yukta_rx.plugins.registry import PluginRegistry
    from yukta_rx.security.masking import Masker

T = TypeVar("T")
LOG: Final = logging.getLogger("yukta.http")


class ServedEngine(Protocol):
    """What the web layer uses of an engine; `app.Engine` has it."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    @property
    def masker(self) -> Masker:
        """Keeps secrets out of what is said."""

    @property
    def registry(self) -> PluginRegistry:
        """The node types."""

    @property
    def definitions(self) -> DefinitionService:
        """Sessions and workflows."""

    @property
    def stores(self) -> Stores:
        """Where everything is kept."""

    @property
    def gateway(self) -> ControlGateway:
        """Starts, commands and reads."""

    @property
    def history(self) -> History:
        """What is written of runs and commands."""

    @property
    def supervisors(self) -> SupervisorHost:
        """Programs that steer runs."""

    @property
    def tracker(self) -> Tracker:
        """State of runs."""

    @property
    def feed(self) -> EventFeed:
        """The events of all runs."""

    @property
    def results(self) -> ResultStore:
        """What reached the terminals."""

    @property
    def logs(self) -> LogStore:
        """Lines that plugins wrote."""

    @property
    def progress(self) -> ProgressHistory:
        """Snapshots of runs."""

    @property
    def meters(self) -> Meters:
        """Counters and timers."""

    @property
    def ready(self) -> bool:
        """Whether it takes work."""

    @property
    def readiness(self) -> Readiness:
        """Why it takes none."""

    @property
    def leadership(self) -> Leadership:
        """Whether it leads, and who does if not."""

    @property
    def started_at(self) -> datetime:
        """When it was started, aware."""

    @property
    def instance_id(self) -> str:
        """Names this process."""


@dataclass(slots=True)
class Shared:
    """One app's state.

    Attributes:
        engine: what is served.
        streams: the open event streams.
        pulse: watches whether the event loop turns.
        doors: the Host and Origin check.
        guard: tells who asks, and what they may.
        openapi: makes the OpenAPI document as JSON, once.
        closing: whether the app is shutting down.
    """

    engine: ServedEngine
    streams: OpenStreams
    pulse: Pulse
    doors: HostOrigin
    guard: Guard
    openapi: Callable[[], bytes]
    closing: bool = False
    _tasks: Tasks | None = field(default=None, repr=False)
    _idle: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def standby(self) -> Frame:
        """The only frame of a stream on a standby, and the last of one that was open before."""
        leader = self.engine.leadership.leader
        return standby(None if leader is None else leader.as_dict())

    def leadership_changed(self) -> None:
        """End the streams that are open if this server does not lead."""
        if not self.engine.leadership.leads:
            self.streams.end(self.standby())

    async def guarded(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run `work` to its end even when the caller is cancelled, as by a client that leaves."""
        loop = asyncio.get_running_loop()
        if self._tasks is None:
            self._tasks = Tasks(loop, self._idle.set)
        self._idle.clear()
        outcome: asyncio.Future[T] = loop.create_future()

        async def run() -> None:
            try:
                result = await work
            except asyncio.CancelledError:
                outcome.cancel()
            except Exception as error:
                if outcome.done():
                    LOG.warning("%s failed after its client had left: %s", name, error)
                else:
                    outcome.set_exception(error)
            else:
                if not outcome.done():
                    outcome.set_result(result)

        self._tasks.spawn(run(), f"yukta http {name}")
        return await outcome

    async def finish(self, seconds: float) -> None:
        """Wait for guarded work that is still running, then cancel what is left."""
        if self._tasks is None or not len(self._tasks):
            return
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            LOG.warning("cancelled at shutdown: %s", ", ".join(self._tasks.names()))
            self._tasks.cancel()
            await self._idle.wait()


SHARED: Final = web.AppKey("yukta_shared", Shared)
