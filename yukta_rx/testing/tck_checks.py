"""One check for each rule of Reactive Streams 1.0.4 that can be seen from outside.

They are run by `yukta_rx.testing.tck`, each in an event loop of its own in virtual time.

Feature: ENG-01.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from yukta_rx.streams.protocol import UNBOUNDED, FlowSubscriber
from yukta_rx.testing.right_publisher import RightPublisher, RightSubscription
from yukta_rx.testing.tck_probe import (
    MOST,
    Probe,
    RuleViolation,
    Subject,
    expect,
    quiet,
    subscribed,
)

# -- 1: publisher


async def rule_1_01(subject: Subject) -> None:
    """Demand in portions: never more than that came."""
    async with subscribed("1.1", subject.make(10)) as probe:
        asked = 0
        for portion in (1, 2, 1, 3):
            await quiet()
            got = len(probe.values)
            expect("1.1", got <= asked, f"{got} elements for a demand of {asked}")
            asked += portion
            probe.request(portion)
            await probe.got(asked)
        await quiet()
        got = len(probe.values)
        expect("1.1", got == asked, f"{got} elements for a demand of {asked} of 10 there are")


async def rule_1_02(subject: Subject) -> None:
    """More is asked for than there is: all of it comes, and the end."""
    async with subscribed("1.2", subject.make(7), demand=MOST) as probe:
        expect("1.2", await probe.ended(), "no terminal signal though all was asked for")
        got = len(probe.values)
        expect("1.2", got == 7, f"{got} elements before the end, of 7")


async def rule_1_03(subject: Subject) -> None:
    """Requests from inside `on_next` and from outside: signals never overlap."""
    async with subscribed("1.3", subject.make(20), demand=2) as probe:
        probe.at_next = lambda _: probe.request(1)
        await probe.ended()
        expect("1.3", not probe.overlaps, f"{probe.overlaps} signals overlapped or left the loop")


async def rule_1_04(subject: Subject) -> None:
    """A failure is told by `on_error`."""
    assert subject.failing is not None
    error = RuntimeError("as asked")
    async with subscribed("1.4", subject.failing(3, error), demand=MOST) as probe:
        expect("1.4", await probe.ended(), "no terminal signal after a failure")
        expect("1.4", probe.terminals[0] is not None, "on_completed after a failure")


async def rule_1_05(subject: Subject) -> None:
    """A finite Flow completes, also when exactly what there is was asked for."""
    for count, demand in ((0, 0), (5, 5), (5, MOST)):
        async with subscribed("1.5", subject.make(count), demand=demand) as probe:
            expect("1.5", await probe.ended(), f"no on_completed: {count} of {demand} asked for")
            expect("1.5", probe.terminals[0] is None, f"ended with {probe.terminals[0]!r}")


async def rule_1_06(subject: Subject) -> None:
    """After the terminal signal the subscription counts as cancelled: it does nothing."""
    async with subscribed("1.6", subject.make(3), demand=MOST) as probe:
        await probe.ended()
        before = len(probe.values), len(probe.terminals)
        probe.request(5)
        await quiet()
        probe.cancel()
        await quiet()
        after = len(probe.values), len(probe.terminals)
        expect("1.6", before == after, "a request after the end was answered")


async def rule_1_07(subject: Subject) -> None:
    """Nothing follows a terminal signal."""
    flows = [subject.make(3)]
    if subject.failing is not None:
        flows.append(subject.failing(3, RuntimeError("as asked")))
    for flow in flows:
        async with subscribed("1.7", flow, demand=MOST) as probe:
            await probe.ended()
            got = len(probe.values)
            await quiet()
            expect("1.7", len(probe.terminals) <= 1, f"{len(probe.terminals)} terminal signals")
            expect("1.7", len(probe.values) == got, "an element after the terminal signal")


async def rule_1_08(subject: Subject) -> None:
    """After a cancellation signals stop, whatever the demand was."""
    async with subscribed("1.8", subject.make(MOST), demand=MOST) as probe:
        probe.at_next = lambda _: probe.cancel() if len(probe.values) == 3 else None
        await probe.got(3)
        await quiet()
        expect("1.8", len(probe.values) < MOST, "everything came in spite of the cancellation")
        expect("1.8", not probe.terminals, "a terminal signal after a cancellation")


async def rule_1_09(subject: Subject) -> None:
    """`on_subscribe` once and first, with a subscription; `subscribe` emits and raises nothing."""
    probe = Probe()
    probe.at_subscribe = lambda: probe.subscription.request(3)
    try:
        probe.subscribe_to(subject.make(5))
    except Exception as error:
        raise RuleViolation("1.9", f"subscribe raised {error!r}") from error
    expect("1.9", probe.subscriptions, "there was no on_subscribe")
    expect("1.9", probe.subscriptions[0] is not None, "on_subscribe came without a subscription")
    expect("1.9", probe.first == "on_subscribe", f"{probe.first} came before on_subscribe")
    expect("1.9", not probe.nested, "subscribe itself emitted")
    await probe.got(3)
    expect("1.9", len(probe.subscriptions) == 1, "on_subscribe came more than once")
    probe.cancel()
    await quiet()


async def rule_1_11(subject: Subject) -> None:
    """Two subscribers, one slower: each gets everything."""
    flow = subject.make(6)
    async with subscribed("1.11", flow, demand=MOST) as fast, subscribed("1.11", flow) as slow:
        await fast.ended()
        for asked in range(1, 7):
            slow.request(1)
            await slow.got(asked)
        await slow.ended()
        got = len(fast.values), len(slow.values)
        expect("1.11", got == (6, 6), f"two subscribers got {got[0]} and {got[1]} of 6 elements")


# -- 2: what a publisher owes a subscriber that breaks the rules of subscribers


async def rule_2_13(subject: Subject) -> None:
    """`on_next` raises: its subscription counts as cancelled."""
    async with subscribed("2.13", subject.make(10), demand=MOST) as probe:

        def refuse(_value: Any) -> None:
            raise LookupError("the subscriber has a defect")

        probe.at_next = refuse
        await probe.got(1)
        await quiet()
        expect("2.13", len(probe.values) == 1, "elements came after on_next had raised")
        expect("2.13", not probe.terminals, "a terminal signal came after on_next had raised")


# -- 3: subscription


async def rule_3_02(subject: Subject) -> None:
    """`request` works from inside `on_subscribe` and `on_next`."""
    async with subscribed("3.2", subject.make(10), demand=1) as probe:
        probe.at_next = lambda _: probe.request(1)
        await probe.ended()
        got = len(probe.values)
        expect("3.2", got == 10, f"{got} of 10 elements when each was asked for inside on_next")


async def rule_3_03(subject: Subject) -> None:
    """`request` inside `on_next` does not call `on_next`: the stack does not grow."""
    async with subscribed("3.3", subject.make(MOST)) as probe:
        probe.at_next = lambda _: probe.request(1)
        probe.request(1)
        await probe.ended()
        nested = [signal for method, signal in probe.nested if method == "request"]
        expect("3.3", not nested, f"{len(nested)} signals from inside request inside on_next")


async def rule_3_04(subject: Subject) -> None:
    """`request` from outside returns before anything is signalled."""
    async with subscribed("3.4", subject.make(MOST)) as probe:
        for _ in range(5):
            probe.request(3)
            await quiet()
        expect("3.4", not probe.nested, "request emitted by itself, so it takes as long as on_next")


async def rule_3_05(subject: Subject) -> None:
    """`dispose` returns before anything is signalled."""
    for requested in (0, 3, MOST):
        async with subscribed("3.5", subject.make(MOST), demand=requested) as probe:
            await probe.got(min(requested, 1))
            probe.cancel()
            expect("3.5", not probe.nested, "dispose signalled by itself")


async def rule_3_06(subject: Subject) -> None:
    """`request` after `dispose` does nothing."""
    async with subscribed("3.6", subject.make(MOST)) as probe:
        probe.request(2)
        await probe.got(2)
        probe.cancel()
        await quiet()
        got = len(probe.values)
        probe.request(10)
        probe.request(0)
        await quiet()
        expect("3.6", len(probe.values) == got, "a request after dispose brought elements")
        expect("3.6", not probe.terminals, "a request after dispose brought a terminal signal")


async def rule_3_07(subject: Subject) -> None:
    """`dispose` again does nothing, before and after an end."""
    async with subscribed("3.7", subject.make(MOST), demand=2) as probe:
        await probe.got(2)
        probe.cancel()
        try:
            probe.cancel()
            probe.cancel()
        except Exception as error:
            raise RuleViolation("3.7", f"the second dispose raised {error!r}") from error
        await quiet()
        expect("3.7", not probe.terminals, "a terminal signal after dispose")


async def rule_3_08(subject: Subject) -> None:
    """Requests add up."""
    async with subscribed("3.8", subject.make(20)) as probe:
        probe.request(1)
        probe.request(2)
        probe.request(3)
        await probe.got(6)
        probe.request(4)
        probe.request(1)
        await probe.got(11)
        await quiet()
        got = len(probe.values)
        expect("3.8", got == 11, f"{got} elements for requests of 1, 2, 3, 4 and 1")


async def rule_3_09(subject: Subject) -> None:
    """A request below 1 ends the subscription with a ValueError, not inside the call."""
    for n in (0, -1, -(2**40)):
        async with subscribed("3.9", subject.make(MOST), demand=1) as probe:
            await probe.got(1)
            try:
                probe.request(n)
            except Exception as error:
                raise RuleViolation("3.9", f"request({n}) raised {error!r}") from error
            expect("3.9", not probe.nested, f"request({n}) signalled by itself")
            expect("3.9", await probe.ended(), f"request({n}) was ignored")
            error_ = probe.terminals[0]
            expect("3.9", isinstance(error_, ValueError), f"request({n}) ended with {error_!r}")


async def rule_3_12(subject: Subject) -> None:
    """`dispose` from outside makes an endless publisher stop."""
    assert subject.endless is not None
    async with subscribed("3.12", subject.endless(), demand=UNBOUNDED) as probe:
        await probe.got(3)
        probe.cancel()
        await quiet()
        got = len(probe.values)
        await quiet()
        expect("3.12", len(probe.values) == got, "elements still come after dispose")


async def rule_3_13(subject: Subject) -> None:
    """`dispose` makes the publisher forget the subscriber."""
    flow = subject.make(MOST)
    probe = Probe()
    probe.subscribe_to(flow)
    probe.request(2)
    await probe.got(2)
    subscription = probe.subscription
    probe.cancel()
    await quiet()
    seen = weakref.ref(probe)
    del probe
    gc.collect()
    expect("3.13", seen() is None, "the publisher or its subscription still holds the subscriber")
    subscription.dispose()


async def rule_3_15(subject: Subject) -> None:
    """`dispose` returns normally, at any time and from any thread."""
    for requested in (0, 2, MOST):
        async with subscribed("3.15", subject.make(MOST), demand=requested) as probe:
            await probe.got(min(requested, 2))
            try:
                probe.cancel()
            except Exception as error:
                raise RuleViolation("3.15", f"dispose raised {error!r}") from error


async def rule_3_16(subject: Subject) -> None:
    """`request` returns normally, also too late."""
    async with subscribed("3.16", subject.make(2), demand=1) as probe:
        try:
            probe.request(MOST)
            await probe.ended()
            probe.request(1)
            probe.request(0)
        except RuleViolation:
            raise
        except Exception as error:
            raise RuleViolation("3.16", f"request raised {error!r}") from error


async def rule_3_17(subject: Subject) -> None:
    """A demand of 2**63 - 1, and sums beyond it, count as unbounded."""
    async with subscribed("3.17", subject.make(MOST), demand=2**63 - 1) as probe:
        probe.request(2**63 - 1)
        probe.request(1)
        expect("3.17", await probe.ended(), "no end in spite of an unbounded demand")
        got = len(probe.values)
        expect("3.17", got == MOST, f"{got} of {MOST} elements for an unbounded demand")


# -- 4: processor


async def rule_4_02(subject: Subject) -> None:
    """An error that is not recovered from reaches the subscriber without more demand."""
    assert subject.failing is not None
    error = RuntimeError("as asked")
    async with subscribed("4.2", subject.failing(3, error), demand=3) as probe:
        expect("4.2", await probe.ended(), "the error did not come: it waited for demand")
        expect("4.2", probe.terminals[0] is not None, "the error turned into a completion")


# -- 2: subscriber


class _Script(RightSubscription):
    """A subscription that notes what the subscriber does with it."""

    def __init__(self, publisher: RightPublisher, subscriber: FlowSubscriber[Any]) -> None:
        super().__init__(publisher, subscriber)
        self.requests: list[int] = []
        self.disposed = 0

    def request(self, n: int) -> None:
        self.requests.append(n)
        super().request(n)

    def dispose(self) -> None:
        self.disposed += 1
        super().dispose()


SubscriberFactory = Callable[[], FlowSubscriber[Any]]


def _scripted(
    make: SubscriberFactory, size: int | None = None
) -> tuple[FlowSubscriber[Any], _Script]:
    subscriber = make()
    script = _Script(RightPublisher(size), subscriber)
    subscriber.on_subscribe(script)
    return subscriber, script


async def rule_2_01(make: SubscriberFactory) -> None:
    """Demand is signalled by `request`, with counts of 1 or more."""
    _, script = _scripted(make)
    await quiet()
    expect("2.1", script.requests, "nothing was requested, so nothing can come")
    expect("2.1", min(script.requests) >= 1, f"request({min(script.requests)})")


async def rule_2_03(make: SubscriberFactory) -> None:
    """`on_completed` and `on_error` call nothing on subscription or publisher."""
    for failing in (False, True):
        subscriber, script = _scripted(make)
        before = len(script.requests), script.disposed
        script.done = True
        subscriber.on_error(RuntimeError("as asked")) if failing else subscriber.on_completed()
        after = len(script.requests), script.disposed
        expect("2.3", before == after, "a terminal signal called back into the subscription")


async def rule_2_04(make: SubscriberFactory) -> None:
    """After a terminal signal nothing more is requested."""
    _, script = _scripted(make, size=1)
    await quiet()
    before = len(script.requests)
    subscriber_done = script.done
    await quiet()
    expect("2.4", subscriber_done, "the one element was not asked for")
    expect("2.4", len(script.requests) == before, "demand after the terminal signal")


async def rule_2_05(make: SubscriberFactory) -> None:
    """A second subscription is cancelled, the first is kept."""
    subscriber, script = _scripted(make)
    second = _Script(RightPublisher(), subscriber)
    subscriber.on_subscribe(second)
    expect("2.5", second.disposed, "the second subscription was not cancelled")
    expect("2.5", not second.requests, "the second subscription was used")
    expect("2.5", not script.disposed, "the first subscription was cancelled")


async def rule_2_08(make: SubscriberFactory) -> None:
    """Elements that come after a cancellation are taken without complaint."""
    subscriber, script = _scripted(make)
    script.dispose()
    try:
        subscriber.on_next(0)
    except Exception as error:
        raise RuleViolation("2.8", f"on_next after cancel raised {error!r}") from error


async def rule_2_09(make: SubscriberFactory) -> None:
    """`on_completed` may come without any element before it."""
    subscriber, script = _scripted(make)
    script.done = True
    try:
        subscriber.on_completed()
    except Exception as error:
        raise RuleViolation("2.9", f"on_completed at once raised {error!r}") from error


async def rule_2_10(make: SubscriberFactory) -> None:
    """`on_error` may come without any element before it."""
    subscriber, script = _scripted(make)
    script.done = True
    try:
        subscriber.on_error(RuntimeError("as asked"))
    except Exception as error:
        raise RuleViolation("2.10", f"on_error at once raised {error!r}") from error
