"""The rules of Reactive Streams 1.0.4 as checks that any Flow or subscriber can be put through.

`verify(make)` runs every check of a publisher over a factory of yours, `verify_subscriber(make)`
those of a subscriber. Each check runs in an event loop of its own in virtual time, so call them
from plain test functions. `RULES` lists every rule of the specification, in our words, with its
check or with the reason why none can be written.

Feature: ENG-01.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.testing import tck_checks as checks
from yukta_rx.testing.clock import run_virtual
from yukta_rx.testing.tck_checks import SubscriberFactory
from yukta_rx.testing.tck_probe import MOST, RuleViolation, Subject

if TYPE_CHECKING:
    from yukta_rx.streams.flow import Flow

__all__ = [
    "MOST",
    "RULES",
    "Rule",
    "RuleViolation",
    "Subject",
    "check",
    "check_subscriber",
    "verify",
    "verify_subscriber",
    "violations",
]

FlowCheck = Callable[[Subject], Awaitable[None]]
SubscriberCheck = Callable[[SubscriberFactory], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the specification.

    Attributes:
        number: its number there.
        sentence: what it says, in our words.
        check: what a publisher is put through.
        subscriber_check: what a subscriber is put through.
        untested: why there is no check.
        needs: the factory beside `make` that the check needs: `failing`, `endless` or none.
    """

    number: str
    sentence: str
    check: FlowCheck | None = None
    subscriber_check: SubscriberCheck | None = None
    untested: str = ""
    needs: str = "make"

    def applies_to(self, subject: Subject) -> bool:
        """Whether the subject has the factory that the check needs."""
        return getattr(subject, self.needs) is not None


_RULES: Final = (
    Rule(
        "1.1",
        "A publisher sends no more elements than were asked for altogether.",
        check=checks.rule_1_01,
    ),
    Rule(
        "1.2",
        "It may send fewer than were asked for, and then ends the subscription.",
        check=checks.rule_1_02,
    ),
    Rule(
        "1.3",
        "Signals to one subscriber come one after the other.",
        check=checks.rule_1_03,
    ),
    Rule(
        "1.4",
        "A publisher that fails says so with on_error.",
        check=checks.rule_1_04,
        needs="failing",
    ),
    Rule(
        "1.5",
        "A publisher that has sent everything says so with on_completed.",
        check=checks.rule_1_05,
    ),
    Rule(
        "1.6",
        "With its terminal signal the subscription counts as cancelled.",
        check=checks.rule_1_06,
    ),
    Rule(
        "1.7",
        "After a terminal signal there are no more signals.",
        check=checks.rule_1_07,
    ),
    Rule(
        "1.8",
        "After a cancellation the signals come to an end.",
        check=checks.rule_1_08,
    ),
    Rule(
        "1.9",
        "subscribe gives on_subscribe, once and first, returns normally, and here emits nothing.",
        check=checks.rule_1_09,
    ),
    Rule(
        "1.10",
        "One subscriber subscribes to a publisher at most once.",
        untested="a duty of the one who calls subscribe; a publisher need not notice",
    ),
    Rule(
        "1.11",
        "A publisher may serve several subscribers; here each gets everything.",
        check=checks.rule_1_11,
    ),
    Rule(
        "2.1",
        "A subscriber asks for elements with request.",
        subscriber_check=checks.rule_2_01,
    ),
    Rule(
        "2.2",
        "A subscriber whose work could hold up its publisher takes it elsewhere.",
        untested="advice: what is too slow depends on the program",
    ),
    Rule(
        "2.3",
        "on_completed and on_error call nothing of subscription or publisher.",
        subscriber_check=checks.rule_2_03,
    ),
    Rule(
        "2.4",
        "After a terminal signal a subscriber takes its subscription for cancelled.",
        subscriber_check=checks.rule_2_04,
    ),
    Rule(
        "2.5",
        "A subscriber that has a subscription cancels a second one.",
        subscriber_check=checks.rule_2_05,
    ),
    Rule(
        "2.6",
        "A subscriber cancels a subscription that it no longer needs.",
        untested="only the subscriber knows what it needs; an iteration's `aclose` is tested",
    ),
    Rule(
        "2.7",
        "A subscriber calls its subscription from one place at a time.",
        untested="cannot be seen from outside; in debug mode a wake from another thread raises",
    ),
    Rule(
        "2.8",
        "A subscriber is ready for elements that come after it cancelled.",
        subscriber_check=checks.rule_2_08,
    ),
    Rule(
        "2.9",
        "A subscriber is ready for on_completed without any request before it.",
        subscriber_check=checks.rule_2_09,
    ),
    Rule(
        "2.10",
        "A subscriber is ready for on_error without any request before it.",
        subscriber_check=checks.rule_2_10,
    ),
    Rule(
        "2.11",
        "Each signal happens before the subscriber works it off.",
        untested="a matter of memory visibility; all signals are on one thread here",
    ),
    Rule(
        "2.12",
        "on_subscribe is called at most once on a subscriber.",
        untested="a duty of publishers, seen by the check of rule 1.9",
    ),
    Rule(
        "2.13",
        "Signals return normally; a subscriber that raises counts as cancelled.",
        check=checks.rule_2_13,
    ),
    Rule(
        "3.1",
        "request and cancel are called by the subscriber's own code.",
        untested="cannot be seen from outside who calls",
    ),
    Rule(
        "3.2",
        "request may be called from inside on_subscribe and on_next.",
        check=checks.rule_3_02,
    ),
    Rule(
        "3.3",
        "request and on_next do not recurse without bound; here request never emits.",
        check=checks.rule_3_03,
    ),
    Rule(
        "3.4",
        "request returns soon; here it never emits.",
        check=checks.rule_3_04,
    ),
    Rule(
        "3.5",
        "cancel returns soon; here it never signals.",
        check=checks.rule_3_05,
    ),
    Rule(
        "3.6",
        "After a cancellation request does nothing.",
        check=checks.rule_3_06,
    ),
    Rule(
        "3.7",
        "After a cancellation cancel does nothing.",
        check=checks.rule_3_07,
    ),
    Rule(
        "3.8",
        "Requests add up.",
        check=checks.rule_3_08,
    ),
    Rule(
        "3.9",
        "A request below 1 ends the subscription with on_error.",
        check=checks.rule_3_09,
    ),
    Rule(
        "3.10",
        "request may call on_next.",
        untested="a permission, which is not used here: see rule 3.4",
    ),
    Rule(
        "3.11",
        "request may call on_completed or on_error.",
        untested="a permission, which is not used here: see rule 3.9",
    ),
    Rule(
        "3.12",
        "cancel makes the publisher stop in the end.",
        check=checks.rule_3_12,
        needs="endless",
    ),
    Rule(
        "3.13",
        "cancel makes the publisher forget the subscriber in the end.",
        check=checks.rule_3_13,
    ),
    Rule(
        "3.14",
        "cancel may make a publisher shut down when nobody is left.",
        untested="a permission; that sources are cancelled is tested in tests/operators",
    ),
    Rule(
        "3.15",
        "cancel returns normally.",
        check=checks.rule_3_15,
    ),
    Rule(
        "3.16",
        "request returns normally.",
        check=checks.rule_3_16,
    ),
    Rule(
        "3.17",
        "A demand of 2**63 - 1 is met, and a larger one counts as unbounded.",
        check=checks.rule_3_17,
    ),
    Rule(
        "4.1",
        "A processor obeys the rules of publishers and of subscribers.",
        untested="is the sum of the other rules, which run over every operator",
    ),
    Rule(
        "4.2",
        "A processor that does not recover from an error passes it on at once.",
        check=checks.rule_4_02,
        needs="failing",
    ),
)

