"""edge_buffer: a bounded buffer in front of a node; what it drops, keeps on disk, or holds up."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import BadInputError, EngineError, UpstreamFailedError
from yukta_rx.model.policy import Overflow
from yukta_rx.streams.buffer import BufferStage
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.flow import Flow, from_iterable
from yukta_rx.streams.plan import Outcome
from yukta_rx.testing.clock import run_virtual, virtual_time
from yukta_rx.testing.publisher import TestPublisher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.stage import Stage

pytestmark = pytest.mark.feature("ENG-01")

DROPS = {"DROP_OLDEST": Overflow.DROP_OLDEST, "DROP_NEWEST": Overflow.DROP_NEWEST}
UNPACED = [*DROPS.values(), Overflow.SPILL]


class Held:
    """A node behind a buffer that takes an element each time it is let; and its books.

    The call of the node is asynchronous, so the first element of all is in the call, and `size`
    wait behind it.
    """

    def __init__(
        self,
        size: int,
        overflow: Overflow,
        *,
        sources: int = 1,
        join: Any = None,
        dropped_port: int | None = None,
        window: int = 64,
        valve: ops.Valve | None = None,
        **options: Any,
    ) -> None:
        self.sources = [TestPublisher(f"source{n}") for n in range(sources)]
        self.out: list[Any] = []
        self.let = asyncio.Semaphore(0)
        self.dropped: list[tuple[str, list[Any]]] = []
        self.from_port: list[Any] = []
        self.let_port = asyncio.Semaphore(0)
        options.setdefault("on_drop", self.on_drop)
        merged = ops.merge(*self.sources, join=join, prefetch=window)
        self.flow = merged.pipe(
            ops.edge_buffer(size, overflow, **options),
            *([] if valve is None else [ops.valve(valve)]),
            ops.call(self.take),
            ops.broadcast(),
        )
        leaves = [self.flow]
        if dropped_port is not None:
            port = Flow(self.flow.plan.parents[0].plan, "dropped")
            self.port = port.pipe(
                ops.merge_parents(prefetch=dropped_port), ops.call(self.take_dropped)
            )
            leaves.append(self.port)
        self.circuit = Circuit(leaves)
        self.circuit.start()

    def on_drop(self, edge: Edge, items: list[Any]) -> None:
        self.dropped.append((edge.src.plan.name, items))

    async def take(self, n: Any) -> None:
        await self.let.acquire()
        self.out.append(n)

    async def take_dropped(self, n: Any) -> None:
        await self.let_port.acquire()
        self.from_port.append(n)

    @property
    def stage(self) -> Stage:
        return self.circuit.stage_of(self.flow)

    @property
    def buffer(self) -> BufferStage:
        stage = self.circuit.stages[self.flow.plan.parents[0].plan]
        assert isinstance(stage, BufferStage)
        return stage

    async def emit(self, *values: Any, source: int = 0) -> None:
        for value in values:
            await self.sources[source].pulled(1)
            assert self.sources[source].demand, "the source is held up"
            self.sources[source].emit(value)
            await asyncio.sleep(1e-6)

    async def burst(self, *values: Any, source: int = 0) -> None:
        """All at once."""
        await self.sources[source].pulled(len(values))
        self.sources[source].emit(*values)
        await asyncio.sleep(1e-6)

    async def settle(self) -> None:
        await asyncio.sleep(1e-6)

    def let_all(self) -> None:
        for _ in range(100_000):
            self.let.release()
            self.let_port.release()

    async def finished(self) -> None:
        for source in self.sources:
            if source.ended_at is None:
                source.complete()
        self.let_all()
        await self.circuit.done
        self.check_books()

    @property
    def all_dropped(self) -> list[Any]:
        return [item for _name, items in self.dropped for item in items]

    def check_books(self) -> None:
        """Every element that came is worked off, dropped or discarded, once."""
        buffer, stage = self.buffer, self.stage
        came = [edge for edge in self.circuit.edges if edge.dst is buffer]
        dropped = sum(edge.dropped for edge in came)
        assert dropped == len(self.all_dropped)
        assert (
            sum(edge.passed for edge in came)
            == (stage.received + stage.discarded + buffer.discarded + dropped) - self.in_call
        )
        assert buffer.received == sum(edge.passed for edge in came) - 0

    in_call = 0
    """Elements that were in a call when it was cancelled: received, and discarded."""


# -- what is dropped


@pytest.mark.parametrize("size", [1, 2, 3, 64])
@pytest.mark.parametrize("more", [-1, 0, 1, 2, 7])
@pytest.mark.parametrize("at_once", [True, False])
@virtual_time
async def test_drop_oldest_keeps_the_last(size: int, more: int, at_once: bool) -> None:
    held = Held(size, Overflow.DROP_OLDEST, window=100)
    await held.emit("in the call")
    count = size + more
    await (held.burst if at_once else held.emit)(*range(count))
    waiting, edge = held.buffer.waiting(), held.circuit.edges[0]
    await held.finished()

    assert waiting == min(size, count)
    assert held.out == ["in the call", *range(max(0, count - size), count)]
    assert held.all_dropped == list(range(max(0, count - size)))
    assert edge.prefetch in (size, 100)


@pytest.mark.parametrize("size", [1, 2, 3, 64])
@pytest.mark.parametrize("more", [-1, 0, 1, 2, 7])
@pytest.mark.parametrize("at_once", [True, False])
@virtual_time
async def test_drop_newest_keeps_the_first(size: int, more: int, at_once: bool) -> None:
    held = Held(size, Overflow.DROP_NEWEST, window=100)
    await held.emit("in the call")
    count = size + more
    await (held.burst if at_once else held.emit)(*range(count))
    waiting = held.buffer.waiting()
    await held.finished()

    assert waiting == min(size, count)
    assert held.out == ["in the call", *range(min(size, count))]
    assert held.all_dropped == list(range(size, count))


@pytest.mark.parametrize("overflow", DROPS.values(), ids=DROPS)
@virtual_time
async def test_the_buffer_is_its_size_again_after_a_call_gave_its_batch_back(
    overflow: Overflow,
) -> None:
    """The first batch is taken whole; a pause puts the rest of it back in front."""
    handle = ops.Valve()
    held = Held(3, overflow, valve=handle)
    await held.burst(0, 1, 2)
    await held.burst(3, 4)
    handle.pause()
    held.let.release()
    await held.settle()
    back = held.buffer.waiting()
    await held.burst(5, 6)
    after = held.buffer.waiting()
    handle.resume()
    await held.finished()

    if overflow is Overflow.DROP_OLDEST:
        assert (back, after, held.all_dropped) == (4, 3, [1, 2, 3])
    else:
        # What has room already is not dropped for being too much.
        assert (back, after, held.all_dropped) == (4, 4, [5, 6])
    assert held.out == [n for n in range(7) if n not in held.all_dropped]


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_the_parents_are_never_held_up(overflow: Overflow, tmp_path: Path) -> None:
    held = Held(2, overflow, window=4, folder=tmp_path)
    for n in range(100):
        while not held.sources[0].demand:
            await asyncio.sleep(1e-6)
        await held.emit(n)
    asked = held.sources[0].requested
    await held.finished()

    assert asked > 100
    assert held.circuit.loop.time() < 1


@virtual_time
async def test_block_holds_the_parents_up_at_its_size() -> None:
    for size in (1, 2, 64, 65):
        source = TestPublisher()
        gate = asyncio.Event()

        async def wait(n: int, gate: asyncio.Event = gate) -> int:
            await gate.wait()
            return n

        flow = source.pipe(
            ops.merge_parents(prefetch=7),
            ops.edge_buffer(size, Overflow.BLOCK),
            ops.call(wait),
        )
        circuit = Circuit([flow])
        circuit.start()
        await source.pulled(size)
        source.emit(*range(size))
        await asyncio.sleep(10)
        held = source.requested
        gate.set()
        await asyncio.sleep(1)
        source.complete()
        await circuit.done

        assert held == size
        assert circuit.stage_of(flow).emitted == size
        assert source.requested > size


@virtual_time
async def test_block_opens_a_window_of_its_size_behind_any_flow() -> None:
    out: list[int] = []
    flow = from_iterable(range(100)).pipe(ops.edge_buffer(5, Overflow.BLOCK), ops.map(out.append))
    circuit = Circuit([flow])
    circuit.start()
    await circuit.done

    assert out == list(range(100))
    assert [edge.prefetch for edge in circuit.edges] == [5]


@pytest.mark.parametrize("overflow", UNPACED)
@pytest.mark.parametrize("size", [1, 2, 5])
@virtual_time
async def test_each_parent_keeps_its_order_and_the_drop_names_who_found_no_room(
    overflow: Overflow, size: int
) -> None:
    held = Held(size, overflow, sources=3)
    for n in range(10):
        for source in range(3):
            await held.emit((source, n), source=source)
    await held.finished()

    for source in range(3):
        mine = [n for which, n in held.out if which == source]
        assert mine == sorted(mine)
    assert Counter(held.out + held.all_dropped) == Counter(
        (source, n) for source in range(3) for n in range(10)
    )
    if overflow is Overflow.SPILL:
        assert held.dropped == []
    elif overflow is Overflow.DROP_NEWEST:
        assert all(name == f"source{items[0][0]}" for name, items in held.dropped)
    by_parent = Counter()
    for name, items in held.dropped:
        by_parent[name] += len(items)
    edges = [edge for edge in held.circuit.edges if edge.dst is held.buffer]
    assert {edge.src.plan.name: edge.dropped for edge in edges if edge.dropped} == by_parent


# -- the port `dropped`


@pytest.mark.parametrize("overflow", DROPS.values(), ids=DROPS)
@virtual_time
async def test_what_is_dropped_goes_to_the_port(overflow: Overflow) -> None:
    held = Held(2, overflow, dropped_port=64)
    await held.emit(*range(10))
    await held.finished()

    assert held.from_port == held.all_dropped
    assert len(held.from_port) == 7
    assert held.out == ([0, 8, 9] if overflow is Overflow.DROP_OLDEST else [0, 1, 2])


@pytest.mark.parametrize("overflow", DROPS.values(), ids=DROPS)
@pytest.mark.parametrize("window", [1, 2, 3, 64])
@virtual_time
async def test_a_slow_reader_of_the_port_gets_all_and_paces_the_parents(
    overflow: Overflow, window: int
) -> None:
    held = Held(1, overflow, dropped_port=window, window=8)
    await held.emit(*range(2))
    sent = 2
    while held.sources[0].demand:
        held.sources[0].emit(sent)
        sent += 1
        await held.settle()
    stuck = len(held.all_dropped), held.sources[0].requested
    held.let_port.release()
    await asyncio.sleep(10)
    more = len(held.all_dropped)
    await held.finished()

    assert stuck == (window, 8 + (2 + window) // 6 * 6)
    assert more in (window + 1, window)
    assert held.from_port == held.all_dropped
    assert Counter(held.out + held.all_dropped) == Counter(range(sent))


@virtual_time
async def test_an_end_waits_for_a_reader_of_the_port_without_spinning() -> None:
    held = Held(1, Overflow.DROP_NEWEST, dropped_port=1)
    await held.emit(*range(2))
    await held.burst(*range(2, 6))
    held.sources[0].complete()
    await asyncio.sleep(100)
    before = list(held.all_dropped)
    for _ in range(4):
        held.let_port.release()
    await asyncio.sleep(1)
    await held.finished()

    assert before == [2]
    assert held.from_port == [2, 3, 4, 5]
    assert held.out == [0, 1]


@virtual_time
async def test_a_cancelled_reader_of_the_port_leaves_the_buffer_alone() -> None:
    held = Held(1, Overflow.DROP_NEWEST, dropped_port=4)
    await held.emit(*range(4))
    held.circuit.stage_of(held.port).end(Outcome.CANCELLED)
    await held.emit(*range(4, 8))
    await held.finished()

    assert held.out == [0, 1]
    assert len(held.all_dropped) == 6


@virtual_time
async def test_a_reader_of_the_port_does_not_keep_the_buffer_going() -> None:
    held = Held(1, Overflow.DROP_NEWEST, dropped_port=4)
    held.in_call = 1
    await held.emit(*range(4))
    held.stage.end(Outcome.CANCELLED)
    await held.settle()

    assert held.sources[0].cancelled
    held.let_all()
    await held.circuit.done
    held.check_books()
    assert held.from_port == [2, 3]


# -- ends


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_what_waits_is_worked_off_before_the_completion(overflow: Overflow) -> None:
    held = Held(3, overflow)
    await held.emit(*range(4))
    held.sources[0].complete()
    await asyncio.sleep(100)
    before = (list(held.out), held.stage.ended)
    await held.finished()

    assert before == ([], False)
    assert held.out == [0, 1, 2, 3]


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_an_end_with_elements_that_came_just_before_it(overflow: Overflow) -> None:
    held = Held(100, overflow)
    await held.sources[0].pulled(10)
    held.sources[0].emit(*range(10))
    held.sources[0].complete()
    await held.finished()

    assert held.out == list(range(10))


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_an_empty_source_completes(overflow: Overflow) -> None:
    held = Held(1, overflow)
    await held.settle()
    await held.finished()

    assert (held.out, held.stage.ended) == ([], True)


@pytest.mark.parametrize("overflow", [*UNPACED, Overflow.BLOCK])
@virtual_time
async def test_an_error_of_the_source_comes_after_what_waits(
    overflow: Overflow, bench: Any
) -> None:
    b = bench(ops.edge_buffer(9, overflow), demand=0)
    await b.emit(1, 2, 3)
    error = LookupError("source")
    b.source.fail(error)
    await asyncio.sleep(5)
    b.seen.request(10)
    await b.seen.ended()

    assert b.timed == [*(("next", n, 5) for n in (1, 2, 3)), ("error", error, 5)]


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_with_all_success_a_failed_parent_ends_the_node_at_once(overflow: Overflow) -> None:
    held = Held(3, overflow, sources=2, join=ops.AllSuccess())
    held.in_call = 1
    await held.emit(*range(6))
    error = LookupError("source")
    held.sources[0].fail(error)
    await held.settle()

    assert held.stage.ended
    assert held.sources[1].cancelled
    await held.circuit.done
    held.check_books()
    assert held.out == []


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_a_rule_that_judges_at_the_end_lets_what_waits_come_first(
    overflow: Overflow, witness: Any
) -> None:
    held = Held(9, overflow, sources=2, join=ops.AtLeast(1, ("source0", "source1")))
    await held.emit(*range(3))
    for source in held.sources:
        source.fail(LookupError("source"))
    await held.settle()
    assert not held.stage.ended
    await held.finished()

    assert held.out == [0, 1, 2]


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_a_failure_in_front_passes_a_closed_valve_and_what_waits(
    overflow: Overflow, bench: Any
) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(
        ops.merge_parents(join=ops.AllSuccess(), prefetch=4),
        ops.edge_buffer(9, overflow),
        ops.valve(handle),
        demand=10,
    )
    await b.emit(1)
    await asyncio.sleep(1)
    b.source.fail(LookupError("source"))
    await b.seen.ended()

    assert b.timed == [("error", b.seen.error, 1)]
    assert isinstance(b.seen.error, UpstreamFailedError)


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_a_rule_that_carries_on_carries_on(overflow: Overflow) -> None:
    held = Held(9, overflow, sources=2, join=ops.AtLeast(0, ()))
    await held.emit(*range(3))
    held.sources[0].fail(LookupError("source"))
    await held.emit("a", "b", source=1)
    await held.finished()

    assert held.out == [0, 1, 2, "a", "b"]


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_a_cancellation_drops_what_waits_and_counts_it(overflow: Overflow) -> None:
    held = Held(3, overflow)
    held.in_call = 1
    await held.emit(*range(10))
    held.circuit.stop(StopMode.CANCEL)
    await held.circuit.done

    held.check_books()
    assert held.sources[0].cancelled
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("overflow", UNPACED)
@virtual_time
async def test_a_drained_buffer_takes_no_more_and_works_off_what_waits(
    overflow: Overflow,
) -> None:
    held = Held(3, overflow)
    await held.emit(*range(10))
    held.buffer.drain()
    await held.settle()
    cancelled = held.sources[0].cancelled
    await held.finished()

    assert cancelled
    assert Counter(held.out + held.all_dropped) == Counter(range(10))


@pytest.mark.parametrize("overflow", list(Overflow))
def test_a_buffer_of_nothing_is_refused(overflow: Overflow) -> None:
    with pytest.raises(ValueError, match="size must be 1 or more, not 0"):
        ops.edge_buffer(0, overflow)


@virtual_time
async def test_what_is_held_at_a_breakpoint_is_not_dropped() -> None:
    handle = ops.Valve()
    handle.break_at([lambda n: n == 3])
    out: list[int] = []
    dropped: list[int] = []
    source = TestPublisher()
    flow = source.pipe(
        ops.merge_parents(),
        ops.edge_buffer(
            2, Overflow.DROP_OLDEST, on_drop=lambda _edge, items: dropped.extend(items)
        ),
        ops.valve(handle),
        ops.map(out.append),
    )
    circuit = Circuit([flow])
    circuit.start()
    await source.pulled(1)
    for n in range(8):
        source.emit(n)
        await asyncio.sleep(1e-6)
    held = handle.held
    handle.resume()
    source.complete()
    await circuit.done

    assert held == 3
    assert out == [0, 1, 2, 3, 7]
    assert dropped == [4, 5, 6]


@virtual_time
async def test_a_buffer_of_one_drops_what_comes_while_a_breakpoint_holds_it() -> None:
    handle = ops.Valve()
    handle.break_at([lambda n: n == 0])
    out: list[int] = []
    source = TestPublisher()
    flow = source.pipe(
        ops.merge_parents(),
        ops.edge_buffer(1, Overflow.DROP_OLDEST),
        ops.valve(handle),
        ops.map(out.append),
    )
    circuit = Circuit([flow])
    circuit.start()
    await source.pulled(1)
    for n in range(3):
        source.emit(n)
        await asyncio.sleep(1e-6)
    handle.resume()
    source.complete()
    await circuit.done

    assert out == [0]


# -- SPILL


@pytest.mark.parametrize("size", [1, 2, 3, 63, 64, 65])
@pytest.mark.parametrize("count", [1, 64, 65, 300])
@virtual_time
async def test_spill_loses_nothing_and_keeps_the_order(
    size: int, count: int, tmp_path: Path
) -> None:
    held = Held(size, Overflow.SPILL, folder=tmp_path)
    for n in range(count):
        while not held.sources[0].demand:
            await asyncio.sleep(1e-6)
        held.sources[0].emit(n)
    await asyncio.sleep(1)
    buffer = held.buffer
    waiting = buffer.waiting() + buffer.default[0].held
    in_memory = buffer.default[0].waiting
    await held.finished()

    assert held.out == list(range(count))
    assert waiting == count
    # A call takes four at first.
    assert in_memory <= size + 4
    assert buffer.waiting() == 0


@virtual_time
async def test_spill_is_read_while_more_is_written(tmp_path: Path) -> None:
    held = Held(2, Overflow.SPILL, folder=tmp_path, window=8)
    sent = 0
    for round_ in range(200):
        for _ in range(3):
            while not held.sources[0].demand:
                await asyncio.sleep(1e-6)
            await held.emit(sent)
            sent += 1
        for _ in range(round_ % 4):
            held.let.release()
        await held.settle()
    await held.finished()

    assert held.out == list(range(600))


@virtual_time
async def test_a_chunk_from_disk_that_finds_no_room_holds_up_nobody(tmp_path: Path) -> None:
    """A chunk may be larger than the buffer; what comes meanwhile goes to disk."""
    held = Held(1, Overflow.SPILL, folder=tmp_path, window=16)
    await held.emit(0, 1)
    await held.burst(*range(2, 16))
    for _ in range(3):
        held.let.release()
        await held.settle()
    assert held.buffer.pending
    for n in range(16, 100):
        while not held.sources[0].demand:
            await asyncio.sleep(1e-6)
            assert held.circuit.loop.time() < 1, "the source is held up"
        await held.emit(n)
    await held.finished()

    assert held.out == list(range(100))


@virtual_time
async def test_the_files_have_no_name_and_go_with_the_node(tmp_path: Path) -> None:
    held = Held(1, Overflow.SPILL, folder=tmp_path)
    await held.emit(*range(50))
    names = await asyncio.to_thread(os.listdir, tmp_path)
    open_files = len(held.buffer.spill._segments)
    await held.finished()

    assert names == []
    assert open_files == 1
    assert not held.buffer.spill.used


@virtual_time
async def test_a_buffer_that_never_overflows_makes_no_file_and_no_thread() -> None:
    held = Held(100, Overflow.SPILL)
    await held.emit(*range(50))
    await held.finished()

    assert held.circuit._pool is None


@virtual_time
async def test_flatten_makes_what_is_written(tmp_path: Path) -> None:
    class Wrapped:
        def __init__(self, n: int) -> None:
            self.n = n
            self.lock = threading.Lock()

    held = Held(
        1,
        Overflow.SPILL,
        folder=tmp_path,
        flatten=lambda item: item.n if isinstance(item, Wrapped) else item,
    )
    await held.emit(0, 1, Wrapped(2), Wrapped(3))
    await held.finished()

    assert held.out == [0, 1, 2, 3]


class Raises:
    """Cannot be written."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


