"""on_error: what becomes of an element that was given up; dead letters; the failure budget."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import EngineError, FailureBudgetError, RunAbortedError
from yukta_rx.model.policy import FailureBudget, OnError, RetryPolicy
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.clock import PausableClock
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.plan import Outcome
from yukta_rx.streams.threads import THREAD_BATCH
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from yukta_rx.streams.clock import Clock
    from yukta_rx.streams.stage import Stage

pytestmark = pytest.mark.feature("ENG-04")


def ledger(
    clock: Clock,
    action: OnError = OnError.CONTINUE,
    budget: tuple[int, int] | None = None,
    **options: Any,
) -> ops.FailureLedger:
    """A ledger; the budget is (failures, milliseconds)."""
    limit = None if budget is None else FailureBudget(max_failures=budget[0], window_ms=budget[1])
    return ops.FailureLedger(action, limit, clock, **options)


def odd_fail(n: int) -> int:
    if n % 2:
        raise LookupError(f"no {n}")
    return n


# -- CONTINUE


@virtual_time
async def test_continue_drops_the_element_and_goes_on(shape: Any, bench: Any, clock: Any) -> None:
    b = bench(shape.call(odd_fail), ops.on_error(ledger(clock())), demand=10, window=10)
    await b.emit(0, 1, 2, 3, 4)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [*(("next", n, 0) for n in (0, 2, 4)), ("completed", None, 0)]
    stage = b.stage
    assert (stage.received, stage.emitted, stage.failed, stage.retried) == (5, 3, 2, 0)
    assert (stage.filtered, stage.dead_lettered, stage.discarded, stage.unrouted) == (0, 0, 0, 0)


@pytest.mark.parametrize("count", [1, THREAD_BATCH - 1, THREAD_BATCH, THREAD_BATCH + 1, 63, 64, 65])
@pytest.mark.parametrize("action", [OnError.CONTINUE, OnError.ROUTE])
@virtual_time
async def test_around_every_batch_size_each_element_is_accounted_for_once(
    shape: Any, run: Any, clock: Any, count: int, action: OnError
) -> None:
    bad = {0, 1, count // 2, count - 1} & set(range(count))

    def fn(n: int) -> int:
        if n in bad:
            raise LookupError(n)
        return n

    ran = await run(
        range(count), shape.call(fn), ops.on_error(ledger(clock(), action)), ports=("error",)
    )

    assert ran.out == [n for n in range(count) if n not in bad]
    assert ran.ports["error"] == (sorted(bad) if action is OnError.ROUTE else [])
    stage = ran.stage
    assert (stage.received, stage.emitted, stage.failed) == (count, count - len(bad), len(bad))
    assert stage.dead_lettered == len(ran.ports["error"])
    assert (ran.unaccounted, stage.discarded, stage.filtered) == (0, 0, 0)


@virtual_time
async def test_an_element_that_gives_nothing_is_filtered_and_not_failed(
    run: Any, clock: Any
) -> None:
    for call in (
        ops.call(lambda n: None if n == 1 else odd_fail(n)),
        ops.call(lambda n: None if n == 1 else odd_fail(n), blocking=True),
    ):
        ran = await run(range(6), call, ops.on_error(ledger(clock())))

        assert ran.out == [0, 2, 4]
        assert (ran.stage.filtered, ran.stage.failed) == (1, 2)


@virtual_time
async def test_none_of_a_map_is_an_element_also_after_a_failure(run: Any, clock: Any) -> None:
    failed: set[int] = set()

    def fn(n: int) -> Any:
        if n == 2 and n not in failed:
            failed.add(n)
            raise LookupError(n)
        return None if n % 2 == 0 else n

    policy = RetryPolicy(max_attempts=2)
    for limits in ([], [ops.element_timeout(ops.ElementTimeout(clock(), 10.0))]):
        failed.clear()
        ran = await run(range(5), ops.map(fn), *limits, ops.retry(ops.Backoff(policy, clock())))

        assert ran.out == [None, 1, None, 3, None]
        assert (ran.stage.filtered, ran.stage.emitted) == (0, 5)


# -- ROUTE


@virtual_time
async def test_route_sends_a_letter_to_the_error_port_only(
    shape: Any, run: Any, clock: Any
) -> None:
    told: list[Any] = []
    letters = ledger(
        clock(),
        OnError.ROUTE,
        letter=lambda item, error, attempts: ("letter", item, str(error), attempts),
        on_failure=lambda item, error, attempts, action: told.append((item, attempts, action)),
    )
    ran = await run(range(4), shape.call(odd_fail), ops.on_error(letters), ports=("error", "side"))

    assert ran.out == [0, 2]
    assert ran.ports == {
        "error": [("letter", 1, "no 1", 1), ("letter", 3, "no 3", 1)],
        "side": [],
    }
    assert told == [(1, 1, OnError.ROUTE), (3, 1, OnError.ROUTE)]
    assert (ran.stage.dead_lettered, ran.stage.failed, ran.stage.emitted) == (2, 2, 2)


@virtual_time
async def test_letters_that_nobody_asks_for_are_counted(shape: Any, run: Any, clock: Any) -> None:
    ran = await run(range(4), shape.call(odd_fail), ops.on_error(ledger(clock(), OnError.ROUTE)))

    assert ran.out == [0, 2]
    stage = ran.stage
    assert (stage.dead_lettered, stage.unrouted, stage.failed, stage.emitted) == (2, 2, 2, 2)


@virtual_time
async def test_a_recorder_sees_letters_with_their_port(shape: Any, run: Any, clock: Any) -> None:
    seen: list[tuple[str | None, list[Any]]] = []
    await run(
        range(4),
        shape.call(odd_fail),
        ops.on_error(ledger(clock(), OnError.ROUTE)),
        ops.record(lambda port, batch: seen.append((port, list(batch)))),
    )

    flat = [(port, item) for port, batch in seen for item in batch]
    assert sorted(flat, key=lambda pair: pair[1]) == [
        (None, 0),
        ("error", 1),
        (None, 2),
        ("error", 3),
    ]


@virtual_time
async def test_the_number_of_attempts_is_told(shape: Any, run: Any, clock: Any) -> None:
    letters = ledger(clock(), OnError.ROUTE, letter=lambda item, _error, attempts: (item, attempts))
    policy = RetryPolicy(max_attempts=3)
    ran = await run(
        range(4),
        shape.call(odd_fail),
        ops.retry(ops.Backoff(policy, clock())),
        ops.on_error(letters),
        ports=("error",),
    )

    assert ran.ports["error"] == [(1, 3), (3, 3)]
    assert (ran.out, ran.stage.retried, ran.stage.failed) == ([0, 2], 4, 2)


@virtual_time
async def test_a_letter_that_cannot_be_made_fails_the_node(
    shape: Any, bench: Any, clock: Any
) -> None:
    def raises(*_facts: Any) -> Any:
        raise OSError("no letter")

    b = bench(
        shape.call(odd_fail), ops.on_error(ledger(clock(), OnError.ROUTE, letter=raises)), demand=9
    )
    await b.emit(0, 1)
    await b.seen.ended()

    assert b.seen.values == [0]
    assert isinstance(b.seen.error, OSError)


class Two:
    """A node with a child at its default output and one at `error`, each held by the test."""

    def __init__(self, *operators: Any, count: int = 100, window: int = 2) -> None:
        self.out: dict[str, list[Any]] = {"default": [], "error": []}
        self.gates = {"default": asyncio.Event(), "error": asyncio.Event()}
        self.flow = from_iterable(range(count)).pipe(
            ops.merge_parents(prefetch=window), *operators, ops.broadcast()
        )
        self.ends = {
            name: flow.pipe(ops.merge_parents(prefetch=window), ops.call(self.sink(name)))
            for name, flow in (("default", self.flow), ("error", self.flow.port("error")))
        }
        self.circuit = Circuit(self.ends.values())
        self.circuit.start()

    def sink(self, name: str) -> Any:
        async def take(n: Any) -> None:
            await self.gates[name].wait()
            self.out[name].append(n)

        return take

    @property
    def stage(self) -> Stage:
        return self.circuit.stage_of(self.flow)

    def cancel(self, name: str) -> None:
        self.circuit.stage_of(self.ends[name]).end(Outcome.CANCELLED)


@virtual_time
async def test_an_error_port_without_demand_holds_up_the_node(shape: Any, clock: Any) -> None:
    two = Two(shape.call(odd_fail), ops.on_error(ledger(clock(), OnError.ROUTE)))
    two.gates["default"].set()
    await asyncio.sleep(100)
    held = list(two.out["default"])
    two.gates["error"].set()
    await two.circuit.done

    # Two letters fill the window; nothing is called that might give a third.
    assert held == [0, 2]
    assert two.out == {"default": list(range(0, 100, 2)), "error": list(range(1, 100, 2))}


@virtual_time
async def test_a_cancelled_child_at_the_error_port_leaves_the_rest_alone(
    shape: Any, clock: Any
) -> None:
    two = Two(shape.call(odd_fail), ops.on_error(ledger(clock(), OnError.ROUTE)))
    await asyncio.sleep(1)
    two.cancel("error")
    two.gates["default"].set()
    await two.circuit.done

    stage = two.stage
    assert two.out["default"] == list(range(0, 100, 2))
    assert (stage.dead_lettered, stage.failed, stage.emitted) == (50, 50, 50)
    # The one that its child held, and those that waited there, had been sent.
    assert 50 - 5 <= stage.unrouted <= 50


@virtual_time
async def test_a_child_at_the_error_port_keeps_the_node_going(shape: Any, clock: Any) -> None:
    two = Two(shape.call(odd_fail), ops.on_error(ledger(clock(), OnError.ROUTE)))
    await asyncio.sleep(1)
    two.cancel("default")
    two.gates["error"].set()
    await two.circuit.done

    assert two.out["error"] == list(range(1, 100, 2))
    assert two.stage.failed == 50


@virtual_time
async def test_without_any_child_the_node_is_cancelled(shape: Any, clock: Any) -> None:
    two = Two(shape.call(odd_fail), ops.on_error(ledger(clock(), OnError.ROUTE)))
    await asyncio.sleep(1)
    two.cancel("default")
    two.cancel("error")
    await two.circuit.done

    assert two.stage.received < 20
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("action", [OnError.CONTINUE, OnError.ROUTE])
@virtual_time
async def test_what_is_given_up_counts_once_also_when_it_never_leaves(
    shape: Any, clock: Any, action: OnError
) -> None:
    two = Two(shape.call(odd_fail), ops.on_error(ledger(clock(), action)), window=1)
    for _ in range(40):
        await asyncio.sleep(0)
    two.circuit.stop(StopMode.CANCEL)
    await two.circuit.done

    stage = two.stage
    [edge] = [edge for edge in two.circuit.edges if edge.dst is stage]
    assert edge.passed == stage.emitted + stage.filtered + stage.failed + stage.discarded
    assert stage.filtered == 0


# -- FAIL and what is final


@virtual_time
async def test_fail_ends_the_node_with_the_error_itself(shape: Any, bench: Any, clock: Any) -> None:
    told: list[Any] = []
    error = LookupError("no 1")
    keep = ledger(clock(), OnError.FAIL, on_failure=lambda *facts: told.append(facts))

    def fn(n: int) -> int:
        if n == 1:
            raise error
        return n

    b = bench(shape.call(fn), ops.on_error(keep), demand=10)
    await b.emit(0, 1, 2)
    await b.seen.ended()

    assert b.timed == [("next", 0, 0), ("error", error, 0)]
    assert told == [(1, error, 1, OnError.FAIL)]
    assert (b.stage.failed, b.unaccounted) == (1, 0)


@pytest.mark.parametrize("action", [OnError.CONTINUE, OnError.ROUTE])
@pytest.mark.parametrize("kind", [EngineError, RunAbortedError])
@virtual_time
async def test_errors_of_the_engine_and_an_aborted_run_are_neither_dropped_nor_routed(
    shape: Any, bench: Any, clock: Any, action: OnError, kind: Any
) -> None:
    told: list[Any] = []
    keep = ledger(clock(), action, on_failure=lambda *facts: told.append(facts))

    def fn(n: int) -> int:
        if n == 1:
            raise kind("at once")
        return n

    b = bench(shape.call(fn), ops.on_error(keep), demand=10)
    await b.emit(0, 1, 2)
    await b.seen.ended()

    assert b.seen.marble == "0 X"
    assert isinstance(b.seen.error, kind)
    assert (told, b.stage.dead_lettered, b.stage.failed) == ([], 0, 1)
    assert b.unaccounted == 0


# -- the budget


async def fail_at(b: Any, *times: float) -> None:
    """Emit an element that fails at each of `times`."""
    start = asyncio.get_running_loop().time()
    for time in times:
        wait = start + time - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, wait))
        if b.seen.terminal is not None:
            return
        b.source.emit(1)
    await b.settle()


@pytest.mark.parametrize(
    ("times", "fails_at"),
    [
        ([0, 0.1, 0.2], 0.2),
        ([0, 0.5, 1.0], 1.0),
        ([0, 0.5, 1.001], None),
        ([0, 0.6, 1.1, 1.55], 1.55),
        ([0, 0.6, 1.1, 1.7, 2.2], None),
    ],
)
@virtual_time
async def test_more_failures_than_the_budget_within_the_window_fail_the_node(
    shape: Any, bench: Any, clock: Any, times: list[float], fails_at: float | None
) -> None:
    told: list[OnError] = []
    keep = ledger(clock(), budget=(2, 1000), on_failure=lambda *facts: told.append(facts[3]))
    b = bench(shape.call(odd_fail), ops.on_error(keep), demand=10, window=10)
    await b.source.pulled(1)
    await fail_at(b, *times)

    if fails_at is None:
        assert b.timed == []
        assert told == [OnError.CONTINUE] * len(times)
        b.seen.cancel()
        await b.settle()
    else:
        [(kind, error, time)] = b.timed
        assert (kind, time) == ("error", fails_at)
        assert isinstance(error, FailureBudgetError)
        assert "more than 2 messages failed within 1000 ms" in str(error)
        assert isinstance(error.__cause__, LookupError)
        assert told == [*[OnError.CONTINUE] * (len(times) - 1), OnError.FAIL]
    assert b.stage.failed == len(times)


@virtual_time
async def test_a_budget_of_nothing_fails_at_the_first(shape: Any, bench: Any, clock: Any) -> None:
    keep = ledger(clock(), OnError.ROUTE, budget=(0, 1))
    b = bench(shape.call(odd_fail), ops.on_error(keep), demand=10)
    await b.emit(0, 1)
    await b.seen.ended()

    assert b.seen.marble == "0 X"
    assert isinstance(b.seen.error, FailureBudgetError)
    assert b.stage.dead_lettered == 0


@virtual_time
async def test_the_budget_counts_elements_and_not_attempts(
    shape: Any, run: Any, clock: Any
) -> None:
    policy = RetryPolicy(max_attempts=5, backoff_ms=0, max_backoff_ms=0)
    ran = await run(
        range(6),
        shape.call(odd_fail),
        ops.retry(ops.Backoff(policy, clock())),
        ops.on_error(ledger(clock(), budget=(3, 1000))),
    )

    assert (ran.out, ran.stage.failed, ran.stage.retried) == ([0, 2, 4], 3, 12)


@virtual_time
async def test_a_paused_clock_stops_the_window(bench: Any, clock: Any) -> None:
    paused = PausableClock(clock())
    b = bench(
        ops.call(odd_fail), ops.on_error(ledger(paused, budget=(1, 1000))), demand=10, window=10
    )
    await b.emit(1)
    paused.pause()
    await asyncio.sleep(100)
    paused.resume()
    await b.emit(1)
    await b.seen.ended()

    assert isinstance(b.seen.error, FailureBudgetError)
