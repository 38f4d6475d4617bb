"""retry: further attempts at one element, their times, and what becomes of everything else."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.errors import BadInputError, EngineError, PluginContractError, RunAbortedError
from yukta_rx.model.policy import RetryPolicy
from yukta_rx.operators._retry import worth_retrying
from yukta_rx.streams.attempts import Hold
from yukta_rx.streams.clock import PausableClock
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.threads import THREAD_BATCH
from yukta_rx.testing.clock import run_virtual, virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yukta_rx.streams.clock import Clock

pytestmark = pytest.mark.feature("ENG-04")

FULL = RetryPolicy(max_attempts=3, backoff_ms=1000, max_backoff_ms=5000)
"""Waits 1 s, then 2 s, without jitter."""


def backoff(clock: Clock, policy: RetryPolicy = FULL, **options: Any) -> ops.Backoff:
    options.setdefault("jitter", lambda: 1.0)
    return ops.Backoff(policy, clock, **options)


class Failing:
    """A function that fails for some elements, so many times each."""

    def __init__(self, times: dict[Any, int], error: Any = LookupError) -> None:
        self.left = dict(times)
        self.error = error
        self.calls: list[Any] = []

    def __call__(self, n: Any) -> Any:
        self.calls.append(n)
        if self.left.get(n, 0) > 0:
            self.left[n] -= 1
            raise self.error(f"no {n}")
        return n


# -- times, order, demand


@virtual_time
async def test_an_element_is_tried_again_after_the_backoff_and_those_behind_it_wait(
    shape: Any, bench: Any, clock: Any
) -> None:
    fn = Failing({2: 2})
    b = bench(shape.call(fn), ops.retry(backoff(clock())), demand=10)
    await b.emit(1, 2, 3)
    b.source.complete()

    await b.seen.ended()

    assert b.timed == [("next", 1, 0), ("next", 2, 3), ("next", 3, 3), ("completed", None, 3)]
    assert fn.calls.count(2) == 3
    assert (b.stage.received, b.stage.emitted, b.stage.retried, b.stage.failed) == (3, 3, 2, 0)


@virtual_time
async def test_demand_goes_back_only_for_what_is_worked_off(
    shape: Any, bench: Any, clock: Any
) -> None:
    b = bench(shape.call(Failing({2: 2})), ops.retry(backoff(clock())), demand=10)
    await b.emit(1, 2, 3)
    await asyncio.sleep(10)

    assert b.pulls == [(4, 0), (3, 3)]
    b.seen.cancel()
    await b.settle()


@virtual_time
async def test_the_last_error_passes_once_no_attempt_is_left(
    shape: Any, bench: Any, clock: Any
) -> None:
    b = bench(shape.call(Failing({2: 3})), ops.retry(backoff(clock())), demand=10)
    await b.emit(1, 2, 3)

    await b.seen.ended()

    [first, (kind, error, time)] = b.timed
    assert first == ("next", 1, 0)
    assert (kind, type(error), str(error), time) == ("error", LookupError, error.args[0], 3)
    assert round(b.source.cancelled_at, 3) == 3
    stage = b.stage
    assert (stage.retried, stage.failed, stage.culprit, stage.emitted) == (2, 1, 2, 1)
    assert b.unaccounted == 0


@virtual_time
async def test_an_attempt_gets_the_element_with_its_number_and_each_retry_is_told(
    shape: Any, bench: Any, clock: Any
) -> None:
    told: list[Any] = []
    fn = Failing({2: 1, 2.2: 1})
    again = backoff(
        clock(),
        numbered=lambda item, attempt: item + attempt / 10,
        on_retry=lambda *facts: told.append(facts),
    )
    b = bench(shape.call(fn), ops.retry(again), demand=10)
    await b.emit(1, 2)
    b.source.complete()
    await b.seen.ended()

    assert fn.calls == [1, 2, 2.2, 2.3]
    assert b.seen.values == [1, 2.3]
    assert [(item, str(error), n, seconds) for item, error, n, seconds in told] == [
        (2, "no 2", 2, 1.0),
        (2, "no 2.2", 3, 2.0),
    ]
    assert b.stage.attempt == 3


@virtual_time
async def test_without_a_failure_nothing_is_waited_for(shape: Any, bench: Any, clock: Any) -> None:
    b = bench(shape.call(Failing({})), ops.retry(backoff(clock())), demand=10)
    await b.emit(1, 2, 3)
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [*(("next", n, 0) for n in (1, 2, 3)), ("completed", None, 0)]
    assert (b.stage.retried, b.stage.failed) == (0, 0)


@virtual_time
async def test_one_attempt_is_none_more(shape: Any, bench: Any, clock: Any) -> None:
    policy = RetryPolicy(max_attempts=1)
    b = bench(shape.call(Failing({1: 1})), ops.retry(backoff(clock(), policy)), demand=10)
    await b.emit(1)
    await b.seen.ended()

    assert (b.seen.marble, b.stage.retried, b.stage.failed) == ("X", 0, 1)


@pytest.mark.parametrize("count", [1, THREAD_BATCH - 1, THREAD_BATCH, THREAD_BATCH + 1, 63, 64, 65])
@virtual_time
async def test_around_every_batch_size_nothing_is_lost_and_order_is_kept(
    shape: Any, run: Any, clock: Any, count: int
) -> None:
    bad = {0, 1, count // 2, count - 1}
    ran = await run(
        range(count), shape.call(Failing(dict.fromkeys(bad, 2))), ops.retry(backoff(clock()))
    )

    assert ran.out == list(range(count))
    assert ran.stage.retried == 2 * len(bad & set(range(count)))
    assert (ran.stage.received, ran.stage.emitted, ran.stage.failed) == (count, count, 0)


@virtual_time
async def test_every_element_may_fail_once(shape: Any, run: Any, clock: Any) -> None:
    policy = RetryPolicy(max_attempts=2, backoff_ms=0, max_backoff_ms=0)
    ran = await run(
        range(200),
        shape.call(Failing(dict.fromkeys(range(200), 1))),
        ops.retry(backoff(clock(), policy)),
    )

    assert (ran.out, ran.stage.retried) == (list(range(200)), 200)


# -- what a failed attempt gave


def partial(fn: Failing) -> Any:
    """Gives two outputs, then fails or gives a third."""

    def outputs(n: Any) -> Iterator[Any]:
        attempt = len(fn.calls)
        yield n, attempt, 1
        yield n, attempt, 2
        fn(n)
        yield n, attempt, 3

    return outputs


@virtual_time
async def test_case_14_what_a_failed_attempt_gave_is_never_emitted(
    many: Any, run: Any, clock: Any
) -> None:
    discarded: list[tuple[Any, int]] = []
    hold = Hold(lambda _output: 1, 100, lambda item, n: discarded.append((item, n)))
    ran = await run(
        [5], many.call(partial(Failing({5: 2})), hold=hold), ops.retry(backoff(clock()))
    )

    assert ran.out == [(5, 2, 1), (5, 2, 2), (5, 2, 3)]
    assert discarded == [(5, 2), (5, 2)]
    assert ran.stage.emitted == 3


@virtual_time
async def test_the_outputs_of_a_good_attempt_wait_for_demand(
    many: Any, bench: Any, clock: Any
) -> None:
    b = bench(
        many.call(partial(Failing({5: 1}))),
        ops.retry(backoff(clock())),
        ops.prefetch(1),
        demand=1,
    )
    await b.emit(5)
    await asyncio.sleep(100)
    first = b.timed
    b.seen.request(10)
    b.source.complete()
    await b.seen.ended()

    assert first == [("next", (5, 1, 1), 1)]
    assert b.seen.values == [(5, 1, 1), (5, 1, 2), (5, 1, 3)]
    assert b.seen.completed


# -- ends while an element is tried again


@virtual_time
async def test_a_paused_clock_stops_the_backoff(shape: Any, bench: Any, clock: Any) -> None:
    paused = PausableClock(clock())
    b = bench(shape.call(Failing({1: 2})), ops.retry(backoff(paused)), demand=10)
    await b.emit(1)
    await asyncio.sleep(0.4)
    paused.pause()
    await asyncio.sleep(100)
    paused.resume()
    b.source.complete()
    await b.seen.ended()

    assert b.timed == [("next", 1, 103), ("completed", None, 103)]


@virtual_time
async def test_a_cancellation_in_the_backoff_ends_it_at_once(
    shape: Any, bench: Any, clock: Any
) -> None:
    fn = Failing({1: 2})
    b = bench(shape.call(fn), ops.retry(backoff(clock())), demand=10)
    await b.emit(1, 2)
    await asyncio.sleep(0.4)
    b.seen.cancel()
    await asyncio.sleep(100)

    assert round(b.source.cancelled_at, 3) == 0.4
    assert fn.calls.count(1) == 1
    assert b.timed == []
    assert len(asyncio.all_tasks()) == 1
    assert (b.stage.discarded, b.stage.failed, b.stage.emitted) == (2, 0, 0)
    assert b.unaccounted == 0


@virtual_time
async def test_a_cancellation_reaches_a_later_attempt(waiting: Any, bench: Any, clock: Any) -> None:
    cancelled: list[float] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(round(asyncio.get_running_loop().time(), 3))
            raise

    fn = Failing({1: 1})
    b = bench(waiting.call(lambda n: fn(n) and hangs()), ops.retry(backoff(clock())), demand=10)
    await b.emit(1)
    await asyncio.sleep(5)
    b.seen.cancel()
    await asyncio.sleep(1)

    assert cancelled == [5]
    assert len(asyncio.all_tasks()) == 1
    assert (b.stage.discarded, b.stage.retried) == (1, 1)


@virtual_time
async def test_an_attempt_that_fails_when_it_is_cancelled_is_the_last(
    waiting: Any, bench: Any, clock: Any
) -> None:
    attempts: list[int] = []

    async def stubborn(n: int) -> int:
        attempts.append(n)
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError("could not clean up")

    b = bench(waiting.call(stubborn), ops.retry(backoff(clock())), demand=10)
    await b.emit(1)
    b.seen.cancel()
    await asyncio.sleep(100)

    assert attempts == [1]
    assert len(asyncio.all_tasks()) == 1
    assert (b.stage.discarded, b.stage.failed) == (1, 0)


@pytest.mark.parametrize("blocking", ["blocking", "blocking generator"])
async def test_a_cancellation_leaves_a_thread_in_a_later_attempt_behind(
    bench: Any, clock: Any, blocking: str
) -> None:
    """In real time: virtual time waits for threads."""
    go, inside = threading.Event(), threading.Event()
    first = Failing({1: 1})

    def value(n: int) -> int:
        first(n)
        inside.set()
        go.wait(10)
        return n

    def values(n: int) -> Iterator[int]:
        yield value(n)

    again = backoff(clock(), RetryPolicy(max_attempts=2, backoff_ms=0, max_backoff_ms=0))
    call = ops.call(value if blocking == "blocking" else values, blocking=True)
    b = bench(call, ops.retry(again), demand=10)
    await b.emit(1)
    while not inside.is_set():
        await asyncio.sleep(0)
    b.seen.cancel()
    await b.source._stage.circuit.done
    go.set()

    assert b.source.cancelled
    assert b.timed == []
    assert (b.stage.discarded, b.stage.emitted) == (1, 0)


@virtual_time
async def test_the_completion_waits_for_the_attempts(shape: Any, bench: Any, clock: Any) -> None:
    b = bench(shape.call(Failing({1: 1})), ops.retry(backoff(clock())), demand=10)
    await b.emit(1)
    b.source.complete()
    await asyncio.sleep(0.5)
    before = b.timed
    await b.seen.ended()

    assert before == []
    assert b.timed == [("next", 1, 1), ("completed", None, 1)]


@virtual_time
async def test_an_error_of_the_source_waits_for_the_attempts(
    shape: Any, bench: Any, clock: Any
) -> None:
    b = bench(shape.call(Failing({1: 1})), ops.retry(backoff(clock())), demand=10)
    await b.emit(1, 2)
    error = LookupError("source")
    b.source.fail(error)
    await b.seen.ended()

    assert b.timed == [("next", 1, 1), ("next", 2, 1), ("error", error, 1)]


@virtual_time
async def test_with_all_success_a_failed_parent_ends_the_backoff(
    shape: Any, bench: Any, clock: Any
) -> None:
    b = bench(
        ops.merge_parents(join=ops.AllSuccess()),
        shape.call(Failing({1: 1})),
        ops.retry(backoff(clock())),
        demand=10,
    )
    await b.emit(1)
    await asyncio.sleep(0.5)
    b.source.fail(LookupError("source"))
    await b.seen.ended()
    await asyncio.sleep(10)

    assert [(kind, time) for kind, _value, time in b.timed] == [("error", 0.5)]
    assert len(asyncio.all_tasks()) == 1
    assert b.stage.discarded == 1


@virtual_time
async def test_a_drained_node_tries_again_before_it_ends(
    shape: Any, bench: Any, clock: Any, witness: Any
) -> None:
    b = bench(
        shape.call(Failing({1: 1})), ops.retry(backoff(clock())), ops.status(witness), demand=10
    )
    await b.emit(1)
    b.stage.drain()
    await b.seen.ended()

    assert b.timed == [("next", 1, 1), ("completed", None, 1)]
    assert witness.notes[-1] == ("stopped", None, 1)


# -- which errors


@virtual_time
async def test_bad_input_is_not_tried_again(shape: Any, bench: Any, clock: Any) -> None:
    b = bench(shape.call(Failing({1: 1}, BadInputError)), ops.retry(backoff(clock())), demand=10)
    await b.emit(1)
    await b.seen.ended()

    assert isinstance(b.seen.error, BadInputError)
    assert (b.stage.retried, b.stage.failed) == (0, 1)


@pytest.mark.parametrize("error", [EngineError, RunAbortedError])
@virtual_time
async def test_errors_of_the_engine_and_an_aborted_run_are_final(
    shape: Any, bench: Any, clock: Any, error: Any
) -> None:
    everything = RetryPolicy(max_attempts=3, retry_on=("Exception",))
    b = bench(
        shape.call(Failing({1: 1}, error)), ops.retry(backoff(clock(), everything)), demand=10
    )
    await b.emit(1)
    await b.seen.ended()

    assert isinstance(b.seen.error, error)
    assert (b.stage.retried, b.stage.failed) == (0, 1)


@pytest.mark.parametrize("raised", [StopIteration, asyncio.CancelledError])
@virtual_time
async def test_what_would_stop_a_coroutine_or_task_is_an_error_like_any_other(
    shape: Any, bench: Any, clock: Any, raised: Any
) -> None:
    told: list[BaseException] = []
    again = backoff(clock(), on_retry=lambda _item, error, *_rest: told.append(error))
    b = bench(shape.call(Failing({1: 2, 2: 9}, raised)), ops.retry(again), demand=10)
    await b.emit(1, 2)
    await b.seen.ended()

    assert b.timed[0] == ("next", 1, 3)
    assert b.timed[1][2] == (3 if shape.name == "concurrent" else 6)
    assert {type(error) for error in [*told, b.seen.error]} == {RuntimeError}
    assert (b.stage.retried, b.stage.failed) == (4, 1)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_later_attempt_on_the_loop_stops_the_program(
    on_loop: Any, bench: Any, clock: Any, raised: Any
) -> None:
    errors = iter([LookupError, raised])

    def fn(n: int) -> int:
        raise next(errors)

    async def main() -> None:
        b = bench(on_loop.call(fn), ops.retry(backoff(clock())), demand=10)
        await b.emit(1)
        await b.seen.ended()

    with pytest.raises(raised):
        run_virtual(main())


@virtual_time
async def test_an_exit_from_a_thread_is_a_failure_of_the_call(bench: Any, clock: Any) -> None:
    b = bench(
        ops.call(Failing({1: 1, 2: 3}, SystemExit), blocking=True),
        ops.retry(backoff(clock())),
        demand=10,
    )
    await b.emit(1, 2)
    await b.seen.ended()

    assert b.timed[0] == ("next", 1, 1)
    assert isinstance(b.seen.error, RuntimeError)


class Outer:
    class InnerError(LookupError):
        pass


def chained(error: Exception, *causes: Exception) -> Exception:
    for one, cause in zip((error, *causes), causes, strict=False):
        one.__cause__ = cause
    return error


def circular() -> Exception:
    first, second = LookupError("a"), OSError("b")
    first.__cause__, second.__cause__ = second, first
    return first


def contextual() -> Exception:
    try:
        try:
            raise OSError("first")
        except OSError:
            raise LookupError("second")  # noqa: B904
    except LookupError as error:
        return error


NESTED = f"{Outer.__module__}.Outer.InnerError"


@pytest.mark.parametrize(
    ("error", "retry_on", "no_retry_on", "expected"),
    [
        (LookupError(), (), (), True),
        (LookupError(), ("LookupError",), (), True),
        (LookupError(), ("builtins.LookupError",), (), True),
        (KeyError(), ("LookupError",), (), True),
        (KeyError(), ("Exception",), (), True),
        (KeyError(), ("BaseException",), (), True),
        (KeyError(), ("object",), (), False),
        (LookupError(), ("KeyError",), (), False),
        (LookupError(), ("keyerror", "lookuperror", "Lookup"), (), False),
        (LookupError(), ("other.LookupError",), (), False),
        (Outer.InnerError(), ("InnerError",), (), True),
        (Outer.InnerError(), (NESTED,), (), True),
        (Outer.InnerError(), ("Outer.InnerError",), (), False),
        (ConnectionResetError(), ("OSError",), ("ConnectionResetError",), False),
        (ConnectionResetError(), ("ConnectionResetError",), ("OSError",), False),
        (LookupError(), (), ("OSError",), True),
        # causes
        (chained(LookupError(), OSError()), ("OSError",), (), True),
        (chained(LookupError(), KeyError(), ConnectionError()), ("OSError",), (), True),
        (chained(LookupError(), OSError()), (), ("OSError",), False),
        (circular(), ("OSError",), (), True),
        (circular(), ("TimeoutError",), (), False),
        (contextual(), ("OSError",), (), False),
        # bad input
        (ValueError(), (), (), False),
        (TypeError(), (), (), False),
        (ValueError(), ("Exception",), (), False),
        (ValueError(), ("ValueError",), (), True),
        (ValueError(), ("builtins.ValueError",), (), True),
        (TypeError(), ("TypeError",), (), True),
        (TypeError(), ("ValueError",), (), False),
        (ValueError(), ("ValueError",), ("Exception",), False),
        (UnicodeError(), (), (), True),
        (UnicodeError(), ("ValueError",), (), True),
        (chained(LookupError(), ValueError()), (), (), True),
        (BadInputError("x"), (), (), False),
        (BadInputError("x"), ("BadInputError",), (), False),
        (PluginContractError("x"), ("PluginContractError",), (), False),
    ],
)
def test_names_of_classes_bases_and_causes_decide(
    error: BaseException,
    retry_on: tuple[str, ...],
    no_retry_on: tuple[str, ...],
    expected: bool,
) -> None:
    policy = RetryPolicy(max_attempts=2, retry_on=retry_on, no_retry_on=no_retry_on)

    assert worth_retrying(error, policy) is expected


# -- how long


class Later(Exception):
    def __init__(self, retry_after: Any) -> None:
        self.retry_after = retry_after


@pytest.mark.parametrize(
    ("attempt", "error", "seconds"),
    [
        (1, LookupError(), 0.2),
        (2, LookupError(), 0.4),
        (3, LookupError(), 0.8),
        (5, LookupError(), 3.2),
        (6, LookupError(), 5.0),
        (99, LookupError(), 5.0),
        (1, Later(3), 3.0),
        (1, Later(0.1), 0.2),
        (1, Later(1000), 5.0),
        (6, Later(1), 5.0),
        (1, Later(-1), 0.2),
        (1, Later(float("inf")), 5.0),
        (1, Later("soon"), 0.2),
        (1, Later(None), 0.2),
    ],
)
@virtual_time
async def test_the_wait_doubles_up_to_the_longest_or_is_what_the_error_asks(
    clock: Any, attempt: int, error: BaseException, seconds: float
) -> None:
    policy = RetryPolicy(max_attempts=100, backoff_ms=200, max_backoff_ms=5000)

    assert backoff(clock(), policy).wait_after(attempt, error) == seconds


@virtual_time
async def test_the_jitter_takes_up_to_half_of_the_wait(clock: Any) -> None:
    policy = RetryPolicy(max_attempts=100, backoff_ms=1000, max_backoff_ms=1000)
    waits = [ops.Backoff(policy, clock()).wait_after(1, LookupError()) for _ in range(500)]

    assert min(waits) >= 0.5
    assert max(waits) <= 1
    # Once in 10**40.
    assert min(waits) < 0.6
    assert max(waits) > 0.9


@virtual_time
async def test_no_backoff_is_no_wait(clock: Any) -> None:
    policy = RetryPolicy(max_attempts=2, backoff_ms=0, max_backoff_ms=0)

    assert backoff(clock(), policy).wait_after(1, Later(10)) == 0


# -- where


@pytest.mark.parametrize("where", ["source", "stream"])
@virtual_time
async def test_what_makes_no_call_per_element_refuses_to_be_tried_again(
    bench: Any, clock: Any, where: str
) -> None:
    async def copy(stream: Any) -> Any:
        async for n in stream:
            yield n

    flow = from_iterable([1])
    if where == "stream":
        flow = flow.pipe(ops.through(copy))

    with pytest.raises(ValueError, match="which makes no call per element"):
        flow.pipe(ops.retry(backoff(clock()))).aiter()
