"""A validated definition in the form that the engine wires, made once per content and shared.

Feature: DEF-03.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from cachetools import LRUCache

from yukta_rx.definitions.node_checks import idle_timeout
from yukta_rx.definitions.toposort import topological_order
from yukta_rx.definitions.validate import UNSUPPORTED_POLICY_KEYS, check
from yukta_rx.plugins.contract import BoundConfig, PluginSpec, bind_config
from yukta_rx.security.variables import Template, compile_number

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.errors import Fault
    from yukta_rx.metrics import Meters
    from yukta_rx.model.policy import NodePolicy
    from yukta_rx.model.workflow import Node, WorkflowDefinition
    from yukta_rx.plugins.registry import PluginRegistry

Offload: TypeAlias = Callable[..., Awaitable[Any]]
"""`offload(fn, *args)`: awaits `fn(*args)` somewhere that does not hold up the event loop."""

T = TypeVar("T")

CAPACITY = 128
"""Prepared workflows kept by default."""


@dataclass(frozen=True, slots=True)
class Parent:
    """An edge as its target sees it."""

    node_id: str
    port: str | None
    required: bool


@dataclass(frozen=True, slots=True)
class Child:
    """An edge as its source sees it."""

    node_id: str
    port: str | None


@dataclass(frozen=True, slots=True)
class PreparedNode:
    """One node, ready to be wired.

    Attributes:
        node: as it stands in the definition.
        spec: its plugin.
        policy: what the engine does for it.
        config: the plugin's options, bound.
        parents: the edges into it, in the order of the document.
        children: the edges out of it, in the order of the document.
        idle_timeout: seconds, None for no limit; what holds until the first message.
        timeout_template: what gives the seconds at the first message, if it is an expression.
        element_timeout_template: what gives the milliseconds of one attempt, likewise.
        deadline_template: what gives the milliseconds of the deadline, likewise.
        goes_on: whether a run that goes on after a crash need not repeat the messages that the node
            had finished.
    """

    node: Node
    spec: PluginSpec
    policy: NodePolicy
    config: BoundConfig
    parents: tuple[Parent, ...]
    children: tuple[Child, ...]
    idle_timeout: float | None
    timeout_template: Template | None
    element_timeout_template: Template | None
    deadline_template: Template | None
    goes_on: bool = field(init=False)

    def __post_init__(self) -> None:
        """Work out once what each run asks for."""
        object.__setattr__(self, "goes_on", self._goes_on())

    @property
    def node_id(self) -> str:
        """Id of the node."""
        return self.node.node_id

    def _goes_on(self) -> bool:
        anew = self.spec.anew
        if anew is None:
            # What is done in the end takes all of them.
            return self.spec.by_message and self.spec.finish is None
        return self.spec.by_message and not anew(self.node.config.model_extra or {})


@dataclass(frozen=True, slots=True)
class PreparedWorkflow:
    """A definition, ready to be wired; immutable, so any number of runs share it.

    Attributes:
        definition: what it was made from.
        version: the definition's content hash.
        order: node ids, parents before children.
        nodes: the nodes by id, in that order.
        warnings: what validation found odd.
    """

    definition: WorkflowDefinition
    version: str
    order: tuple[str, ...]
    nodes: Mapping[str, PreparedNode]
    warnings: tuple[Fault, ...]
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, make: Callable[[PreparedWorkflow], T]) -> T:
        """What `make` gives for it, worked out once for all runs; nobody may change that."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made


def prepare(
    definition: WorkflowDefinition,
    registry: PluginRegistry,
    *,
    settings: Settings,
    base_dir: Path | None = None,
    unsupported: frozenset[str] = UNSUPPORTED_POLICY_KEYS,
) -> PreparedWorkflow:
    """Validate a definition and make it ready.

    Raises:
        DefinitionError: it is refused; lists every fault.
    """
    validation = check(
        definition, registry, settings=settings, base_dir=base_dir, unsupported=unsupported
    )
    by_id = {node.node_id: node for node in definition.nodes}
    parents: dict[str, list[Parent]] = {name: [] for name in by_id}
    children: dict[str, list[Child]] = {name: [] for name in by_id}
    for edge in definition.edges:
        parents[edge.target].append(Parent(edge.source, edge.source_port, edge.required))
        children[edge.source].append(Child(edge.target, edge.source_port))
    order = topological_order(
        list(by_id), [(edge.source, edge.target) for edge in definition.edges]
    )
    nodes = {
        name: _prepared(
            by_id[name], validation.specs[name], tuple(parents[name]), tuple(children[name])
        )
        for name in order
    }
    return PreparedWorkflow(
        definition, definition.version, order, MappingProxyType(nodes), validation.warnings
    )


