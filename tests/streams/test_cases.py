"""Inputs that broke systems like this one, as far as the streams core is concerned."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.plan import Outcome
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_case_01_a_wide_fan_out_into_one_slow_join_ends(watch: Any) -> None:
    messages, width = 300, 20
    node = from_iterable(range(messages)).pipe(
        ops.merge_parents(name="a", prefetch=1), ops.call(lambda n: n), ops.broadcast()
    )
    children = [
        node.pipe(ops.merge_parents(prefetch=1), ops.call(lambda n, i=i: (i, n)))
        for i in range(width)
    ]
    out: list[tuple[int, int]] = []
    join = ops.merge(*children, name="join", prefetch=1).pipe(
        ops.map(out.append), ops.status(watch)
    )

    circuit = Circuit([join])
    circuit.start()
    await circuit.done

    assert len(out) == messages * width
    for i in range(width):
        assert [n for child, n in out if child == i] == list(range(messages))
    assert watch.ends["join"][0] is Outcome.COMPLETED
    # No timer had to fire for it.
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_case_01_the_same_with_async_children(watch: Any) -> None:
    async def tag(pair: tuple[int, int]) -> tuple[int, int]:
        return pair

    node = from_iterable(range(300)).pipe(ops.merge_parents(prefetch=1), ops.broadcast())
    children = [
        node.pipe(ops.merge_parents(prefetch=1), ops.map(lambda n, i=i: (i, n)), ops.call(tag))
        for i in range(20)
    ]
    out: list[tuple[int, int]] = []
    circuit = Circuit([ops.merge(*children, prefetch=1).pipe(ops.map(out.append))])
    circuit.start()
    await circuit.done

    assert sorted(out) == [(i, n) for i in range(20) for n in range(300)]
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_case_09_a_thousand_held_at_a_paused_valve_come_in_order_and_flat(
    line: Any,
) -> None:
    handle = ops.Valve()
    handle.pause()
    seen: list[int] = []
    ran = line(
        from_iterable(range(1000)).pipe(
            ops.merge_parents(prefetch=1000), ops.valve(handle), ops.map(seen.append)
        )
    )
    await asyncio.sleep(1)
    [edge] = [edge for edge in ran.circuit.edges if edge.dst is ran.stage]
    held = edge.waiting, list(seen)
    from_here = stack_limit(30)
    try:
        handle.resume()
        await ran.finished()
    finally:
        from_here()

    assert held == (1000, [])
    assert seen == list(range(1000))


def stack_limit(frames: int) -> Any:
    """Allow only so many more frames; what is returned undoes it."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    return lambda: sys.setrecursionlimit(before)


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_case_10_twenty_thousand_messages_pass_one_node(line: Any) -> None:
    undo = stack_limit(30)
    try:
        ran = await line(from_iterable(range(20_000)).pipe(ops.call(lambda n: n))).finished()
    finally:
        undo()

    assert ran.out == list(range(20_000))


@pytest.mark.slow
@pytest.mark.feature("ENG-06")
async def test_case_11_ten_thousand_cancelled_from_threads_all_let_go() -> None:
    runs = 10_000
    finalised = 0
    all_finalised = asyncio.Event()

    def source() -> Iterator[int]:
        nonlocal finalised
        try:
            yield from itertools.count()
        finally:
            finalised += 1
            if finalised == runs:
                all_finalised.set()

    async def stuck(n: int) -> int:
        await never.wait()
        return n

    never = asyncio.Event()
    flow = from_iterable(source).pipe(ops.merge_parents(prefetch=2), ops.call(stuck))
    seen = [TestSubscriber(1) for _ in range(runs)]
    for subscriber in seen:
        flow.subscribe(subscriber)
    await asyncio.sleep(0)
    while len(asyncio.all_tasks()) < runs + 1:
        await asyncio.sleep(0)

    def cancel_all() -> None:
        for subscriber in seen:
            subscriber.cancel()

    # Two threads race for every subscription.
    threads = [threading.Thread(target=cancel_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    await all_finalised.wait()
    while len(asyncio.all_tasks()) > 1 or any(thread.is_alive() for thread in threads):
        await asyncio.sleep(0)

    assert finalised == runs
    assert all(subscriber.signals == [] for subscriber in seen)
