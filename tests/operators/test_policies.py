"""broadcast, prefetch, status and record: what is said about a node, and to whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.model.message import to_port
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.flow import from_iterable
from yukta_rx.testing.clock import virtual_time
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

# -- broadcast


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_children_share_the_elements_themselves() -> None:
    out: list[list[Any]] = [[], [], []]
    things = [object() for _ in range(10)]
    shared = from_iterable(things).pipe(ops.merge_parents(), ops.broadcast())
    circuit = Circuit([shared.pipe(ops.map(each.append)) for each in out])
    circuit.start()
    await circuit.done

    assert all(all(a is b for a, b in zip(each, things, strict=True)) for each in out)


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_the_slowest_child_sets_the_pace() -> None:
    publisher = TestPublisher()
    shared = publisher.pipe(ops.merge_parents(prefetch=2), ops.broadcast())
    fast: list[int] = []
    slow: list[int] = []

    async def slowly(n: int) -> None:
        await asyncio.sleep(1)
        slow.append(n)

    circuit = Circuit(
        [shared.pipe(ops.map(fast.append)), shared.pipe(ops.prefetch(2), ops.call(slowly))]
    )
    circuit.start()
    ahead = []
    for n in range(20):
        await publisher.pulled(n + 1)
        publisher.emit(n)
        ahead.append(len(fast) - len(slow))
    publisher.complete()
    await circuit.done

    assert fast == slow == list(range(20))
    # Two on the slow edge behind the prefetch node, and its own window of 64 is never needed.
    assert max(ahead) <= 64 + 2 + 1


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_a_failure_reaches_every_child_and_port() -> None:
    error = LookupError("as asked")
    ends: list[Any] = []

    class End:
        def touched(self, stage: Any) -> None:
            pass

        def ended(self, stage: Any, outcome: Any, error: Any) -> None:
            ends.append(error)

    def bad(n: int) -> Any:
        if n == 2:
            raise error
        return to_port("side", n)

    shared = from_iterable(range(4)).pipe(ops.call(bad), ops.broadcast())
    circuit = Circuit(
        [
            flow.pipe(ops.merge_parents(), ops.status(End()))
            for flow in (shared, shared, shared.port("side"))
        ]
    )
    circuit.start()
    await circuit.done

    assert ends == [error, error, error]


# -- prefetch


@pytest.mark.feature("ENG-01")
@pytest.mark.parametrize(("n", "low"), [(1, 1), (4, 3), (100, 75)])
@virtual_time
async def test_a_window_is_asked_for_and_handed_back_by_three_quarters(n: int, low: int) -> None:
    publisher = TestPublisher()
    seen = TestSubscriber(1000)
    publisher.pipe(ops.prefetch(n)).subscribe(seen)
    await publisher.pulled(1)
    for value in range(n):
        publisher.emit(value)
    await asyncio.sleep(1)

    assert publisher.pulls[0].n == n
    assert sum(pull.n for pull in publisher.pulls[1:]) in (low, n)
    seen.cancel()
    await asyncio.sleep(1)


@pytest.mark.feature("ENG-01")
def test_a_window_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="not 0"):
        ops.prefetch(0)


@pytest.mark.feature("ENG-01")
def test_prefetch_names_its_node() -> None:
    assert from_iterable([1]).pipe(ops.prefetch(3, name="window")).plan.name == "window"


# -- status


@pytest.mark.feature("ENG-06")
@virtual_time
async def test_status_tells_of_the_first_element_and_the_end(bench: Any, witness: Any) -> None:
    b = bench(ops.call(lambda n: n), ops.status(witness), demand=10)
    await asyncio.sleep(2)
    await b.emit(1)
    await asyncio.sleep(2)
    await b.emit(2)
    await asyncio.sleep(2)
    b.source.complete()
    await b.seen.ended()

    assert [note[0] for note in witness.notes] == ["touched", "completed"]
    assert witness.notes[0][1] == pytest.approx(2)
    assert witness.notes[1][2] == pytest.approx(6)


@pytest.mark.feature("ENG-06")
@virtual_time
async def test_status_tells_of_a_failure_before_the_children_know(bench: Any, witness: Any) -> None:
    order: list[str] = []
    error = LookupError("call")

    def bad(n: int) -> int:
        raise error

    b = bench(ops.call(bad), ops.status(witness), demand=10)
    b.seen.on_error = lambda error: order.append(f"child, after {len(witness.notes)} notes")
    await b.emit(1)
    await asyncio.sleep(1)

    assert witness.notes[1][:2] == ("failed", error)
    assert order == ["child, after 2 notes"]


@pytest.mark.feature("ENG-06")
@virtual_time
async def test_status_tells_of_a_cancellation(bench: Any, witness: Any) -> None:
    b = bench(ops.status(witness))
    await asyncio.sleep(3)
    b.seen.cancel()
    await asyncio.sleep(1)

    assert witness.notes == [("cancelled", None, 3)]


# -- record


@pytest.mark.feature("DUR-02")
@virtual_time
async def test_a_tap_sees_each_batch_before_any_child(bench: Any) -> None:
    order: list[Any] = []
    b = bench(ops.record(lambda port, batch: order.append(("tap", port, list(batch)))), demand=10)
    b.seen._on_next = lambda value: order.append(("child", value))

    await b.emit(1)
    await b.emit(2)

    assert order == [
        ("tap", None, [1]),
        ("child", 1),
        ("tap", None, [2]),
        ("child", 2),
    ]
    b.seen.cancel()
    await b.settle()


@pytest.mark.feature("DUR-02")
@virtual_time
async def test_a_tap_sees_ports_and_what_has_no_child_but_nothing_dropped(bench: Any) -> None:
    seen: list[tuple[str | None, list[int]]] = []

    def route(n: int) -> Any:
        return {0: None, 1: n, 2: to_port("side", n)}[n % 3]

    b = bench(
        ops.call(route),
        ops.record(lambda port, batch: seen.append((port, list(batch)))),
        demand=10,
        window=10,
    )
    await b.emit(0, 1, 2, 3, 4, 5)

    by_port: dict[str | None, list[int]] = {None: [], "side": []}
    for port, batch in seen:
        by_port[port] += batch
    assert by_port == {None: [1, 4], "side": [2, 5]}
    b.seen.cancel()
    await b.settle()


@pytest.mark.feature("DUR-02")
@virtual_time
async def test_a_barrier_delays_the_completion_by_its_time(bench: Any) -> None:
    async def barrier() -> None:
        await asyncio.sleep(7)

    b = bench(ops.record(barrier=barrier), demand=10)
    await b.emit(1)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("next", 1, 0), ("completed", None, 7)]


@pytest.mark.feature("DUR-02")
@virtual_time
async def test_an_error_skips_the_barrier(bench: Any) -> None:
    entered: list[int] = []

    async def barrier() -> None:
        entered.append(1)

    b = bench(ops.record(barrier=barrier), demand=10)
    await b.source.pulled(1)
    b.source.fail(LookupError("source"))
    await b.seen.ended()

    assert entered == []
