"""A source and a subscriber under test control, with one operator between them."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.aio import AsyncBody, AsyncManyBody
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.sync import ManyBody
from yukta_rx.streams.threads import ThreadBody
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from yukta_rx.streams.attempts import Hold
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.stage import Stage

    Fn = Callable[[Any], Any]

WINDOW = 4


def unaccounted(stage: Stage) -> int:
    """Elements that came to a stage of one to one and show in no counter, or in two.

    A node that failed by a call without a policy has one, the culprit.
    """
    came = sum(edge.passed for edge in stage.circuit.edges if edge.dst is stage)
    waiting = sum(edge.waiting for edge in stage.ins)
    return came - waiting - (stage.emitted + stage.filtered + stage.failed + stage.discarded)


@dataclass
class Bench:
    """`source` goes through an edge of `WINDOW` elements into the operator under test."""

    source: TestPublisher
    seen: TestSubscriber
    flow: Flow[Any]

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        await asyncio.sleep(1e-6)

    async def emit(self, *values: Any) -> None:
        """Emit, as there is demand."""
        for value in values:
            await self.source.pulled(self.source._stage.emitted + 1)  # type: ignore[union-attr]
            self.source.emit(value)
        await self.settle()

    @property
    def timed(self) -> list[tuple[str, Any, float]]:
        """The signals with their times, rounded to milliseconds."""
        return [(s.kind, s.value, round(s.time, 3)) for s in self.seen.signals]

    @property
    def stage(self) -> Stage:
        """The stage of the operator under test."""
        return self.source._stage.circuit.stage_of(self.flow)  # type: ignore[union-attr]

    @property
    def unaccounted(self) -> int:
        """See the function of that name."""
        return unaccounted(self.stage)

    @property
    def pulls(self) -> list[tuple[int, float]]:
        """The demand that reached the source, with its times."""
        return [(pull.n, round(pull.time, 3)) for pull in self.source.pulls]


@pytest.fixture
def bench() -> Callable[..., Bench]:
    """Make a bench; call it inside the test, on its loop."""

    def make(*operators: Any, demand: int = 0, refill: int = 0, window: int = WINDOW) -> Bench:
        source = TestPublisher()
        flow = source.pipe(ops.merge_parents(prefetch=window), *operators)
        seen = TestSubscriber(demand, refill=refill)
        flow.subscribe(seen)
        return Bench(source, seen, flow)

    return make


@dataclass
class Witness:
    """A status observer that remembers."""

    notes: list[tuple[Any, ...]] = field(default_factory=list)

    def touched(self, stage: Any) -> None:
        self.notes.append(("touched", asyncio.get_running_loop().time()))

    def ended(self, stage: Any, outcome: Any, error: Any) -> None:
        self.notes.append((outcome.value, error, round(asyncio.get_running_loop().time(), 3)))


@pytest.fixture
def witness() -> Witness:
    return Witness()


# -- one function in every shape that attempts can be made of


async def _awaited(made: Any) -> Any:
    return await made if inspect.isawaitable(made) else made


def _sync(fn: Fn) -> ops.Operator:
    return ops.call(lambda n: fn(n))


def _map(fn: Fn) -> ops.Operator:
    return ops.map(lambda n: fn(n))


def _coroutine(fn: Fn, *, suspends: bool = False) -> Any:
    async def call(n: Any) -> Any:
        if suspends:
            await asyncio.sleep(0)
        return await _awaited(fn(n))

    return call


def _blocking(fn: Fn) -> ops.Operator:
    return ops.call(lambda n: fn(n), blocking=True)


def _generator(fn: Fn) -> Any:
    def call(n: Any) -> Iterator[Any]:
        yield fn(n)

    return call


def _async_generator(fn: Fn) -> Any:
    async def call(n: Any) -> AsyncIterator[Any]:
        yield await _awaited(fn(n))

    return call


@dataclass(frozen=True)
class Shape:
    """One way to write a function of one element to one element."""

    name: str
    call: Callable[[Fn], ops.Operator]

    @property
    def awaits(self) -> bool:
        """Whether it awaits what the function gives."""
        return self.name.startswith(("async", "concurrent"))

    @property
    def in_thread(self) -> bool:
        """Whether the function runs in a thread."""
        return self.name.startswith("blocking")


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("sync", _sync),
        Shape("map", _map),
        Shape("generator", lambda fn: ops.call(_generator(fn))),
        Shape("async", lambda fn: ops.call(_coroutine(fn))),
        Shape("async suspending", lambda fn: ops.call(_coroutine(fn, suspends=True))),
        Shape("async generator", lambda fn: ops.call(_async_generator(fn))),
        Shape("blocking", _blocking),
        Shape("blocking generator", lambda fn: ops.call(_generator(fn), blocking=True)),
        Shape(
            "concurrent",
            lambda fn: ops.call(ConcurrentBody(AsyncBody(_coroutine(fn)).attempt, 3)),
        ),
    )
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Shape:
    """Every shape that attempts can be made of."""
    return SHAPES[request.param]


@pytest.fixture(params=[name for name, shape in SHAPES.items() if not shape.in_thread])
def on_loop(request: pytest.FixtureRequest) -> Shape:
    """The shapes whose function runs on the loop."""
    return SHAPES[request.param]


@pytest.fixture(params=[name for name, shape in SHAPES.items() if shape.awaits])
def waiting(request: pytest.FixtureRequest) -> Shape:
    """The shapes that may await."""
    return SHAPES[request.param]


@dataclass(frozen=True)
class Many:
    """One way to write a function of one element to any number, which may fail in between."""

    name: str
    call: Callable[..., ops.Operator]


def _each(fn: Callable[[Any], Iterable[Any]]) -> Any:
    def call(n: Any) -> Iterator[Any]:
        yield from fn(n)

    return call


def _each_async(fn: Callable[[Any], Iterable[Any]]) -> Any:
    async def call(n: Any) -> AsyncIterator[Any]:
        for made in fn(n):
            await asyncio.sleep(0)
            yield made

    return call


def _concurrent(fn: Any, hold: Hold | None) -> ConcurrentBody:
    return ConcurrentBody(AsyncManyBody(_each_async(fn), None, hold).attempt, 3)


MANY = {
    many.name: many
    for many in (
        Many("generator", lambda fn, hold=None: ops.call(ManyBody(_each(fn), hold))),
        Many(
            "async generator",
            lambda fn, hold=None: ops.call(AsyncManyBody(_each_async(fn), None, hold)),
        ),
        Many(
            "blocking generator", lambda fn, hold=None: ops.call(ThreadBody(_each(fn), True, hold))
        ),
        Many("concurrent", lambda fn, hold=None: ops.call(_concurrent(fn, hold))),
    )
}


@pytest.fixture(params=MANY)
def many(request: pytest.FixtureRequest) -> Many:
    """Every shape that gives any number of elements for one."""
    return MANY[request.param]


@pytest.fixture
def clock() -> Callable[[], LoopClock]:
    """Make the clock of the running loop."""
    return lambda: LoopClock(asyncio.get_running_loop())


@dataclass
class Ran:
    """A circuit that has ended: its output and the stage under test."""

    out: list[Any]
    stage: Stage
    ports: dict[str, list[Any]]
    circuit: Circuit

    @property
    def unaccounted(self) -> int:
        """See the function of that name."""
        return unaccounted(self.stage)


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run elements through operators to the end, with a child at each named port."""

    async def make(elements: Iterable[Any], *operators: Any, ports: tuple[str, ...] = ()) -> Ran:
        out: list[Any] = []
        flow = from_iterable(elements).pipe(ops.merge_parents(), *operators, ops.broadcast())
        ended: dict[str, list[Any]] = {port: [] for port in ports}
        leaves = [flow.pipe(ops.map(out.append))]
        leaves += [flow.port(port).pipe(ops.map(ended[port].append)) for port in ports]
        circuit = Circuit(leaves)
        circuit.start()
        await circuit.done
        assert len(circuit.tasks) == 0
        return Ran(out, circuit.stage_of(flow), ended, circuit)

    return make