RULES: Final[Mapping[str, Rule]] = {rule.number: rule for rule in _RULES}
"""Every rule of the specification, by its number."""


def violations(subject: Subject | Callable[[int], Flow[Any]]) -> dict[str, str]:
    """Put a publisher through every check; the faults found, by rule number."""
    whole = subject if isinstance(subject, Subject) else Subject(subject)
    found = {}
    for number, rule in RULES.items():
        if rule.check is not None and rule.applies_to(whole):
            try:
                check(number, whole)
            except AssertionError as error:
                found[number] = str(error)
    return found


def check(number: str, subject: Subject) -> None:
    """Put a publisher through the check of one rule, in virtual time.

    Raises:
        RuleViolation: the rule is broken.
        LookupError: the rule has no check for publishers, or the subject lacks the factory for it.
    """
    rule = RULES[number]
    if rule.check is None or not rule.applies_to(subject):
        raise LookupError(f"rule {number} has no check for this subject")
    _run(number, rule.check(subject))


def check_subscriber(number: str, make: SubscriberFactory) -> None:
    """Put a subscriber through the check of one rule, in virtual time.

    Raises:
        RuleViolation: the rule is broken.
        LookupError: the rule has no check for subscribers.
    """
    rule = RULES[number]
    if rule.subscriber_check is None:
        raise LookupError(f"rule {number} has no check for subscribers")
    _run(number, rule.subscriber_check(make))


def _run(number: str, work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    try:
        run_virtual(main())
    except RuleViolation:
        raise
    except Exception as error:
        raise RuleViolation(number, f"what is under test raised {error!r}") from error


def verify(
    make: Callable[[int], Flow[Any]],
    *,
    failing: Callable[[int, Exception], Flow[Any]] | None = None,
    endless: Callable[[], Flow[Any]] | None = None,
) -> None:
    """Put a publisher through the check of every rule that its factories allow.

    Args:
        make: gives a Flow of exactly so many elements, at most `MOST`, which then completes.
        failing: gives a Flow of so many elements that then fails with the error.
        endless: gives a Flow without end.

    Raises:
        AssertionError: lists every rule that is broken.
    """
    found = violations(Subject(make, failing, endless))
    if found:
        raise AssertionError("\n".join(found.values()))


def verify_subscriber(make: SubscriberFactory) -> None:
    """Put a subscriber through the check of every rule for subscribers.

    Raises:
        AssertionError: lists every rule that is broken.
    """
    found = []
    for number, rule in RULES.items():
        if rule.subscriber_check is not None:
            try:
                check_subscriber(number, make)
            except AssertionError as error:
                found.append(str(error))
    if found:
        raise AssertionError("\n".join(found))
