"""claim_check: heavy elements travel as references, and a call gets what they stand for.

Feature: DUR-02.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.claims import ClaimedBody
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import Slot
from yukta_rx.streams.sync import MapBody

if TYPE_CHECKING:
    from yukta_rx.streams.claims import Claims


@back_pressure(BackPressureKind.FULL)
def claim_check(claims: Claims) -> Operator:
    """Open references in front of the call before it, and leave one for each heavy output.

    Marble (`(n)` a reference to n, the call adds 1, what is above 9 is heavy, `o` it is opened)::

        source: --1--(12)-----9-----|
        call:   --1-----o12---9-----|
        result: --2------(13)-(10)--|

    Emits when: the call does; what it gives back as it came leaves as the reference that came.
    Back-pressures when: the children do, or a reference is being opened: what is behind it waits,
        unless the call takes several elements at once.
    Completes when: the source has completed and every call has ended.
    Fails when: the call does; a reference that cannot be opened fails the attempt at it, and has
        the policy of the node for that.
    Cancels when: every child has cancelled; what is being opened is given up.
    Discards: what the call discards.

    Args:
        claims: makes and opens the references of one node.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        plan = flow.plan
        if plan.last is not Slot.CALL or plan.body is None:
            plan = flow.write(Slot.CALL, body=MapBody(_as_it_is, exact=True)).plan
        return Flow(replace(plan, body=ClaimedBody(plan.body, claims)))  # type: ignore[arg-type]

    return apply


def _as_it_is(item: Any) -> Any:
    return item
