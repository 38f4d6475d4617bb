"""The contract between a node type and the engine, and the decorators that declare one.

A plugin holds business logic only. It is called as

    trigger             fn(cfg, ctx)        -> iterator, async iterator or Observable
    processor, terminal fn(msg, cfg, ctx)   -> what it emits for this one message
    stream plugin       P().transform(stream, cfg, ctx) -> async iterator, Flow or Observable

and emits nothing (None), one message (a value or a Message; a list is one payload), several (by
yielding), or to a named port (`to_port`). For a trigger the engine looks at what the call
returned, so a plain function may choose between an iterator and an async iterator.
Feature: EXT-01.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict, TypeVar, Unpack

from yukta_rx.model.ids import id_fault
from yukta_rx.model.message import Message, Routed, to_port
from yukta_rx.plugins.bind import BoundConfig, bind_config, check_environment
from yukta_rx.plugins.check import check_config
from yukta_rx.plugins.conditions import Condition, MessageScope, When
from yukta_rx.plugins.config import ConfigFault, EnvironmentCheck, NoConfig, PluginConfig, fixed
from yukta_rx.plugins.context import NodeContext
from yukta_rx.plugins.shapes import (
    blocking_of,
    check_parameters,
    class_shape,
    function_shape,
    source_of,
)
from yukta_rx.plugins.spec import (
    DEFAULT_TIMEOUT,
    FailureMode,
    PluginKind,
    PluginSpec,
    PortsOf,
    ProcessorPlugin,
    Recall,
    Shape,
    Timeout,
    TimeoutOf,
)

__all__ = [
    "DEFAULT_TIMEOUT",
    "BoundConfig",
    "Condition",
    "ConfigFault",
    "FailureMode",
    "Message",
    "MessageScope",
    "NoConfig",
    "NodeContext",
    "PluginConfig",
    "PluginKind",
    "PluginSpec",
    "ProcessorPlugin",
    "Routed",
    "Shape",
    "When",
    "bind_config",
    "check_config",
    "check_environment",
    "fixed",
    "processor",
    "spec_of",
    "terminal",
    "to_port",
    "trigger",
]

F = TypeVar("F", bound=Callable[..., Any])

_BUILT_IN_PORTS: Final = frozenset({"dropped"})


class Declared(TypedDict, total=False):
    """What every kind of plugin may declare.

    Attributes:
        config: the model of its options; none by default.
        default_timeout: idle timeout in seconds, None for no limit, or a function of the
            configuration; 30 by default, for a trigger no limit.
        blocking: False to call a plain function or generator on the event loop, for one that
            computes for microseconds and never waits; by default it runs in the thread pool.
        pure: it changes neither a payload that it got nor one that it emitted, so none has to
            be copied for it.
        failure_mode: whether failures are raised or emitted.
        summary: one line for the catalogue; the docstring's first line by default.
        example: a configuration that is valid.
        open: called first, with (cfg, ctx); may be `async`. A ProcessorPlugin has a method. The
            config is None where an option depends on the message.
        close: called at the end, with (cfg, ctx), also when `open` failed; may be `async`. A
            ProcessorPlugin has a method.
        check: finds faults that depend on settings and folder of a run.
        setting: name of a setting that has to be true where it is used.
    """

    config: type[PluginConfig]
    default_timeout: TimeoutOf | Timeout
    blocking: bool
    pure: bool
    failure_mode: FailureMode
    summary: str
    example: Mapping[str, Any]
    open: Callable[..., Any]
    close: Callable[..., Any]
    check: EnvironmentCheck
    setting: str


def trigger(
    type: str, *, ports: Iterable[str] = (), replayable: bool = False, **common: Unpack[Declared]
) -> Callable[[F], F]:
    """Declare a function `fn(cfg, ctx)` as a trigger: it gives what a run works on.

    It has to respect demand: an iterator is asked for its next value when there is room for it,
    an Observable gets a bounded buffer with strategy ERROR.

    Args:
        type: the name in workflow documents.
        ports: named output ports beside the default one.
        replayable: started again it gives the same values in the same order.
        common: see `Declared`.

    Raises:
        TypeError: the function cannot be called this way.
        ValueError: a name is malformed or given twice.
    """

    def declare(fn: F) -> F:
        shape = function_shape(fn, 2, "(cfg, ctx)")
        common.setdefault("default_timeout", None)
        own = {"ports": tuple(ports), "replayable": replayable}
        return _attach(fn, _spec(fn, type, PluginKind.TRIGGER, shape, common, own))

    return declare


def processor(
    type: str,
    *,
    ports: Iterable[str] = (),
    ports_of: PortsOf | None = None,
    exact: bool = False,
    stateful: bool = False,
    independent: bool = False,
    recall: Recall | None = None,
    settles: bool = False,
    signals: bool = False,
    calls: str = "",
    carries: bool = False,
    **common: Unpack[Declared],
) -> Callable[[F], F]:
    """Declare a function `fn(msg, cfg, ctx)` or a ProcessorPlugin class as a processor.

    Args:
        type: the name in workflow documents.
        ports: named output ports beside the default one.
        ports_of: further ports, as a function of the configuration; the options that it looks at
            should be `fixed()`, and their validator should refuse names that are no ports.
        exact: it always emits exactly one message per input, to the default port.
        stateful: it keeps state between messages, so it cannot run on a worker.
        independent: what it does for a message depends on no other one, though it is stateful:
            its state is elsewhere, and a resumed run need not repeat what is finished.
        recall: of a function that keeps its state in `ctx.state`: makes that again where a run goes
            on after a crash, which then does not repeat what is finished. Called on the loop, with
            `(msg, cfg, ctx, emitted)`: with `emitted` for each message that it emitted, under the
            id of its input, in their order and before anything else; later without, for each input
            that it had finished, as that comes again. Such an input may have in place of a large
            payload what stands for one, and `cfg` is None then where options read the payload.
        settles: of a ProcessorPlugin: what it emits names all the messages that it was made of as
            its causes, and it keeps nothing of them afterwards. So a run that goes on after a
            crash does not give them to it again.
        signals: it waits for signals.
        calls: for an `async def`: name of the `fixed()` option that says how many messages it
            works on at once; `engine.concurrency.max` can only lower that.
        carries: for an `async def` that never looks at a payload and passes messages on: in place
            of a large payload it may be given what stands for one; its options see the payload.
        common: see `Declared`.

    Raises:
        TypeError: the function or class cannot be called this way.
        ValueError: a name is malformed or given twice.
    """

    def declare(fn: F) -> F:
        if inspect.isclass(fn):
            shape = class_shape(fn)
            if common.keys() & {"open", "close"}:
                raise TypeError(f"{source_of(fn)}: open and close are methods of the class")
        else:
            shape = function_shape(fn, 3, "(msg, cfg, ctx)")
        own = {
            "ports": tuple(ports),
            "ports_of": ports_of,
            "exact": exact,
            "stateful": stateful,
            "independent": independent,
            "recall": recall,
            "settles": settles,
            "signals": signals,
            "calls": calls,
            "carries": carries,
        }
        return _attach(fn, _spec(fn, type, PluginKind.PROCESSOR, shape, common, own))

    return declare


def terminal(
    type: str,
    *,
    stateful: bool = False,
    anew: Callable[[Mapping[str, Any]], bool] | None = None,
    finish: Callable[..., Any] | None = None,
    **common: Unpack[Declared],
) -> Callable[[F], F]:
    """Declare a function `fn(msg, cfg, ctx)` as a terminal: it ends a branch.

    What it returns is thrown away.

    Args:
        type: the name in workflow documents.
        stateful: it keeps state between messages, so it cannot run on a worker.
        anew: a function of the options as they stand in the document: whether a run that goes on
            after a crash has to give it all messages again, since what it made of those before
            the crash is gone. By default one with `finish` gets them, another does not.
        finish: called with (cfg, ctx) once the input has ended well and every call has returned,
            before the node ends SUCCESS; what it raises fails the node. May be `async`.
        common: see `Declared`.

    Raises:
        TypeError: the function cannot be called this way.
        ValueError: the type's name is malformed.
    """

    def declare(fn: F) -> F:
        shape = function_shape(fn, 3, "(msg, cfg, ctx)")
        own = {"stateful": stateful, "anew": anew, "finish": finish}
        return _attach(fn, _spec(fn, type, PluginKind.TERMINAL, shape, common, own))

    return declare


def spec_of(plugin: Any) -> PluginSpec:
    """Return the spec of a decorated function or class, or the spec itself.

    Raises:
        TypeError: it is not a plugin.
    """
    spec = plugin if isinstance(plugin, PluginSpec) else getattr(plugin, "spec", None)
    if not isinstance(spec, PluginSpec):
        raise TypeError(
            f"{plugin!r} is not a plugin: decorate it with @trigger, @processor or @terminal"
        )
    return spec


def _spec(
    fn: Callable[..., Any],
    type: str,
    kind: PluginKind,
    shape: Shape,
    common: Declared,
    own: dict[str, Any],
) -> PluginSpec:
    declared: dict[str, Any] = {**common, **own}
    for name in ("open", "finish", "close"):
        if declared.get(name) is not None:
            check_parameters(declared[name], 2, f"{name}(cfg, ctx)")
    declared["blocking"] = blocking_of(fn, shape, declared.get("blocking"))
    declared.setdefault("summary", (inspect.getdoc(fn) or "").split("\n", 1)[0])
    return PluginSpec(type=type, kind=kind, shape=shape, fn=fn, source=source_of(fn), **declared)


def _attach(fn: F, spec: PluginSpec) -> F:
    if fault := id_fault("plugin type", spec.type):
        raise ValueError(f"{spec.source}: {fault}")
    if not (isinstance(spec.config, type) and issubclass(spec.config, PluginConfig)):
        raise TypeError(f"{spec.source}: config has to be a subclass of PluginConfig")
    for port in spec.ports:
        if fault := id_fault("port", port):
            raise ValueError(f"{spec.source}: {fault}")
        if port in _BUILT_IN_PORTS:
            raise ValueError(f"{spec.source}: port `{port}` belongs to the engine")
    if len(set(spec.ports)) < len(spec.ports):
        raise ValueError(f"{spec.source}: a port is named twice in {', '.join(spec.ports)}")
    if spec.calls and spec.calls not in spec.config.model_fields:
        raise TypeError(f"{spec.source}: there is no option {spec.calls}")
    if spec.recall is not None:
        check_parameters(spec.recall, 4, "recall(msg, cfg, ctx, emitted)")
        if not spec.per_message:
            raise TypeError(f"{spec.source}: recall is for a function")
    if spec.carries and spec.shape is not Shape.ASYNC:
        raise TypeError(f"{spec.source}: carries is for an async def")
    if spec.exact and (spec.shape not in (Shape.SYNC, Shape.ASYNC) or spec.ports or spec.ports_of):
        raise TypeError(f"{spec.source}: exact is for a function that returns one message")
    fn.spec = spec  # type: ignore[attr-defined]
    return fn
