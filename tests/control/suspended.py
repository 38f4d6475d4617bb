"""A run in two worlds: one that suspends what only waits, and one that does not.

What can be seen of it has to be the same in both, but for the field that says so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise, zip_longest
from typing import Any

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.plugins.contract import PluginConfig, processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import virtual_time

_BLOCKED = re.compile(r'"blockedMs": \d+')

AFTER = 30
"""Seconds after which a run is suspended; between two looks lies a quarter of that."""

LONG = 61.7
"""Seconds in which it surely was."""

_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|\b[0-9a-f]{32}\b")


class EveryConfig(PluginConfig):
    """Options of the plugins below."""

    every: int = 2
    seconds: float = 0.5


@processor("KEEP", config=EveryConfig, blocking=False)
def keep(msg, cfg, ctx):
    """Count, and drop some."""
    ctx.count("seen")
    return None if msg.payload["n"] % cfg.every else {**msg.payload, "kept": ctx.node_id}


@processor("TWICE", config=EveryConfig)
async def twice(msg, cfg, ctx):
    """Send on two for each, each a little later."""
    for k in range(2):
        await asyncio.sleep(cfg.seconds / 50)
        yield {**msg.payload, "k": k}


@processor("LATER", config=EveryConfig)
async def later(msg, cfg, ctx):
    """Send on what came, a little later, and say so."""
    await ctx.clock.sleep(cfg.seconds)
    ctx.log(f"{msg.payload['n']} goes on")
    return msg


PLUGINS = (keep, twice, later)


def line(*nodes: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """Nodes in a line."""
    ids = [name for name, _, _ in nodes]
    return {
        "workflowId": "w",
        "nodes": [{"nodeId": a, "type": b, "config": c} for a, b, c in nodes],
        "edges": [{"source": a, "target": b} for a, b in pairwise(ids)],
    }


def asking(count: int = 2, **config: Any) -> dict[str, Any]:
    """Numbers that wait for the signal `go`."""
    return line(
        ("in", "SEQUENCE_TRIGGER", {"count": count, "intervalMs": 7}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", **config}),
        ("out", "COLLECT_TERMINAL", {}),
    )


def engine_of(after: float = AFTER, plugins: Any = PLUGINS, **settings: Any) -> Engine:
    """An engine that suspends after so many seconds."""
    kept = {"tracker.cleanup-ttl": "365d", "results.retention": "365d"}
    given = {"execution.suspend-after": f"{after}s", **kept, **settings}
    overrides = {f"yukta.{name}": value for name, value in given.items()}
    loaded = load_settings(environ={}, overrides=overrides)
    return Engine(loaded, registry=PluginRegistry.load(loaded, extra=plugins))


def asleep(engine: Engine) -> int:
    """How many runs are suspended."""
    return len(engine._starter.live.suspended)


@dataclass
class World:
    """An engine with a run, and what is seen of it."""

    engine: Engine
    run: Any
    suspends: bool
    seen: list[Any] = field(default_factory=list)
    slept: int = 0
    """Looks at which the run was suspended."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.slept += asleep(self.engine)

    def look(self) -> None:
        """What clients can read."""
        name = self.run.execution_id
        gateway = self.engine.gateway
        if self.engine.tracker.state(name) is None:
            self.seen.append("it is not kept any more")
            return
        asked, _ = self.engine.approvals.page(lambda _: True, 1000)
        self.seen += [
            self.engine.tracker.snapshot(name),
            self.run.detail,
            gateway.why(name),
            # Of those of the same moment the ids say no order.
            sorted(asked, key=lambda one: (one["since"], one["nodeId"], one["payloadPreview"])),
            gateway.snapshot(name),
        ]

    async def losses(self) -> None:
        if self.engine.tracker.state(self.run.execution_id) is None:
            return
        self.seen.append(await self.engine.gateway.losses(self.run.execution_id))

    async def told(self, work: Awaitable[Any]) -> None:
        """Do something and remember the answer, or the error."""
        try:
            answer = await work
            # What it leads to needs some turns of the loop, more of them where a run is taken up.
            await asyncio.sleep(0.001)
        except Exception as error:
            self.seen.append([type(error).__name__, str(error)])
        else:
            shown = getattr(answer, "state", None), getattr(answer, "answer", None)
            self.seen.append([str(getattr(answer, "outcome", "")), *shown])


Script = Callable[[World], Awaitable[None]]


