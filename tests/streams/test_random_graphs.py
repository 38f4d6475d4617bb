"""Random graphs of every kind of node, steered at random: nothing lost, nothing stuck."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import reactivex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yukta_rx import operators as ops
from yukta_rx.model.message import to_port
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import NodePlan, Outcome, Slot
from yukta_rx.streams.pump import Pump
from yukta_rx.streams.rx import OverflowStrategy, from_rx
from yukta_rx.streams.threads import ThreadIterableBody
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = [pytest.mark.feature("ENG-01"), pytest.mark.slow]

SOURCES = ["iterable", "async", "thread", "rx"]
KINDS = [
    "sync",
    "generator",
    "async",
    "suspending",
    "async generator",
    "thread",
    "thread list",
    "through",
]
WORKS = ["pass", "drop", "copy", "route"]
SINKS = ["sync", "slow", "thread"]
PATIENCE = 1e6


class Item(NamedTuple):
    """An element: where it came from, which nodes it passed, and its place on that path."""

    source: int
    path: tuple[int, ...]
    place: tuple[int, ...]


@dataclass(frozen=True)
class Node:
    kind: str
    work: str
    parents: tuple[tuple[int, str | None], ...]
    prefetch: int
    fails_at: int | None
    sink: str


@dataclass(frozen=True)
class Graph:
    sources: tuple[tuple[str, int], ...]
    nodes: tuple[Node, ...]
    steering: tuple[tuple[float, str, int, int], ...] = field(default=())


@st.composite
def graphs(draw: st.DrawFn, *, failures: bool) -> Graph:
    sources = draw(
        st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(0, 70)), min_size=1, max_size=3)
    )
    nodes: list[Node] = []
    for index in range(draw(st.integers(1, 8))):
        earlier = st.integers(0, len(sources) + index - 1)
        outlets = st.tuples(earlier, st.sampled_from([None, None, None, "side"]))
        nodes.append(
            Node(
                kind=draw(st.sampled_from(KINDS)),
                work=draw(st.sampled_from(WORKS)),
                parents=tuple(draw(st.lists(outlets, min_size=1, max_size=3, unique=True))),
                prefetch=draw(st.integers(1, 9)),
                fails_at=draw(st.integers(0, 60)) if failures and draw(st.booleans()) else None,
                sink=draw(st.sampled_from(SINKS)),
            )
        )
    steering = draw(
        st.lists(
            st.tuples(
                st.floats(0, 3),
                st.sampled_from(["pause", "resume", "step", "cancel"]),
                st.integers(0, len(nodes) - 1),
                st.integers(1, 5),
            ),
            max_size=8,
        )
    )
    return Graph(tuple(sources), tuple(nodes), tuple(sorted(steering)))


# -- what should come out


def work_of(node: int, work: str, item: Item) -> list[tuple[str | None, Item]]:
    """What a node makes of an element: pairs of port and element."""
    passed = item._replace(path=(*item.path, node))
    number = item.place[0]
    if work == "drop":
        return [] if number % 3 == 0 else [(None, passed)]
    if work == "copy":
        copies = (number + node) % 4
        return [(None, passed._replace(place=(*item.place, n))) for n in range(copies)]
    if work == "route":
        return [("side" if number % 2 else None, passed)]
    return [(None, passed)]


def expected(graph: Graph) -> list[dict[str | None, Counter[Item]]]:
    """By place in the graph and port: all elements that ever come out there."""
    outs: list[dict[str | None, Counter[Item]]] = [
        {None: Counter(Item(index, (), (n,)) for n in range(count))}
        for index, (_, count) in enumerate(graph.sources)
    ]
    for index, node in enumerate(graph.nodes):
        out: dict[str | None, Counter[Item]] = defaultdict(Counter)
        for parent, port in node.parents:
            for item in outs[parent].get(port, Counter()):
                for to, made in work_of(index, node.work, tagged(item, parent, port)):
                    out[to][made] += 1
        outs.append(out)
    return outs


def tagged(item: Item, parent: int, port: str | None) -> Item:
    """The element as it comes through one edge: two edges from one parent are two paths."""
    return item._replace(path=(*item.path, -1 - parent - (100 if port else 0)))


# -- the graph


class Bench:
    """A random graph as a circuit, with its books checked at every call."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.valves = [ops.Valve() for _ in graph.nodes]
        self.got: dict[int, list[Item]] = {}
        self.ends: dict[int, Outcome] = {}
        self.cancelled: set[int] = set()
        self.leaves: dict[int, Flow[Any]] = {}
        flows = [self.source(n, *source) for n, source in enumerate(graph.sources)]
        base = len(flows)
        for index in range(len(graph.nodes)):
            flows.append(self.node(index, flows))
        used = {parent for node in graph.nodes for parent, _ in node.parents}
        for index, node in enumerate(graph.nodes):
            if base + index not in used or index % 3 == 0:
                self.leaf(index, node, flows[base + index])
        self.circuit = Circuit(self.leaves.values())

    def source(self, index: int, kind: str, count: int) -> Flow[Any]:
        items = [Item(index, (), (n,)) for n in range(count)]

        async def slow() -> AsyncIterator[Item]:
            for item in items:
                if item.place[0] % 7 == 3:
                    await asyncio.sleep(0.01)
                yield item

        if kind == "async":
            return from_async_iterable(slow).pipe(ops.broadcast())
        if kind == "thread":
            body = ThreadIterableBody(lambda: iter(items))
            return Flow(NodePlan(name="source", body=body, last=Slot.CALL))
        if kind == "rx":
            return from_rx(reactivex.from_iterable(items), OverflowStrategy.ERROR, size=1000)
        return from_iterable(items)

    def node(self, index: int, flows: list[Flow[Any]]) -> Flow[Any]:
        node = self.graph.nodes[index]
        parents = [
            (flows[parent] if port is None else flows[parent].port(port)).pipe(
                ops.map(lambda item, parent=parent, port=port: tagged(item, parent, port))
            )
            for parent, port in node.parents
        ]
        merged = ops.merge(*parents, prefetch=node.prefetch, name=f"node {index}")
        return merged.pipe(ops.valve(self.valves[index]), self.call(index, node), ops.broadcast())

    def call(self, index: int, node: Node) -> ops.Operator:
        calls = 0

        def many(item: Item) -> list[Any]:
            nonlocal calls
            if node.fails_at is not None and calls >= node.fails_at:
                raise LookupError(f"node {index}")
            calls += 1
            made = work_of(index, node.work, item)
            return [to_port(port, out) if port else out for port, out in made]

        return SHAPES[node.kind](many, self.check)

    def leaf(self, index: int, node: Node, flow: Flow[Any]) -> None:
        got = self.got[index] = []

        def take(item: Item) -> None:
            got.append(item)

        async def slowly(item: Item) -> None:
            await asyncio.sleep(0.003)
            self.check()
            got.append(item)

        bench = self

        class Ends:
            def touched(self, stage: Any) -> None:
                pass

            def ended(self, stage: Any, outcome: Outcome, error: Any) -> None:
                bench.ends[index] = outcome

        sink = slowly if node.sink == "slow" else take
        self.leaves[index] = flow.pipe(
            ops.merge_parents(prefetch=1 + index % 5, name=f"leaf {index}"),
            ops.call(sink, blocking=node.sink == "thread"),
            ops.status(Ends()),
        )

    def check(self) -> None:
        """The books of every edge, at any moment."""
        for edge in self.circuit.edges:
            if not edge.dead and not edge.dst.ended:
                assert edge.credit >= 0
                assert edge.waiting <= edge.prefetch
                assert edge.credit + edge.waiting + edge.used == edge.prefetch

    def steer(self, what: str, node: int, n: int) -> None:
        if what == "pause":
            self.valves[node].pause()
        elif what == "resume":
            self.valves[node].resume()
        elif what == "step":
            self.valves[node].step(n)
        elif node in self.leaves:
            self.cancelled.add(node)
            self.circuit.stage_of(self.leaves[node]).end(Outcome.CANCELLED)
        self.check()

    async def run(self) -> None:
        self.circuit.start()
        now = 0.0
        for when, *what in self.graph.steering:
            await asyncio.sleep(when - now)
            now = when
            self.steer(*what)
        await asyncio.sleep(1)
        for valve in self.valves:
            valve.resume()
        async with asyncio.timeout(PATIENCE):
            await self.circuit.done
            while Pump.of(asyncio.get_running_loop()).outside:
                await asyncio.sleep(0.001)
        assert len(asyncio.all_tasks()) == 1
        assert set(self.ends) == set(self.leaves)


