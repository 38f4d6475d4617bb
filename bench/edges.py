"""What waits on edges: messages in flight before a slow node, and one message all alone."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bench.harness import Bar, Family, Form, Found, at_most, table
from bench.workflows import (
    COROUTINES,
    FUNCTIONS,
    NODES,
    PLUGINS,
    SETTINGS,
    line,
    make_run,
    node,
    timed_run,
)
from yukta_rx.plugins.contract import terminal, trigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from yukta_rx.engine.run import Run

PREFETCH = SETTINGS.execution.prefetch
EDGES = NODES + 1
LIMIT = EDGES * PREFETCH


def _between(kind: str, source: Callable[..., Any], end: Callable[..., Any]) -> Run:
    """A run of 20 nodes between a trigger SOURCE and a terminal END."""
    middle = [node(f"n{i}", f"{kind}_{i}") for i in range(NODES)]
    made = line([node("in", "SOURCE"), *middle, node("out", "END")])
    return make_run(made, [*PLUGINS, source, end])


async def in_flight(count: int, kind: str) -> float:
    """The most messages that were emitted and not yet done while the last node was slow."""
    emitted = done = most = 0

    @trigger("SOURCE", blocking=False, pure=True)
    def source(cfg: Any, ctx: Any) -> Iterator[int]:
        nonlocal emitted
        for n in range(count):
            emitted += 1
            yield n

    @terminal("END", pure=True)
    async def end(msg: Any, cfg: Any, ctx: Any) -> None:
        nonlocal done, most
        most = max(most, emitted - done)
        await asyncio.sleep(0)
        done += 1

    await timed_run(_between(kind, source, end), count)
    return float(most)


async def on_one_edge(count: int, kind: str) -> float:
    """The most messages that any one edge held meanwhile."""
    most = 0

    @trigger("SOURCE", blocking=False, pure=True)
    def source(cfg: Any, ctx: Any) -> Iterator[int]:
        yield from range(count)

    @terminal("END", pure=True)
    async def end(msg: Any, cfg: Any, ctx: Any) -> None:
        nonlocal most
        most = max(most, *(edge.waiting for edge in run.edges))
        await asyncio.sleep(0)

    run = _between(kind, source, end)
    await timed_run(run, count)
    return float(most)


# --- the next message goes when the one before has arrived; microseconds, the median of a round


async def lone_message(count: int, kind: str) -> float:
    """Through 20 nodes of a `Run`, from the trigger to the terminal."""
    arrived = asyncio.Event()
    taken: list[float] = []

    @trigger("SOURCE", pure=True)
    async def source(cfg: Any, ctx: Any) -> AsyncIterator[float]:
        for _ in range(count):
            yield time.perf_counter()
            await arrived.wait()
            arrived.clear()

    @terminal("END", blocking=False, pure=True)
    def end(msg: Any, cfg: Any, ctx: Any) -> None:
        # Each node has added one.
        taken.append(time.perf_counter() - (msg.payload - NODES))
        arrived.set()

    await timed_run(_between(kind, source, end), count)
    return statistics.median(taken) * 1e6


async def lone_in_queues(count: int) -> float:
    """Through 20 tasks with queues."""
    queues: list[asyncio.Queue[Any]] = [asyncio.Queue(64) for _ in range(EDGES)]
    taken: list[float] = []

    async def work(call: Callable[[Any], Any], inbox: Any, outbox: Any) -> None:
        while (x := await inbox.get()) is not None:
            await outbox.put(call(x))
        await outbox.put(None)

    async with asyncio.TaskGroup() as group:
        for call, (inbox, outbox) in zip(FUNCTIONS, pairwise(queues), strict=True):
            group.create_task(work(call, inbox, outbox))
        for _ in range(count):
            start = time.perf_counter()
            await queues[0].put(0)
            await queues[-1].get()
            taken.append(time.perf_counter() - start)
        await queues[0].put(None)
    return statistics.median(taken) * 1e6


async def lone_in_awaits(count: int) -> float:
    """Through 20 awaits of a plain loop."""
    taken = []
    for _ in range(count):
        x = 0
        start = time.perf_counter()
        for call in COROUTINES:
            x = await call(x)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


FLIGHT = {kind: f"in flight, {kind}" for kind in ("sync", "async")}
ON_EDGE = {kind: f"on one edge, {kind}" for kind in FLIGHT}
LONE = (
    Form("bare awaits", lone_in_awaits),
    Form("queue tasks (64)", lone_in_queues),
    Form("Run, sync", partial(lone_message, kind="SYNC")),
    Form("Run, async", partial(lone_message, kind="ASYNC")),
)
FORMS = (
    *(Form(name, partial(in_flight, kind=kind.upper()), 5) for kind, name in FLIGHT.items()),
    *(Form(name, partial(on_one_edge, kind=kind.upper()), 5) for kind, name in ON_EDGE.items()),
    *LONE,
)


def tables(found: Found) -> list[str]:
    """What waits, and what a message waits for."""
    rows = []
    for names, limit in ((FLIGHT, LIMIT), (ON_EDGE, PREFETCH)):
        for name in names.values():
            most = found.spread(name)
            rows.append((name, most.show(0), most.range(0), f"{limit:,}"))
    lone = [(form.name, found.spread(form.name)) for form in LONE]
    return [
        f"20 nodes and a terminal that lets the loop turn for each message: the most messages "
        f"between trigger and terminal, and on one of the {EDGES} edges, with prefetch {PREFETCH}.",
        "",
        *table(("messages", "most", "range", "limit"), rows),
        "One message through 20 nodes, the next when it has arrived.",
        "",
        *table(("form", "us", "range"), [(n, us.show(1), us.range(1)) for n, us in lone]),
    ]


def bars(found: Found) -> list[Bar]:
    """What back-pressure promises."""
    return [
        at_most(f"{name}: edges x prefetch", LIMIT, found.spread(name)) for name in FLIGHT.values()
    ]


FAMILY = Family("edges", "In flight, and alone", (1000,), FORMS, tables, bars)
