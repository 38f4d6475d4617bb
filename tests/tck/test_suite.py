"""The rule suite itself: it accepts what is right and catches every kind of wrong publisher."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.streams.protocol import FlowSubscriber, FlowSubscription
from yukta_rx.testing.right_publisher import RightPublisher
from yukta_rx.testing.tck import (
    RULES,
    Subject,
    check,
    check_subscriber,
    verify,
    verify_subscriber,
    violations,
)
from yukta_rx.testing.wrong_publishers import WRONG_PUBLISHERS

pytestmark = pytest.mark.feature("ENG-01")


def subject_of(publisher: type[RightPublisher]) -> Subject:
    return Subject(make=publisher, failing=publisher, endless=publisher)


def test_a_right_publisher_passes_every_check() -> None:
    assert violations(subject_of(RightPublisher)) == {}


@pytest.mark.parametrize("publisher", WRONG_PUBLISHERS, ids=lambda cls: cls.__name__)
def test_suite_catches(publisher: type[RightPublisher]) -> None:
    for rule in publisher.breaks:
        with pytest.raises(AssertionError, match=rf"^rule {rule}: "):
            check(rule, subject_of(publisher))


def test_every_check_of_a_publisher_is_shown_to_fail() -> None:
    broken = {rule for publisher in WRONG_PUBLISHERS for rule in publisher.breaks}

    assert {number for number, rule in RULES.items() if rule.check is not None} == broken


def test_verify_lists_every_broken_rule() -> None:
    class Hasty(RightPublisher):
        def subscribe(self, on_next: Any, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no")

    with pytest.raises(AssertionError) as caught:
        verify(Hasty)

    assert "rule 1.9: subscribe raised RuntimeError('no')" in str(caught.value)


def test_verify_is_silent_about_a_right_publisher() -> None:
    assert verify(RightPublisher, failing=RightPublisher, endless=RightPublisher) is None


def test_a_check_that_needs_another_factory_says_so() -> None:
    with pytest.raises(LookupError, match=r"1\.4"):
        check("1.4", Subject(RightPublisher))
    with pytest.raises(LookupError, match=r"2\.1"):
        check("2.1", Subject(RightPublisher))
    with pytest.raises(LookupError, match=r"1\.1"):
        check_subscriber("1.1", Quiet)


# -- wrong subscribers


class Quiet(FlowSubscriber[Any]):
    """A right subscriber."""

    def __init__(self) -> None:
        self.subscription: FlowSubscription | None = None

    def on_subscribe(self, subscription: FlowSubscription) -> None:
        if self.subscription is not None:
            subscription.dispose()
            return
        self.subscription = subscription
        subscription.request(5)

    def on_next(self, value: Any) -> None:
        pass

    def on_error(self, error: Exception) -> None:
        pass

    def on_completed(self) -> None:
        pass


class NeverAsks(Quiet):
    def on_subscribe(self, subscription: FlowSubscription) -> None:
        pass


class AsksForNothing(Quiet):
    def on_subscribe(self, subscription: FlowSubscription) -> None:
        subscription.request(0)


class CallsBackAtTheEnd(Quiet):
    def on_completed(self) -> None:
        assert self.subscription is not None
        self.subscription.dispose()


class AsksAfterTheEnd(Quiet):
    def on_completed(self) -> None:
        assert self.subscription is not None
        self.subscription.request(1)


class TakesTheSecond(Quiet):
    def on_subscribe(self, subscription: FlowSubscription) -> None:
        self.subscription = subscription
        subscription.request(5)


class RefusesLateElements(Quiet):
    def on_next(self, value: Any) -> None:
        raise RuntimeError("not now")


class ExpectsElements(Quiet):
    def on_completed(self) -> None:
        raise RuntimeError("so soon?")

    def on_error(self, error: Exception) -> None:
        raise error


def wrong_subscribers() -> list[Any]:
    broken = {
        NeverAsks: ["2.1", "2.4"],
        AsksForNothing: ["2.1"],
        CallsBackAtTheEnd: ["2.3"],
        AsksAfterTheEnd: ["2.3"],
        TakesTheSecond: ["2.5"],
        RefusesLateElements: ["2.8"],
        ExpectsElements: ["2.9", "2.10"],
    }
    return [
        pytest.param(subscriber, rule, id=f"{subscriber.__name__}-{rule}")
        for subscriber, rules in broken.items()
        for rule in rules
    ]


def test_a_right_subscriber_passes_every_check() -> None:
    assert verify_subscriber(Quiet) is None


@pytest.mark.parametrize(("subscriber", "rule"), wrong_subscribers())
def test_suite_catches_subscriber(subscriber: type[Quiet], rule: str) -> None:
    with pytest.raises(AssertionError, match=rf"^rule {rule}: "):
        check_subscriber(rule, subscriber)
    with pytest.raises(AssertionError, match=rf"rule {rule}: "):
        verify_subscriber(subscriber)