def sync(many: Callable[[Any], list[Any]], check: Callable[[], None]) -> ops.Operator:
    """Several outputs need a kind that can have them; the list is flattened behind it."""

    def call(item: Item) -> list[Any]:
        check()
        return many(item)

    return ops.flat_map(call)


def generator(many: Callable[[Any], list[Any]], check: Callable[[], None]) -> ops.Operator:
    def call(item: Item) -> Iterator[Any]:
        for out in many(item):
            check()
            yield out

    return ops.call(call)


def one_by_one(
    many: Callable[[Any], list[Any]], check: Callable[[], None], *, suspend: bool
) -> ops.Operator:
    async def call(item: Item) -> list[Any]:
        check()
        if suspend and item.place[0] % 2:
            await asyncio.sleep(0.005)
            check()
        return many(item)

    async def listed(stream: AsyncIterator[Item]) -> AsyncIterator[Any]:
        async for item in stream:
            for out in await call(item):
                yield out

    # An async function has one output at most: a stream of its lists has them all.
    return ops.through(listed)


def awaited(
    many: Callable[[Any], list[Any]], check: Callable[[], None], *, suspend: bool
) -> ops.Operator:
    async def call(item: Item) -> Any:
        check()
        if suspend and item.place[0] % 2:
            await asyncio.sleep(0.005)
            check()
        return many(item)

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.pipe(ops.call(call), ops.prefetch(2), ops.flat_map(lambda outs: outs))

    return apply


