"""What every kind of node does alike: order, failures, ports, demand, and exact counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.model.message import to_port
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import NodePlan, Outcome, Slot
from yukta_rx.streams.threads import ThreadIterableBody
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    Fn = Callable[[int], Any]

pytestmark = pytest.mark.feature("ENG-02")


@dataclass(frozen=True)
class Kind:
    """One way to write the same function."""

    one: Callable[[Fn], ops.Operator]
    """An operator of a function to one output."""
    many: Callable[[Callable[[int], Iterable[Any]]], ops.Operator] | None = None
    """An operator of a function to many outputs."""


def as_async(fn: Fn, *, suspend: bool) -> Any:
    async def call(n: int) -> Any:
        if suspend:
            await asyncio.sleep(0.001)
        return fn(n)

    return call


def as_generator(fn: Callable[[int], Iterable[Any]]) -> Any:
    def call(n: int) -> Iterator[Any]:
        yield from fn(n)

    return call


def as_async_generator(fn: Callable[[int], Iterable[Any]]) -> Any:
    async def call(n: int) -> AsyncIterator[Any]:
        for out in fn(n):
            await asyncio.sleep(0.001)
            yield out

    return call


def as_stream(fn: Callable[[int], Iterable[Any]]) -> Any:
    async def call(stream: AsyncIterator[int]) -> AsyncIterator[Any]:
        async for n in stream:
            for out in fn(n):
                yield out

    return call


def single(fn: Fn) -> Callable[[int], Iterable[Any]]:
    def call(n: int) -> Iterable[Any]:
        return [fn(n)]

    return call


KINDS = {
    "sync": Kind(lambda fn: ops.call(fn)),
    "flat_map": Kind(lambda fn: ops.flat_map(single(fn)), ops.flat_map),
    "generator": Kind(
        lambda fn: ops.call(as_generator(single(fn))), lambda fn: ops.call(as_generator(fn))
    ),
    "async": Kind(lambda fn: ops.call(as_async(fn, suspend=False))),
    "async suspending": Kind(lambda fn: ops.call(as_async(fn, suspend=True))),
    "async generator": Kind(
        lambda fn: ops.call(as_async_generator(single(fn))),
        lambda fn: ops.call(as_async_generator(fn)),
    ),
    "thread": Kind(lambda fn: ops.call(fn, blocking=True)),
    "thread generator": Kind(
        lambda fn: ops.call(as_generator(single(fn)), blocking=True),
        lambda fn: ops.call(as_generator(fn), blocking=True),
    ),
    "through": Kind(
        lambda fn: ops.through(as_stream(single(fn))), lambda fn: ops.through(as_stream(fn))
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=[name for name, kind in KINDS.items() if kind.many])
def many(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param].many


# -- elements


@pytest.mark.parametrize("prefetch", [1, 2, 64])
@virtual_time
async def test_every_element_comes_once_and_in_order(kind: Kind, line: Any, prefetch: int) -> None:
    flow = from_iterable(range(300)).pipe(
        ops.merge_parents(prefetch=prefetch), kind.one(lambda n: n * 2)
    )

    ran = await line(flow, prefetch=prefetch).finished()

    assert ran.out == [n * 2 for n in range(300)]
    assert ran.outcome is Outcome.COMPLETED
    assert (ran.stage.received, ran.stage.emitted, ran.stage.discarded) == (300, 300, 0)


@virtual_time
async def test_an_empty_source_completes(kind: Kind, line: Any) -> None:
    ran = await line(from_iterable([]).pipe(kind.one(lambda n: n))).finished()

    assert (ran.out, ran.outcome) == ([], Outcome.COMPLETED)


@virtual_time
async def test_none_is_dropped_and_counted(kind: Kind, line: Any) -> None:
    flow = from_iterable(range(100)).pipe(kind.one(lambda n: n if n % 3 == 0 else None))

    ran = await line(flow).finished()

    assert ran.out == list(range(0, 100, 3))
    assert (ran.stage.emitted, ran.stage.filtered) == (34, 66)


@virtual_time
async def test_routed_elements_go_to_their_port_only(kind: Kind) -> None:
    flow = from_iterable(range(9)).pipe(
        kind.one(lambda n: n if n % 3 == 0 else to_port("one" if n % 3 == 1 else "two", -n)),
        ops.broadcast(),
    )
    out: dict[str, list[int]] = {"default": [], "one": [], "two": []}
    ends = [
        flow.pipe(ops.map(out["default"].append)),
        flow.port("one").pipe(ops.map(out["one"].append)),
        flow.port("two").pipe(ops.map(out["two"].append)),
    ]

    await run(*ends)

    assert out == {"default": [0, 3, 6], "one": [-1, -4, -7], "two": [-2, -5, -8]}


@virtual_time
async def test_an_element_for_a_port_without_children_is_counted(kind: Kind, line: Any) -> None:
    flow = from_iterable(range(10)).pipe(kind.one(lambda n: to_port("nobody", n) if n < 4 else n))

    ran = await line(flow).finished()

    assert ran.out == [4, 5, 6, 7, 8, 9]
    assert ran.stage.unrouted == 4


@virtual_time
async def test_an_element_that_no_child_asks_for_is_counted(kind: Kind, line: Any) -> None:
    flow = from_iterable(range(10)).pipe(
        kind.one(lambda n: to_port("side", n) if n < 4 else n), ops.broadcast()
    )

    ran = await line(flow.port("side")).finished()

    assert ran.out == [0, 1, 2, 3]
    assert ran.circuit.stage_of(flow).unrouted == 6


@virtual_time
async def test_an_element_for_children_that_all_cancelled_is_counted(kind: Kind) -> None:
    flow = from_iterable(range(10)).pipe(kind.one(lambda n: to_port("side", n) if n < 4 else n))
    default: list[int] = []
    side: list[int] = []
    cancelled = flow.port("side").pipe(ops.map(side.append))
    circuit = Circuit([flow.pipe(ops.map(default.append)), cancelled])
    circuit.start()
    circuit.stage_of(cancelled).end(Outcome.CANCELLED)

    await circuit.done

    assert (default, side) == ([4, 5, 6, 7, 8, 9], [])
    assert circuit.stage_of(flow).unrouted == 4


@virtual_time
async def test_a_port_without_demand_holds_up_the_node(kind: Kind) -> None:
    flow = from_iterable(range(100)).pipe(kind.one(lambda n: to_port("side", n)), ops.broadcast())
    side, default = TestSubscriber(), TestSubscriber(100)
    flow.port("side").subscribe(side)
    flow.subscribe(default)
    await asyncio.sleep(1)
    before = len(side.values)

    side.request(100)
    await side.ended()

    assert before == 0
    assert side.values == list(range(100))
    assert default.values == []


async def run(*ends: Flow[Any]) -> None:
    circuit = Circuit(ends)
    circuit.start()
    await circuit.done


# -- failures


@pytest.mark.parametrize("bad", [0, 1, 7, 63, 64, 199])
@virtual_time
async def test_what_came_before_the_failing_element_is_delivered(
    kind: Kind, line: Any, bad: int
) -> None:
    error = LookupError("as asked")

    def fn(n: int) -> int:
        if n == bad:
            raise error
        return n

    ran = await line(from_iterable(range(200)).pipe(kind.one(fn))).finished()

    assert ran.out == list(range(bad))
    assert (ran.outcome, ran.error) == (Outcome.FAILED, error)
    assert ran.stage.culprit == bad
    assert ran.stage.received == bad + 1


@virtual_time
async def test_what_waited_behind_the_failing_element_is_counted(kind: Kind, line: Any) -> None:
    def fn(n: int) -> int:
        if n == 20:
            raise LookupError("as asked")
        return n

    source = from_iterable(range(1000))
    ran = await line(source.pipe(kind.one(fn))).finished()

    emitted = ran.circuit.stage_of(source).emitted
    assert ran.stage.received + ran.stage.discarded == emitted


@virtual_time
async def test_a_stop_iteration_of_the_function_is_a_failure_not_an_end(
    kind: Kind, line: Any
) -> None:
    def fn(n: int) -> int:
        if n == 5:
            raise StopIteration
        return n

    ran = await line(from_iterable(range(10)).pipe(kind.one(fn))).finished()

    assert ran.out == [0, 1, 2, 3, 4]
    assert ran.outcome is Outcome.FAILED
    assert isinstance(ran.error, RuntimeError)


@virtual_time
async def test_an_error_of_the_source_comes_after_the_elements_before_it(
    kind: Kind, line: Any
) -> None:
    error = LookupError("source")

    def source() -> Iterator[int]:
        yield from range(50)
        raise error

    async def pass_all(stream: AsyncIterator[int]) -> AsyncIterator[int]:
        async for n in stream:
            yield n

    flow = from_iterable(source).pipe(kind.one(lambda n: n))
    ran = await line(flow, prefetch=1).finished()

    # A stream function is told at once: it may hold back what it likes.
    assert ran.out == list(range(50)) or kind is KINDS["through"]
    assert (ran.outcome, ran.error) == (Outcome.FAILED, error)


@virtual_time
async def test_with_all_success_an_error_of_a_parent_ends_the_node_at_once(kind: Kind) -> None:
    def source() -> Iterator[int]:
        yield from range(50)
        raise LookupError("source")

    seen = TestSubscriber(1)
    from_iterable(source).pipe(
        ops.merge_parents(join=ops.AllSuccess(), prefetch=8), kind.one(lambda n: n)
    ).subscribe(seen)
    await asyncio.sleep(1)
    seen.request(1000)

    await seen.ended()

    assert type(seen.error).__name__ == "UpstreamFailedError"
    assert seen.values == list(range(len(seen.values)))


# -- many outputs


@pytest.mark.parametrize("prefetch", [1, 3, 64])
@virtual_time
async def test_outputs_beyond_the_demand_wait(many: Any, line: Any, prefetch: int) -> None:
    flow = from_iterable(range(5)).pipe(many(lambda n: [n] * 100))

    ran = await line(flow, prefetch=prefetch).finished()

    assert ran.out == [n for n in range(5) for _ in range(100)]
    [edge] = [edge for edge in ran.circuit.edges if edge.src is ran.stage]
    assert (edge.credit + edge.used, edge.passed) == (prefetch, 500)


@virtual_time
async def test_outputs_of_earlier_elements_are_delivered_before_a_failure(
    many: Any, line: Any
) -> None:
    def fn(n: int) -> Iterator[int]:
        yield from [n] * 10
        if n == 3:
            raise LookupError("as asked")

    ran = await line(from_iterable(range(5)).pipe(many(fn)), prefetch=1).finished()

    assert ran.out == [n for n in range(4) for _ in range(10)]
    assert ran.outcome is Outcome.FAILED


@virtual_time
async def test_outputs_that_wait_for_demand_come_before_an_error_of_the_source(
    many: Any, line: Any, request: pytest.FixtureRequest
) -> None:
    def source() -> Iterator[int]:
        yield 1
        raise LookupError("source")

    ran = await line(from_iterable(source).pipe(many(lambda n: range(100))), prefetch=1).finished()

    through = "through" in request.node.name
    assert ran.outcome is Outcome.FAILED
    assert ran.out == list(range(len(ran.out)) if through else range(100))


@virtual_time
async def test_no_outputs_at_all_complete(many: Any, line: Any) -> None:
    ran = await line(from_iterable(range(200)).pipe(many(lambda n: []))).finished()

    assert (ran.out, ran.outcome) == ([], Outcome.COMPLETED)
    assert ran.stage.received == 200


# -- sources


async def ints_async(count: int, error: Exception | None = None) -> AsyncIterator[int]:
    for n in range(count):
        if n % 5 == 2:
            await asyncio.sleep(0.001)
        yield n
    if error is not None:
        raise error


def ints(count: int, error: Exception | None = None) -> Iterator[int]:
    yield from range(count)
    if error is not None:
        raise error


def threaded(make: Callable[[], Iterable[int]]) -> Flow[int]:
    return Flow(NodePlan(name="source", body=ThreadIterableBody(make), last=Slot.CALL))


SOURCES: dict[str, Callable[..., Flow[int]]] = {
    "iterable": lambda *of: from_iterable(lambda: ints(*of)),
    "async iterable": lambda *of: from_async_iterable(lambda: ints_async(*of)),
    "thread": lambda *of: threaded(lambda: ints(*of)),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Callable[..., Flow[int]]:
    return SOURCES[request.param]


@pytest.mark.parametrize("prefetch", [1, 64])
@virtual_time
async def test_a_source_gives_all_it_has(source: Any, line: Any, prefetch: int) -> None:
    ran = await line(source(200), prefetch=prefetch).finished()

    assert (ran.out, ran.outcome) == (list(range(200)), Outcome.COMPLETED)


@virtual_time
async def test_a_source_that_raises_fails_after_what_it_gave(source: Any, line: Any) -> None:
    error = LookupError("as asked")

    ran = await line(source(70, error)).finished()

    assert (ran.out, ran.error) == (list(range(70)), error)


@pytest.mark.parametrize("make", [from_iterable, from_async_iterable, threaded])
@virtual_time
async def test_a_source_that_cannot_be_made_fails(make: Any, line: Any) -> None:
    def raises() -> Any:
        raise LookupError("no source")

    ran = await line(make(raises)).finished()

    assert isinstance(ran.error, LookupError)


@virtual_time
async def test_a_source_is_drawn_only_as_far_as_the_window(line: Any) -> None:
    drawn: list[int] = []

    def source() -> Iterator[int]:
        for n in range(1000):
            drawn.append(n)
            yield n

    gate = asyncio.Event()

    async def wait(n: int) -> None:
        await gate.wait()

    ran = line(from_iterable(source), prefetch=8, sink=wait)
    await asyncio.sleep(1)
    held = len(drawn)
    gate.set()
    await ran.finished()

    assert held == 8
    assert len(drawn) == 1000


@virtual_time
async def test_each_subscription_begins_the_source_anew(source: Any) -> None:
    flow = source(5)

    first = [n async for n in flow]
    second = [n async for n in flow]

    assert first == second == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("operator", [ops.call, ops.map])
@pytest.mark.parametrize("raised", [StopIteration, LookupError])
@virtual_time
async def test_a_failure_in_the_middle_of_a_long_stream_comes_after_what_was_before_it(
    line: Any, operator: Any, raised: type[Exception]
) -> None:
    def fn(n: int) -> int:
        if n == 500:
            raise raised
        return n

    source = from_iterable(range(1000))
    ran = await line(source.pipe(ops.merge_parents(), operator(fn))).finished()

    assert ran.out == list(range(500))
    assert type(ran.error) is (RuntimeError if raised is StopIteration else raised)
    assert ran.stage.culprit == 500
    [edge] = [edge for edge in ran.circuit.edges if edge.dst is ran.stage]
    assert edge.passed == ran.stage.emitted + ran.stage.discarded + 1
