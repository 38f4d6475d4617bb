"""How long a busy graph keeps the event loop from others: a ticker of 1 ms beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.embedded import engine_with, timed_start
from bench.harness import Bar, Family, Figure, Form, Found, at_most, table
from bench.workflows import NODES, PLUGINS, chain, make_run, timed_run
from yukta_rx.plugins.contract import processor

if TYPE_CHECKING:
    from collections.abc import Awaitable

TICK = 0.001
WORK = 0.0002


def _work(x: int) -> int:
    """Compute for 200 us."""
    end = time.thread_time() + WORK
    while time.thread_time() < end:
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


Clock = Callable[[], float]


async def largest_lag(clock: Clock, work: Callable[[], Awaitable[object]]) -> float:
    """The most by which a tick came late beside `work`, in milliseconds of a clock."""
    over = False
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while not over:
            due = clock() + TICK
            await asyncio.sleep(TICK)
            worst = max(worst, clock() - due)

    async with asyncio.TaskGroup() as group:
        group.create_task(tick())
        await asyncio.sleep(0)
        await work()
        over = True
    return worst * 1000


async def alone(count: int, clock: Clock) -> float:
    """Beside nothing, for as many ticks as messages: what the machine does by itself."""
    return await largest_lag(clock, lambda: asyncio.sleep(count * TICK))


async def beside_loop(count: int, clock: Clock) -> float:
    """Beside a loop that computes for 200 us and gives way: the least that can be."""

    async def work() -> None:
        for n in range(count * NODES):
            _work(n)
            await asyncio.sleep(0)

    return await largest_lag(clock, work)


async def beside_run(count: int, clock: Clock, kind: str) -> float:
    """Beside a `Run` of 20 nodes."""
    run = make_run(chain(kind, count), [*PLUGINS, *BUSY])
    return await largest_lag(clock, lambda: timed_run(run, count))


async def beside_engine(count: int, clock: Clock) -> float:
    """Beside the chain in an `Engine` with a reader of its feed."""
    async with engine_with(chain("SYNC", count)) as engine:
        return await largest_lag(clock, lambda: timed_start(engine, count))


SLOW = ("20 nodes of 200 us, sync", "20 nodes of 200 us, async")
BESIDE: dict[str, tuple[Callable[..., Figure], float]] = {
    "nothing": (alone, 1),
    "a plain loop of 200 us and `sleep(0)`": (beside_loop, 1),
    SLOW[0]: (partial(beside_run, kind="BUSY"), 1),
    SLOW[1]: (partial(beside_run, kind="ASYNC_BUSY"), 1),
    "chain, sync, in a Run": (partial(beside_run, kind="SYNC"), 500),
    "chain, async, in a Run": (partial(beside_run, kind="ASYNC"), 500),
    "chain, sync, in an Engine with feed": (beside_engine, 500),
}
"""What the ticker runs beside, with the share of the messages."""

CLOCKS: dict[str, Clock] = {"": time.perf_counter, ", own": time.thread_time}
"""How late a tick is, and how much of that the thread of the loop computed."""

FORMS = tuple(
    Form(f"{name}{which}", partial(measure, clock=clock), share)
    for name, (measure, share) in BESIDE.items()
    for which, clock in CLOCKS.items()
)


def tables(found: Found) -> list[str]:
    """One row per neighbour."""
    rows = []
    for name in BESIDE:
        lags = [found.spread(f"{name}{which}") for which in CLOCKS]
        rows.append((name, *(cell for lag in lags for cell in (lag.show(1), lag.range(1)))))
    return [
        "The most by which a tick of 1 ms came late in one round, in milliseconds: by the clock on "
        "the wall, which counts what else the machine does, and by the time that the loop's "
        "thread computed, garbage collection included.",
        "",
        *table(("beside", "largest lag, ms", "range", "computed, ms", "range"), rows),
    ]


def bars(found: Found) -> list[Bar]:
    """What the pump promises."""
    return [
        at_most(f"lag of a 1 ms ticker beside {name}", 15, found.spread(name), " ms")
        for name in SLOW
    ]


FAMILY = Family("stalls", "Stalls of the event loop", (100,), FORMS, tables, bars)
