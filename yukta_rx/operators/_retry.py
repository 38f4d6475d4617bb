"""retry: further attempts at an element, with exponential backoff and jitter. Feature: ENG-04."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError, PluginContractError
from yukta_rx.operators._hooks import ignore, same
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from yukta_rx.model.policy import RetryPolicy
    from yukta_rx.streams.clock import Clock
    from yukta_rx.streams.flow import Flow

JITTER: Final = 0.5
"""A wait is this much of the backoff at least, and all of it at most."""

_BAD_INPUT: Final = (ValueError, TypeError)
"""Raised as such, and not as a subclass, they say that the input is at fault, unless `retryOn`
names just them."""


class Backoff:
    """Decides about and waits for further attempts; belongs to one run of a flow.

    Args:
        policy: how often, how long, for which errors.
        clock: waits; what pauses it pauses the wait.
        numbered: gives the element as attempt n gets it; the element itself by default.
        on_retry: told before each wait: element, error, the attempt that comes, seconds.
        jitter: a number from `JITTER` to 1 for each wait.
    """

    __slots__ = ("_clock", "_jitter", "_on_retry", "_policy", "numbered")

    def __init__(
        self,
        policy: RetryPolicy,
        clock: Clock,
        *,
        numbered: Callable[[Any, int], Any] = same,
        on_retry: Callable[[Any, BaseException, int, float], None] = ignore,
        jitter: Callable[[], float] = lambda: random.uniform(JITTER, 1),
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._on_retry = on_retry
        self._jitter = jitter
        self.numbered = numbered

    async def again(self, item: Any, error: BaseException, attempt: int) -> bool:
        """Wait for the next attempt; False if there is none for this error or any more."""
        if attempt >= self._policy.max_attempts or not worth_retrying(error, self._policy):
            return False
        seconds = self.wait_after(attempt, error)
        self._on_retry(item, error, attempt + 1, seconds)
        await self._clock.sleep(seconds)
        return True

    def wait_after(self, attempt: int, error: BaseException) -> float:
        """Seconds between attempt `attempt` and the next.

        An error that says when it is worth trying again (`retry_after`, seconds) is believed, up
        to the longest backoff.
        """
        policy = self._policy
        longest = policy.max_backoff_ms
        # Doubling 100 times would not fit into a float's exact range; the cap is reached before.
        wait: float = min(longest, policy.backoff_ms * 2 ** min(attempt - 1, 64)) * self._jitter()
        asked = getattr(error, "retry_after", None)
        if isinstance(asked, int | float):
            wait = max(wait, min(longest, asked * 1000))
        return wait / 1000


def worth_retrying(error: BaseException, policy: RetryPolicy) -> bool:
    """Whether another attempt may help: by `noRetryOn`, then bad input, then `retryOn`."""
    if any(name in policy.no_retry_on for name in _names(error)):
        return False
    if isinstance(error, BadInputError | PluginContractError):
        return False
    kind = type(error)
    if kind in _BAD_INPUT:
        return kind.__name__ in policy.retry_on or f"builtins.{kind.__name__}" in policy.retry_on
    return not policy.retry_on or any(name in policy.retry_on for name in _names(error))


def _names(error: BaseException) -> Iterator[str]:
    """Names of the class, its bases and those of the causes, simple and with their module."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        for kind in type(cause).__mro__[:-1]:
            yield kind.__name__
            yield f"{kind.__module__}.{kind.__qualname__}"
        cause = cause.__cause__


@back_pressure(BackPressureKind.PASS_THROUGH)
def retry(backoff: Backoff) -> Operator:
    """Call again for an element whose call failed.

    Marble (2 attempts, the first call for 2 raises)::

        source: --1--2--3-------|
        result: --1------2-3----|

    Elements behind it wait, so order is kept. What the failed attempt gave is never emitted.

    Emits when: the source does, or a later attempt has ended well.
    Back-pressures when: the children do, and while an element is tried again.
    Completes when: the source completes and nothing is tried again.
    Fails when: the last attempt fails, with its error, unless `on_error` makes something else of
        it; or the source fails.
    Cancels when: the children cancel; the wait or the attempt is cancelled.
    Discards: the outputs of failed attempts.

    Args:
        backoff: decides and waits, for one subscription of the flow.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.RETRY, retry=backoff)

    return apply
