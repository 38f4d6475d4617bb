"""on_error: what becomes of an element that was given up, and how many may be. Feature: ENG-04."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from yukta_rx.errors import FailureBudgetError
from yukta_rx.model.policy import OnError
from yukta_rx.operators._hooks import ignore, same
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import DeadLetter, Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.model.policy import FailureBudget
    from yukta_rx.streams.clock import Clock
    from yukta_rx.streams.flow import Flow


class FailureLedger:
    """Decides about elements that were given up and counts them; belongs to one run of a flow.

    Args:
        action: FAIL, CONTINUE or ROUTE.
        budget: how many may fail within a window before the node does; None for any number.
        clock: tells the time of the window; what pauses it pauses the window.
        letter: makes the dead letter of an element: element, error, attempts.
        on_failure: told of each: element, error, attempts, what becomes of it.
    """

    __slots__ = ("_action", "_budget", "_clock", "_failures", "_letter", "_on_failure")

    def __init__(
        self,
        action: OnError,
        budget: FailureBudget | None,
        clock: Clock,
        *,
        letter: Callable[[Any, BaseException, int], Any] = same,
        on_failure: Callable[[Any, BaseException, int, OnError], None] = ignore,
    ) -> None:
        self._action = action
        self._budget = budget
        self._clock = clock
        self._letter = letter
        self._on_failure = on_failure
        self._failures: deque[float] = deque()

    def given_up(self, item: Any, error: BaseException, attempts: int) -> DeadLetter | None:
        """What leaves by the port `error`; None to drop the element.

        Raises:
            BaseException: `error` itself, where it fails the node.
            FailureBudgetError: too many failed.
        """
        if self._action is OnError.FAIL or self._exhausted():
            self._on_failure(item, error, attempts, OnError.FAIL)
            if self._action is OnError.FAIL or self._budget is None:
                raise error
            raise FailureBudgetError(
                f"more than {self._budget.max_failures} messages failed within "
                f"{self._budget.window_ms} ms, which failureBudget does not allow"
            ) from error
        self._on_failure(item, error, attempts, self._action)
        if self._action is OnError.CONTINUE:
            return None
        return DeadLetter(self._letter(item, error, attempts))

    def _exhausted(self) -> bool:
        """Note one more failure; whether it is one too many."""
        budget = self._budget
        if budget is None:
            return False
        now = self._clock.now()
        failures = self._failures
        failures.append(now)
        while now - failures[0] > budget.window_ms / 1000:
            failures.popleft()
        return len(failures) > budget.max_failures


@back_pressure(BackPressureKind.FULL)
def on_error(ledger: FailureLedger) -> Operator:
    """Drop an element whose last attempt failed, or send it to the port `error`.

    Marble (ROUTE, the call for 2 raises)::

        source:     --1--2--3--|
        result:     --1-----3--|
        port error: -----2-----|

    Emits when: the source does; a dead letter when its element is given up.
    Back-pressures when: a child has no credit, those at the port `error` included.
    Completes when: the source completes and nothing is tried any more.
    Fails when: more fail than the budget allows: `FailureBudgetError`; with FAIL, at the first.
        Or the source fails.
    Cancels when: every child has cancelled, those at the port `error` included.
    Discards: with CONTINUE the elements that were given up, counted as `failed`; the outputs of
        failed attempts.

    Args:
        ledger: decides and counts, for one subscription of the flow.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.ON_ERROR, on_error=ledger)

    return apply
