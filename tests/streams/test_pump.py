"""The pump: fair between circuits, short turns, and nothing that a stage does stops it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import EngineError
from yukta_rx.streams import pump as pump_module
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import Flow, from_iterable
from yukta_rx.streams.plan import NodePlan, Slot
from yukta_rx.streams.pump import BATCH_SLOW, SLICE, TURN, Pump
from yukta_rx.streams.stage import Stage
from yukta_rx.streams.threads import ThreadIterableBody
from yukta_rx.testing.clock import run_virtual, virtual_time
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.feature("ENG-01")


@dataclass
class Meter:
    """What the pump takes for the real time; moves only when a test says that work takes time."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    made = Meter()
    monkeypatch.setattr(pump_module, "perf_counter", made)
    return made


def endless(work: Callable[[int], Any]) -> Circuit:
    """A circuit that is busy until it is stopped."""
    circuit = Circuit([from_iterable(itertools.count).pipe(ops.map(work))])
    circuit.start()
    return circuit


def finite(count: int, out: list[int]) -> Circuit:
    circuit = Circuit([from_iterable(range(count)).pipe(ops.map(out.append))])
    circuit.start()
    return circuit


# -- fairness


@virtual_time
async def test_a_small_circuit_ends_beside_endless_ones() -> None:
    busy = [endless(lambda n: n) for _ in range(20)]
    out: list[int] = []

    await finite(1000, out).done

    assert len(out) == 1000
    for circuit in busy:
        circuit.stop(StopMode.CANCEL)
    await asyncio.wait([circuit.done for circuit in busy])


@virtual_time
async def test_circuits_take_turns_in_slices(meter: Meter) -> None:
    spans: list[tuple[str, float]] = []

    def work(name: str) -> Callable[[int], None]:
        def call(_: int) -> None:
            meter.now += 50e-6
            spans.append((name, meter.now))

        return call

    circuits = [endless(work(name)) for name in "abc"]
    while len(spans) < 3000:
        await asyncio.sleep(0)
    for circuit in circuits:
        circuit.stop(StopMode.CANCEL)
    await asyncio.wait([circuit.done for circuit in circuits])

    shares = {name: sum(each == name for each, _ in spans) for name in "abc"}
    longest = max(
        (len(list(group)) * 50e-6 for _, group in itertools.groupby(name for name, _ in spans)),
    )
    assert longest <= SLICE + BATCH_SLOW
    assert max(shares.values()) <= 1.2 * min(shares.values())


@virtual_time
async def test_many_busy_circuits_do_not_keep_the_loop_from_its_timers(meter: Meter) -> None:
    loop = asyncio.get_running_loop()
    seen: list[float] = []

    def tick() -> None:
        seen.append(meter.now)
        if len(seen) < 50:
            loop.call_soon(tick)

    def work(_: int) -> None:
        meter.now += 200e-6

    circuits = [endless(work) for _ in range(50)]
    loop.call_soon(tick)
    while len(seen) < 50:
        await asyncio.sleep(0)
    for circuit in circuits:
        circuit.stop(StopMode.CANCEL)
    await asyncio.wait([circuit.done for circuit in circuits])

    gaps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(gaps) <= TURN + 2 * BATCH_SLOW


@virtual_time
async def test_async_nodes_count_towards_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    monkeypatch.setattr(pump_module, "perf_counter", meter)
    monkeypatch.setattr("yukta_rx.streams.aio.perf_counter", meter)
    loop = asyncio.get_running_loop()
    seen: list[float] = []

    def tick() -> None:
        seen.append(meter.now)
        if len(seen) < 100:
            loop.call_soon(tick)

    async def work(_: int) -> None:
        meter.now += 100e-6

    circuits = [Circuit([from_iterable(itertools.count).pipe(ops.call(work))]) for _ in range(30)]
    for circuit in circuits:
        circuit.start()
    loop.call_soon(tick)
    while len(seen) < 100:
        await asyncio.sleep(0)
    for circuit in circuits:
        circuit.stop(StopMode.CANCEL)
    await asyncio.wait([circuit.done for circuit in circuits])

    gaps = [after - before for before, after in itertools.pairwise(seen[20:])]
    # Thirty nodes that did not count would take 30 batches of half a millisecond; a batch may be
    # twice as large as the last one, by which the pump judges.
    assert max(gaps) <= 3 * TURN


