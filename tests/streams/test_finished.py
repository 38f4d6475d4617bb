"""Which elements are worked off, as whoever records a node is told: none too early, none twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yukta_rx import operators as ops
from yukta_rx.model.message import to_port
from yukta_rx.model.policy import OnError, RetryPolicy
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.plan import Slot
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

pytestmark = pytest.mark.feature("DUR-02")

Out = tuple[int, int]
"""An element and the place of the output among those of it."""


class Plan:
    """What a node does with each element."""

    def __init__(self, outputs: list[int], fails: set[int], attempts: int) -> None:
        self.outputs = outputs
        self.fails = fails
        self.attempts = attempts
        self.tries: Counter[int] = Counter()

    def made_of(self, n: int) -> Iterator[Any]:
        """Outputs; half of them come before a failure, some go by the port `side`."""
        self.tries[n] += 1
        some = self.outputs[n % len(self.outputs)]
        failing = n in self.fails and self.tries[n] <= self.attempts
        for place in range(some):
            if failing and place >= some // 2:
                break
            yield to_port("side", (n, place)) if place % 3 == 2 else (n, place)
        if failing:
            raise LookupError(str(n))


def bodies(plan: Plan, many: bool) -> dict[str, Any]:
    """The node in every way in which it can be written."""

    def one(n: int) -> Any:
        return next(iter(list(plan.made_of(n))), None)

    async def quick(n: int) -> Any:
        return one(n)

    async def suspending(n: int) -> Any:
        await asyncio.sleep(0.001 * (n % 3))
        return one(n)

    def generator(n: int) -> Iterator[Any]:
        yield from plan.made_of(n)

    async def async_generator(n: int) -> AsyncIterator[Any]:
        for out in plan.made_of(n):
            await asyncio.sleep(0.001)
            yield out

    async def attempt(n: int) -> list[Any]:
        await asyncio.sleep(0.001 * (n * 7 % 5))
        return list(plan.made_of(n)) if many else [one(n)]

    calls = {
        "concurrent": lambda flow: flow.write(Slot.CALL, body=ConcurrentBody(attempt, 4)),
        "unordered": lambda flow: flow.write(
            Slot.CALL, body=ConcurrentBody(attempt, 4, ordered=False)
        ),
    }
    if many:
        return calls | {
            "generator": ops.call(generator),
            "async generator": ops.call(async_generator),
            "thread generator": ops.call(generator, blocking=True),
        }
    return calls | {
        "sync": ops.call(one),
        "async": ops.call(quick),
        "suspending": ops.call(suspending),
        "thread": ops.call(one, blocking=True),
    }


class Log:
    """What a recorder sees; checks at each word that it fits."""

    def __init__(self) -> None:
        self.open: list[Out] = []
        self.given: dict[int, list[Out]] = {}
        self.over: list[int] = []

    def tap(self, _port: str | None, items: Sequence[Any]) -> None:
        self.open += items

    def on_finished(self, items: Sequence[int]) -> None:
        assert items
        self.over += items
        assert {n for n, _ in self.open} <= set(items), "outputs of an element that is not over"
        for n in items:
            self.given[n] = [out for out in self.open if out[0] == n]
        self.open = []


def letter(n: int, _error: BaseException, _attempts: int) -> Any:
    return (n, -1)


def policies(policy: str) -> list[Any]:
    if policy == "none":
        return []
    clock = LoopClock(asyncio.get_running_loop())
    rule = {"retry": OnError.FAIL, "continue": OnError.CONTINUE, "route": OnError.ROUTE}[policy]
    made = [ops.retry(ops.Backoff(RetryPolicy(max_attempts=2, backoff_ms=1), clock))]
    if policy == "retry":
        return made
    return [*made, ops.on_error(ops.FailureLedger(rule, None, clock, letter=letter))]


async def play(
    log: Log, kind: str, many: bool, policy: str, plan: Plan, count: int, prefetch: int, skip: bool
) -> Any:
    valve = ops.Valve()

    async def slowly(_item: Any) -> None:
        await asyncio.sleep(0.002)

    node = from_iterable(range(count)).pipe(
        ops.merge_parents(name="node", prefetch=8),
        ops.valve(valve),
        bodies(plan, many)[kind],
        *policies(policy),
        ops.record(log.tap, None, log.on_finished),
        ops.broadcast(),
    )
    ends = [
        flow.pipe(ops.merge_parents(name=name, prefetch=prefetch), ops.call(slowly))
        for name, flow in (("plain", node), ("side", node.port("side")))
    ]
    circuit = Circuit(ends)
    circuit.start()
    if skip:
        await asyncio.sleep(0.01)
        valve.skip(True)
        await asyncio.sleep(0.1)
        valve.skip(False)
    await circuit.done
    return circuit.stage_of(node)


@pytest.mark.parametrize("policy", ["none", "retry", "continue", "route"])
@pytest.mark.parametrize(
    ("many", "kind"),
    [(many, kind) for many in (False, True) for kind in bodies(Plan([], set(), 0), many)],
)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    outputs=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    fails=st.sets(st.integers(0, 60), max_size=6),
    attempts=st.sampled_from([1, 99]),
    count=st.integers(0, 60),
    prefetch=st.sampled_from([1, 3, 64]),
)
def test_what_is_told_is_over_with_all_it_gave(
    policy: str,
    many: bool,
    kind: str,
    outputs: list[int],
    fails: set[int],
    attempts: int,
    count: int,
    prefetch: int,
) -> None:
    log, plan = Log(), Plan(outputs, fails, attempts)
    run_virtual(play(log, kind, many, policy, plan, count, prefetch, skip=False))

    failing = {n for n in fails if n < count}
    given_up = failing if attempts > 1 or policy == "none" else set()
    if policy in ("none", "retry") and given_up:
        assert len(set(log.over)) == len(log.over)
        assert not given_up & set(log.over)
    else:
        assert Counter(log.over) == Counter(range(count))
        assert log.open == []
    for n, made in log.given.items():
        quiet = Plan(outputs, set(), 0)
        wanted = [getattr(one, "value", one) for one in quiet.made_of(n)][: None if many else 1]
        if n in given_up:
            wanted = [(n, -1)] if policy == "route" else []
        assert sorted(made) == sorted(wanted)


class Marked(Log):
    """Elements that go round the call are outputs of their own."""

    def tap(self, _port: str | None, items: Sequence[Any]) -> None:
        self.open += [(item, 0) if isinstance(item, int) else item for item in items]


@pytest.mark.parametrize("kind", ["generator", "async", "thread", "unordered", "concurrent"])
def test_elements_that_go_round_the_call_are_over_too(kind: str) -> None:
    log, many = Marked(), kind not in ("async", "thread")
    plan = Plan([3, 0, 5], set(), 0)
    stage = run_virtual(play(log, kind, many, "none", plan, 60, 3, skip=True))

    assert stage.skipped > 0
    assert Counter(log.over) == Counter(range(60))
    assert log.open == []
