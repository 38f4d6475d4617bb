"""Graphs that are no chain: fan-out, diamond, and a line of 500 nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.chains import MAPS
from bench.harness import Bar, Family, Form, Found, at_least, table
from bench.workflows import (
    FUNCTIONS,
    LARGE,
    NODES,
    chain,
    document,
    flow_chain,
    make_run,
    millions,
    node,
    timed_flow,
    timed_run,
)
from yukta_rx import operators as ops
from yukta_rx.streams import Flow, from_iterable

if TYPE_CHECKING:
    from collections.abc import Sequence

BRANCHES, LENGTH, LONG = 4, 5, 500
FAN_OUT, DIAMOND = 1 + BRANCHES * LENGTH, 5
"""Calls for each message."""


def _branch(i: int) -> slice:
    return slice(i * LENGTH, (i + 1) * LENGTH)


# --- one node, and four branches of five nodes behind it


def fan_out_loop(count: int) -> float:
    """The same work in a plain loop: the branch four times."""
    branches = [FUNCTIONS[_branch(i)] for i in range(BRANCHES)]
    head = FUNCTIONS[0]
    start = time.perf_counter()
    for x in range(count):
        given = head(x)
        for branch in branches:
            x = given
            for call in branch:
                x = call(x)
    return millions(count * FAN_OUT, time.perf_counter() - start)


async def fan_out_flow(count: int) -> float:
    """Bare Flow operators."""
    head = from_iterable(range(count)).pipe(ops.prefetch(64), ops.call(MAPS[0]), ops.broadcast())
    leaves = [flow_chain(head, MAPS[_branch(i)]) for i in range(BRANCHES)]
    return millions(count * FAN_OUT, await timed_flow(count, *leaves))


async def four_chains(count: int) -> float:
    """Four chains that share nothing, with as many calls: what sharing the head costs."""
    leaves = [flow_chain(from_iterable(range(count)), MAPS[_branch(i)]) for i in range(BRANCHES)]
    return millions(count * BRANCHES * LENGTH, await timed_flow(count, *leaves))


async def fan_out_run(count: int) -> float:
    """The engine."""
    nodes = [node("in", "NUMBERS", config={"count": count}), node("head", "SYNC_0")]
    edges = [("in", "head")]
    ends = [f"out{i}" for i in range(BRANCHES)]
    for i, end in enumerate(ends):
        names = [f"b{i}_{place}" for place in range(LENGTH)]
        nodes += [node(name, f"SYNC_{i * LENGTH + at}") for at, name in enumerate(names)]
        nodes.append(node(end, "NULL_TERMINAL"))
        edges += zip(["head", *names], [*names, end], strict=True)
    run = make_run(document(nodes, edges))
    return millions(count * FAN_OUT, await timed_run(run, count, *ends))


# --- a, then b and c, then d, which gets both


def diamond_loop(count: int) -> float:
    """The same calls in a plain loop."""
    a, b, c, d = FUNCTIONS[:4]
    start = time.perf_counter()
    for x in range(count):
        given = a(x)
        for call in (b, c):
            d(call(given))
    return millions(count * DIAMOND, time.perf_counter() - start)


async def diamond_flow(count: int) -> float:
    """Bare Flow operators."""
    a = from_iterable(range(count)).pipe(ops.prefetch(64), ops.call(MAPS[0]), ops.broadcast())
    b, c = (flow_chain(a, [body]) for body in MAPS[1:3])
    d = ops.merge(b, c).pipe(ops.call(MAPS[3]))
    return millions(count * DIAMOND, await timed_flow(2 * count, d))


async def diamond_run(count: int) -> float:
    """The engine."""
    names = "abcd"
    nodes = [node("in", "NUMBERS", config={"count": count})]
    nodes += [node(name, f"SYNC_{place}") for place, name in enumerate(names)]
    edges = [("in", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "out")]
    made = document([*nodes, node("out", "NULL_TERMINAL")], edges)
    return millions(count * DIAMOND, await timed_run(make_run(made), 2 * count))


# --- 500 nodes in a line


def long_loop(count: int) -> float:
    """The same calls in a plain loop."""
    calls = FUNCTIONS * (LONG // NODES)
    start = time.perf_counter()
    for x in range(count):
        for call in calls:
            x = call(x)
    return millions(count * LONG, time.perf_counter() - start)


async def long_flow(count: int) -> float:
    """Bare Flow operators."""
    leaf: Flow[Any] = flow_chain(from_iterable(range(count)), MAPS * (LONG // NODES))
    return millions(count * LONG, await timed_flow(count, leaf))


async def long_run(count: int) -> float:
    """The engine."""
    run = make_run(chain("SYNC", count, nodes=LONG), settings=LARGE)
    return millions(count * LONG, await timed_run(run, count))


# Shape, then the forms of it: the plain loop first, which is its limit.
SHAPES: dict[str, Sequence[tuple[str, Any]]] = {
    "fan-out 1 to 4": [
        ("plain loop", fan_out_loop),
        ("Flow", fan_out_flow),
        ("Flow, four chains apart", four_chains),
        ("Run", fan_out_run),
    ],
    "diamond": [("plain loop", diamond_loop), ("Flow", diamond_flow), ("Run", diamond_run)],
    "500 nodes": [("plain loop", long_loop), ("Flow", long_flow), ("Run", long_run)],
}
SHARES = {"500 nodes": NODES / LONG}

FORMS = tuple(
    Form(f"{shape}, {name}", measure, SHARES.get(shape, 1))
    for shape, forms in SHAPES.items()
    for name, measure in forms
)


def tables(found: Found) -> list[str]:
    """One row per form."""
    rows = []
    for shape, forms in SHAPES.items():
        limit = f"{shape}, {forms[0][0]}"
        for name, _ in forms:
            full = f"{shape}, {name}"
            spread, share = found.spread(full), found.ratio(full, limit)
            rows.append((shape, name, spread.show(), spread.range(), share.show()))
    return [
        "Node messages per second, in millions, sync. Fan-out is one node with four branches of "
        "five nodes behind it; its limit is a plain loop that does the branch four times.",
        "",
        *table(("shape", "form", "M/s", "range", "of the plain loop"), rows),
    ]


def bars(found: Found) -> list[Bar]:
    """What shapes promise; a line that did not get all messages through would have raised."""
    fan_out, loop = "fan-out 1 to 4, Flow", "fan-out 1 to 4, plain loop"
    apart = "fan-out 1 to 4, Flow, four chains apart"
    passed = all(f"500 nodes, {name}" in found for name in ("Flow", "Run"))
    return [
        at_least("fan-out 1 to 4, of the plain loop", 0.7, found.ratio(fan_out, loop)),
        at_least("fan-out 1 to 4, of four chains apart", 0.7, found.ratio(fan_out, apart)),
        Bar("500 nodes in a line", "pass", "all messages passed" if passed else "not run", passed),
    ]


FAMILY = Family("shapes", "Fan-out, diamond, 500 nodes", (20_000,), FORMS, tables, bars)
