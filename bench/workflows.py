"""The work that every form does, as plain functions, as plugins, and as workflows of them.

Twenty functions and not one twenty times: CPython has a shortcut for the one, in a plain loop as
in ours, and no chain of different nodes gets it.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yukta_rx import operators as ops
from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.run import Run
from yukta_rx.plugins.contract import PluginConfig, processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import Circuit, Flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from yukta_rx.streams.plan import Body

NODES = 20
SETTINGS = Settings()
WIDE = load_settings(environ={}, overrides={"yukta.execution.prefetch": 256})
LARGE = load_settings(environ={}, overrides={"yukta.definitions.max-nodes": 1000})


def _function() -> Callable[[int], int]:
    def add_one(x: int) -> int:
        return x + 1

    return add_one


def _coroutine_function() -> Callable[[int], Any]:
    async def add_one(x: int) -> int:
        return x + 1

    return add_one


FUNCTIONS = [_function() for _ in range(NODES)]
COROUTINES = [_coroutine_function() for _ in range(NODES)]
"""The same, as coroutines that never suspend."""


class Count(PluginConfig):
    """Options of NUMBERS."""

    count: int


@trigger("NUMBERS", config=Count, blocking=False, pure=True)
def numbers(cfg: Count, ctx: Any) -> Iterable[int]:
    """Emit 0, 1 and so on."""
    return range(cfg.count)


def _plugin(type_: str, **declared: Any) -> Callable[..., Any]:
    @processor(type_, **declared)
    def add_one(msg: Any, cfg: Any, ctx: Any) -> Any:
        return msg.payload + 1

    return add_one


def _async_plugin(type_: str) -> Callable[..., Any]:
    @processor(type_, pure=True, exact=True)
    async def add_one(msg: Any, cfg: Any, ctx: Any) -> Any:
        return msg.payload + 1

    return add_one


PLUGINS: list[Callable[..., Any]] = [numbers]
for _i in range(NODES):
    PLUGINS += [
        _plugin(f"SYNC_{_i}", blocking=False, pure=True, exact=True),
        _async_plugin(f"ASYNC_{_i}"),
        _plugin(f"THREAD_{_i}", pure=True, exact=True),
        # Declares nothing but where it runs: may drop messages and change payloads.
        _plugin(f"BARE_{_i}", blocking=False),
    ]


def node(node_id: str, type_: str, **members: Any) -> dict[str, Any]:
    """A node of a document."""
    return {"nodeId": node_id, "type": type_, **members}


def document(nodes: list[dict[str, Any]], edges: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A workflow document."""
    joined = [{"source": source, "target": target} for source, target in edges]
    return {"workflowId": "bench", "nodes": nodes, "edges": joined}


def line(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """A document of nodes in a line."""
    return document(nodes, pairwise(each["nodeId"] for each in nodes))


def chain(
    kind: str, count: int, *, nodes: int = NODES, end: str = "NULL_TERMINAL", **members: Any
) -> dict[str, Any]:
    """NUMBERS, so many nodes of a kind with `members` (`config`, `timeoutSeconds`), a terminal."""
    middle = [node(f"n{i}", f"{kind}_{i % NODES}", **members) for i in range(nodes)]
    return line([node("in", "NUMBERS", config={"count": count}), *middle, node("out", end)])


def make_run(
    made: dict[str, Any],
    plugins: Sequence[Callable[..., Any]] = PLUGINS,
    settings: Settings = SETTINGS,
) -> Run:
    """A run of a document that listens to events and results, as somebody who counts them does."""
    registry = PluginRegistry.load(None, extra=plugins)
    prepared = prepare(parse_definition(made), registry, settings=settings)
    return Run(prepared, settings=settings, emit=_seen, publish=_seen)


def _seen(_item: object) -> None:
    pass


async def timed_run(run: Run, count: int, *terminals: str) -> float:
    """Seconds that a run takes, in which `count` messages reach each terminal."""
    start = time.perf_counter()
    outcome = await run.execute()
    seconds = time.perf_counter() - start
    for name in terminals or ("out",):
        got = outcome.nodes[name]["in"]
        assert got == count, f"{got} of {count} messages reached {name}: {outcome}"
    return seconds


def _alone(call: ops.Operator) -> Sequence[ops.Operator]:
    return (call,)


def flow_chain(
    source: Flow[Any],
    bodies: Iterable[Body],
    *,
    prefetch: int = 64,
    wrap: Callable[[ops.Operator], Sequence[ops.Operator]] = _alone,
) -> Flow[Any]:
    """A line of bare nodes; `wrap` gives the operators of one around its call."""
    for body in bodies:
        source = source.pipe(ops.prefetch(prefetch), *wrap(ops.call(body)))
    return source


async def timed_flow(count: int, *leaves: Flow[Any]) -> float:
    """Seconds until `count` elements went through each of `leaves`, which are one graph."""
    circuit = Circuit(leaves)
    start = time.perf_counter()
    circuit.start()
    await circuit.done
    seconds = time.perf_counter() - start
    for leaf in leaves:
        got = circuit.stage_of(leaf).received
        assert got == count, f"{got} of {count} elements went through"
    return seconds


def millions(calls: int, seconds: float) -> float:
    """Millions a second."""
    return calls / seconds / 1e6
