"""The 20-node chain in every form that is compared: each function returns node messages per second.

Every form does the same work, N messages through K calls of a function that adds one. The forms
run one after the other in each round, so that a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import reactivex
from reactivex import operators as rx

from yukta_rx import operators as ops
from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.run import Run
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import Circuit, Flow, from_iterable
from yukta_rx.streams.aio import AsyncBody
from yukta_rx.streams.sync import MapBody

NODES = 20


def add_one(x: int) -> int:
    """The work of one node."""
    return x + 1


async def add_one_async(x: int) -> int:
    """The same as a coroutine that never suspends."""
    return x + 1


@processor("ADD", blocking=False, pure=True, exact=True)
def add(msg: Any, cfg: Any, ctx: Any) -> Any:
    """The same as a plugin."""
    return msg.payload + 1


@processor("ADD_ASYNC", pure=True, exact=True)
async def add_async(msg: Any, cfg: Any, ctx: Any) -> Any:
    """The same as an async plugin that never suspends."""
    return msg.payload + 1


@processor("ADD_IN_THREAD", pure=True, exact=True)
def add_in_thread(msg: Any, cfg: Any, ctx: Any) -> Any:
    """The same as a plugin that may block."""
    return msg.payload + 1


@processor("TAKE", blocking=False, pure=True, exact=True)
def take(msg: Any, cfg: Any, ctx: Any) -> Any:
    """The number in the trigger's payload."""
    return msg.payload["n"]


def plain_loop(count: int) -> float:
    """A loop that calls the 20 functions."""
    calls = [add_one] * NODES
    start = time.perf_counter()
    for x in range(count):
        for call in calls:
            x = call(x)
    return time.perf_counter() - start


async def bare_awaits(count: int) -> float:
    """A loop that awaits the 20 coroutine functions."""
    calls = [add_one_async] * NODES
    start = time.perf_counter()
    for x in range(count):
        for call in calls:
            x = await call(x)
    return time.perf_counter() - start


def raw_reactivex(count: int) -> float:
    """`map` twenty times, without back-pressure."""
    source = reactivex.from_iterable(range(count)).pipe(*[rx.map(add_one)] * NODES)
    start = time.perf_counter()
    source.subscribe(lambda _: None)
    return time.perf_counter() - start


async def queue_tasks(count: int) -> float:
    """A task per node with `asyncio.Queue(64)` between them."""
    queues: list[asyncio.Queue[Any]] = [asyncio.Queue(64) for _ in range(NODES + 1)]

    async def node(inbox: asyncio.Queue[Any], outbox: asyncio.Queue[Any]) -> None:
        while (x := await inbox.get()) is not None:
            await outbox.put(x + 1)
        await outbox.put(None)

    async def feed() -> None:
        for x in range(count):
            await queues[0].put(x)
        await queues[0].put(None)

    async def drain() -> None:
        while await queues[-1].get() is not None:
            pass

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        for left, right in pairwise(queues):
            group.create_task(node(left, right))
        group.create_task(drain())
    return time.perf_counter() - start


async def async_generators(count: int) -> float:
    """Twenty async generators, one around the other."""

    async def source() -> Any:
        for x in range(count):
            yield x

    async def step(items: Any) -> Any:
        async for x in items:
            yield x + 1

    items = source()
    for _ in range(NODES):
        items = step(items)
    start = time.perf_counter()
    async for _ in items:
        pass
    return time.perf_counter() - start


async def _run_flow(flow: Flow[Any], count: int) -> float:
    circuit = Circuit([flow])
    start = time.perf_counter()
    circuit.start()
    await circuit.done
    seconds = time.perf_counter() - start
    assert circuit.stage_of(flow).received == count
    return seconds


async def flow_sync(count: int, prefetch: int = 64) -> float:
    """Bare Flow operators, plain functions."""
    flow: Flow[Any] = from_iterable(range(count))
    for _ in range(NODES):
        flow = flow.pipe(ops.prefetch(prefetch), ops.call(MapBody(add_one, exact=True)))
    return await _run_flow(flow, count)


async def flow_valves(count: int) -> float:
    """The same with an open valve in front of every call."""
    flow: Flow[Any] = from_iterable(range(count))
    for _ in range(NODES):
        flow = flow.pipe(ops.prefetch(64), ops.valve(ops.Valve()), ops.map(add_one))
    return await _run_flow(flow, count)


async def flow_async(count: int) -> float:
    """Bare Flow operators, coroutine functions that never suspend."""
    flow: Flow[Any] = from_iterable(range(count))
    for _ in range(NODES):
        flow = flow.pipe(ops.call(AsyncBody(add_one_async, exact=True)))
    return await _run_flow(flow, count)


async def engine(count: int, kind: str) -> float:
    """The whole engine: Message objects with ids, valve, status, clocks, results counted."""
    ids = ["in", "take", *(f"n{i}" for i in range(NODES)), "out"]
    types = ["SEQUENCE_TRIGGER", "TAKE", *[kind] * NODES, "NULL_TERMINAL"]
    nodes: list[dict[str, Any]] = [
        {"nodeId": name, "type": type_} for name, type_ in zip(ids, types, strict=True)
    ]
    nodes[0]["config"] = {"count": count}
    edges = [{"source": a, "target": b} for a, b in pairwise(ids)]
    document = {"workflowId": "chain", "nodes": nodes, "edges": edges}
    registry = PluginRegistry.load(None, extra=[take, add, add_async, add_in_thread])
    settings = Settings()
    prepared = prepare(parse_definition(document), registry, settings=settings)
    run = Run(prepared, settings=settings)
    start = time.perf_counter()
    outcome = await run.execute()
    seconds = time.perf_counter() - start
    assert outcome.totals["out"] == count, outcome
    return seconds


Form = Callable[[int], float] | Callable[[int], Awaitable[float]]

FORMS: dict[str, tuple[Form, str]] = {
    "plain loop": (plain_loop, "no"),
    "bare awaits": (bare_awaits, "no"),
    "reactivex map x20": (raw_reactivex, "no"),
    "async generators": (async_generators, "pull"),
    "queue tasks (64)": (queue_tasks, "yes"),
    "Flow, sync": (flow_sync, "yes"),
    "Flow, sync, prefetch 256": (partial(flow_sync, prefetch=256), "yes"),
    "Flow, sync, valves": (flow_valves, "yes"),
    "Flow, async": (flow_async, "yes"),
    "engine, sync": (partial(engine, kind="ADD"), "yes"),
    "engine, async": (partial(engine, kind="ADD_ASYNC"), "yes"),
    "engine, threads": (partial(engine, kind="ADD_IN_THREAD"), "yes"),
}

SLOW = frozenset({"queue tasks (64)", "engine, threads"})
"""Forms that get a tenth of the messages."""


def rate(name: str, count: int) -> float:
    """Node messages per second of one form, in millions."""
    form, _ = FORMS[name]
    if name in SLOW:
        count //= 10
    gc.collect()
    made = form(count)
    seconds = made if isinstance(made, float) else asyncio.run(made)  # type: ignore[arg-type]
    return count * NODES / seconds / 1e6
