"""status: tells an observer of a node's first activity and its end. Feature: ENG-06."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.plan import Observer


@back_pressure(BackPressureKind.PASS_THROUGH)
def status(observer: Observer) -> Operator:
    """Tell `observer` when the node is first active and how it ended, once each.

    Marble (`t` touched, `e` ended)::

        source:   ----1--2--|
        observer: ----t-----e
        result:   ----1--2--|

    Emits when: the source does.
    Back-pressures when: the children do.
    Completes when: the source completes; the observer hears of it first.
    Fails when: the source or the node's call fails; the observer hears of it first.
    Cancels when: the children cancel; the observer is told so.
    Discards: nothing.

    Args:
        observer: counters are read from the stage that it is given; nothing is pushed per element.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.STATUS, observer=observer)

    return apply
