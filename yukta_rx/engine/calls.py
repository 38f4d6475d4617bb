"""A plugin of any shape as the body of a stage: ids, copies, configuration, contract checks.

What a plugin gives back becomes messages here: a bare value is the payload of a message derived
from the input, a Message gets a derived id unless it brought one, None is dropped. A plugin that
is not declared `pure` gets a copy of a payload that another branch holds too, and what it emits
is copied as it was at that moment, so no branch ever sees another's mutation.

Features: ENG-02, EXT-01.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reactivex import Observable
from reactivex import operators as rx

from yukta_rx.engine.plugin_input import PluginInput
from yukta_rx.engine.policies import Timers, copies, milliseconds
from yukta_rx.engine.resume import settled
from yukta_rx.errors import PluginContractError, YuktaError
from yukta_rx.model.claim import Claim
from yukta_rx.model.message import Message, Routed, copy_payload
from yukta_rx.plugins.bind import calls_at_once
from yukta_rx.plugins.context import CallContext
from yukta_rx.plugins.contract import PluginKind, Shape
from yukta_rx.security.variables import Scope
from yukta_rx.streams.aio import AsyncBody, AsyncManyBody
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.rx import OverflowStrategy, from_rx
from yukta_rx.streams.sync import ManyBody, MapBody
from yukta_rx.streams.threads import ThreadBody
from yukta_rx.streams.through import StreamBody

if TYPE_CHECKING:
    from yukta_rx.definitions.prepare import PreparedNode
    from yukta_rx.plugins.contract import BoundConfig, NodeContext, PluginSpec
    from yukta_rx.security.variables import Template
    from yukta_rx.streams.attempts import Hold
    from yukta_rx.streams.plan import Barrier, Body
    from yukta_rx.streams.pool import BlockingPool

OBSERVABLE_BUFFER: Final = 1024
"""Elements that may wait when a plugin returns a plain Observable; more fail the node."""

REMEMBERED_CAUSES: Final = 1024
"""Causes whose outputs a stream plugin may still add to without repeating an id."""

PLAIN: Final = frozenset({dict, list, str, int, float, bool, tuple, bytes})
"""Types of values that need no look before they go into a message."""


class PluginCall:
    """One node's plugin, ready to be called: knows its configuration, context and declarations.

    Args:
        node: the prepared node.
        context: what the plugin is given.
        shared: another branch may hold the payloads that come in.
        timers: told, once the first message is there, of limits that depend on it; not kept.
        hold: how much an attempt may hold back.
    """

    __slots__ = (
        "_scope",
        "bound",
        "carried",
        "config",
        "context",
        "first",
        "fn",
        "hold",
        "instance",
        "node",
        "node_id",
        "own_context",
        "ports",
        "pure",
        "shared",
        "spec",
        "trail",
    )

    def __init__(
        self,
        node: PreparedNode,
        context: NodeContext,
        *,
        shared: bool,
        timers: Timers,
        hold: Hold | None = None,
    ) -> None:
        self.spec = node.spec
        self.ports = node.spec.named_ports(node.config.constant)
        self.bound = node.config
        self.config = node.config.constant
        self.context = context
        self.node_id = node.node.node_id
        self.node = node
        self.trail: tuple[Any, str] = (..., self.node_id)
        """The trail of what the last message became."""
        self.hold = hold
        self._scope: Scope | None = None
        self.fn = node.spec.fn
        self.own_context = node.spec.overlaps
        self.instance: Any = None
        self.carried: Callable[[Message, Message], Message] | None = None
        """Gives, of a message and its copy, what the plugin carries; see `PluginSpec.carries`."""
        self.pure = node.spec.pure
        self.shared = copies(node, shared=shared)
        self.first: Callable[[Message | None], None] | None = None
        """Told of the first message, where idle timeout or deadline depend on it."""
        idle = self._idle_timeout_of()
        if idle is not None or node.deadline_template is not None:
            self.first = self._timed_by_message(timers, idle)

    @property
    def scope(self) -> Scope:
        """What expressions can read beside the message."""
        if self._scope is None:
            context = self.context
            self._scope = Scope(
                context={
                    "executionId": context.execution_id,
                    "sessionId": context.session_id,
                    "workflowId": context.workflow_id,
                    "nodeId": context.node_id,
                },
                settings=context.settings,
                secrets=context.secrets,
            )
        return self._scope

    # -- configuration

    def static_config(self) -> Any:
        """The configuration where there is no message: triggers, stream plugins, open, close."""
        if self.config is not None:
            return self.config
        return self.bound.resolve(self.scope)

    def config_for(self, msg: Message) -> Any:
        """The configuration with `${...}` resolved for one message."""
        return self.bound.resolve(self.scope.for_message(msg))

    def _timed_by_message(
        self, timers: Timers, idle: Callable[[Scope], float | None] | None
    ) -> Callable[[Message | None], None]:
        """What works out idle timeout and deadline at the first message."""
        deadline, text = self.node.deadline_template, self.node.policy.deadline_ms

        def timed(msg: Message | None) -> None:
            scope = self.scope if msg is None else self.scope.for_message(msg)
            if idle is not None:
                timers.retime(idle(scope))
            if deadline is not None:
                timers.set_deadline(milliseconds(text, deadline, scope))

        return timed

    def _idle_timeout_of(self) -> Callable[[Scope], float | None] | None:
        if (template := self.node.timeout_template) is not None:
            return partial(_seconds, template)
        given = self.node.node.timeout_seconds is not None
        if given or not callable(self.spec.default_timeout) or self.bound.constant is not None:
            return None
        return partial(_timeout, self.spec, self.bound)

    def element_timeout(self) -> float | Callable[[Message], float] | None:
        """Seconds that an attempt may take, or what says so for a message."""
        limit, template = self.node.policy.element_timeout_ms, self.node.element_timeout_template
        if template is not None:
            return partial(self._attempt_seconds, limit, template)
        return None if limit is None else int(limit) / 1000

    def _attempt_seconds(self, limit: Any, template: Template, msg: Message) -> float:
        return milliseconds(limit, template, self.scope.for_message(msg))

    # -- before and after

    @property
    def opening_waits(self) -> bool:
        """Whether something has to be called, and may have to be waited for, before it is ready."""
        return self.spec.open is not None or self.spec.shape is Shape.STREAM

    @property
    def closing_waits(self) -> bool:
        """Whether there is something to call when it is closed."""
        return self.instance is not None or self.spec.close is not None

    def settle_config(self) -> None:
        """Work out options that no message is needed for."""
        if self.config is None and not self.bound.reads_message:
            self.config = self.bound.resolve(self.scope)
            self.ports = self.spec.named_ports(self.config)

    async def open(self, pool: BlockingPool) -> None:
        """Get the plugin ready: make a stream plugin, call what it declares as `open`."""
        self.settle_config()
        if self.spec.shape is Shape.STREAM:
            self.instance = self.fn()
            await self._prepare(self.instance.open, pool)
        elif self.spec.open is not None:
            await self._prepare(self.spec.open, pool)

    def finish(self, pool: BlockingPool) -> Barrier | None:
        """What a terminal does after its last input; None if it declares nothing."""
        hook = self.spec.finish
        return None if hook is None else partial(self._prepare, hook, pool)

    async def close(self, pool: BlockingPool) -> None:
        """Call what the plugin declares as `close`."""
        if self.instance is not None:
            await self._prepare(self.instance.close, pool)
        elif self.spec.close is not None:
            await self._prepare(self.spec.close, pool)

    async def _prepare(self, hook: Callable[..., Any], pool: BlockingPool) -> None:
        # Options that depend on a message have no value yet: the hook gets None for its config.
        config = None if self.bound.reads_message else self.static_config()
        if self.spec.blocking and not inspect.iscoroutinefunction(hook):
            await pool.call(hook, config, self.context)
            return
        made = hook(config, self.context)
        if inspect.isawaitable(made):
            await made

    # -- in and out

    def taken(self, msg: Message) -> Message:
        """The message as the plugin may have it."""
        first, self.first = self.first, None
        if first is not None:
            first(msg)
        return self.passed_on(msg)

    def recall(self, msg: Message, emitted: bool) -> None:
        """Tell the plugin of a message that it had finished before the run went on."""
        assert self.spec.recall is not None, "only such a plugin is told"
        config = self.config
        try:
            if config is None and type(msg.payload) is not Claim:
                config = self.config_for(msg)
            self.spec.recall(msg, config, self.context, emitted)
        except YuktaError:
            # So it did the first time: it left nothing behind.
            return

    def passed_on(self, msg: Message) -> Message:
        """The message as it goes round the plugin, into a branch that may change it."""
        if not self.shared:
            return msg
        return msg.copied()

    def given(self, cause: Message, out: Any, index: int) -> Any:
        """What the plugin gave for `cause`, as a message, `Routed` message or None."""
        kind = type(out)
        if kind is Message:
            made: Message = out.adopt(self.node_id, index, cause)
            if self.pure:
                return made
            return Message(copy_payload(made.payload), made.headers, made.origin, made.uid)
        if out is None:
            return None
        if kind is Routed:
            if self.ports is not None and out.port not in self.ports:
                known = ", ".join(self.ports) or "none"
                raise PluginContractError(
                    f"node {self.node_id}: {self.spec.type} sent to port `{out.port}`, "
                    f"but declares {known}"
                )
            inner = self.given(cause, out.value, index)
            return None if inner is None else Routed(out.port, inner)
        if kind not in PLAIN:
            self.check(out)
        if not self.pure:
            out = copy_payload(out)
        if index or cause.uid is not None or not cause.origin:
            return cause.derive(self.node_id, index, out)
        # Message.derive with the trail that the last message had too, as a rule.
        trail = self.trail
        if trail[0] is not cause.trail:
            trail = self.trail = (cause.trail, self.node_id)
        return Message(out, cause.headers, cause.origin, None, 1, trail)

    def check(self, out: Any) -> None:
        """Raise PluginContractError if what the plugin gave is no value of a message."""
        fault = None
        if isinstance(out, Observable):
            fault = "an Observable; annotate the function's return type with it"
        elif inspect.isawaitable(out):
            fault = "a coroutine or other awaitable; declare the function `async def`"
            if inspect.iscoroutine(out):
                out.close()
        elif isinstance(out, Generator | AsyncIterator | Iterator):
            fault = "an iterator; write the function as a generator to emit several messages"
        if fault is not None:
            raise PluginContractError(f"node {self.node_id}: {self.spec.type} returned {fault}")

    # -- processors and terminals

    def body(self) -> Body:
        """The stage body for this plugin's shape; terminals emit the message they took."""
        spec = self.spec
        if spec.shape is Shape.STREAM:
            return StreamBody(self._through, settled if spec.settles else None)
        many = spec.shape in (Shape.GENERATOR, Shape.ASYNC_GENERATOR, Shape.OBSERVABLE)
        if spec.kind is PluginKind.TERMINAL:
            return self._terminal_body()
        if spec.shape is Shape.ASYNC:
            return self._async(AsyncBody(self._invoke, self.given, exact=spec.exact))
        if spec.shape is Shape.ASYNC_GENERATOR:
            return self._async(AsyncManyBody(self._invoke, self.given, self.hold))
        if spec.shape is Shape.OBSERVABLE:
            return AsyncManyBody(self._observe, self.given, self.hold)
        if spec.blocking:
            return ThreadBody(self._each if many else self._one, many=many, hold=self.hold)
        if many:
            return ManyBody(self._each, self.hold)
        return MapBody(self._one_fast(), exact=spec.exact, again=self._one)

    def _async(self, body: AsyncBody | AsyncManyBody) -> Body:
        """`body`, with several calls at once where the policy, or the plugin, says so."""
        concurrency = self.node.policy.concurrency
        most = calls_at_once(self.spec, self.bound, concurrency)
        if most == 1:
            # No call goes on beside another, unless a limit leaves one behind.
            self.own_context = self.element_timeout() is not None
            return body
        return ConcurrentBody(body.attempt, most, concurrency.ordered, bool(self.spec.calls))

    def _terminal_body(self) -> Body:
        shape = self.spec.shape
        if shape is Shape.ASYNC:
            return self._async(AsyncBody(self._invoke, lambda msg, _out, _index: msg, exact=True))
        if shape is Shape.ASYNC_GENERATOR:
            return self._async(AsyncBody(self._exhaust_async, exact=True))
        if shape is Shape.OBSERVABLE:
            return AsyncBody(self._exhaust_async, exact=True)

        if shape is Shape.GENERATOR:

            def end(msg: Message) -> Message:
                for _ in self._invoke(msg):
                    pass
                return msg
        else:

            def end(msg: Message) -> Message:
                self._invoke(msg)
                return msg

        return ThreadBody(end) if self.spec.blocking else MapBody(end, exact=True)

    def _invoke(self, msg: Message) -> Any:
        config = self.config if self.config is not None else self.config_for(msg)
        context, given = self.context, self.taken(msg)
        if self.carried is not None:
            given = msg = self.carried(msg, given)
        if self.own_context or msg.attempt > 1:
            context = CallContext(context, msg)
        else:
            context.message = msg
        return self.fn(given, config, context)

    def _one(self, msg: Message) -> Any:
        return self.given(msg, self._invoke(msg), 0)

    def _one_fast(self) -> Callable[[Message], Any]:
        """`_one` without the branches that are known not to be taken."""
        config, fn, context, given = self.config, self.fn, self.context, self.given
        if config is None or self.shared or self.first is not None:
            return self._one
        if not self.pure:
            return lambda msg: given(msg, fn(msg, config, context), 0)
        node_id = self.node_id
        trail = self.trail

        def one(msg: Message) -> Any:
            nonlocal trail
            out = fn(msg, config, context)
            origin = msg.origin
            if type(out) not in PLAIN or msg.uid is not None or not origin:
                return given(msg, out, 0)
            # As in `given`, written out: every message of every built-in node comes by here.
            if trail[0] is not msg.trail:
                trail = (msg.trail, node_id)
            return Message(out, msg.headers, origin, None, 1, trail)

        return one

    def _each(self, msg: Message) -> Iterator[Any]:
        given = self.given
        for index, out in enumerate(self._invoke(msg)):
            yield given(msg, out, index)

    def _observe(self, msg: Message) -> AsyncIterable[Any]:
        return self._as_async(self._invoke(msg), "an Observable")

    async def _exhaust_async(self, msg: Message) -> Message:
        outputs = self._as_async(self._invoke(msg), "an async iterator")
        async for _ in outputs:
            pass
        return msg

    # -- stream plugins

    async def _through(self, inlet: AsyncIterator[Any]) -> AsyncIterator[Any]:
        stream = PluginInput(inlet, self.node_id, self.taken)
        made = self.instance.transform(stream, self.static_config(), self.context)
        pushed = isinstance(made, Observable) and not isinstance(made, Flow)
        if pushed:
            # What a plain Observable emits, it emits while it is given the message it is for.
            made = made.pipe(rx.map(lambda out: (stream.latest, out)))
        outputs = self._as_async(made, "an async iterator")
        given: OrderedDict[Any, int] = OrderedDict()
        try:
            async for out in outputs:
                cause = stream.latest
                if pushed:
                    cause, out = out
                if cause is None:
                    raise PluginContractError(
                        f"node {self.node_id}: {self.spec.type} emitted before it took a message"
                    )
                made = self.given(cause, out, 0)
                inner = made.value if type(made) is Routed else made
                if inner is None:
                    continue
                key = inner.made_from
                index = given.pop(key, -1) + 1
                given[key] = index
                if len(given) > REMEMBERED_CAUSES:
                    given.popitem(last=False)
                if index and inner.own_id is None and inner.uid is None:
                    inner = Message(inner.payload, inner.headers, (key, self.node_id, index))
                    made = Routed(made.port, inner) if type(made) is Routed else inner
                yield made
        finally:
            close = getattr(outputs, "aclose", None)
            if close is not None:
                await close()

    def _as_async(self, outputs: Any, wanted: str) -> AsyncIterable[Any]:
        if isinstance(outputs, Flow):
            return outputs.aiter()
        if isinstance(outputs, Observable):
            return from_rx(outputs, OverflowStrategy.ERROR, size=OBSERVABLE_BUFFER).aiter()
        if isinstance(outputs, AsyncIterable):
            return outputs
        raise PluginContractError(
            f"node {self.node_id}: {self.spec.type} returned {type(outputs).__name__}, "
            f"expected {wanted}"
        )


def _seconds(template: Template, scope: Scope) -> float | None:
    seconds: float = template.resolve(scope)
    return seconds or None


def _timeout(spec: PluginSpec, bound: BoundConfig, scope: Scope) -> float | None:
    return spec.timeout(bound.resolve(scope))
