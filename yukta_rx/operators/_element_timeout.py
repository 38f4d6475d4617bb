"""element_timeout: a limit on one attempt at one element. Feature: ENG-05."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import ElementTimeoutError
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from yukta_rx.streams.clock import Clock, Timer
    from yukta_rx.streams.flow import Flow


_ROUNDING: Final = 1e-6


class ElementTimeout:
    """Watches the attempts of one node; belongs to one run of a flow.

    There is one timer however many attempts are out: it is set for the earliest end, and looks
    again when it fires. An attempt that ends in time costs two dictionary entries, where
    `asyncio.timeout` costs 11 us.

    Args:
        clock: tells the time; what pauses it pauses the limit.
        limit: seconds that an attempt may take, or a function of the element, which may be async.
    """

    __slots__ = ("_clock", "_due", "_expired", "_limit", "_out", "_timer")

    def __init__(
        self, clock: Clock, limit: float | Callable[[Any], float | Awaitable[float]]
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._out: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._timer: Timer | None = None
        self._due = 0.0

    async def run(self, item: Any, attempt: Callable[[Any], Awaitable[Any]]) -> Any:
        """Await one attempt, which is cancelled when it takes too long.

        Raises:
            ElementTimeoutError: it took too long, whatever it made of being cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        limit = self._limit(item) if callable(self._limit) else self._limit
        if isawaitable(limit):
            limit = await limit
        cancelling = task.cancelling()
        due = self._out[task] = self._clock.now() + limit
        if self._timer is None or due < self._due:
            self._arm(due)
        try:
            given = await attempt(item)
        except asyncio.CancelledError:
            if self._ended(task) and task.uncancel() <= cancelling:
                raise _too_long(limit) from None
            raise
        except BaseException as error:
            if self._ended(task):
                task.uncancel()
                raise _too_long(limit) from error
            raise
        if self._ended(task):
            task.uncancel()
            raise _too_long(limit)
        return given

    def _ended(self, task: asyncio.Task[Any]) -> bool:
        """The attempt in `task` is over; whether it was cancelled for taking too long."""
        self._out.pop(task, None)
        expired = task in self._expired
        self._expired.discard(task)
        return expired

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.call_at(due, self._look)

    def stop(self) -> None:
        """The node has ended; what holds on to this lets go of it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = self._clock.now() + _ROUNDING
        for task, due in tuple(self._out.items()):
            if due <= now:
                del self._out[task]
                self._expired.add(task)
                task.cancel()
        if self._out:
            self._arm(min(self._out.values()))


def _too_long(limit: float) -> ElementTimeoutError:
    return ElementTimeoutError(f"one attempt took longer than elementTimeoutMs {limit * 1000:g}")


@back_pressure(BackPressureKind.PASS_THROUGH)
def element_timeout(limit: ElementTimeout) -> Operator:
    """Fail an attempt at an element that takes longer than the limit.

    Marble (limit 2, `s` the call for 2 hangs)::

        source: --1--2s-------
        result: --1----X

    The element before it is emitted first. A coroutine is cancelled; a plain function runs in a
    thread, one element at a time, and is left behind when it takes too long. What a generator
    gives for one element is held back until it has ended.

    Emits when: the source does.
    Back-pressures when: the children do; waiting for them does not count.
    Completes when: the source completes.
    Fails when: an attempt takes too long: `ElementTimeoutError`, unless `retry` or `on_error`
        make something else of it. Or the source fails.
    Cancels when: the children cancel.
    Discards: the outputs of an attempt that took too long.

    Args:
        limit: watches one subscription of the flow.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.ELEMENT_TIMEOUT, limit=limit)

    return apply
