"""What watching costs: the loop beside a scrape of many series, and runs that are traced.

In CPU time of this thread, since others may use the machine meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client.exposition import generate_latest

from bench.embedded import engine_with, timed_start
from bench.harness import Bar, Family, Form, Found, at_most, table
from bench.workflows import chain
from yukta_rx.http.exposition import exposition
from yukta_rx.metrics import Meters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

SERIES = 5000
LIMIT = 20.0
"""Milliseconds that a scrape may hold up the loop."""

MESSAGES = 10
SMALL = chain("SYNC", MESSAGES, nodes=1)


def crowded(series: int) -> Meters:
    """Meters with so many combinations of labels, a fifth of them timers of 17 lines each."""
    meters = Meters()
    for number in range(series // 5):
        name = f"MODULE_{number}"
        meters.timer("yukta.node.duration", module=name).observe(number / 10)
        meters.counter("yukta.node.executions", module=name, status="SUCCESS").add()
        meters.counter("yukta.node.retries", module=name).add(3)
        meters.counter("yukta.plugin.events", plugin=name, outcome="duplicate").add()
        meters.counter("llm.cost", provider=name).add(0.5)
    return meters


async def longest_turn(work: Callable[[], Awaitable[object]]) -> float:
    """The longest turn of the loop while it does `work`, in milliseconds."""
    worst, over = 0.0, False

    async def watch() -> None:
        nonlocal worst
        while not over:
            began = time.thread_time()
            await asyncio.sleep(0)
            worst = max(worst, time.thread_time() - began)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await asyncio.sleep(0)
        await work()
        over = True
    return worst * 1000


async def in_pieces(series: int) -> float:
    """What `GET /metrics` does."""
    registry = crowded(series).registry
    return await longest_turn(lambda: exposition(registry, ""))


async def in_one_piece(series: int) -> float:
    """What the library does."""
    registry = crowded(series).registry

    async def render() -> None:
        generate_latest(registry)

    return await longest_turn(render)


SCRAPES = (Form("in pieces", in_pieces), Form("in one piece", in_one_piece))


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@contextmanager
def tracer(on: bool) -> Iterator[None]:
    """A tracer provider of the program, as one would have it, but for the place spans go to."""
    before = trace._TRACER_PROVIDER
    provider = TracerProvider(resource=Resource({})) if on else None
    if provider is not None:
        provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    trace._TRACER_PROVIDER = provider
    try:
        yield
    finally:
        trace._TRACER_PROVIDER = before
        if provider is not None:
            provider.shutdown()


async def runs(count: int, *, traced: bool) -> float:
    """CPU time per run in milliseconds."""
    with tracer(traced):
        async with engine_with(SMALL) as made:
            await timed_start(made, MESSAGES)
            began = time.thread_time()
            for _ in range(count):
                await timed_start(made, MESSAGES)
            return (time.thread_time() - began) / count * 1000


TRACED = (
    Form("no tracer", partial(runs, traced=False)),
    Form("no tracer, again", partial(runs, traced=False)),
    Form("a span per run and node", partial(runs, traced=True)),
)


def scrape_tables(found: Found) -> list[str]:
    """The loop's longest turn."""
    rows = [
        (form.name, spread.show(), spread.range())
        for form in SCRAPES
        for spread in (found.spread(form.name),)
    ]
    return [
        f"{found.size:,} series, of which a fifth are timers: {found.size // 5 * 21:,} lines.",
        "",
        *table(("page", "longest turn of the loop, ms", "range"), rows),
    ]


def scrape_bars(found: Found) -> list[Bar]:
    """The loop goes on beside a scrape."""
    return [at_most(f"scrape of {SERIES:,} series", LIMIT, found.spread("in pieces"), " ms")]


def traced_tables(found: Found) -> list[str]:
    """CPU time per run."""
    rows = [
        (form.name, spread.show(), spread.range(), ratio.show())
        for form in TRACED
        for spread in (found.spread(form.name),)
        for ratio in (found.ratio(form.name, "no tracer"),)
    ]
    return [
        f"{found.size:,} runs of 3 nodes and {MESSAGES} messages through `Engine.start`; spans go"
        " to a batch processor.",
        "",
        *table(("form", "CPU ms per run", "range", "ratio"), rows),
    ]


SCRAPE = Family(
    "scrapes", "A scrape beside the loop", (SERIES,), SCRAPES, scrape_tables, scrape_bars
)
TRACE = Family("tracing", "Runs that are traced", (200,), TRACED, traced_tables)
