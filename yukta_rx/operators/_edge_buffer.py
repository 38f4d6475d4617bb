"""edge_buffer: a bounded buffer in front of a node that is slower than its parents.

Feature: ENG-01.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from yukta_rx.model.policy import Overflow
from yukta_rx.operators._hooks import ignore, same
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.operators._split_join import BehindJoin, FrontJoin
from yukta_rx.streams.buffer import DropBody, SpillBody
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Outlet, Slot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from yukta_rx.streams.buffer import OnDrop


@back_pressure(BackPressureKind.DROPS)
def edge_buffer(
    size: int,
    overflow: Overflow,
    *,
    on_drop: OnDrop = ignore,
    folder: Path | None = None,
    flatten: Callable[[Any], Any] = same,
    restore: Callable[[Any], Any] = same,
) -> Operator:
    """Keep up to `size` elements for the node behind, and never hold up the parents.

    Marble (`size` = 2, DROP_OLDEST, the node behind takes one element per `t`)::

        source:  -1-2-3-4-5------|
        node:    --------t--t--t
        result:  --------4--5----|
        dropped: ------1-2-3

    With SPILL what finds no room waits on disk and nothing is lost; with BLOCK the source is
    paced, `size` elements deep.

    Emits when: an element waits and the node behind takes one.
    Back-pressures when: never, where it drops and nobody reads the port `dropped`; a reader there
        has no credit. With BLOCK, `size` elements wait; with SPILL, the disk is written.
    Completes when: the source has completed and all that waits is worked off.
    Fails when: the join rule in front of it says so, at once where that does not wait for what
        the parents sent. With SPILL also when the disk cannot be written, or an element cannot.
    Cancels when: the node behind has cancelled; what waits is dropped.
    Discards: with DROP_OLDEST and DROP_NEWEST what finds no room; readers of the port `dropped`
        get all of it.

    Args:
        size: elements in memory, 1 or more; an element in the call is not counted.
        overflow: what happens to one more.
        on_drop: hears of what was dropped, with the edge whose elements found no room.
        folder: where SPILL keeps its files; the system's temporary folder if None.
        flatten: makes of an element what SPILL can write.
        restore: makes of what SPILL has read what it was, as far as it was not written.

    Raises:
        ValueError: `size` is below 1.
    """
    if size < 1:
        raise ValueError(f"size must be 1 or more, not {size}")

    def apply(flow: Flow[Any]) -> Flow[Any]:
        if overflow is Overflow.BLOCK:
            plan = flow.write(Slot.EDGE_BUFFER).plan
            return Flow(replace(plan, prefetch=size))
        spills = overflow is Overflow.SPILL
        body = (
            SpillBody(size, folder, flatten, restore)
            if spills
            else DropBody(size, overflow is Overflow.DROP_OLDEST, on_drop)
        )
        plan = flow.write(Slot.EDGE_BUFFER, body=body).plan
        front = FrontJoin(plan.join)
        buffer = replace(plan, join=front)
        return Flow(
            NodePlan(
                name=plan.name,
                parents=(Outlet(buffer),),
                join=BehindJoin(front),
                prefetch=size,
                last=Slot.EDGE_BUFFER,
            )
        )

    return apply
