"""Reactive Streams 1.0.4, rule by rule, over every operator and every subscriber of ours."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.leaves import Iteration
from yukta_rx.testing.subscriber import TestSubscriber
from yukta_rx.testing.tck import RULES, check, check_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.streams.protocol import FlowSubscriber
    from yukta_rx.testing.tck import Subject

pytestmark = pytest.mark.feature("ENG-01")

SUBSCRIBERS: dict[str, Callable[[], FlowSubscriber[int]]] = {
    "aiter": lambda: Iteration(8),
    "aiter of one": lambda: Iteration(1),
    "test subscriber": lambda: TestSubscriber(2, refill=1),
}
NOT_OPERATORS = {
    "AllSuccess",
    "AtLeast",
    "BackPressureKind",
    "Backoff",
    "Deadline",
    "ElementTimeout",
    "FailureLedger",
    "IdleClock",
    "Operator",
    "Valve",
}


@pytest.fixture(params=SUBSCRIBERS)
def subscriber(request: pytest.FixtureRequest) -> Callable[[], FlowSubscriber[int]]:
    return SUBSCRIBERS[request.param]


# -- the suite is whole


def test_every_operator_has_an_example(subjects: dict[str, Subject]) -> None:
    shown = {name.partition(":")[0] for name in subjects}

    assert set(ops.__all__) - NOT_OPERATORS - shown == set()


def test_every_rule_of_the_specification_is_listed() -> None:
    counts = {1: 11, 2: 13, 3: 17, 4: 2}

    assert list(RULES) == [f"{part}.{n}" for part in counts for n in range(1, counts[part] + 1)]


@pytest.mark.parametrize("number", RULES)
def test_every_rule_has_one_check_or_a_reason_and_a_test(number: str) -> None:
    rule = RULES[number]
    part, n = number.split(".")
    ways = [rule.check is not None, rule.subscriber_check is not None, bool(rule.untested)]

    assert sum(ways) == 1
    assert any(
        name.startswith(f"test_spec_{part}_{int(n):02}_") for name in vars(sys.modules[__name__])
    )


# -- the rules


def test_spec_1_01_total_on_next_never_exceeds_demand(subject: Subject) -> None:
    check("1.1", subject)


def test_spec_1_02_fewer_than_demanded_then_the_end(subject: Subject) -> None:
    check("1.2", subject)


def test_spec_1_03_signals_are_serial(subject: Subject) -> None:
    check("1.3", subject)


def test_spec_1_04_a_failure_is_told_by_on_error(subject: Subject) -> None:
    check("1.4", subject)


def test_spec_1_05_a_finite_flow_completes(subject: Subject) -> None:
    check("1.5", subject)


def test_spec_1_06_the_end_counts_as_cancelled(subject: Subject) -> None:
    check("1.6", subject)


def test_spec_1_07_nothing_follows_a_terminal_signal(subject: Subject) -> None:
    check("1.7", subject)


def test_spec_1_08_signals_stop_after_cancel(subject: Subject) -> None:
    check("1.8", subject)


def test_spec_1_09_on_subscribe_comes_first_and_subscribe_emits_nothing(subject: Subject) -> None:
    check("1.9", subject)


@pytest.mark.skip(reason=RULES["1.10"].untested)
def test_spec_1_10_one_subscriber_subscribes_once() -> None:
    pytest.fail("rule 1.10 has no test")


def test_spec_1_11_several_subscribers_each_get_everything(subject: Subject) -> None:
    check("1.11", subject)


def test_spec_2_01_demand_is_signalled_by_request(
    subscriber: Callable[[], FlowSubscriber[int]],
) -> None:
    check_subscriber("2.1", subscriber)


@pytest.mark.skip(reason=RULES["2.2"].untested)
def test_spec_2_02_slow_work_is_taken_elsewhere() -> None:
    pytest.fail("rule 2.2 has no test")


def test_spec_2_03_terminal_signals_call_nothing_back(
    subscriber: Callable[[], FlowSubscriber[int]],
) -> None:
    check_subscriber("2.3", subscriber)


def test_spec_2_04_nothing_is_requested_after_the_end(
    subscriber: Callable[[], FlowSubscriber[int]],
) -> None:
    check_subscriber("2.4", subscriber)


def test_spec_2_05_a_second_subscription_is_cancelled(
    subscriber: Callable[[], FlowSubscriber[int]],
) -> None:
    check_subscriber("2.5", subscriber)


@pytest.mark.skip(reason=RULES["2.6"].untested)
def test_spec_2_06_what_is_not_needed_is_cancelled() -> None:
    pytest.fail("rule 2.6 has no test")


@pytest.mark.skip(reason=RULES["2.7"].untested)
def test_spec_2_07_the_subscription_is_called_serially() -> None:
    pytest.fail("rule 2.7 has no test")


def test_spec_2_08_elements_after_cancel_are_taken(
    subscriber: Callable[[], FlowSubscriber[int]],
) -> None:
    check_subscriber("2.8", subscriber)


def test_spec_2_09_completion_may_come_first(
    subscriber: Callable[[], FlowSubscriber[int]],
) -> None:
    check_subscriber("2.9", subscriber)


def test_spec_2_10_an_error_may_come_first(
    subscriber: Callable[[], FlowSubscriber[int]],
) -> None:
    check_subscriber("2.10", subscriber)


@pytest.mark.skip(reason=RULES["2.11"].untested)
def test_spec_2_11_signals_happen_before_their_processing() -> None:
    pytest.fail("rule 2.11 has no test")


@pytest.mark.skip(reason=RULES["2.12"].untested)
def test_spec_2_12_on_subscribe_comes_once() -> None:
    pytest.fail("rule 2.12 has no test")


def test_spec_2_13_a_subscriber_that_raises_counts_as_cancelled(subject: Subject) -> None:
    check("2.13", subject)


@pytest.mark.skip(reason=RULES["3.1"].untested)
def test_spec_3_01_only_the_subscriber_calls_its_subscription() -> None:
    pytest.fail("rule 3.1 has no test")


def test_spec_3_02_request_may_be_called_inside_signals(subject: Subject) -> None:
    check("3.2", subject)


def test_spec_3_03_request_and_on_next_do_not_recurse(subject: Subject) -> None:
    check("3.3", subject)


def test_spec_3_04_request_emits_nothing_itself(subject: Subject) -> None:
    check("3.4", subject)


def test_spec_3_05_cancel_signals_nothing_itself(subject: Subject) -> None:
    check("3.5", subject)


def test_spec_3_06_request_after_cancel_does_nothing(subject: Subject) -> None:
    check("3.6", subject)


def test_spec_3_07_cancel_after_cancel_does_nothing(subject: Subject) -> None:
    check("3.7", subject)


def test_spec_3_08_requests_add_up(subject: Subject) -> None:
    check("3.8", subject)


def test_spec_3_09_a_request_below_1_ends_with_on_error(subject: Subject) -> None:
    check("3.9", subject)


@pytest.mark.skip(reason=RULES["3.10"].untested)
def test_spec_3_10_request_may_call_on_next() -> None:
    pytest.fail("rule 3.10 has no test")


@pytest.mark.skip(reason=RULES["3.11"].untested)
def test_spec_3_11_request_may_call_terminal_signals() -> None:
    pytest.fail("rule 3.11 has no test")


def test_spec_3_12_cancel_stops_an_endless_publisher(subject: Subject) -> None:
    check("3.12", subject)


def test_spec_3_13_cancel_drops_the_subscriber(subject: Subject) -> None:
    check("3.13", subject)


@pytest.mark.skip(reason=RULES["3.14"].untested)
def test_spec_3_14_cancel_may_shut_the_publisher_down() -> None:
    pytest.fail("rule 3.14 has no test")


def test_spec_3_15_cancel_returns_normally(subject: Subject) -> None:
    check("3.15", subject)


def test_spec_3_16_request_returns_normally(subject: Subject) -> None:
    check("3.16", subject)


def test_spec_3_17_demand_beyond_63_bits_is_unbounded(subject: Subject) -> None:
    check("3.17", subject)


@pytest.mark.skip(reason=RULES["4.1"].untested)
def test_spec_4_01_a_processor_obeys_both_sides() -> None:
    pytest.fail("rule 4.1 has no test")


def test_spec_4_02_an_error_passes_through_a_processor_at_once(subject: Subject) -> None:
    check("4.2", subject)
