"""Attempts at one element: called, timed, tried again, given up, as the plan's policies say.

Nothing here runs for an element that does not fail, unless an element timeout has to be watched.
What an attempt gives is a value, emitted once the attempt has ended well; so a later attempt never
lands on top of an earlier one's output.

Feature: ENG-04.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from yukta_rx.errors import EngineError, HeldOutputError, RunAbortedError
from yukta_rx.streams.faults import as_error
from yukta_rx.streams.plan import GivenUp

if TYPE_CHECKING:
    from yukta_rx.streams.stage import Stage

Attempt: TypeAlias = Callable[[Any], Awaitable[list[Any]]]
"""One attempt at an element: its outputs."""


@dataclass(frozen=True, slots=True)
class Hold:
    """How much an attempt may hold back before it has ended.

    Attributes:
        size_of: what one output takes, in bytes, roughly.
        limit: bytes.
        discarded: told how many outputs a failed attempt had made.
    """

    size_of: Callable[[Any], int]
    limit: int
    discarded: Callable[[Any, int], None]


class _Held:
    """The outputs of one attempt until it has ended."""

    __slots__ = ("_hold", "_item", "_left", "outputs")

    def __init__(self, item: Any, hold: Hold | None) -> None:
        self.outputs: list[Any] = []
        self._item = item
        self._hold = hold
        self._left = 0 if hold is None else hold.limit

    def add(self, output: Any) -> None:
        self.outputs.append(output)
        if self._hold is not None:
            self._left -= self._hold.size_of(output)
            if self._left < 0:
                raise HeldOutputError(
                    f"one message gave more than {self._hold.limit} bytes "
                    f"({len(self.outputs)} messages so far), which attempts hold back until they "
                    "have ended; raise yukta.execution.held-output-bytes, or do without retry, "
                    "onError and elementTimeoutMs on this node",
                    limitBytes=self._hold.limit,
                )

    def drop(self) -> None:
        if self._hold is not None and self.outputs:
            self._hold.discarded(self._item, len(self.outputs))


def collect(item: Any, outputs: Iterable[Any], hold: Hold | None) -> list[Any]:
    """All that an iterable, which is closed, gives for `item`; nothing if it raises.

    Raises:
        HeldOutputError: it gives more than may be held back.
    """
    held = _Held(item, hold)
    iterator = iter(outputs)
    try:
        for output in iterator:
            held.add(output)
    except BaseException:
        held.drop()
        raise
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    return held.outputs


async def collect_async(item: Any, outputs: AsyncIterable[Any], hold: Hold | None) -> list[Any]:
    """As `collect`, of an async iterable."""
    held = _Held(item, hold)
    iterator = outputs.__aiter__()
    try:
        async for output in iterator:
            held.add(output)
    except BaseException:
        held.drop()
        raise
    finally:
        await close_iterator(iterator)
    return held.outputs


async def close_iterator(iterator: Any) -> None:
    """Close an async generator that may not have been drawn to its end."""
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()


async def outputs_of(
    stage: Stage, attempt: Attempt, item: Any, error: BaseException | None = None
) -> list[Any]:
    """What is emitted for `item`, after as many attempts as the policy of `stage` allows.

    Args:
        stage: whose plan has the policy; its counters are kept.
        attempt: makes one attempt.
        item: the element as it came in.
        error: what the first attempt raised, if that was made already.

    Raises:
        BaseException: the last attempt's error, where that fails the node.
    """
    plan = stage.plan
    number = 1
    current = item
    error = None if error is None else as_error(error)
    while True:
        stage.attempt = number
        if error is None:
            try:
                if plan.limit is None:
                    return await attempt(current)
                given: list[Any] = await plan.limit.run(current, attempt)
                return given
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as raised:
                if stage.ended or (isinstance(raised, asyncio.CancelledError) and cancelling()):
                    raise
                error = as_error(raised)
        final = isinstance(error, EngineError | RunAbortedError)
        if final or plan.retry is None or not await plan.retry.again(item, error, number):
            break
        number += 1
        stage.retried += 1
        current = plan.retry.numbered(item, number)
        error = None
    stage.failed += 1
    if final or plan.on_error is None:
        raise error
    letter = plan.on_error.given_up(item, error, number)
    return [GivenUp() if letter is None else letter]


def cancelling() -> bool:
    """Whether the task that runs has been cancelled, and not what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
