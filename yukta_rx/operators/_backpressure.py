"""The back-pressure that every edge carries, and what to do with a source that knows none.

Feature: ENG-01.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Slot
from yukta_rx.streams.rx import OverflowStrategy, from_rx

if TYPE_CHECKING:
    from reactivex import Observable

    from yukta_rx.streams.rx import Discard

FromObservable = Callable[["Observable[Any]"], Flow[Any]]


@back_pressure(BackPressureKind.FULL)
def prefetch(n: int, *, name: str = "") -> Operator:
    """Open a node that lets its source run at most `n` elements ahead.

    Marble (`n` = 2, a child that takes one element at a time)::

        source: --123----4--5--6--|
        result: --1--2---3--4--5--6|

    Emits when: an element waits and the children ask for one.
    Back-pressures when: `n` elements wait; demand goes back to the source three quarters of the
        window at a time.
    Completes when: the source has completed and nothing waits.
    Fails when: the source fails, after what waits.
    Cancels when: every child has cancelled.
    Discards: what waits when it is cancelled.

    Args:
        n: size of the window in elements, 1 or more.
        name: of the node, in errors and logs.

    Raises:
        ValueError: `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"prefetch must be 1 or more, not {n}")

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return Flow(NodePlan(name=name, parents=(flow.outlet,), prefetch=n, last=Slot.MERGE))

    return apply


@back_pressure(BackPressureKind.UNBOUNDED_IN)
def on_backpressure_buffer(
    size: int, overflow: OverflowStrategy, *, on_discard: Discard | None = None
) -> FromObservable:
    """Keep up to `size` elements of a plain Observable until they are asked for.

    Marble (`size` = 2, DROP_OLDEST, nothing asked for until the end)::

        source: -1-2-3-4------|
        result: -----------34-|

    Emits when: an element waits and the children ask for one.
    Back-pressures when: never; the source cannot be paced.
    Completes when: the source has completed and nothing waits.
    Fails when: the source fails, after what waits; with ERROR also when the buffer overflows.
    Cancels when: every child has cancelled: the subscription is disposed of.
    Discards: what overflows, as `overflow` says; what waits when it is cancelled.

    Args:
        size: elements that may wait, 1 or more.
        overflow: ERROR, DROP_OLDEST or DROP_NEWEST.
        on_discard: hears of each element that is dropped.

    Raises:
        ValueError: `size` is below 1.
    """
    if size < 1:
        raise ValueError(f"size must be 1 or more, not {size}")
    return lambda source: from_rx(source, overflow, size=size, on_discard=on_discard)


@back_pressure(BackPressureKind.DROPS)
def on_backpressure_drop(*, on_discard: Discard | None = None) -> FromObservable:
    """Drop the elements of a plain Observable that nobody has asked for.

    Marble (asked for one element at `r`)::

        source: -1-2-3-4-|
        demand: --r---r---
        result: ---2---4-|

    Emits when: an element comes and the edge to every child has credit.
    Back-pressures when: never; the source cannot be paced.
    Completes when: the source has completed.
    Fails when: the source fails.
    Cancels when: every child has cancelled: the subscription is disposed of.
    Discards: elements that come while a child has no credit.

    Args:
        on_discard: hears of each element that is dropped.
    """
    return lambda source: from_rx(
        source, OverflowStrategy.DROP_NEWEST, size=0, on_discard=on_discard
    )


@back_pressure(BackPressureKind.DROPS)
def on_backpressure_latest(*, on_discard: Discard | None = None) -> FromObservable:
    """Keep only the newest element of a plain Observable until it is asked for.

    Marble (asked for one element at `r`)::

        source: -1-2-3------4-|
        demand: ------r----r---
        result: ------3-----4-|

    Emits when: an element waits and the children ask for one.
    Back-pressures when: never; the source cannot be paced.
    Completes when: the source has completed and nothing waits.
    Fails when: the source fails, after what waits.
    Cancels when: every child has cancelled: the subscription is disposed of.
    Discards: an element that a newer one replaces.

    Args:
        on_discard: hears of each element that is dropped.
    """
    return lambda source: from_rx(
        source, OverflowStrategy.DROP_OLDEST, size=1, on_discard=on_discard
    )


@back_pressure(BackPressureKind.UNBOUNDED_IN)
def on_backpressure_error() -> FromObservable:
    """Fail when a plain Observable pushes more than was asked for.

    Marble (nothing asked for after the first element)::

        source: -1-2-----
        result: -1-X

    Emits when: an element comes and the edge to every child has credit.
    Back-pressures when: never; the source cannot be paced.
    Completes when: the source has completed.
    Fails when: an element comes while a child has no credit: `BackPressureOverflowError`; or the
        source fails.
    Cancels when: every child has cancelled: the subscription is disposed of.
    Discards: the element that was too much.
    """
    return lambda source: from_rx(source, OverflowStrategy.ERROR, size=0)
