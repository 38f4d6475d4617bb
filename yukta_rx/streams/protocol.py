"""The border types of the streams core: Subscription and Subscriber of Reactive Streams 1.0.4.

They extend the reactivex types, so an object that works here works with plain Rx as well.
Feature: ENG-01.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, TypeVar

from reactivex import abc

T_contra = TypeVar("T_contra", contravariant=True)

UNBOUNDED: Final = 2**62
"""A demand of this size or more is never counted down (rule 3.17)."""


class FlowSubscription(abc.DisposableBase):
    """The link between one Flow and one subscriber; it carries demand upwards."""

    __slots__ = ()

    @abstractmethod
    def request(self, n: int) -> None:
        """Ask for `n` more elements; calls add up (rule 3.8).

        A count below 1 ends the subscription with `on_error(ValueError)` (rule 3.9).
        Never emits from inside the call; returns at once (rules 3.3 to 3.5).
        """

    @abstractmethod
    def dispose(self) -> None:
        """Cancel. Idempotent, and the one method that may be called from any thread."""


class FlowSubscriber(abc.ObserverBase[T_contra]):
    """An Observer that paces its publisher through `FlowSubscription.request`.

    Signals come one at a time on the event loop: `on_subscribe`, then `on_next` at most as
    often as requested, then at most one of `on_error` and `on_completed`.
    """

    __slots__ = ()

    @abstractmethod
    def on_subscribe(self, subscription: FlowSubscription) -> None:
        """Take the subscription; request from here or later (rule 1.9, 2.1)."""
