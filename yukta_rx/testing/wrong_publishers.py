"""Publishers that each break one rule; they test the rule suite itself.

Every class of `WRONG_PUBLISHERS` differs from `RightPublisher` in one point and names the rules
that it breaks.

Feature: ENG-01.
"""

from __future__ import annotations

import threading
from typing import Any

from yukta_rx.streams.protocol import UNBOUNDED, FlowSubscriber
from yukta_rx.testing.right_publisher import RightPublisher, RightSubscription

WRONG_PUBLISHERS: list[type[RightPublisher]] = []
"""Every deliberately wrong publisher."""


def _wrong(*rules: str) -> Any:
    """Make a wrong publisher of a wrong subscription, or take one as it is; register it."""

    def register(cls: type[Any]) -> type[RightPublisher]:
        made: type[RightPublisher] = (
            cls
            if issubclass(cls, RightPublisher)
            else type(
                cls.__name__, (RightPublisher,), {"subscription": cls, "__doc__": cls.__doc__}
            )
        )
        made.breaks = rules
        WRONG_PUBLISHERS.append(made)
        return made

    return register


@_wrong("1.1")
class _EmitsBeyondDemand(RightSubscription):
    """Sends one element more than was asked for."""

    def next(self) -> None:
        super().next()
        if self.sent == 1 and not self.exhausted and not self.done:
            super().next()


@_wrong("1.1")
class _IgnoresDemand(RightSubscription):
    """Takes any request for an unbounded one."""

    def request(self, n: int) -> None:
        super().request(UNBOUNDED if n > 0 else n)


@_wrong("1.2")
class _LosesAnElement(RightSubscription):
    """Leaves out the second element."""

    def send(self, value: int) -> None:
        if value != 1:
            super().send(value)


@_wrong("1.3")
class _SignalsFromAThread(RightSubscription):
    """Sends every other element from a thread of its own."""

    def send(self, value: int) -> None:
        if value % 2:
            thread = threading.Thread(target=super().send, args=(value,))
            thread.start()
            thread.join()
        else:
            super().send(value)


@_wrong("1.3")
class _SignalsWithinASignal(RightSubscription):
    """Answers a request that comes from within `on_next` before that one has returned."""

    def request(self, n: int) -> None:
        super().request(n)
        if self.sent and not self.done and not self.exhausted:
            self.next()


@_wrong("1.4")
class _SwallowsErrors(RightSubscription):
    """Completes where it should fail."""

    def finish(self) -> None:
        if self.bad is None:
            self.publisher.error = None
        super().finish()


@_wrong("1.5")
class _NeverCompletes(RightSubscription):
    """Sends everything and then nothing."""

    def finish(self) -> None:
        if self.bad is not None or self.publisher.error is not None:
            super().finish()


@_wrong("1.5")
class _CompletionNeedsDemand(RightSubscription):
    """Completes only when more was asked for than there was."""

    def finish(self) -> None:
        if self.demand > 0 or self.bad is not None or self.publisher.error is not None:
            super().finish()


@_wrong("1.6")
class _LivesOnAfterCompletion(RightSubscription):
    """Takes a request after completion for the wish to begin anew."""

    def request(self, n: int) -> None:
        if self.done and self.exhausted and self.kept is not None:
            self.sent, self.done, self.subscriber = 0, False, self.kept
        super().request(n)

    kept: FlowSubscriber[Any] | None = None

    def finish(self) -> None:
        self.kept = self.subscriber
        super().finish()


@_wrong("1.7")
class _EmitsAfterCompletion(RightSubscription):
    """Sends a straggler after the terminal signal."""

    def finish(self) -> None:
        subscriber = self.subscriber
        super().finish()
        if subscriber is not None:
            self.loop.call_soon(subscriber.on_next, -1)


@_wrong("1.7")
class _TerminatesTwice(RightSubscription):
    """Completes, and completes."""

    def finish(self) -> None:
        subscriber = self.subscriber
        super().finish()
        if subscriber is not None:
            subscriber.on_completed()


@_wrong("1.7")
class _FailsAndCompletes(RightSubscription):
    """Sends `on_completed` after `on_error`."""

    def finish(self) -> None:
        subscriber = self.subscriber
        failing = self.bad is not None or self.publisher.error is not None
        super().finish()
        if subscriber is not None and failing:
            subscriber.on_completed()


@_wrong("1.8", "3.12")
class _EmitsAfterCancel(RightSubscription):
    """Goes on as long as there is demand."""

    def dispose(self) -> None:
        if self.exhausted or self.bad is not None:
            super().dispose()


@_wrong("1.8")
class _CompletesWhenCancelled(RightSubscription):
    """Confirms a cancellation with `on_completed`."""

    def dispose(self) -> None:
        subscriber = self.subscriber
        super().dispose()
        if subscriber is not None and not self.exhausted and self.bad is None:
            self.loop.call_later(0.001, subscriber.on_completed)


@_wrong("1.9")
class _EmitsBeforeOnSubscribe(RightPublisher):
    """Sends an element before the subscription."""

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Send -1, then do as it should."""
        on_next.on_next(-1)
        return super().subscribe(on_next)


@_wrong("1.9")
class _NeverSubscribes(RightPublisher):
    """Never sends `on_subscribe`."""

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Go on without a subscription."""
        made = self.subscription(self, on_next)
        made.demand = UNBOUNDED
        made.schedule()
        return made