def nested() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


UNWRITABLE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "function": lambda: lambda: None,
    "raises": lambda: Raises(LookupError("no")),
    "cancels": lambda: Raises(asyncio.CancelledError()),
    "deep": nested,
}


@pytest.mark.parametrize("make", UNWRITABLE)
@virtual_time
async def test_an_element_that_cannot_be_written_is_bad_input(make: str, tmp_path: Path) -> None:
    held = Held(2, Overflow.SPILL, folder=tmp_path)
    held.in_call = 1
    await held.emit(0, 1, 2, 3, 4)
    await held.emit(UNWRITABLE[make]())
    await held.circuit.done

    held.check_books()
    assert held.stage.ended
    assert held.sources[0].cancelled
    assert held.out == []
    assert len(asyncio.all_tasks()) == 1


def overflowing(bench: Any, **options: Any) -> Any:
    """A spilling buffer of one in front of a closed valve."""
    handle = ops.Valve()
    handle.pause()
    return bench(
        ops.merge_parents(name="slow", prefetch=4),
        ops.edge_buffer(1, Overflow.SPILL, **options),
        ops.valve(handle),
        demand=10,
    )


@virtual_time
async def test_the_error_says_that_an_element_cannot_be_spilled(bench: Any) -> None:
    b = overflowing(bench)
    await b.emit(0, 1, threading.Lock())
    await b.seen.ended()

    assert isinstance(b.seen.error, BadInputError)
    assert "a message cannot be spilled to disk: cannot pickle" in str(b.seen.error)
    assert isinstance(b.seen.error.__cause__, TypeError)


