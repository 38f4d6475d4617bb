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
        assert self.worked_off == list(range(len(self.worked_off)))
        assert len(self.worked_off) + edge.waiting == self.pushed


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

    assert edge.cancel() == 2
    assert edge.cancel() == 0
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
