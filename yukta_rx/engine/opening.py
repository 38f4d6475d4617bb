"""The plugins of a run: opened before its first message, closed after its last.

Feature: EXT-01.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from yukta_rx.engine.calls import PluginCall
from yukta_rx.engine.resume import Prelude
from yukta_rx.engine.trigger_call import TriggerCall
from yukta_rx.model.log_fields import log_fields
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.sync import IterableBody

if TYPE_CHECKING:
    from yukta_rx.durability.stores.checkpoints import Rows
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.message import Message
    from yukta_rx.plugins.contract import NodeContext
    from yukta_rx.streams.aio import Tasks
    from yukta_rx.streams.plan import Barrier, Body, NodePlan
    from yukta_rx.streams.pool import BlockingPool

log = logging.getLogger(__name__)


Opening: TypeAlias = Callable[[], Awaitable[None]]
"""Opens a plugin, whatever there is to wait for."""


@dataclass(slots=True)
class Ready:
    """A node's plugin, ready to be wired.

    Attributes:
        body: calls it.
        barrier: what it does after its last input.
        element_timeout: seconds that an attempt may take, or what says so for a message.
    """

    body: Body
    barrier: Barrier | None = None
    element_timeout: float | Callable[[Message], float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FailedBody:
    """The body of a node whose plugin could not be opened: fails when the run starts."""

    error: BaseException

    def stage(self, plan: NodePlan, circuit: Any) -> Any:
        """A source that raises at its first element."""

        def make() -> Iterable[Any]:
            raise self.error

        return IterableBody(make).stage(plan, circuit)


class OpenPlugins:
    """Holds what was opened, so that all of it is closed, however the run ends.

    A plugin whose `open` ignores cancellation is left behind, and closed when it gets there.
    """

    __slots__ = ("_calls", "_closing", "_pool", "_tasks", "opening", "ready")

    def __init__(self, pool: BlockingPool, tasks: Tasks) -> None:
        self._pool = pool
        self._tasks = tasks
        self._calls: list[PluginCall] = []
        self._closing = False
        self.ready: dict[str, Ready] = {}
        self.opening: str | None = None
        """The node whose plugin is being opened."""

    def begin(self, openings: Iterator[Opening | None]) -> Coroutine[Any, Any, None] | None:
        """Open plugins up to the first that has to be waited for.

        Args:
            openings: what `open` gives for each, taken when it is its turn.

        Returns:
            What opens that one and the others; None if all are ready.
        """
        for opening in openings:
            if opening is not None:
                return self._open_others(opening, openings)
        return None

    async def _open_others(self, first: Opening, openings: Iterator[Opening | None]) -> None:
        await first()
        for opening in openings:
            if opening is not None:
                await opening()

    def open(
        self,
        node: NodeRuntime,
        context: NodeContext,
        *,
        shared: bool,
        recorded: Rows | None = None,
    ) -> Opening | None:
        """Make one node's plugin ready; if it cannot be opened the node fails when it starts.

        Args:
            node: the node.
            context: what its plugin is given.
            shared: whether others may hold the payloads that come in.
            recorded: what it emitted for inputs that it had finished before the run went on.

        Returns:
            What has to be awaited for it; None if it is ready.
        """
        if recorded is not None:
            node.prelude = Prelude(node, recorded)
            if (given := node.prelude.given) is not None:
                context.emitted_headers = given.headers
                context.emitted = given.emitted
        call: PluginCall
        if node.kind is PluginKind.TRIGGER:
            before = None if node.prelude is None else node.prelude.given
            call = TriggerCall(node.prepared, context, timers=node, before=before)
        else:
            call = PluginCall(node.prepared, context, shared=shared, timers=node, hold=node.hold())
            if call.shared:
                node.passed_round = call.passed_on
            _carry(node, call)
        if node.prelude is not None and node.prepared.spec.recall is not None:
            node.prelude.recall = call.recall
        if call.opening_waits:
            return partial(self._open, node, call)
        try:
            call.settle_config()
            self.ready[node.id] = self._ready(call)
        except Exception as error:
            self._failed(node, error, context)
        self._calls.append(call)
        return None

    async def _open(self, node: NodeRuntime, call: PluginCall) -> None:
        self.opening = node.id
        try:
            await call.open(self._pool)
            if isinstance(call, TriggerCall):
                self.ready[node.id] = Ready(await call.start(self._pool))
            else:
                self.ready[node.id] = self._ready(call)
        except Exception as error:
            self._failed(node, error, call.context)
        finally:
            self.opening = None
            await self._opened(call)

    async def _opened(self, call: PluginCall) -> None:
        self._calls.append(call)
        if self._closing:
            await self._close(self._calls.pop())

    def _ready(self, call: PluginCall) -> Ready:
        return Ready(call.body(), call.finish(self._pool), call.element_timeout())

    def _failed(self, node: NodeRuntime, error: Exception, context: NodeContext) -> None:
        about = log_fields(context.execution_id, node.id)
        log.warning("node %s could not be opened", node.id, exc_info=error, extra=about)
        self.ready[node.id] = Ready(FailedBody(error))

    def call_of(self, node_id: str) -> PluginCall | None:
        """What calls the plugin of a node."""
        return next((call for call in self._calls if call.node_id == node_id), None)

    def again(
        self, node: NodeRuntime, context: NodeContext, *, shared: bool, config: Any, began: bool
    ) -> Callable[[], Awaitable[None]] | None:
        """Make a node's plugin ready at once that was opened before and is closed by now.

        Args:
            node: the node.
            context: what its plugin is given.
            shared: whether others may hold the payloads that come in.
            config: its options as they were, if they are not those of the workflow.
            began: whether it has had its first message.

        Returns:
            What has to be awaited before its next message; None if it declares nothing.
        """
        call = PluginCall(node.prepared, context, shared=shared, timers=node, hold=node.hold())
        if config is not None:
            call.config = config
            call.ports = call.spec.named_ports(config)
        if began:
            call.first = None
        node.passed_round = call.passed_on
        _carry(node, call)
        self.ready[node.id] = self._ready(call)
        if call.spec.open is not None:
            return partial(self._open_again, call)
        self._calls.append(call)
        return None

    async def _open_again(self, call: PluginCall) -> None:
        try:
            await call.open(self._pool)
        finally:
            await self._opened(call)

    def let_go(self, node_id: str) -> None:
        """Close the plugin of a node no more: it was not opened, and goes on as another."""
        if (call := self.call_of(node_id)) is not None:
            self._calls.remove(call)
            call.context.release()

    async def close(self, grace: float) -> None:
        """Close them, the last first; none holds up the others.

        Each has `grace` seconds to close, and as many again to react to being cancelled.
        """
        self._closing = True
        while self._calls:
            call = self._calls.pop()
            if not call.closing_waits:
                call.context.release()
                continue
            closing = self._tasks.spawn(self._close(call), f"yukta close {call.node_id}")
            try:
                await asyncio.wait((closing,), timeout=grace)
            finally:
                closing.cancel()
            await asyncio.wait((closing,), timeout=grace)
            about = _about(call)
            if closing.cancelled():
                log.warning("node %s was not closed within %g s", call.node_id, grace, extra=about)
            elif not closing.done():
                log.warning(
                    "node %s is left behind: its `close` ignores cancellation",
                    call.node_id,
                    extra=about,
                )

    async def _close(self, call: PluginCall) -> None:
        try:
            await call.close(self._pool)
        except Exception as error:
            told = "node %s could not be closed"
            log.warning(told, call.node_id, exc_info=error, extra=_about(call))
        finally:
            call.context.release()


def _carry(node: NodeRuntime, call: PluginCall) -> None:
    """Let a plugin that carries references have them."""
    if node.claims is not None and node.claims.carries:
        call.carried = node.claims.carried


def _about(call: PluginCall) -> dict[str, str]:
    return log_fields(call.context.execution_id, call.node_id)


def without_engine_members(payload: Any) -> Any:
    """The start payload as plugins see it: without the members that begin with `yukta.`."""
    if not isinstance(payload, Mapping):
        return payload
    return {key: value for key, value in payload.items() if not key.startswith("yukta.")}
