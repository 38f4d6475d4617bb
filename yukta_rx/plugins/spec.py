"""PluginSpec: everything that is known about a node type.  Feature: EXT-01."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.plugins.config import EnvironmentCheck, NoConfig, PluginConfig
from yukta_rx.plugins.schema import config_schema

if TYPE_CHECKING:
    from yukta_rx.plugins.context import NodeContext

DEFAULT_TIMEOUT: Final = 30.0
"""Idle timeout in seconds of a processor or terminal that declares none."""

Timeout = float | None
TimeoutOf = Callable[[Any], Timeout]
PortsOf = Callable[[Any], tuple[str, ...]]
Recall = Callable[[Any, Any, Any, bool], None]
ConfigModel = type[PluginConfig]


class PluginKind(StrEnum):
    """Where in a workflow a node of this type stands."""

    TRIGGER = "TRIGGER"
    PROCESSOR = "PROCESSOR"
    TERMINAL = "TERMINAL"


class Shape(StrEnum):
    """How a plugin is written, and so how the engine calls it."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    GENERATOR = "GENERATOR"
    ASYNC_GENERATOR = "ASYNC_GENERATOR"
    OBSERVABLE = "OBSERVABLE"
    STREAM = "STREAM"


_WAITING: Final = frozenset({Shape.ASYNC, Shape.ASYNC_GENERATOR, Shape.OBSERVABLE})


class FailureMode(StrEnum):
    """What a plugin does about a failure of its own: raise, or emit a message that says so."""

    FAIL = "FAIL"
    EMIT = "EMIT"


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """Everything the engine, the validator and the catalogue know about a plugin.

    Attributes:
        type: the name that a workflow document uses.
        kind: trigger, processor or terminal.
        shape: how it is called.
        fn: the function, or for a stream plugin the class, one instance per node and run.
        config: the model of its options.
        ports: named output ports beside the default one.
        ports_of: further ports, as a function of the config, which is told here once it is known
            without a message; options that ports depend on should be `fixed()`.
        default_timeout: idle timeout in seconds, None for no limit, or a function of the config.
        blocking: True if calls go to the thread pool and not to the event loop.
        pure: it never changes a message or payload, nor one that it emitted.
        exact: exactly one message to the default port for each input, always.
        failure_mode: whether failures are raised or emitted.
        stateful: it keeps state between messages, so it cannot run on a worker.
        independent: what it does for a message depends on no other one, though it is stateful:
            a resumed run need not repeat what is finished.
        recall: of a function with state: makes the state again of what a run had finished before it
            goes on; called with (msg, cfg, ctx, emitted).
        settles: of a stream plugin: what it emits names all that it was made of as its causes,
            and it keeps nothing of that.
        anew: whether a resumed run has to give it all inputs again, so configured.
        signals: it waits for signals.
        calls: name of the `fixed()` option that says how many messages an async plugin works on
            at once; empty leaves that to `engine.concurrency`.
        carries: of an async plugin: it never looks at a payload and passes messages on, so that
            what it holds for long are references to large ones; only its options see those.
        replayable: a trigger that can go on after a known sequence number.
        summary: one line for the catalogue.
        example: a configuration that is valid.
        open: called before the first message, with (cfg, ctx).
        finish: called once a terminal's input has ended well and is worked off, with (cfg, ctx).
        close: called after the last one, however the node ended, with (cfg, ctx).
        check: finds faults that depend on settings and folder of a run.
        setting: name of a setting that has to be true where the plugin is used; empty for none.
        source: `module:qualname` of the plugin.
    """

    type: str
    kind: PluginKind
    shape: Shape
    fn: Callable[..., Any]
    config: ConfigModel = NoConfig
    ports: tuple[str, ...] = ()
    ports_of: PortsOf | None = None
    default_timeout: TimeoutOf | Timeout = DEFAULT_TIMEOUT
    blocking: bool = False
    pure: bool = False
    exact: bool = False
    failure_mode: FailureMode = FailureMode.FAIL
    stateful: bool = False
    independent: bool = False
    recall: Recall | None = None
    settles: bool = False
    anew: Callable[[Mapping[str, Any]], bool] | None = None
    signals: bool = False
    calls: str = ""
    carries: bool = False
    replayable: bool = False
    summary: str = ""
    example: Mapping[str, Any] | None = None
    open: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None
    close: Callable[..., Any] | None = None
    check: EnvironmentCheck | None = None
    setting: str = ""
    source: str = ""

    @property
    def per_message(self) -> bool:
        """Whether it is called per message, so that its options may read that message."""
        return self.kind is not PluginKind.TRIGGER and self.shape is not Shape.STREAM

    @property
    def overlaps(self) -> bool:
        """Whether a call may go on after another has begun, in a thread or as a coroutine."""
        return self.per_message and (self.blocking or self.shape in _WAITING)

    @property
    def by_message(self) -> bool:
        """Whether a run that goes on after a crash need not repeat the messages it had finished."""
        apart = self.independent or self.recall is not None or not self.stateful
        return self.settles or (self.per_message and apart)

    @property
    def noun(self) -> str:
        """The word for it in error texts."""
        return "stream plugin" if self.shape is Shape.STREAM else self.kind.lower()

    def named_ports(self, cfg: PluginConfig | None) -> tuple[str, ...] | None:
        """Return the named output ports of a node with this configuration.

        Args:
            cfg: the configuration, or None while it depends on a message.

        Returns:
            The ports; None if they are not known yet.
        """
        if self.ports_of is None:
            return self.ports
        return None if cfg is None else (*self.ports, *self.ports_of(cfg))

    def timeout(self, cfg: PluginConfig | None) -> float | None:
        """Return the default idle timeout in seconds, None for no limit.

        Args:
            cfg: the configuration, or None while it depends on a message; then a timeout that
                is a function of it is the general default for the time being.
        """
        if not callable(self.default_timeout):
            return self.default_timeout
        return DEFAULT_TIMEOUT if cfg is None else self.default_timeout(cfg)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of `config` as a workflow document writes it."""
        return config_schema(self.config)

    def describe(self) -> dict[str, Any]:
        """Return the catalogue entry: plain JSON."""
        timeout = self.default_timeout
        return {
            "type": self.type,
            "kind": str(self.kind),
            "summary": self.summary,
            "shape": str(self.shape),
            "ports": list(self.ports),
            "portsFromConfig": self.ports_of is not None,
            "defaultTimeoutSeconds": "computed" if callable(timeout) else timeout,
            "blocking": self.blocking,
            "failureMode": str(self.failure_mode),
            "stateful": self.stateful,
            "replayable": self.replayable,
            "setting": self.setting or None,
            "source": self.source,
            "example": None if self.example is None else dict(self.example),
            "configSchema": self.json_schema(),
        }


class ProcessorPlugin:
    """Base of a processor that works on the whole stream: windows, batches, joins.

    The engine makes one instance per node and run, calls `open`, then `transform` once, and at
    the end `close`, however the node ended.
    """

    def open(self, cfg: Any, ctx: NodeContext) -> Any:
        """Get ready; may be `async`."""

    def close(self, cfg: Any, ctx: NodeContext) -> Any:
        """Let go of everything; may be `async`."""

    def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> Any:
        """Turn the stream of input messages into the stream of outputs.

        Args:
            stream: the inputs: `async for msg in stream`, each taken as it is asked for.
            cfg: the configuration; it can read env, sys and context, not a message.
            ctx: the node's context.

        Returns:
            An async iterator (usually this is an async generator), a Flow or an Observable.
        """
        raise NotImplementedError