def lived(
    document: dict[str, Any], script: Script, after: float, plugins: Any, settings: dict[str, Any]
) -> tuple[list[Any], World]:
    """One world."""

    @virtual_time
    async def live() -> tuple[list[Any], World]:
        async with engine_of(after, plugins, **settings) as engine:
            events: list[Any] = []

            async def listen() -> None:
                async for event in engine.listen(None):
                    node = event.node_id
                    events.append([event.type, node, event.time.isoformat(), event.data])

            listener = asyncio.ensure_future(listen())
            await asyncio.sleep(0)
            run = await engine.start("s", document, {"n": 1})
            world = World(engine, run, after > 0)
            await script(world)
            await world.told(engine.gateway.end_of(run.execution_id, 100_000))
            # What is told of the end is told.
            await asyncio.sleep(1)
            listener.cancel()
            world.look()
            await world.losses()
            results = [_result(one) async for one in run.results()]
            audit = engine.gateway.audit(run.execution_id)
            counts = counts_of(engine)
            rows = sorted(
                (row.asked_at.isoformat(), str(row.state), row.node_id, row.signal)
                for row in getattr(engine.approvals._store, "_requests", {}).values()
            )
            return [events, world.seen, results, audit, counts, rows], world

    made: tuple[list[Any], World] = live()
    return made


def _result(one: Any) -> Any:
    message = one.message
    shown = None if message is None else [message.id, dict(message.headers), message.payload]
    return [one.cursor, str(one.type), one.time.isoformat(), str(one.status), one.totals, shown]


def counts_of(engine: Engine) -> list[str]:
    """What meters say of runs, nodes and plugins, but for the one that says which is suspended."""
    engine._starter.report_counts()
    wanted = ("yukta_plugin", "yukta_node", "yukta_executions", "yukta_messages")
    return sorted(
        f"{sample.name} {sorted(sample.labels.items())} {sample.value}"
        for family in engine.meters.collect()
        if family.name.startswith(wanted) and family.name != "yukta_executions_suspended"
        for sample in family.samples
        if not sample.name.endswith("_created")
    )


def both(
    document: dict[str, Any],
    script: Script,
    *,
    plugins: Any = PLUGINS,
    sleeps: bool = True,
    settings_of: Callable[[], dict[str, Any]] = dict,
    **settings: Any,
) -> World:
    """Do the same in both worlds, and compare.

    Args:
        document: the workflow.
        script: what is done.
        plugins: of the workflow.
        sleeps: whether the run has to be suspended at some look.
        settings_of: gives further settings, for one world after the other.
        settings: of both.
    """
    plain, _ = lived(document, script, 0, plugins, settings | settings_of())
    suspended, world = lived(document, script, AFTER, plugins, settings | settings_of())
    assert not sleeps or world.slept, "the run was never suspended"
    for one, other in zip(_alike(plain), _alike(suspended), strict=True):
        for place, (usual, seen) in enumerate(zip_longest(one, other)):
            assert seen == usual, f"item {place}: {list(_differing('', usual, seen))}"
    return world


def _differing(path: str, usual: Any, seen: Any) -> Iterator[str]:
    """Where two things differ."""
    if isinstance(usual, dict) and isinstance(seen, dict):
        for name in sorted(usual.keys() | seen.keys()):
            yield from _differing(f"{path}/{name}", usual.get(name), seen.get(name))
    elif isinstance(usual, list) and isinstance(seen, list):
        for place, (one, other) in enumerate(zip_longest(usual, seen)):
            yield from _differing(f"{path}/{place}", one, other)
    elif usual != seen:
        yield f"{path} is {seen!r} and not {usual!r}"


def _alike(told: list[Any]) -> list[Any]:
    """What is seen without ids and the field that tells, and without an order in a moment.

    What several nodes do in the same moment has none: the loop takes timers of the same time as
    they come out of its heap, and the pump gives others their turn by the time that passes.
    """
    text = _NAMES.sub("id", json.dumps(_untold(told), default=str, sort_keys=True))
    # An edge is found blocked when somebody looks, which depends on that order.
    shown = json.loads(_BLOCKED.sub('"blockedMs": 0', text))
    events, seen, results, *rest = shown
    assert [one[0] for one in results] == list(range(1, len(results) + 1)), "a result is missing"
    events.sort(key=lambda one: (one[2], json.dumps(one)))
    results = sorted((one[1:] for one in results), key=lambda one: (one[1], json.dumps(one)))
    return [events, seen, results, *rest]


def _untold(seen: Any) -> Any:
    if isinstance(seen, dict):
        return {name: _untold(part) for name, part in seen.items() if name != "suspended"}
    if isinstance(seen, list | tuple):
        return [_untold(part) for part in seen]
    if isinstance(seen, timedelta):
        return str(seen)
    return seen
