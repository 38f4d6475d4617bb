"""The chain of 20 nodes that add one, in every form that is compared.

Every form calls the same 20 functions, once for each message.
"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bench import rivals
from bench.embedded import engine_with, timed_start
from bench.harness import (
    Bar,
    Family,
    Figure,
    Form,
    Found,
    Spread,
    at_least,
    at_most,
    table,
)
from bench.workflows import (
    COROUTINES,
    FUNCTIONS,
    NODES,
    PLUGINS,
    SETTINGS,
    WIDE,
    chain,
    flow_chain,
    make_run,
    millions,
    timed_flow,
    timed_run,
)
from yukta_rx.plugins.contract import spec_of
from yukta_rx.streams import from_iterable
from yukta_rx.streams.aio import AsyncBody
from yukta_rx.streams.sync import MapBody

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.config.settings import Settings
    from yukta_rx.streams.plan import Body

MAPS: list[Body] = [MapBody(fn, exact=True) for fn in FUNCTIONS]
AWAITS: list[Body] = [AsyncBody(fn, exact=True) for fn in COROUTINES]


def loop_of_plugins(count: int) -> float:
    """A loop that calls the 20 plugins, with one message that it changes."""
    calls = [plugin for plugin in PLUGINS if spec_of(plugin).type.startswith("SYNC_")]
    msg = SimpleNamespace()
    start = time.perf_counter()
    for msg.payload in range(count):
        for call in calls:
            msg.payload = call(msg, None, None)
    return millions(count * NODES, time.perf_counter() - start)


async def flow(count: int, bodies: list[Body], prefetch: int = 64) -> float:
    """Bare Flow operators: back-pressure and nothing else, on bare ints."""
    leaf = flow_chain(from_iterable(range(count)), bodies, prefetch=prefetch)
    return millions(count * NODES, await timed_flow(count, leaf))


async def run(
    count: int, kind: str, end: str = "NULL_TERMINAL", settings: Settings = SETTINGS
) -> float:
    """A `Run`: Message objects, status, clocks, valve, counters."""
    made = make_run(chain(kind, count, end=end), PLUGINS, settings)
    return millions(count * NODES, await timed_run(made, count))


async def engine(count: int, kind: str, end: str = "NULL_TERMINAL") -> float:
    """An `Engine`: as `Run`, and tracker, stores and feed are there, with a subscriber."""
    async with engine_with(chain(kind, count, end=end)) as made:
        return millions(count * NODES, await timed_start(made, count))


LOOP_OF_PLUGINS = "plain loop of the plugins"
LOOP, AWAITED, RX, QUEUES = "plain loop", "bare awaits", "reactivex map x20", "queue tasks (64)"
FLOW, FLOW_ASYNC, FLOW_WIDE = "Flow, sync", "Flow, async", "Flow, sync, prefetch 256"
ENGINE, PUBLISHED = "Engine with feed, sync", "Engine with feed, sync, results published"
COLLECT = "COLLECT_TERMINAL"


def _form(name: str, measure: Callable[..., Figure], share: float = 1, **options: Any) -> Form:
    return Form(name, partial(measure, **options), share, "yes")


FORMS = [
    *rivals.FORMS,
    Form(LOOP_OF_PLUGINS, loop_of_plugins, back_pressure="no"),
    _form(FLOW, flow, bodies=MAPS),
    _form(FLOW_WIDE, flow, bodies=MAPS, prefetch=256),
    _form(FLOW_ASYNC, flow, bodies=AWAITS),
    _form("Run, sync", run, kind="SYNC"),
    _form("Run, sync, results published", run, kind="SYNC", end=COLLECT),
    _form("Run, sync, prefetch 256", run, kind="SYNC", settings=WIDE),
    _form("Run, sync, not declared pure or exact", run, kind="BARE"),
    _form("Run, async", run, kind="ASYNC"),
    _form("Run, threads", run, 0.1, kind="THREAD"),
    _form(ENGINE, engine, kind="SYNC"),
    _form(PUBLISHED, engine, 0.5, kind="SYNC", end=COLLECT),
    _form("Engine with feed, async", engine, kind="ASYNC"),
]


def tables(found: Found) -> list[str]:
    """One row per form."""
    rows = []
    for form in FORMS:
        spread = found.spread(form.name)
        rows.append(
            (
                form.name + (f" ({form.share:g} of the messages)" if form.share < 1 else ""),
                found.spread(form.name, SIZES[0]).show(),
                spread.show(),
                spread.range(),
                f"{1 / spread.median:.3f}",
                found.ratio(form.name, LOOP).show(),
                found.ratio(form.name, RX).show(),
                form.back_pressure,
            )
        )
    small, large = (f"M/s, {size:,} messages" for size in SIZES)
    head = (
        *("form", small, large, "range", "us per node message", "of the plain loop"),
        *("times reactivex", "back-pressure"),
    )
    lines = [
        "Node messages per second, in millions. `sync` is a plain function that is declared not "
        "to block, `async` a coroutine that never suspends, `threads` a plain function in the "
        "pool. The plain loop calls the same 20 functions; that of the plugins hands them one "
        "message again and again. `Flow` moves bare ints. `Run` is the engine: Message objects, "
        "status, clocks, valve, counters, the results channel. `Engine` adds tracker, stores, and "
        "a subscriber that reads the feed. Where results are published, each message that reaches "
        "the terminal becomes one, with its id, which is a hash over its way through the nodes.",
        "",
        *table(head, rows),
    ]
    absent = f"; not here: {', '.join(rivals.ABSENT)}" if rivals.ABSENT else ""
    lines += [
        "csp and aiostream are no dependencies of ours and have a row where they are installed"
        f"{absent}. What csp takes includes the building of its graph.",
        "",
    ]
    return lines


def bars(found: Found) -> list[Bar]:
    """What the chain promises."""
    made = [
        at_least("sync chain, of the plain loop", 0.60, found.ratio(FLOW, LOOP)),
        at_least("sync chain, times reactivex map", 1.6, found.ratio(FLOW, RX)),
        at_least("sync chain, prefetch 256, of the plain loop", 0.85, found.ratio(FLOW_WIDE, LOOP)),
        at_least(
            "async without suspension, of bare awaits", 0.45, found.ratio(FLOW_ASYNC, AWAITED)
        ),
        at_least("sync chain, times queue tasks", 10, found.ratio(FLOW, QUEUES)),
    ]
    for name in (ENGINE, PUBLISHED):
        each = Spread.of(1 / rate for rate in found.rounds(name))
        made += [
            at_most(f"{name}: per node message", 0.8, each, " us"),
            *(
                at_most(f"{name}: times slower than {loop}", 6.5, found.ratio(loop, name))
                for loop in (LOOP, LOOP_OF_PLUGINS)
            ),
            at_least(f"{name}: times queue tasks", 3, found.ratio(name, QUEUES)),
        ]
    return made


SIZES = (10_000, 100_000)
FAMILY = Family("chains", "A chain of 20 nodes", SIZES, tuple(FORMS), tables, bars)
