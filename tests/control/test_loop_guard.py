"""The rate and the guard against loops, against models of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.control.commands import PauseNode, PauseWorkflow, RetryNode, StepWorkflow
from yukta_rx.control.loop_guard import MAX_TARGETS, LoopGuard, TokenBucket

pytestmark = pytest.mark.feature("CTL-07")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 50), st.lists(st.floats(0, 3), max_size=60))
def test_never_more_than_a_burst_and_the_rate_pass(rate, waits) -> None:
    time = Time()
    bucket = TokenBucket(rate, time)
    taken = 0
    for wait in waits:
        time.now += wait
        while bucket.take():
            taken += 1
        assert taken <= rate + rate * time.now + 1e-3
        assert 0 < bucket.wait() <= 1 / rate + 1e-9


@given(st.integers(1, 1000))
def test_after_the_wait_there_is_a_token(rate) -> None:
    time = Time()
    bucket = TokenBucket(rate, time)
    while bucket.take():
        pass
    for _ in range(100):
        time.now += bucket.wait()
        assert bucket.take()
        assert not bucket.take()


def test_a_lower_rate_counts_at_once() -> None:
    bucket = TokenBucket(20, Time())
    bucket.rate = 2

    assert [bucket.take() for _ in range(3)] == [True, True, False]
    assert bucket.rate == 2


@given(st.integers(1, 4), st.lists(st.floats(0.01, 5), max_size=40))
def test_the_guard_agrees_with_counting_back_over_the_window(limit, waits) -> None:
    time = Time()
    guard = LoopGuard(limit, 10, time)
    times: list[float] = []
    for wait in waits:
        time.now += wait
        times.append(time.now)
        recent = [one for one in times if one > time.now - 10]
        assert guard.passes(PauseWorkflow(execution_id="r")) is (len(recent) <= limit)


def test_other_commands_and_other_targets_count_apart() -> None:
    guard = LoopGuard(1, 10, Time())

    assert guard.passes(PauseWorkflow(execution_id="a"))
    assert guard.passes(PauseWorkflow(execution_id="b"))
    assert guard.passes(PauseNode(execution_id="a", node_id="x"))
    assert guard.passes(PauseNode(execution_id="a", node_id="y"))
    assert guard.passes(StepWorkflow(execution_id="a", n=1))
    assert not guard.passes(StepWorkflow(execution_id="a", n=2))


def test_it_can_be_off_and_forgets_when_it_is_told_to() -> None:
    off, guard = LoopGuard(0, 10, Time()), LoopGuard(1, 10, Time())
    command = PauseWorkflow(execution_id="a")

    assert all(off.passes(command) for _ in range(100))
    assert [guard.passes(command), guard.passes(command)] == [True, False]
    guard.clear()
    assert guard.passes(command)


def test_it_remembers_a_bounded_number_of_targets() -> None:
    guard = LoopGuard(1, 10, Time())
    for n in range(MAX_TARGETS + 1):
        assert guard.passes(PauseWorkflow(execution_id=f"r{n}"))

    assert guard.passes(PauseWorkflow(execution_id="r0"))
    assert not guard.passes(PauseWorkflow(execution_id=f"r{MAX_TARGETS}"))


def test_nodes_of_runs_that_ended_are_different_targets_too() -> None:
    guard = LoopGuard(1, 10, Time())

    assert guard.passes(RetryNode("r", "a"))
    assert guard.passes(RetryNode("r", "b"))
    assert not guard.passes(RetryNode("r", "a"))
