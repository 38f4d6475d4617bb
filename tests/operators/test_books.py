"""Whatever happens to a node, every element that came shows in one of its counters, once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yukta_rx import operators as ops
from yukta_rx.model.policy import FailureBudget, OnError, RetryPolicy
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.clock import LoopClock
from yukta_rx.streams.flow import from_iterable
from yukta_rx.streams.plan import Outcome
from yukta_rx.testing.clock import run_virtual

pytestmark = pytest.mark.feature("ENG-04")


@dataclass(frozen=True)
class Plan:
    """One run of one node."""

    count: int
    fails: dict[int, int]
    """Attempts of an element that fail."""
    nothing: set[int]
    """Elements for which the call gives nothing."""
    attempts: int
    on_error: OnError | None
    budget: int | None
    limit: float | None
    hangs: set[int]
    windows: tuple[int, int]
    pace: float
    """Seconds that the child takes for one."""
    steps: list[tuple[float, str]]
    """What is done to the node, and when."""


numbers = st.sets(st.integers(0, 79), max_size=8)

plans = st.builds(
    Plan,
    count=st.integers(0, 80),
    fails=st.dictionaries(st.integers(0, 79), st.integers(1, 4), max_size=8),
    nothing=numbers,
    attempts=st.sampled_from([0, 0, 1, 2, 3]),
    on_error=st.sampled_from([None, None, *OnError]),
    budget=st.sampled_from([None, None, 0, 3]),
    limit=st.sampled_from([None, None, 0.7]),
    hangs=st.sets(st.integers(0, 79), max_size=3),
    windows=st.tuples(st.sampled_from([1, 2, 4, 63, 64, 65]), st.sampled_from([1, 2, 64])),
    pace=st.sampled_from([0, 0.1, 0.1]),
    steps=st.lists(
        st.tuples(
            st.floats(0, 4),
            st.sampled_from(
                ["pause", "resume", "step", "skip", "unskip", "hold", "cancel", "drain", "gone"]
            ),
        ),
        max_size=6,
    ),
)


class Node:
    """The node that a plan describes, in one shape."""

    def __init__(self, plan: Plan, shape: Any) -> None:
        self.plan = plan
        self.left = dict(plan.fails)
        # Of a map, None is an element like any other.
        self.nothing = set() if shape.name == "map" else plan.nothing
        self.hangs = shape.awaits and plan.limit is not None
        self.handle = ops.Valve()
        self.stopped = False
        clock = LoopClock(asyncio.get_running_loop())
        policies: list[Any] = []
        if plan.limit is not None:
            policies.append(ops.element_timeout(ops.ElementTimeout(clock, plan.limit)))
        if plan.attempts:
            policy = RetryPolicy(max_attempts=plan.attempts, backoff_ms=300, max_backoff_ms=600)
            policies.append(ops.retry(ops.Backoff(policy, clock)))
        if plan.on_error is not None:
            budget = None
            if plan.budget is not None and plan.on_error is not OnError.FAIL:
                budget = FailureBudget(max_failures=plan.budget, window_ms=1000)
            policies.append(ops.on_error(ops.FailureLedger(plan.on_error, budget, clock)))
        self.flow = from_iterable(range(plan.count)).pipe(
            ops.merge_parents(prefetch=plan.windows[0]),
            ops.valve(self.handle),
            shape.call(self.call),
            *policies,
            ops.broadcast(),
        )
        self.out: list[int] = []
        self.letters: list[int] = []
        self.child = self.flow.pipe(
            ops.merge_parents(prefetch=plan.windows[1]), ops.call(self.take)
        )
        port = self.flow.port("error").pipe(
            ops.merge_parents(prefetch=plan.windows[1]), ops.map(self.letters.append)
        )
        self.circuit = Circuit([self.child, port])

    def call(self, n: int) -> Any:
        if n in self.plan.hangs and self.hangs:
            return asyncio.sleep(3600)
        if self.left.get(n, 0):
            self.left[n] -= 1
            raise LookupError(n)
        return None if n in self.nothing else n

    async def take(self, n: int) -> None:
        await asyncio.sleep(self.plan.pace)
        self.out.append(n)

    def steer(self, what: str) -> None:
        stage = self.circuit.stage_of(self.flow)
        if what == "step":
            self.handle.step(3)
        elif what in ("pause", "resume"):
            getattr(self.handle, what)()
        elif what in ("skip", "unskip"):
            self.handle.skip(what == "skip")
        elif what == "hold":
            self.handle.break_at([lambda n: n % 7 == 3])
        elif what == "drain":
            if not stage.ended:
                stage.drain()
        elif what == "gone":
            self.circuit.stage_of(self.child).end(Outcome.CANCELLED)
        else:
            self.circuit.stop(StopMode.CANCEL)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self.circuit.start()
        for time, what in sorted(self.plan.steps):
            await asyncio.sleep(max(0.0, time - loop.time()))
            self.steer(what)
        await asyncio.sleep(1)
        self.handle.break_at([])
        self.handle.resume()
        await self.circuit.done


def check(plan: Plan, shape: Any) -> None:
    """Run it, and look at the books."""

    async def main() -> Node:
        node = Node(plan, shape)
        await node.run()
        assert len(node.circuit.tasks) == 0
        return node

    node = run_virtual(main())

    stage = node.circuit.stage_of(node.flow)
    [edge] = [edge for edge in node.circuit.edges if edge.dst is stage]
    counted = stage.emitted + stage.filtered + stage.failed + stage.discarded
    # Without a policy nothing counts the element that failed the node.
    culprit = int(not stage.plan.guarded and stage.culprit in plan.fails and counted < edge.passed)
    assert edge.passed == counted + culprit
    assert edge.waiting == 0
    assert min(stage.filtered, stage.discarded, stage.failed, stage.emitted) >= 0
    assert stage.skipped <= stage.received <= edge.passed
    assert stage.dead_lettered <= stage.failed
    if plan.on_error is not OnError.ROUTE:
        assert stage.dead_lettered == 0
    assert node.out == sorted(set(node.out))
    assert node.letters == sorted(set(node.letters))
    assert not set(node.out) & set(node.letters)
    assert len(node.out) <= stage.emitted
    if not plan.steps and plan.on_error in (OnError.CONTINUE, OnError.ROUTE):
        steady = plan.budget is None
        if steady:
            assert stage.discarded == 0
            assert stage.received == plan.count
            if plan.on_error is OnError.ROUTE:
                assert len(node.letters) == stage.dead_lettered == stage.failed


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(plan=plans)
def test_every_element_is_accounted_for_once(plan: Plan, shape: Any) -> None:
    check(plan, shape)


@pytest.mark.parametrize("on_error", [None, *OnError])
@pytest.mark.parametrize("window", [1, 2, 4, 64])
def test_a_cancellation_in_the_middle_of_steady_work(
    shape: Any, on_error: OnError | None, window: int
) -> None:
    for step in (0.0, 0.05, 0.1, 0.25):
        for fails in ({}, {1: 1, 4: 1, 5: 1}):
            plan = Plan(
                count=40,
                fails=fails if on_error is not None else {},
                nothing={3},
                attempts=0,
                on_error=on_error,
                budget=None,
                limit=None,
                hangs=set(),
                windows=(8, window),
                pace=0.1,
                steps=[(step, "cancel")],
            )
            check(plan, shape)