@pytest.mark.parametrize("kind", ["missing", "a file"])
def test_a_folder_that_cannot_be_written_is_an_error_of_the_engine(
    bench: Any, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "folder"
    if kind == "a file":
        folder.write_text("")

    async def main() -> BaseException:
        b = overflowing(bench, folder=folder)
        await b.emit(0, 1)
        await b.seen.ended()
        return b.seen.error

    error = run_virtual(main())

    assert isinstance(error, EngineError)
    assert "the edge buffer of node slow cannot spill to disk" in str(error)
    assert isinstance(error.__cause__, OSError)


class Slow:
    """An element whose writing, or reading, waits in its thread until it is let."""

    inside = threading.Event()
    go = threading.Event()
    at = ""

    @classmethod
    def begin(cls, at: str) -> None:
        cls.inside, cls.go, cls.at = threading.Event(), threading.Event(), at

    @classmethod
    def wait(cls, at: str) -> None:
        if at == cls.at:
            cls.inside.set()
            assert cls.go.wait(10)

    def __reduce__(self) -> Any:
        self.wait("write")
        return read_back, ()


def read_back() -> Slow:
    Slow.wait("read")
    return Slow()


@pytest.mark.parametrize("at", ["write", "read"])
async def test_a_cancellation_waits_for_no_disk(at: str, tmp_path: Path) -> None:
    """In real time: virtual time waits for threads."""
    Slow.begin(at)
    held = Held(1, Overflow.SPILL, folder=tmp_path)
    held.in_call = 1 if at == "write" else 0
    await held.emit(0, 1, Slow())
    if at == "read":
        held.let.release()
        held.let.release()
    while not Slow.inside.is_set():
        await asyncio.sleep(0)
    before = held.buffer.waiting()
    held.circuit.stop(StopMode.CANCEL)
    async with asyncio.timeout(5):
        await held.circuit.done
    spill = held.buffer.spill
    Slow.go.set()
    while not spill._closed:
        await asyncio.sleep(0)

    assert before >= 1
    held.check_books()
    assert not spill.used


async def test_parents_wait_while_the_disk_is_busy(tmp_path: Path) -> None:
    """In real time: virtual time waits for threads."""
    Slow.begin("write")
    held = Held(1, Overflow.SPILL, folder=tmp_path, window=4)
    await held.emit(0, 1, Slow())
    while not Slow.inside.is_set():
        await asyncio.sleep(0)
    waiting = held.buffer.waiting()
    while held.sources[0].demand:
        held.sources[0].emit("later")
        await asyncio.sleep(0.001)
    sent = held.circuit.edges[-1].passed
    Slow.go.set()
    await held.finished()

    assert waiting >= 2
    assert sent <= 3 + 4
    assert held.out[:2] == [0, 1]
    assert len(held.out) == sent
