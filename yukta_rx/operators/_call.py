"""call: the function of a node, in every shape that a plugin may have. Feature: ENG-02."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.aio import AsyncBody, AsyncManyBody
from yukta_rx.streams.plan import Body, Slot
from yukta_rx.streams.sync import ManyBody, MapBody
from yukta_rx.streams.threads import ThreadBody
from yukta_rx.streams.through import StreamBody

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable

    from yukta_rx.streams.flow import Flow


@back_pressure(BackPressureKind.FULL)
def call(body: Body | Callable[[Any], Any], *, blocking: bool = False) -> Operator:
    """Call a function for each element; what it gives is emitted.

    Marble (`f` doubles odd numbers and drops the others)::

        source: --1--2--3--|
        result: --2-----6--|

    A plain function gives one element, None to drop it, or `Routed` for a named port. A coroutine
    function is awaited, one call at a time, in order. A generator function, synchronous or not,
    gives any number of elements, drawn as children ask for them. With `blocking=True` a plain or
    generator function runs in a thread, up to 32 elements in one piece; what a generator gives for
    one element is then collected before it is emitted, so it has to end.

    Emits when: the function gives an element.
    Back-pressures when: a child has no credit: the function is not called, or not drawn from.
    Completes when: the source has completed and every call has ended.
    Fails when: the function raises; elements before that one are emitted first. An error of the
        source passes through after the elements before it.
    Cancels when: every child has cancelled: a coroutine is cancelled, a generator closed, the
        result of a thread dropped when it comes.
    Discards: elements for which the function gave None, counted as `filtered`; on failure the
        elements that were waiting.

    Args:
        body: the function, or a prepared body of `streams`.
        blocking: call a plain or generator function in a thread.

    Raises:
        ValueError: `blocking` with a function that is async already.
    """
    made = body if hasattr(body, "stage") else _body_for(body, blocking)

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.CALL, body=made)

    return apply


def _body_for(fn: Callable[[Any], Any], blocking: bool) -> Body:
    # An object may be called like a function; what it is then shows at its class.
    direct = inspect.isroutine(fn) or isinstance(fn, functools.partial)
    called = fn if direct else type(fn).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        if blocking:
            raise ValueError("blocking=True is for plain functions; this one is async already")
        return AsyncManyBody(fn) if inspect.isasyncgenfunction(called) else AsyncBody(fn)
    many = inspect.isgeneratorfunction(called)
    if blocking:
        return ThreadBody(fn, many=many)
    return ManyBody(fn) if many else MapBody(fn)


@back_pressure(BackPressureKind.FULL)
def map_(fn: Callable[[Any], Any]) -> Operator:
    """Emit what a plain function makes of each element, one for one.

    Marble (`f` doubles)::

        source: --1--2--3--|
        result: --2--4--6--|

    Emits when: an element comes; None is an element like any other here.
    Back-pressures when: a child has no credit: the function is not called.
    Completes when: the source has completed.
    Fails when: the function raises, or the source fails.
    Cancels when: every child has cancelled.
    Discards: on failure, the elements that were waiting.

    Args:
        fn: computes for microseconds and never waits; it runs on the event loop.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.CALL, body=MapBody(fn, exact=True))

    return apply


@back_pressure(BackPressureKind.FULL)
def flat_map(fn: Callable[[Any], Iterable[Any]]) -> Operator:
    """Emit every element of the iterable that a function makes of each element, in order.

    Marble (`f` repeats n times)::

        source: --1--2---3----|
        result: --1--22--333--|

    Emits when: the current iterable has an element and the children ask for one.
    Back-pressures when: a child has no credit: the iterable is not drawn from.
    Completes when: the source has completed and the last iterable is exhausted.
    Fails when: the function or an iterable raises, or the source fails.
    Cancels when: every child has cancelled; a generator is closed.
    Discards: on failure, the elements that were waiting.

    Args:
        fn: returns an iterable; both run on the event loop.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.CALL, body=ManyBody(fn))

    return apply


@back_pressure(BackPressureKind.FULL)
def through(fn: Callable[[AsyncIterator[Any]], AsyncIterable[Any]]) -> Operator:
    """Hand the whole stream to a function that gives back a whole stream.

    Marble (`fn` adds up in pairs)::

        source: --1--2--3--4--|
        result: -----3-----7--|

    Emits when: what `fn` returned gives an element.
    Back-pressures when: a child has no credit: the result is not drawn from, and what it does not
        take from the source stays there.
    Completes when: what `fn` returned ends; what it left of the source is cancelled.
    Fails when: what `fn` returned raises, or the source fails, at once.
    Cancels when: every child has cancelled: the worker is cancelled.
    Discards: what is waiting when the result ends early or fails.

    Args:
        fn: called once, with an async iterator over the source.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.CALL, body=StreamBody(fn))

    return apply