@virtual_time
async def test_a_call_that_holds_the_loop_is_reported_with_its_node(meter: Meter) -> None:
    reports: list[tuple[str, float]] = []

    def work(n: int) -> int:
        meter.now += 0.050
        return n

    slow = from_iterable([1, 2]).pipe(ops.merge_parents(name="slow"), ops.call(work))
    circuit = Circuit(
        [slow], on_stall=lambda stage, seconds: reports.append((stage.plan.name, seconds))
    )
    circuit.start()
    await circuit.done

    assert {name for name, _ in reports} == {"slow"}
    assert reports[0][1] == pytest.approx(0.050)


@virtual_time
async def test_quick_calls_are_not_reported_however_many(meter: Meter) -> None:
    reports: list[Any] = []

    def work(n: int) -> int:
        meter.now += 0.001
        return n

    circuit = Circuit(
        [from_iterable(range(200)).pipe(ops.call(work))],
        on_stall=lambda *report: reports.append(report),
    )
    circuit.start()
    await circuit.done

    assert reports == []


# -- what a stage raises


class Sabotage:
    """The body of a node with a defect of the engine's own: its run raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        error = self.error

        class Broken(Stage):
            __slots__ = ()

            def run(self) -> None:
                if self.room() > 0 and self.next_edge() is not None:
                    raise error

        return Broken(plan, circuit)


@virtual_time
async def test_a_crashing_stage_ends_with_an_engine_error_and_the_pump_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other: list[int] = []
    error = ZeroDivisionError("defect")
    flow: Flow[int] = from_iterable(range(100)).pipe(
        ops.merge_parents(name="broken"), ops.call(Sabotage(error))
    )
    seen = TestSubscriber(10)

    flow.subscribe(seen)
    await finite(500, other).done
    await seen.ended()

    assert isinstance(seen.error, EngineError)
    assert seen.error.__cause__ is error
    assert "broken" in str(seen.error)
    assert len(other) == 500
    assert "defect" in caplog.text


@pytest.mark.parametrize("at", [0, 200], ids=["first batch", "later"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through_the_pump(interrupt: type[BaseException], at: int) -> None:
    def work(n: int) -> int:
        if n == at:
            raise interrupt
        return n

    async def main() -> None:
        circuit = Circuit([from_iterable(range(300)).pipe(ops.call(work), ops.call(abs))])
        circuit.start()
        await circuit.done

    with pytest.raises(interrupt):
        run_virtual(main())


@virtual_time
async def test_after_an_interrupt_the_other_circuits_go_on() -> None:
    def work(n: int) -> int:
        raise KeyboardInterrupt

    out: list[int] = []
    loop = asyncio.get_running_loop()
    struck = Circuit([from_iterable(range(3)).pipe(ops.call(work))])
    struck.start()
    other = finite(100, out)

    with pytest.raises(KeyboardInterrupt):
        Pump.of(loop).turn()
    await other.done
    struck.stop(StopMode.KILL)

    assert len(out) == 100


# -- life


@virtual_time
async def test_an_idle_pump_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []
    loop = asyncio.get_running_loop()
    pump = Pump.of(loop)
    await finite(10, []).done
    call_soon = loop.call_soon

    def counting(callback: Any, *args: Any, **options: Any) -> Any:
        if callback == pump.turn:
            turns.append(loop.time())
        return call_soon(callback, *args, **options)

    monkeypatch.setattr(loop, "call_soon", counting)
    await asyncio.sleep(3600)
    idle = list(turns)
    await finite(10, []).done

    assert (idle, len(turns) > 0) == ([], True)


def test_one_loop_has_one_pump_that_does_not_outlive_it() -> None:
    async def main() -> tuple[Any, Any]:
        await finite(10, []).done
        loop = asyncio.get_running_loop()
        assert Pump.of(loop) is Pump.of(loop)
        return weakref.ref(loop), weakref.ref(Pump.of(loop))

    loop, pump = run_virtual(main())
    gc.collect()

    assert loop() is None
    assert pump() is None


def test_waking_a_stage_from_a_thread_is_refused_in_debug_mode() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_debug(True)
        seen = TestSubscriber()
        from_iterable(range(3)).subscribe(seen)
        await asyncio.sleep(1)
        with pytest.raises(RuntimeError, match=r"Circuit\.post"):
            await asyncio.to_thread(seen.request, 1)

    run_virtual(main())


INTERRUPTED = {
    "generator": lambda work: from_iterable([1]).pipe(ops.flat_map(lambda n: iter([work(n)]))),
    "drawing": lambda work: from_iterable([1]).pipe(ops.flat_map(lambda n: map(work, [n]))),
    "source": lambda work: from_iterable(lambda: map(work, [1])),
    "async": lambda work: from_iterable([1]).pipe(ops.call(as_coroutine(work))),
    "concurrent": lambda work: from_iterable([1]).pipe(
        ops.call(ConcurrentBody(as_coroutine(work), 2))
    ),
}


def as_coroutine(work: Any) -> Any:
    async def call(n: int) -> Any:
        return work(n)

    return call


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", INTERRUPTED)
def test_an_interrupt_passes_through_every_kind_of_call_on_the_loop(
    where: str, interrupt: type[BaseException]
) -> None:
    def work(n: int) -> int:
        raise interrupt

    async def main() -> None:
        circuit = Circuit([INTERRUPTED[where](work)])
        circuit.start()
        await circuit.done

    with pytest.raises(interrupt):
        run_virtual(main())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_subscriber_passes_through(interrupt: type[BaseException]) -> None:
    def strike(value: int) -> None:
        raise interrupt

    async def main() -> None:
        seen = TestSubscriber(10, on_next=strike)
        from_iterable([1]).subscribe(seen)
        await seen.ended()

    with pytest.raises(interrupt):
        run_virtual(main())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_clean_up_code_passes_through(interrupt: type[BaseException]) -> None:
    class Closing:
        def __iter__(self) -> Closing:
            return self

        def __next__(self) -> int:
            return 1

        def close(self) -> None:
            raise interrupt

    async def main() -> None:
        seen = TestSubscriber(1)
        from_iterable(Closing).subscribe(seen)
        await asyncio.sleep(1)
        seen.cancel()
        await asyncio.sleep(1)

    with pytest.raises(interrupt):
        run_virtual(main())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_where_a_thread_hands_over_its_result_passes_through(
    interrupt: type[BaseException],
) -> None:
    def tap(port: str | None, batch: Any) -> None:
        raise interrupt

    async def main() -> None:
        body = ThreadIterableBody(lambda: [1])
        flow: Flow[int] = Flow(NodePlan(name="source", body=body, tap=tap, last=Slot.CALL))
        seen = TestSubscriber(10)
        flow.subscribe(seen)
        await seen.ended()

    with pytest.raises(interrupt):
        run_virtual(main())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through_in_the_middle_of_a_long_stream(
    interrupt: type[BaseException],
) -> None:
    def work(n: int) -> int:
        if n == 500:
            raise interrupt
        return n

    async def main() -> None:
        line = from_iterable(range(1000)).pipe(ops.merge_parents(), ops.map(work))
        circuit = Circuit([line.pipe(ops.map(lambda n: n))])
        circuit.start()
        await circuit.done

    with pytest.raises(interrupt):
        run_virtual(main())