def async_generator(many: Callable[[Any], list[Any]], check: Callable[[], None]) -> ops.Operator:
    async def call(item: Item) -> AsyncIterator[Any]:
        for out in many(item):
            await asyncio.sleep(0.001)
            check()
            yield out

    return ops.call(call)


def thread_list(many: Callable[[Any], list[Any]], check: Callable[[], None]) -> ops.Operator:
    def call(item: Item) -> Iterator[Any]:
        yield from many(item)

    return ops.call(call, blocking=True)


def thread(many: Callable[[Any], list[Any]], check: Callable[[], None]) -> ops.Operator:
    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.pipe(
            ops.call(many, blocking=True), ops.prefetch(3), ops.flat_map(lambda outs: outs)
        )

    return apply


SHAPES: dict[str, Callable[..., ops.Operator]] = {
    "sync": sync,
    "generator": generator,
    "async": lambda *of: awaited(*of, suspend=False),
    "suspending": lambda *of: awaited(*of, suspend=True),
    "async generator": async_generator,
    "thread": thread,
    "thread list": thread_list,
    "through": lambda *of: one_by_one(*of, suspend=True),
}


def in_order(got: list[Item]) -> bool:
    """Per path, elements come in the order in which they set out."""
    places: dict[Any, tuple[int, ...]] = {}
    for item in got:
        key = item.source, item.path
        if places.get(key, (-1,)) >= item.place:
            return False
        places[key] = item.place
    return True


def run(graph: Graph) -> Bench:
    async def main() -> Bench:
        bench = Bench(graph)
        await bench.run()
        return bench

    return run_virtual(main())


OPTIONS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow],
}


@settings(max_examples=80, **OPTIONS)
@given(graphs(failures=False))
def test_every_surviving_leaf_gets_exactly_what_it_should(graph: Graph) -> None:
    outs = expected(graph)

    bench = run(graph)

    for index, got in bench.got.items():
        whole = outs[len(graph.sources) + index][None]
        assert in_order(got)
        if bench.ends[index] is Outcome.COMPLETED:
            assert Counter(got) == whole
        else:
            assert index in bench.cancelled
            assert Counter(got) <= whole


@settings(max_examples=60, **OPTIONS)
@given(graphs(failures=True))
def test_with_failures_every_graph_still_comes_to_its_end(graph: Graph) -> None:
    outs = expected(graph)

    bench = run(graph)

    for index, got in bench.got.items():
        whole = outs[len(graph.sources) + index][None]
        assert in_order(got)
        assert Counter(got) <= whole
        if bench.ends[index] is Outcome.COMPLETED:
            assert Counter(got) == whole
