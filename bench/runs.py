"""Small runs: how many of three nodes and ten messages start and finish in a second."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.embedded import engine_with, timed_start
from bench.harness import Family, Form, Found, table
from bench.workflows import PLUGINS, SETTINGS, chain, timed_run
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.run import Run
from yukta_rx.plugins.registry import PluginRegistry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MESSAGES, TOGETHER = 10, 50
SMALL = chain("SYNC", MESSAGES, nodes=1)


async def _rate(count: int, together: int, one: Callable[[], Awaitable[object]]) -> float:
    """Runs per second: `count` of them, so many at a time."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await one()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(together):
            group.create_task(work())
    return count / (time.perf_counter() - start)


async def bare(count: int, together: int) -> float:
    """A `Run` each, of a workflow that is prepared already."""
    registry = PluginRegistry.load(None, extra=PLUGINS)
    prepared = prepare(parse_definition(SMALL), registry, settings=SETTINGS)
    return await _rate(
        count, together, lambda: timed_run(Run(prepared, settings=SETTINGS), MESSAGES)
    )


async def engine(count: int, together: int) -> float:
    """`Engine.start` of a saved workflow, and its end awaited."""
    async with engine_with(SMALL) as made:
        return await _rate(count, together, lambda: timed_start(made, MESSAGES))


FORMS = tuple(
    Form(f"{name}, {how}", partial(measure, together=together))
    for name, measure in (("Run", bare), ("Engine.start", engine))
    for how, together in (("one after the other", 1), (f"{TOGETHER} at a time", TOGETHER))
)


def tables(found: Found) -> list[str]:
    """One row per form."""
    spreads = [(form.name, found.spread(form.name)) for form in FORMS]
    rows = [
        (name, rate.show(0), rate.range(0), f"{1000 / rate.median:.2f}") for name, rate in spreads
    ]
    return [
        f"{found.size:,} runs of 3 nodes and {MESSAGES} messages, started and finished. "
        "`Engine.start` is of a saved workflow, with tracker, stores and a reader of the feed.",
        "",
        *table(("form", "runs per second", "range", "ms per run"), rows),
    ]


FAMILY = Family("runs", "Small runs", (1000,), FORMS, tables)
