"""record: shows new elements to a recorder before any child sees them. Feature: DUR-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.plan import Barrier, Keeper, OnFinished, Tap


@back_pressure(BackPressureKind.PASS_THROUGH)
def record(
    tap: Tap | None = None,
    barrier: Barrier | None = None,
    on_finished: OnFinished | None = None,
    keeper: Keeper | None = None,
) -> Operator:
    """Show each batch of new elements to `tap`, and await `barrier` before completion passes.

    Marble (`b` the barrier is passed)::

        source: --1--2--|
        tap:    --1--2
        barrier:--------b
        result: --1--2--|

    Emits when: the source does, after `tap` has seen the batch.
    Back-pressures when: the children do.
    Completes when: the source has completed and `barrier` has returned.
    Fails when: the source fails, which skips the barrier; or `tap` or `barrier` raises.
    Cancels when: the children cancel; a barrier under way is cancelled.
    Discards: nothing; a cancelled source what its keeper has not kept yet.

    Args:
        tap: gets the port (None is the default output) and the batch; must not keep the list.
        barrier: for example the write of a durable end marker.
        on_finished: gets the elements that came in and are worked off, after `tap` has seen all
            that they gave; not told by a function of the whole stream.
        keeper: of a source: what it makes leaves it once this has kept it.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        fields = {"tap": tap, "barrier": barrier, "on_finished": on_finished, "keeper": keeper}
        return flow.write(Slot.RECORD, **fields)

    return apply
