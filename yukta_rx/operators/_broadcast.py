"""broadcast: one output for several children, at the pace of the slowest. Feature: ENG-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from yukta_rx.streams.flow import Flow


@back_pressure(BackPressureKind.FULL)
def broadcast() -> Operator:
    """Close the node, so that whatever is piped behind it shares its elements.

    Marble::

        source:  --1--2--3--|
        child a: --1--2--3--|
        child b: --1--2--3--|

    Within one circuit every child gets every element, in order, and they share the objects. A
    named output is `flow.port(name)`.

    Emits when: the source does and every live child has credit.
    Back-pressures when: any live child has no credit: the slowest sets the pace. A child that
        cancelled or ended no longer counts.
    Completes when: the source has completed.
    Fails when: the source fails; every child gets the error.
    Cancels when: the last child has cancelled.
    Discards: elements for a named output that has no child, counted as `unrouted`.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.BROADCAST)

    return apply
