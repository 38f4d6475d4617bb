"""valve: exact pauses and steps, for every kind of node behind it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.model.policy import OnError
from yukta_rx.operators._valve import Undecided
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("CTL-02")


async def one_async(n: int) -> int:
    return n


async def many_async(n: int) -> AsyncIterator[int]:
    yield n


def many(n: int) -> Iterator[int]:
    yield n


async def copy(stream: AsyncIterator[int]) -> AsyncIterator[int]:
    async for n in stream:
        yield n


async def in_list(n: int) -> list[int]:
    return [n]


class _Never:
    async def again(self, item: Any, error: BaseException, attempt: int) -> bool:
        raise AssertionError("nothing fails here")

    def numbered(self, item: Any, attempt: int) -> Any:
        raise AssertionError("nothing fails here")


def _never_fails() -> ops.Operator:
    return ops.retry(_Never())  # type: ignore[arg-type]


CALLS: dict[str, Any] = {
    "none": [],
    "sync": [ops.call(lambda n: n)],
    "generator": [ops.call(many)],
    "async": [ops.call(one_async)],
    "async generator": [ops.call(many_async)],
    "thread": [ops.call(lambda n: n, blocking=True)],
    "thread generator": [ops.call(many, blocking=True)],
    "concurrent": [ops.call(ConcurrentBody(in_list, 3))],
    "concurrent unordered": [ops.call(ConcurrentBody(in_list, 3, ordered=False))],
    "guarded": [ops.call(one_async), _never_fails()],
    "guarded generator": [ops.call(many), _never_fails()],
    "through": [ops.through(copy)],
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Any:
    return CALLS[request.param]


@virtual_time
async def test_pause_step_and_resume_are_exact(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    b = bench(ops.valve(handle), *call, demand=100, window=20)
    await b.emit(0, 1)
    handle.pause()
    await b.emit(2, 3, 4, 5, 6, 7, 8)
    await asyncio.sleep(10)
    paused = list(b.seen.values)
    handle.step()
    await asyncio.sleep(10)
    one = list(b.seen.values)
    handle.step(3)
    await asyncio.sleep(10)
    four = list(b.seen.values)
    handle.resume()
    await b.settle()

    assert paused == [0, 1]
    assert one == [0, 1, 2]
    assert four == [0, 1, 2, 3, 4, 5]
    assert b.seen.values == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    b.source.complete()
    await b.seen.ended()


@virtual_time
async def test_a_closed_valve_stops_the_parents_at_the_window(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call, demand=100)
    await b.source.pulled(1)
    while b.source.demand:
        b.source.emit(0)
        await asyncio.sleep(0.01)
    await asyncio.sleep(100)

    assert b.pulls == [(4, 0)]
    handle.resume()
    await b.settle()
    # All at once, or three quarters of the window.
    assert b.source.requested in (4 + 3, 4 + 4)
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_a_closed_valve_holds_the_completion_back(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call, demand=100)
    await b.emit(1)
    b.source.complete()
    await asyncio.sleep(10)
    held = b.timed
    handle.resume()
    await b.seen.ended()

    assert held == []
    assert b.timed == [("next", 1, 10), ("completed", None, 10)]


@virtual_time
async def test_a_closed_valve_with_nothing_before_it_holds_the_completion_back(
    call: Any, bench: Any
) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call)
    await b.source.pulled(1)
    b.source.complete()
    await asyncio.sleep(10)
    held = b.timed
    handle.resume()
    await b.seen.ended()

    assert (held, b.timed) == ([], [("completed", None, 10)])


@virtual_time
async def test_a_parents_failure_passes_a_closed_valve_when_nothing_waits(
    call: Any, bench: Any
) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call)
    await b.source.pulled(1)
    error = LookupError("source")
    await asyncio.sleep(1)
    b.source.fail(error)
    await b.seen.ended()

    assert b.timed == [("error", error, 1)]


@virtual_time
async def test_a_cancellation_passes_a_closed_valve(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call)
    await b.emit(1)
    await asyncio.sleep(3)
    b.seen.cancel()
    await asyncio.sleep(1)

    assert round(b.source.cancelled_at, 3) == 3
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_steps_add_up_and_a_pause_voids_them(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.pause()
    b = bench(ops.valve(handle), *call, demand=100, window=20)
    handle.step(2)
    handle.step(2)
    await b.emit(0)
    await asyncio.sleep(1)
    first = list(b.seen.values)
    handle.pause()
    await b.emit(1, 2, 3)
    await asyncio.sleep(1)
    voided = list(b.seen.values)
    handle.step(2)
    await asyncio.sleep(1)

    assert (first, voided, b.seen.values) == ([0], [0], [0, 1, 2])
    assert handle.paused
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_steps_given_before_elements_come_are_kept(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    b = bench(ops.valve(handle), *call, demand=100, window=20)
    await b.source.pulled(1)
    handle.step(2)
    await asyncio.sleep(5)
    await b.emit(0, 1, 2, 3)
    await asyncio.sleep(5)

    assert b.seen.values == [0, 1]
    b.seen.cancel()
    await b.settle()


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="not 0"):
        ops.Valve().step(0)


def test_a_valve_says_whether_it_is_paused() -> None:
    handle = ops.Valve()
    states = [handle.paused]
    handle.pause()
    states.append(handle.paused)
    handle.resume()
    states.append(handle.paused)
    handle.step(1)
    states.append(handle.paused)

    assert states == [False, True, False, True]


# -- breakpoints


class Steered:
    """A valve before a call of any shape, with what its breakpoints held."""

    def __init__(self, bench: Any, call: list[Any], *hits: Any, **options: Any) -> None:
        self.asked: list[int] = []
        self.holds: list[tuple[int, float]] = []
        self.handle = ops.Valve(on_hold=self.on_hold, **options)
        self.hits = [lambda n, hit=hit: self.asked.append(n) or hit(n) for hit in hits]
        self.handle.break_at(self.hits)
        self.b = bench(ops.valve(self.handle), *call, demand=100, window=20)

    def on_hold(self, item: int) -> None:
        assert self.handle.paused
        assert self.handle.held is item
        self.holds.append((item, round(asyncio.get_running_loop().time(), 3)))

    @property
    def values(self) -> list[int]:
        return list(self.b.seen.values)

    async def emit(self, *values: int) -> None:
        await self.b.source.pulled(len(values))
        self.b.source.emit(*values)
        await asyncio.sleep(1)

    async def finished(self) -> None:
        self.b.source.complete()
        await self.b.seen.ended()
        assert self.b.seen.completed


@pytest.mark.parametrize("place", [0, 1, 5, 9])
@virtual_time
async def test_a_breakpoint_holds_before_the_element_and_lets_it_through_once(
    call: Any, bench: Any, place: int
) -> None:
    s = Steered(bench, call, lambda n: n == place)
    await s.emit(*range(10))
    before, held = s.values, s.handle.held
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert (before, held) == (list(range(place)), place)
    assert s.values == list(range(10))
    assert s.holds == [(place, 0)]
    assert s.handle.held is None
    assert not s.handle.paused


@virtual_time
async def test_each_element_is_asked_about_once(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 4)
    await s.emit(*range(10))
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    # The others of its batch may be asked about again.
    assert s.asked.count(4) == 1
    assert s.holds == [(4, 0)]


@virtual_time
async def test_the_next_match_is_held_again_also_the_same_object(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 7)
    await s.emit(7, 7, 1, 7)
    seen = []
    for _ in range(3):
        seen.append((s.values, s.handle.held))
        s.handle.resume()
        await asyncio.sleep(1)
    await s.finished()

    assert seen == [([], 7), ([7], 7), ([7, 7, 1], 7)]
    assert s.holds == [(7, 0), (7, 1), (7, 2)]
    assert s.values == [7, 7, 1, 7]


@virtual_time
async def test_a_step_lets_the_held_element_through_and_closes_again(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 2)
    await s.emit(*range(6))
    s.handle.step()
    await asyncio.sleep(1)
    stepped = s.values, s.handle.held, s.handle.paused
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert stepped == ([0, 1, 2], None, True)
    assert s.holds == [(2, 0)]


@virtual_time
async def test_steps_that_come_to_a_breakpoint_are_void_behind_it(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 2)
    s.handle.step(5)
    await s.emit(*range(9))
    held = s.values, s.handle.held
    s.handle.step(2)
    await asyncio.sleep(1)
    stepped = s.values
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert held == ([0, 1], 2)
    assert stepped == [0, 1, 2, 3]


@virtual_time
async def test_any_of_several_breakpoints_holds(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 2, lambda n: n % 4 == 0)
    await s.emit(*range(9))
    for _ in range(4):
        s.handle.resume()
        await asyncio.sleep(1)
    await s.finished()

    assert [item for item, _time in s.holds] == [0, 2, 4, 8]
    assert s.values == list(range(9))


@pytest.mark.parametrize("holds", [False, True])
@virtual_time
async def test_a_breakpoint_that_cannot_tell_yet_is_asked_again_when_it_can(
    call: Any, bench: Any, holds: bool
) -> None:
    known = False

    def later(n: int) -> bool:
        assert len(s.asked) < 50, "it is asked without end"
        if n == 2 and not known:
            raise Undecided
        return n == 2 and holds

    s = Steered(bench, call, later)
    await s.emit(0, 1, 2, 3)
    before = s.values, s.handle.held
    known = True
    s.handle._wake()
    await asyncio.sleep(1)
    after = s.values, s.handle.held
    s.handle.resume()
    await s.finished()

    assert before == ([0, 1], None)
    assert after == (([0, 1], 2) if holds else ([0, 1, 2, 3], None))
    assert s.values == [0, 1, 2, 3]


@virtual_time
async def test_an_element_stays_held_when_the_breakpoints_go(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 2)
    await s.emit(0, 1, 2, 3)
    s.handle.break_at([])
    await asyncio.sleep(1)
    still = s.values, s.handle.held
    s.handle.resume()
    await asyncio.sleep(1)
    s.handle.break_at(s.hits)
    await s.emit(2)
    again = s.values, s.handle.held
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert still == ([0, 1], 2)
    assert again == ([0, 1, 2, 3], 2)


@virtual_time
async def test_a_breakpoint_set_while_the_valve_is_closed_holds_when_it_opens(
    call: Any, bench: Any
) -> None:
    s = Steered(bench, call)
    s.handle.pause()
    await s.emit(0, 1, 2)
    s.handle.break_at([lambda n: n == 1])
    s.handle.resume()
    await asyncio.sleep(1)
    held = s.values, s.handle.held
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert held == ([0], 1)
    assert s.values == [0, 1, 2]


@virtual_time
async def test_a_breakpoint_set_in_between_holds_the_next(call: Any, bench: Any) -> None:
    s = Steered(bench, call)
    await s.emit(1, 1)
    s.handle.break_at([lambda n: n == 1])
    await s.emit(1)
    held = s.values, s.handle.held
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert held == ([1, 1], 1)


@virtual_time
async def test_a_held_element_holds_the_completion_back(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 1)
    await s.emit(0, 1)
    s.b.source.complete()
    await asyncio.sleep(10)
    before = s.b.timed
    s.handle.resume()
    await s.b.seen.ended()

    assert before == [("next", 0, 0)]
    assert s.values == [0, 1]


@virtual_time
async def test_a_held_element_can_be_cancelled(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 1)
    await s.emit(0, 1, 2)
    s.b.seen.cancel()
    await asyncio.sleep(1)

    assert s.b.source.cancelled
    assert len(asyncio.all_tasks()) == 1
    assert s.b.stage.discarded == 2


@virtual_time
async def test_the_breakpoint_holds_with_several_parents(call: Any) -> None:
    held: list[Any] = []
    handle = ops.Valve(on_hold=held.append)
    handle.break_at([lambda n: n % 10 == 3])
    sources = [TestPublisher(f"source{n}") for n in range(3)]
    flow = ops.merge(*sources).pipe(ops.valve(handle), *call)
    seen = TestSubscriber(1000)
    flow.subscribe(seen)
    await asyncio.sleep(1)
    for place, source in enumerate(sources):
        source.emit(*range(100 * place, 100 * place + 20))
    rounds = 0
    while handle.held is not None or rounds == 0:
        await asyncio.sleep(1)
        assert len([n for n in seen.values if n % 10 == 3]) == rounds
        rounds += 1
        handle.resume()
        await asyncio.sleep(1)
    for source in sources:
        source.complete()
    await seen.ended()

    assert sorted(held) == [3, 13, 103, 113, 203, 213]
    assert sorted(seen.values) == sorted(100 * p + n for p in range(3) for n in range(20))
    for place in range(3):
        mine = [n for n in seen.values if n // 100 == place]
        assert mine == sorted(mine)


@virtual_time
async def test_a_step_lets_the_held_element_through_before_those_of_other_parents(
    call: Any,
) -> None:
    handle = ops.Valve()
    handle.break_at([lambda n: n == 3])
    sources = [TestPublisher(f"source{n}") for n in range(3)]
    flow = ops.merge(*sources).pipe(ops.valve(handle), *call)
    seen = TestSubscriber(1000)
    flow.subscribe(seen)
    await asyncio.sleep(1)
    sources[1].emit(*range(6))
    await asyncio.sleep(1)
    sources[0].complete()
    sources[2].emit(10, 11, 12)
    await asyncio.sleep(1)
    held = list(seen.values)
    handle.step()
    await asyncio.sleep(1)

    assert held == [0, 1, 2]
    assert seen.values == [0, 1, 2, 3]
    seen.cancel()
    await asyncio.sleep(1)


@virtual_time
async def test_one_object_from_two_parents_is_held_twice(call: Any) -> None:
    held: list[Any] = []
    handle = ops.Valve(on_hold=held.append)
    handle.break_at([lambda n: n == "x"])
    sources = [TestPublisher(f"source{n}") for n in range(2)]
    flow = ops.merge(*sources).pipe(ops.valve(handle), *call)
    seen = TestSubscriber(1000)
    flow.subscribe(seen)
    await asyncio.sleep(1)
    for source in sources:
        source.emit("x", "y")
    for _ in range(2):
        await asyncio.sleep(1)
        handle.resume()
    await asyncio.sleep(1)
    for source in sources:
        source.complete()
    await seen.ended()

    assert held == ["x", "x"]
    assert sorted(seen.values) == ["x", "x", "y", "y"]


@virtual_time
async def test_the_held_element_can_be_replaced_and_is_still_held(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 2)
    await s.emit(*range(5))
    s.handle.replace_held(20)
    await asyncio.sleep(1)
    still = s.values, s.handle.held, s.handle.paused
    s.handle.replace_held(2)
    s.handle.replace_held(21)
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert still == ([0, 1], 20, True)
    assert s.values == [0, 1, 21, 3, 4]
    assert s.holds == [(2, 0)]
    assert s.b.unaccounted == 0


@virtual_time
async def test_the_held_element_can_be_dropped_and_the_valve_stays_closed(
    call: Any, bench: Any
) -> None:
    s = Steered(bench, call, lambda n: n in (2, 3))
    await s.emit(*range(5))
    dropped = [s.handle.drop_held()]
    await asyncio.sleep(1)
    closed = s.values, s.handle.held, s.handle.holds, s.handle.paused
    s.handle.resume()
    await asyncio.sleep(1)
    dropped.append(s.handle.drop_held())
    s.handle.step()
    await asyncio.sleep(1)
    stepped = s.values
    s.handle.resume()
    await s.finished()

    assert dropped == [2, 3]
    assert closed == ([0, 1], None, False, True)
    assert stepped == [0, 1, 4]
    assert s.values == [0, 1, 4]
    assert s.holds == [(2, 0), (3, 2)]
    assert (s.b.stage.discarded, s.b.unaccounted) == (2, 0)


@virtual_time
async def test_what_is_dropped_gives_its_credit_back(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.break_at([lambda n: True])
    b = bench(ops.valve(handle), *call, demand=1000)
    for n in range(50):
        await b.emit(n)
        assert handle.drop_held() == n
        handle.resume()
        await b.settle()

    assert b.seen.values == []
    assert (b.stage.discarded, b.stage.received, b.unaccounted) == (50, 0, 0)
    [edge] = b.stage.ins
    assert edge.credit + edge.used == edge.prefetch
    b.source.complete()
    await b.seen.ended()


@virtual_time
async def test_dropping_the_last_element_of_a_parent_lets_the_end_come(
    call: Any, bench: Any
) -> None:
    s = Steered(bench, call, lambda n: n == 1)
    await s.emit(0, 1)
    s.b.source.complete()
    await asyncio.sleep(1)
    s.handle.drop_held()
    await asyncio.sleep(1)
    held_back = s.b.seen.completed
    s.handle.resume()
    await s.b.seen.ended()

    assert not held_back
    assert s.values == [0]
    assert s.b.seen.completed


@virtual_time
async def test_with_several_parents_it_is_the_held_one_that_is_dropped(call: Any) -> None:
    handle = ops.Valve()
    handle.break_at([lambda n: n == 3])
    sources = [TestPublisher(f"source{n}") for n in range(3)]
    flow = ops.merge(*sources).pipe(ops.valve(handle), *call)
    seen = TestSubscriber(1000)
    flow.subscribe(seen)
    await asyncio.sleep(1)
    sources[1].emit(*range(6))
    await asyncio.sleep(1)
    sources[0].emit(10)
    sources[2].emit(20)
    await asyncio.sleep(1)
    dropped = handle.drop_held()
    handle.resume()
    for source in sources:
        source.complete()
    await seen.ended()

    assert dropped == 3
    assert sorted(seen.values) == [0, 1, 2, 4, 5, 10, 20]


@pytest.mark.parametrize("after", ["nothing", "resume", "step", "drop", "end"])
@virtual_time
async def test_without_a_held_element_there_is_none_to_replace_or_drop(
    bench: Any, after: str
) -> None:
    handle = ops.Valve()
    with pytest.raises(ValueError, match="no element is held"):
        handle.drop_held()
    b = bench(ops.valve(handle), ops.call(lambda n: n), demand=100)
    if after != "nothing":
        handle.break_at([lambda n: n == 1])
    await b.emit(0, 1)
    steer = {"resume": handle.resume, "step": handle.step, "drop": handle.drop_held}
    if after in steer:
        steer[after]()
    elif after == "end":
        b.seen.cancel()
        await b.settle()

    assert not handle.holds
    for change in (handle.drop_held, lambda: handle.replace_held(5)):
        with pytest.raises(ValueError, match="no element is held"):
            change()
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_none_can_be_held() -> None:
    held: list[Any] = []
    handle = ops.Valve(on_hold=held.append)
    handle.break_at([lambda n: n is None])
    seen = TestSubscriber(10)
    from_iterable([1, None, None, 2]).pipe(
        ops.merge_parents(), ops.valve(handle), ops.map(lambda n: n)
    ).subscribe(seen)
    await asyncio.sleep(1)
    first = list(seen.values)
    handle.resume()
    await asyncio.sleep(1)
    second = list(seen.values)
    handle.resume()
    await seen.ended()

    assert (first, second, held) == ([1], [1, None], [None, None])
    assert seen.values == [1, None, None, 2]


@virtual_time
async def test_a_held_none_can_be_dropped() -> None:
    handle = ops.Valve()
    handle.break_at([lambda n: n is None])
    seen = TestSubscriber(10)
    from_iterable([1, None, 2]).pipe(
        ops.merge_parents(), ops.valve(handle), ops.map(lambda n: n)
    ).subscribe(seen)
    await asyncio.sleep(1)
    assert handle.holds
    handle.drop_held()
    handle.resume()
    await seen.ended()

    assert seen.values == [1, 2]


@virtual_time
async def test_a_pause_between_two_elements_holds_nothing_twice(bench: Any) -> None:
    """A thread that was sent a batch may be stopped before its first call."""
    inside, go = threading.Event(), threading.Event()

    def fn(n: int) -> int:
        if n == 0:
            inside.set()
            assert go.wait(10)
        return n

    pool = BlockingPool(1)
    pool.submit(lambda: (inside.set(), go.wait(10)))
    held: list[int] = []
    handle = ops.Valve(on_hold=held.append)
    handle.break_at([lambda n: n == 1])
    source = TestPublisher()
    out: list[int] = []
    flow = source.pipe(ops.merge_parents(), ops.valve(handle), ops.call(fn, blocking=True))
    circuit = Circuit([flow.pipe(ops.map(out.append))], pool=pool)
    circuit.start()
    await source.pulled(1)
    source.emit(1, 2, 3)
    while handle.held is None:
        await asyncio.sleep(0)
    handle.resume()
    stage: Any = circuit.stage_of(flow)
    while not stage.busy:
        await asyncio.sleep(0)
    # The batch is on its way to the pool's only thread, which is busy.
    handle.pause()
    go.set()
    await asyncio.sleep(1)
    paused = list(out)
    handle.resume()
    source.complete()
    await circuit.done
    pool.close()

    assert paused == []
    assert out == [1, 2, 3]
    assert held == [1]


# -- skip


@virtual_time
async def test_elements_go_round_the_call_from_the_next_one_on(call: Any, bench: Any) -> None:
    s = Steered(bench, call, round_trip=lambda n: -n)
    await s.emit(1, 2)
    s.handle.skip(True)
    skipping = s.handle.skipping
    await s.emit(3, 4, 5)
    s.handle.skip(False)
    await s.emit(6)
    await s.finished()

    assert s.values == [1, 2, -3, -4, -5, 6]
    assert (skipping, s.handle.skipping) == (True, False)
    stage = s.b.stage
    assert (stage.received, stage.emitted, stage.skipped) == (6, 6, 3)
    assert s.b.unaccounted == 0


@virtual_time
async def test_a_skipped_call_is_never_made(bench: Any) -> None:
    for call in CALLS.values():
        handle = ops.Valve()
        handle.skip(True)
        b = bench(ops.valve(handle), *call, demand=100, window=20)
        await b.source.pulled(1)
        b.source.emit(*range(20))
        b.source.complete()
        await b.seen.ended()

        assert b.seen.values == list(range(20))
        assert (b.stage.skipped, b.stage.received) == (20, 20)


@virtual_time
async def test_skipping_goes_on_at_the_pace_of_the_children(call: Any, bench: Any) -> None:
    handle = ops.Valve()
    handle.skip(True)
    b = bench(ops.valve(handle), *call, ops.prefetch(2), window=4)
    await b.source.pulled(1)
    sent = 0
    while b.source.demand:
        b.source.emit(sent)
        sent += 1
        await asyncio.sleep(0.01)
    asked = b.source.requested
    await asyncio.sleep(10)

    # 64 at the subscriber, 2 before it, 4 before the call.
    assert 64 <= sent <= 64 + 2 + 4
    assert b.source.requested == asked
    b.seen.request(1000)
    b.source.complete()
    await b.seen.ended()
    assert b.seen.values == list(range(sent))


@virtual_time
async def test_a_pause_stops_what_is_skipped_and_steps_count(call: Any, bench: Any) -> None:
    s = Steered(bench, call)
    s.handle.skip(True)
    s.handle.pause()
    await s.emit(*range(6))
    paused = s.values
    s.handle.step(2)
    await asyncio.sleep(1)
    stepped = s.values
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert (paused, stepped, s.values) == ([], [0, 1], list(range(6)))


@virtual_time
async def test_a_breakpoint_holds_what_would_be_skipped(call: Any, bench: Any) -> None:
    s = Steered(bench, call, lambda n: n == 3, round_trip=lambda n: -n)
    s.handle.skip(True)
    await s.emit(*range(6))
    held = s.values, s.handle.held
    s.handle.resume()
    await asyncio.sleep(1)
    await s.finished()

    assert held == ([0, -1, -2], 3)
    assert s.values == [0, -1, -2, -3, -4, -5]
    assert s.holds == [(3, 0)]


@virtual_time
async def test_what_is_in_the_call_finishes_and_order_is_kept(waiting: Any, bench: Any) -> None:
    go = asyncio.Event()

    async def fn(n: int) -> int:
        await go.wait()
        return 10 * n

    handle = ops.Valve()
    b = bench(ops.valve(handle), waiting.call(fn), demand=10, window=10)
    await b.emit(1)
    handle.skip(True)
    await b.emit(2, 3)
    await asyncio.sleep(5)
    before = b.timed
    go.set()
    b.source.complete()
    await b.seen.ended()

    assert before == []
    assert b.timed == [("next", n, 5) for n in (10, 2, 3)] + [("completed", None, 5)]
    assert b.stage.skipped == 2


@virtual_time
async def test_outputs_of_an_element_in_the_call_come_before_what_is_skipped(
    many: Any, bench: Any
) -> None:
    handle = ops.Valve()
    b = bench(ops.valve(handle), many.call(lambda n: [n] * 5), ops.prefetch(1), demand=1, window=10)
    await b.emit(7)
    handle.skip(True)
    await b.emit(8, 9)
    b.seen.request(100)
    b.source.complete()
    await b.seen.ended()

    assert b.seen.values == [7] * 5 + [8, 9]


@virtual_time
async def test_without_order_what_is_skipped_does_not_wait(bench: Any) -> None:
    async def fn(n: int) -> list[int]:
        await asyncio.sleep(10)
        return [10 * n]

    handle = ops.Valve()
    body = ConcurrentBody(fn, 3, ordered=False)
    b = bench(ops.valve(handle), ops.call(body), demand=10, window=10)
    await b.emit(1)
    handle.skip(True)
    await b.emit(2, 3)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("next", 2, 0), ("next", 3, 0), ("next", 10, 10), ("completed", None, 10)]


@virtual_time
async def test_the_error_port_gets_nothing_of_what_is_skipped(
    shape: Any, run: Any, clock: Any
) -> None:
    def fn(n: int) -> int:
        raise LookupError(n)

    handle = ops.Valve()
    handle.skip(True)
    ledger = ops.FailureLedger(OnError.ROUTE, None, clock())
    ran = await run(
        range(9), ops.valve(handle), shape.call(fn), ops.on_error(ledger), ports=("error",)
    )

    assert (ran.out, ran.ports["error"]) == (list(range(9)), [])


@virtual_time
async def test_an_element_that_fails_uses_a_step_like_any_other(
    shape: Any, bench: Any, clock: Any
) -> None:
    def fn(n: int) -> int:
        if n % 2 == 0:
            raise LookupError(n)
        return n

    handle = ops.Valve()
    handle.step(3)
    ledger = ops.FailureLedger(OnError.CONTINUE, None, clock())
    b = bench(ops.valve(handle), shape.call(fn), ops.on_error(ledger), demand=10, window=10)
    await b.emit(*range(8))
    await asyncio.sleep(1)
    first = list(b.seen.values), b.stage.received
    handle.step(1)
    await asyncio.sleep(1)
    second = list(b.seen.values), b.stage.received
    handle.resume()
    b.source.complete()
    await b.seen.ended()

    assert (first, second) == (([1], 3), ([1, 3], 4))
    assert b.seen.values == [1, 3, 5, 7]


@virtual_time
async def test_an_element_that_fails_its_node_behind_a_valve(shape: Any, bench: Any) -> None:
    def fn(n: int) -> int:
        if n == 2:
            raise LookupError(n)
        return n

    handle = ops.Valve()
    handle.step(5)
    b = bench(ops.valve(handle), shape.call(fn), demand=10, window=10)
    await b.emit(*range(8))
    await b.seen.ended()

    assert b.seen.values == [0, 1]
    assert (b.stage.culprit, b.unaccounted) == (2, 1)
