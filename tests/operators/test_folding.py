"""How operators fold into one node, and when they open a new one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.flow import from_iterable
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-02")


class Silent:
    def touched(self, stage: Any) -> None:
        pass

    def ended(self, stage: Any, outcome: Any, error: Any) -> None:
        pass


def nodes(flow: Any) -> int:
    """How many nodes `flow` has, with its one source."""
    return len(Circuit([flow]).stages) - 1


@virtual_time
async def test_policies_in_their_order_are_one_node() -> None:
    clock = ops.IdleClock(LoopClock(asyncio.get_running_loop()), 1.0)
    flow = from_iterable([1]).pipe(
        ops.merge_parents(),
        ops.valve(ops.Valve()),
        ops.call(lambda n: n),
        ops.idle_timeout(clock),
        ops.status(Silent()),
        ops.record(),
        ops.broadcast(),
    )

    assert nodes(flow) == 1


@virtual_time
async def test_a_taken_slot_opens_a_new_node() -> None:
    flow = from_iterable([1]).pipe(ops.call(lambda n: n), ops.call(lambda n: n))

    assert nodes(flow) == 2


@virtual_time
async def test_a_slot_before_the_last_one_opens_a_new_node() -> None:
    flow = from_iterable([1]).pipe(ops.call(lambda n: n), ops.valve(ops.Valve()))

    assert nodes(flow) == 2


@virtual_time
async def test_what_follows_a_broadcast_is_a_new_node() -> None:
    flow = from_iterable([1]).pipe(ops.call(lambda n: n), ops.broadcast())

    assert nodes(flow.pipe(ops.status(Silent()))) == 2


@virtual_time
async def test_what_follows_a_port_is_a_new_node() -> None:
    flow = from_iterable([1]).pipe(ops.call(lambda n: n)).port("side")

    assert nodes(flow.pipe(ops.status(Silent()))) == 2


@virtual_time
async def test_operators_leave_the_flow_that_they_are_put_on_alone() -> None:
    plain = from_iterable([1, 2]).pipe(ops.merge_parents())
    before = plain.plan

    plain.pipe(ops.call(lambda n: n * 100))

    assert plain.plan is before
    assert [n async for n in plain] == [1, 2]


@virtual_time
async def test_a_folded_flow_with_two_children_is_two_nodes_not_a_shared_one() -> None:
    """Without `broadcast()` each child folds its own copy; with it they share the node."""
    made: list[int] = []
    open_ended = from_iterable([1]).pipe(ops.call(made.append))
    ends = [open_ended.pipe(ops.status(Silent())) for _ in range(2)]
    shared = open_ended.pipe(ops.broadcast())
    shared_ends = [shared.pipe(ops.status(Silent())) for _ in range(2)]

    assert len(Circuit(ends).stages) == 1 + 2
    assert len(Circuit(shared_ends).stages) == 1 + 1 + 2