@_wrong("1.9")
class _GivesNoSubscription(RightPublisher):
    """Sends None for a subscription."""

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Send None."""
        on_next.on_subscribe(None)  # type: ignore[arg-type]


@_wrong("1.9")
class _SubscribesTwice(RightPublisher):
    """Sends `on_subscribe` again, with another subscription."""

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Subscribe two times."""
        super().subscribe(on_next)
        return super().subscribe(on_next)


@_wrong("1.9")
class _RaisesFromSubscribe(RightPublisher):
    """Raises what it should send to `on_error`."""

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Raise."""
        raise RuntimeError("not today")


@_wrong("1.9")
class _EmitsInsideSubscribe(RightPublisher):
    """Serves the first request before `subscribe` has returned."""

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Drain at once."""
        made = self.subscription(self, on_next)
        on_next.on_subscribe(made)
        made.drain()
        return made


@_wrong("1.11")
class _ServesOnlyTheFirst(RightPublisher):
    """Completes every subscriber but the first at once."""

    served = False

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Serve the first."""
        if self.served:
            self.size = 0
        self.served = True
        return super().subscribe(on_next)


@_wrong("2.13")
class _IgnoresARaisingSubscriber(RightSubscription):
    """Goes on sending to a subscriber that raised."""

    def send(self, value: int) -> None:
        assert self.subscriber is not None
        try:
            self.subscriber.on_next(value)
        except Exception:
            return


@_wrong("3.2")
class _ForgetsARequestWithinASignal(RightSubscription):
    """Loses what is asked for while it sends."""

    sending = False

    def request(self, n: int) -> None:
        if not self.sending:
            super().request(n)

    def send(self, value: int) -> None:
        self.sending = True
        super().send(value)
        self.sending = False


@_wrong("3.3", "3.4")
class _EmitsInsideRequest(RightSubscription):
    """Sends from within `request`, so the stack grows with every element."""

    def request(self, n: int) -> None:
        if self.done or n < 1:
            super().request(n)
            return
        self.demand += n
        while self.demand > 0 and not self.done and not self.exhausted:
            self.next()
        self.schedule()


@_wrong("3.5")
class _SignalsInsideCancel(RightSubscription):
    """Sends a last element from within `dispose`."""

    def dispose(self) -> None:
        subscriber = self.subscriber
        super().dispose()
        if subscriber is not None and not self.exhausted and self.bad is None:
            subscriber.on_next(-1)


@_wrong("3.6")
class _ServesARequestAfterCancel(RightSubscription):
    """Wakes up again when asked for more after a cancellation."""

    kept: FlowSubscriber[Any] | None = None

    def request(self, n: int) -> None:
        if self.done and self.kept is not None and not self.exhausted:
            self.done, self.subscriber = False, self.kept
        super().request(n)

    def dispose(self) -> None:
        self.kept = self.subscriber
        super().dispose()


@_wrong("3.7")
class _CancelRaisesTheSecondTime(RightSubscription):
    """Insists on being cancelled once."""

    cancelled = False

    def dispose(self) -> None:
        if self.cancelled:
            raise RuntimeError("cancelled already")
        self.cancelled = True
        super().dispose()


@_wrong("3.8")
class _RequestReplacesDemand(RightSubscription):
    """Takes the last request for the whole demand."""

    def request(self, n: int) -> None:
        if not self.done:
            self.demand = 0
        super().request(n)


@_wrong("3.9")
class _IgnoresRequestOfZero(RightSubscription):
    """Takes a request for nothing for no request."""

    def request(self, n: int) -> None:
        if n != 0:
            super().request(n)


@_wrong("3.9")
class _TakesNegativeRequests(RightSubscription):
    """Lets a negative request take back demand."""

    def request(self, n: int) -> None:
        if n < 0:
            self.demand += n
        else:
            super().request(n)


@_wrong("3.9")
class _RaisesOnRequestOfZero(RightSubscription):
    """Raises where it should signal `on_error`."""

    def request(self, n: int) -> None:
        if n < 1:
            raise ValueError(n)
        super().request(n)


@_wrong("3.13")
class _KeepsTheSubscriber(RightPublisher):
    """Holds on to every subscriber that it ever had."""

    def subscribe(self, on_next: FlowSubscriber[Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Remember for ever."""
        self.held = on_next
        return super().subscribe(on_next)


@_wrong("3.15")
class _CancelRaises(RightSubscription):
    """Raises from `dispose` while it has something left to send."""

    def dispose(self) -> None:
        again = self.done
        super().dispose()
        if not again and not self.exhausted and self.bad is None:
            raise RuntimeError("cancelling is not convenient")


@_wrong("3.16")
class _RequestRaisesAfterTheEnd(RightSubscription):
    """Raises from a request that comes too late."""

    def request(self, n: int) -> None:
        if self.done:
            raise RuntimeError("too late")
        super().request(n)


@_wrong("3.17")
class _CountsDemandInSixtyFourBits(RightSubscription):
    """Lets the sum of two large requests overflow."""

    def request(self, n: int) -> None:
        super().request(n)
        self.demand = (self.demand + 2**63) % 2**64 - 2**63


@_wrong("4.2")
class _DelaysErrors(RightSubscription):
    """Keeps an error back until more is asked for."""

    def finish(self) -> None:
        if self.publisher.error is None or self.bad is not None or self.demand > 0:
            super().finish()
