"""The same chain without yukta_rx: each function returns node messages per second, in millions."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import reactivex
from reactivex import operators as rx

from bench.harness import Figure, Form
from bench.workflows import COROUTINES, FUNCTIONS, NODES, millions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


def plain_loop(count: int) -> float:
    """A loop that calls the 20 functions."""
    start = time.perf_counter()
    for x in range(count):
        for call in FUNCTIONS:
            x = call(x)
    return millions(count * NODES, time.perf_counter() - start)


async def bare_awaits(count: int) -> float:
    """A loop that awaits the 20 coroutine functions."""
    start = time.perf_counter()
    for x in range(count):
        for call in COROUTINES:
            x = await call(x)
    return millions(count * NODES, time.perf_counter() - start)


def reactivex_map(count: int) -> float:
    """`map` twenty times."""
    source = reactivex.from_iterable(range(count)).pipe(*map(rx.map, FUNCTIONS))
    start = time.perf_counter()
    source.subscribe(lambda _: None)
    return millions(count * NODES, time.perf_counter() - start)


async def queue_tasks(count: int) -> float:
    """A task per node with `asyncio.Queue(64)` between them."""
    queues: list[asyncio.Queue[Any]] = [asyncio.Queue(64) for _ in range(NODES + 1)]

    async def node(call: Callable[[int], int], inbox: Any, outbox: Any) -> None:
        while (x := await inbox.get()) is not None:
            await outbox.put(call(x))
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
        for call, (inbox, outbox) in zip(FUNCTIONS, pairwise(queues), strict=True):
            group.create_task(node(call, inbox, outbox))
        group.create_task(drain())
    return millions(count * NODES, time.perf_counter() - start)


async def async_generators(count: int) -> float:
    """Twenty async generators, one around the other."""

    async def source() -> AsyncIterator[int]:
        for x in range(count):
            yield x

    async def step(call: Callable[[int], int], items: AsyncIterator[int]) -> AsyncIterator[int]:
        async for x in items:
            yield call(x)

    items = source()
    for call in FUNCTIONS:
        items = step(call, items)
    start = time.perf_counter()
    async for _ in items:
        pass
    return millions(count * NODES, time.perf_counter() - start)


async def aiostream_map(count: int) -> float:
    """The `map` of aiostream, twenty times."""
    from aiostream import pipe, stream

    items = stream.range(count)
    for call in FUNCTIONS:
        items = items | pipe.map(call)
    start = time.perf_counter()
    async with items.stream() as streamer:
        async for _ in streamer:
            pass
    return millions(count * NODES, time.perf_counter() - start)


def csp_nodes(count: int) -> float:
    """Twenty nodes of csp, whose engine is C++."""
    from bench.rival_csp import seconds

    return millions(count * NODES, seconds(count))


FORMS = [
    Form("plain loop", plain_loop, back_pressure="no"),
    Form("bare awaits", bare_awaits, back_pressure="no"),
    Form("reactivex map x20", reactivex_map, back_pressure="no"),
    Form("async generators", async_generators, back_pressure="pull"),
    Form("queue tasks (64)", queue_tasks, 0.2, back_pressure="yes"),
]

OPTIONAL: dict[str, tuple[Callable[[int], Figure], float, str]] = {
    "csp": (csp_nodes, 0.2, "no"),
    "aiostream": (aiostream_map, 0.1, "pull"),
}
"""Forms that need a package which is not among our dependencies."""

ABSENT = [name for name in OPTIONAL if find_spec(name) is None]
FORMS += [
    Form(f"{name} {version(name)}", measure, share, back_pressure)
    for name, (measure, share, back_pressure) in OPTIONAL.items()
    if name not in ABSENT
]