def _prepared(
    node: Node, spec: PluginSpec, parents: tuple[Parent, ...], children: tuple[Child, ...]
) -> PreparedNode:
    seconds, options = node.timeout_seconds, node.plugin_config
    return PreparedNode(
        node,
        spec,
        node.policy,
        bind_config(spec, options),
        parents,
        children,
        idle_timeout(seconds, options, spec),
        *map(_number, (seconds, node.policy.element_timeout_ms, node.policy.deadline_ms)),
    )


def _number(value: Any) -> Template | None:
    return compile_number(value) if isinstance(value, str) else None


class Preparer:
    """Prepares definitions, each content once; belongs to one event loop.

    Args:
        registry: where plugin types are looked up.
        settings: the settings in force.
        offload: where the work is done; by default right here, some ten milliseconds for the
            largest graph, plus the import of plugins that nobody used yet.
        capacity: how many prepared workflows are kept; the one unused for longest goes first.
        unsupported: keys that are refused because this build does not execute them.
        meters: where preparations are counted.
    """

    def __init__(
        self,
        registry: PluginRegistry,
        settings: Settings,
        *,
        offload: Offload | None = None,
        capacity: int = CAPACITY,
        unsupported: frozenset[str] = UNSUPPORTED_POLICY_KEYS,
        meters: Meters | None = None,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._offload = offload
        self._unsupported = unsupported
        self._ready: LRUCache[_Key, PreparedWorkflow] = LRUCache(capacity)
        self._under_way: dict[_Key, _Shared] = {}
        self._made = None
        if meters is not None:
            self._made = meters.counter("yukta.definitions.preparations")
            meters.watch("yukta.definitions.prepared", lambda: len(self._ready))

    async def prepare(
        self, definition: WorkflowDefinition, base_dir: Path | None = None
    ) -> PreparedWorkflow:
        """Return the definition made ready; who asks while it is made waits for the same one.

        A waiter that is cancelled leaves the others alone.

        Raises:
            DefinitionError: it is refused; lists every fault. A refusal is not remembered.
        """
        key = definition.version, base_dir
        while True:
            ready = self._ready.get(key)
            if ready is not None:
                return ready
            shared = self._under_way.get(key)
            if shared is None:
                return await self._make(key, definition, base_dir)
            made = await asyncio.shield(shared)
            if made is not None:
                return made
            # Whoever was making it was cancelled, so it is this caller's turn.

    def drop(self, version: str) -> None:
        """Forget what was prepared for a content hash; what is being made will not be kept."""
        for key in [key for key in self._ready if key[0] == version]:
            del self._ready[key]
        for key in [key for key in self._under_way if key[0] == version]:
            del self._under_way[key]

    def __len__(self) -> int:
        return len(self._ready)

    async def _make(
        self, key: _Key, definition: WorkflowDefinition, base_dir: Path | None
    ) -> PreparedWorkflow:
        def work() -> PreparedWorkflow:
            return prepare(
                definition,
                self._registry,
                settings=self._settings,
                base_dir=base_dir,
                unsupported=self._unsupported,
            )

        shared: _Shared = asyncio.get_running_loop().create_future()
        self._under_way[key] = shared
        try:
            made: PreparedWorkflow = work() if self._offload is None else await self._offload(work)
        except Exception as error:
            shared.set_exception(error)
            # Looked at here, so that a refusal nobody else waits for is not reported as lost.
            shared.exception()
            raise
        else:
            shared.set_result(made)
            if self._made is not None:
                self._made.add()
            if self._under_way.get(key) is shared:
                self._ready[key] = made
            return made
        finally:
            if self._under_way.get(key) is shared:
                del self._under_way[key]
            if not shared.done():
                shared.set_result(None)


_Key: TypeAlias = "tuple[str, Path | None]"
# None says that its maker was cancelled.
_Shared: TypeAlias = "asyncio.Future[PreparedWorkflow | None]"
