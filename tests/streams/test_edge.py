"""An edge: credit, what waits and what is used always add up to the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx import operators as ops
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.flow import from_iterable
from yukta_rx.testing.clock import run_virtual, virtual_time

if TYPE_CHECKING:
    from yukta_rx.streams.edge import Edge

pytestmark = pytest.mark.feature("ENG-01")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 40)),
        st.tuples(st.just("take"), st.integers(1, 40)),
        st.tuples(st.just("part"), st.integers(0, 40)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("drop"), st.integers(1, 40)),
        st.tuples(st.just("pin"), st.integers(0, 1)),
    ),
    max_size=60,
)


def edge_of(prefetch: int) -> Edge:
    """A real edge whose stages have not started."""
    [edge] = Circuit([from_iterable([]).pipe(ops.prefetch(prefetch))]).edges
    return edge


class Bench:
    """Does what a producer and a consumer may do, and checks the books after each step."""

    def __init__(self, prefetch: int) -> None:
        self.edge = edge_of(prefetch)
        self.pushed = 0
        self.worked_off: list[int] = []
        self.batch: list[int] | None = None
        self.dropped: list[int] = []

    def step(self, kind: str, n: int) -> None:
        edge = self.edge
        if kind == "push":
            n = min(n, edge.credit)
            edge.push(list(range(self.pushed, self.pushed + n)))
            self.pushed += n
        elif kind == "take" and self.batch is None and not edge.empty:
            self.batch = edge.take(n)
            assert 1 <= len(self.batch) <= n
        elif kind == "part" and self.batch is not None:
            done = min(n, len(self.batch))
            edge.untake(self.batch, done)
            self.finish(done)
        elif kind == "release" and self.batch is not None:
            self.finish(len(self.batch))
        elif kind == "drop":
            first = [] if edge.empty else (edge.cur[edge.pos :] + edge.buf)[:1]
            dropped = edge.drop_oldest(n)
            assert len(dropped) <= n
            if edge.pinned:
                assert (edge.cur[edge.pos :] + edge.buf)[:1] == first
            elif not edge.empty or dropped:
                assert dropped[:1] == first
            self.dropped += dropped
        elif kind == "pin":
            edge.pinned = bool(n)

    def finish(self, done: int) -> None:
        assert self.batch is not None
        self.worked_off += self.batch[:done]
        self.batch = None
        self.edge.release(done)

    def check(self) -> None:
        edge = self.edge
        assert edge.credit >= 0
        assert edge.waiting <= edge.prefetch
        assert edge.credit + edge.waiting + edge.used == edge.prefetch
        assert edge.passed == self.pushed
        assert self.worked_off == sorted(self.worked_off)
        assert not set(self.worked_off) & set(self.dropped)
        assert len(self.worked_off) + len(self.dropped) + edge.waiting == self.pushed


@settings(max_examples=150, deadline=None)
@given(prefetch=st.integers(1, 70), steps=STEPS)
def test_credit_waiting_and_used_always_add_up_to_the_window(
    prefetch: int, steps: list[tuple[str, int]]
) -> None:
    async def main() -> None:
        bench = Bench(prefetch)
        for kind, n in steps:
            bench.step(kind, n)
            bench.check()

    run_virtual(main())


@pytest.mark.parametrize(("prefetch", "low"), [(1, 1), (2, 2), (3, 3), (4, 3), (64, 48), (65, 49)])
@virtual_time
async def test_credit_comes_back_at_three_quarters_of_the_window(prefetch: int, low: int) -> None:
    edge = edge_of(prefetch)
    edge.push(list(range(prefetch)))

    for _ in range(low - 1):
        edge.take(1)
        edge.release(1)
    before = edge.credit
    edge.take(1)
    edge.release(1)

    assert before == 0
    assert edge.credit == low


@virtual_time
async def test_an_edge_that_is_drained_has_credit_again() -> None:
    for prefetch in range(1, 70):
        edge = edge_of(prefetch)

        edge.push(list(range(prefetch)))
        edge.take(prefetch)
        edge.release(prefetch)

        assert edge.credit == prefetch


@virtual_time
async def test_cancel_counts_what_it_drops_once() -> None:
    edge = edge_of(8)
    edge.push([1, 2, 3])
    edge.take(1)
    edge.release(1)

    assert len(edge.cancel()) == 2
    assert edge.cancel() == []
    assert edge.empty


@virtual_time
async def test_a_cancelled_edge_takes_neither_elements_nor_an_end() -> None:
    edge = edge_of(8)
    edge.cancel()

    edge.push([1])
    edge.close(RuntimeError("late"))

    assert (edge.waiting, edge.closed, edge.err) == (0, False, None)


@virtual_time
async def test_the_first_end_of_an_edge_stands() -> None:
    edge = edge_of(8)
    edge.close()

    edge.close(RuntimeError("late"))

    assert edge.err is None


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("taken", [0, 1, 2, 3])
@virtual_time
async def test_the_oldest_are_dropped_and_their_credit_goes_back(n: int, taken: int) -> None:
    edge = edge_of(8)
    edge.push([0, 1, 2])
    in_hand = edge.take(taken) if taken else []
    edge.push([3, 4, 5])
    dropped = edge.drop_oldest(n)

    assert dropped == [0, 1, 2, 3, 4, 5][taken : taken + n]
    assert edge.credit == 2 + len(dropped)
    assert edge.waiting == 6 - len(dropped)
    edge.untake(in_hand, 0)
    edge.held = 0
    assert edge.take(10) + edge.take(10) == [
        item for item in range(6) if item < taken or item not in dropped
    ]


@virtual_time
async def test_a_pinned_element_stays_in_front() -> None:
    edge = edge_of(8)
    edge.push([0, 1])
    edge.take(1)
    edge.release(1)
    edge.push([2, 3])
    edge.pinned = True

    assert edge.drop_oldest(2) == [2, 3]
    assert edge.drop_oldest(2) == []
    assert edge.take(5) == [1]


@virtual_time
async def test_a_cancelled_edge_holds_nothing() -> None:
    edge = edge_of(8)
    edge.push([1, 2, 3])
    edge.take(1)

    assert len(edge.cancel()) == 2
    assert edge.waiting == 0
