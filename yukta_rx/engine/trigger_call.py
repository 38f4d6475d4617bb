"""TriggerCall: a trigger's plugin as the body of a source: what it gives becomes first messages.

Features: ENG-02, EXT-01, DUR-03.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from reactivex import Observable

from yukta_rx.engine.calls import OBSERVABLE_BUFFER, PLAIN, PluginCall
from yukta_rx.errors import PluginContractError
from yukta_rx.model.message import Message, Routed, copy_payload, trigger_message
from yukta_rx.model.trace_context import trace_headers, with_headers
from yukta_rx.plugins.contract import Shape
from yukta_rx.streams.aio import AsyncIterableBody
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.rx import OverflowStrategy, from_rx
from yukta_rx.streams.sync import IterableBody
from yukta_rx.streams.threads import ThreadIterableBody

if TYPE_CHECKING:
    from yukta_rx.definitions.prepare import PreparedNode
    from yukta_rx.engine.policies import Timers
    from yukta_rx.engine.resume import GivenBefore
    from yukta_rx.plugins.contract import NodeContext
    from yukta_rx.streams.plan import Body
    from yukta_rx.streams.pool import BlockingPool


class TriggerCall(PluginCall):
    """One trigger's plugin.

    Args:
        node: the prepared node.
        context: what the plugin is given.
        timers: told of limits that are expressions, when it is called; not kept.
        before: what it gave before the run went on.
    """

    __slots__ = ("_before", "_headers")

    def __init__(
        self,
        node: PreparedNode,
        context: NodeContext,
        *,
        timers: Timers,
        before: GivenBefore | None = None,
    ) -> None:
        super().__init__(node, context, shared=False, timers=timers)
        self._before = before
        self._headers = trace_headers(context.traceparent)

    @property
    def opening_waits(self) -> bool:
        """As for any plugin, or the call itself may wait; that of a generator does nothing yet."""
        generates = self.spec.shape in (Shape.GENERATOR, Shape.ASYNC_GENERATOR)
        return super().opening_waits or not generates

    def body(self) -> Body:
        """Call a generator function; the body of the source that it made."""
        return self._source(self.fn(self._config(), self.context))

    async def start(self, pool: BlockingPool) -> Body:
        """Call a function of any shape; the body of the source that it made."""
        config = self._config()
        if self.spec.shape is Shape.SYNC and self.spec.blocking:
            made = await pool.call(self.fn, config, self.context)
        else:
            made = self.fn(config, self.context)
            # An Observable can be awaited too, for its last value.
            if inspect.isawaitable(made) and not isinstance(made, Observable):
                made = await made
        return self._source(made)

    def _config(self) -> Any:
        config = self.static_config()
        if self.first is not None:
            self.first(None)
        return config

    def _source(self, made: Any) -> Body:
        if isinstance(made, Observable):
            if not isinstance(made, Flow):
                made = from_rx(made, OverflowStrategy.ERROR, size=OBSERVABLE_BUFFER)
            return AsyncIterableBody(partial(self._iterated, made))
        if isinstance(made, AsyncIterable):
            return AsyncIterableBody(partial(self._numbered_async, made))
        if isinstance(made, Iterable) and not isinstance(made, str | bytes | dict):
            if self.spec.blocking:
                return ThreadIterableBody(partial(self._numbered, made))
            return IterableBody(partial(self._numbered, made), exact=False)
        raise PluginContractError(
            f"node {self.node_id}: {self.spec.type} returned {type(made).__name__}, "
            "expected an iterator, an async iterator or an Observable"
        )

    def _emitted(self, seq: int, value: Any) -> Any:
        kind = type(value)
        if kind is Routed:
            inner = self._emitted(seq, value.value)
            return Routed(value.port, inner)
        lineage = self.context.lineage
        if kind is Message:
            payload = value.payload if self.pure else copy_payload(value.payload)
            origin = (lineage, self.node_id, seq, True)
            headers = with_headers(value.headers, self._headers)
            return Message(payload, headers, origin, value.own_id)
        if kind not in PLAIN and value is not None:
            self.check(value)
        return trigger_message(
            lineage, self.node_id, seq, value if self.pure else copy_payload(value), self._headers
        )

    def _iterated(self, flow: Flow[Any]) -> AsyncIterator[Any]:
        return self._numbered_async(flow.aiter())

    def _numbered(self, values: Iterable[Any]) -> Iterator[Any]:
        try:
            if self._before is None:
                yield from map(self._emitted, count(), values)
            else:
                yield from self._before.values(self._emitted, values)
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                close()

    async def _numbered_async(self, values: AsyncIterable[Any]) -> AsyncIterator[Any]:
        seq, before = 0, self._before
        made = self._emitted if before is None else before.numbered(self._emitted)
        try:
            async for value in values:
                yield made(seq, value)
                seq += 1
            if before is not None:
                before.check_end(seq)
        finally:
            close = getattr(values, "aclose", None)
            if close is not None:
                await close()
