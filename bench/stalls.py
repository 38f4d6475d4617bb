"""How long a busy graph keeps the event loop from others: a ticker of 1 ms beside it."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.embedded import engine_with, timed_start
from bench.harness import Bar, Family, Form, Found, at_most, table
from bench.workflows import NODES, PLUGINS, chain, make_run, timed_run
from yukta_rx.plugins.contract import processor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TICK = 0.001
WORK = 0.0002


def _work(x: int) -> int:
    """Compute for 200 us."""
    end = time.perf_counter() + WORK
    while time.perf_counter() < end:
        pass
    return x


def _busy(i: int) -> list[Callable[..., Any]]:
    @processor(f"BUSY_{i}", blocking=False, pure=True, exact=True)
    def busy(msg: Any, cfg: Any, ctx: Any) -> int:
        return _work(msg.payload)

    @processor(f"ASYNC_BUSY_{i}", pure=True, exact=True)
    async def busy_async(msg: Any, cfg: Any, ctx: Any) -> int:
        return _work(msg.payload)

    return [busy, busy_async]


BUSY = [plugin for i in range(NODES) for plugin in _busy(i)]


async def largest_lag(work: Callable[[], Awaitable[object]]) -> float:
    """The most by which a tick came late beside `work`, in milliseconds."""
    loop = asyncio.get_running_loop()
    over = False
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while not over:
            due = loop.time() + TICK
            await asyncio.sleep(TICK)
            worst = max(worst, loop.time() - due)

    async with asyncio.TaskGroup() as group:
        group.create_task(tick())
        await asyncio.sleep(0)
        await work()
        over = True
    return worst * 1000


async def alone(count: int) -> float:
    """Beside nothing, for as many ticks as messages: what the machine does by itself."""
    return await largest_lag(lambda: asyncio.sleep(count * TICK))


async def beside_loop(count: int) -> float:
    """Beside a loop that computes for 200 us and gives way: the least that can be."""

    async def work() -> None:
        for n in range(count * NODES):
            _work(n)
            await asyncio.sleep(0)

    return await largest_lag(work)


async def beside_run(count: int, kind: str) -> float:
    """Beside a `Run` of 20 nodes."""
    run = make_run(chain(kind, count), [*PLUGINS, *BUSY])
    return await largest_lag(lambda: timed_run(run, count))


async def beside_engine(count: int) -> float:
    """Beside the chain in an `Engine` with a reader of its feed."""
    async with engine_with(chain("SYNC", count)) as engine:
        return await largest_lag(lambda: timed_start(engine, count))


ALONE = "nothing"
SLOW = ("20 nodes of 200 us, sync", "20 nodes of 200 us, async")
FORMS = (
    Form(ALONE, alone),
    Form("a plain loop of 200 us and `sleep(0)`", beside_loop),
    Form(SLOW[0], partial(beside_run, kind="BUSY")),
    Form(SLOW[1], partial(beside_run, kind="ASYNC_BUSY")),
    Form("chain, sync, in a Run", partial(beside_run, kind="SYNC"), 250),
    Form("chain, async, in a Run", partial(beside_run, kind="ASYNC"), 250),
    Form("chain, sync, in an Engine with feed", beside_engine, 250),
)


def tables(found: Found) -> list[str]:
    """One row per form."""
    spreads = [(form.name, found.spread(form.name)) for form in FORMS]
    rows = [(name, lag.show(1), lag.range(1)) for name, lag in spreads]
    return [
        "The most by which a tick of 1 ms came late in one round, in milliseconds; collections of "
        "garbage and whatever else the machine does are in it.",
        "",
        *table(("beside", "largest lag, ms", "range"), rows),
    ]


def bars(found: Found) -> list[Bar]:
    """What the pump promises."""
    return [
        at_most(f"lag of a 1 ms ticker beside {name}", 15, found.spread(name), " ms")
        for name in SLOW
    ]


FAMILY = Family("stalls", "Stalls of the event loop", (200,), FORMS, tables, bars)
