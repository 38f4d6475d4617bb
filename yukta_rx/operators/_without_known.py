"""without_known: takes out elements that were worked off before. Feature: DUR-03."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.operators._split_join import BehindJoin, FrontJoin
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.known import KnownBody
from yukta_rx.streams.plan import NodePlan, Outlet, Slot

if TYPE_CHECKING:
    from yukta_rx.streams.known import Memory


@back_pressure(BackPressureKind.FULL)
def without_known(memory: Memory) -> Operator:
    """Let through what `memory` does not know, and nothing before it knows.

    Marble (`k` the memory is ready, and knows 1 and 3)::

        source: --1--2-----3--4--|
        memory: --------k
        result: --------2-----4--|

    Emits when: an element comes that is not known.
    Back-pressures when: the children do, or the memory is not ready.
    Completes when: the source has completed, and the memory is ready.
    Fails when: the source fails, as the join rule in front says.
    Cancels when: the children cancel.
    Discards: what is known, which the memory deals with.

    Args:
        memory: what was worked off before; belongs to one subscription at a time.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        plan = flow.write(Slot.EDGE_BUFFER, body=KnownBody(memory)).plan
        front = FrontJoin(plan.join)
        behind = NodePlan(
            name=plan.name,
            parents=(Outlet(replace(plan, join=front)),),
            join=BehindJoin(front),
            prefetch=plan.prefetch,
            last=Slot.MERGE,
        )
        return Flow(behind)

    return apply
