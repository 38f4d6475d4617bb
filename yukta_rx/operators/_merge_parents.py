"""merge_parents: several parents into one node, under a join rule. Feature: ENG-03."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.errors import UpstreamFailedError
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Slot

if TYPE_CHECKING:
    from yukta_rx.streams.plan import Join


class AllSuccess:
    """The default join rule of a workflow: the node fails as soon as one parent fails."""

    __slots__ = ()

    def parent_failed(self, parent: str, error: BaseException) -> BaseException | None:
        """Give up at once; what waits on the edges is dropped."""
        return UpstreamFailedError(parent, error)

    def parent_ended(self, parent: str, error: BaseException | None) -> BaseException | None:
        """A parent that succeeded changes nothing."""
        return None if error is None else UpstreamFailedError(parent, error)


def merge(
    *flows: Flow[Any], name: str = "", join: Join | None = None, prefetch: int = 64
) -> Flow[Any]:
    """Merge `flows` into one node; see `merge_parents`.

    Raises:
        ValueError: no flow is given.
    """
    if not flows:
        raise ValueError("merge needs one flow or more")
    outlets = tuple(flow.outlet for flow in flows)
    return Flow(NodePlan(name=name, parents=outlets, join=join, prefetch=prefetch, last=Slot.MERGE))


@back_pressure(BackPressureKind.FULL)
def merge_parents(
    *others: Flow[Any], name: str = "", join: Join | None = None, prefetch: int = 64
) -> Operator:
    """Open a node that takes elements from the source and `others`, in turns.

    Marble::

        first:  --1-----3--|
        second: -----a----b---|
        result: --1--a--3-b---|

    Emits when: any parent has an element; parents with elements waiting take turns batch-wise,
        and each parent's own order is kept.
    Back-pressures when: the children have no demand: each parent is paced by its own edge.
    Completes when: every parent has completed.
    Fails when: the join rule says so. Without one a parent's error passes through once that
        parent's elements are worked off; with `AllSuccess` the node fails at once.
    Cancels when: every child has cancelled; all parents are cancelled.
    Discards: what waits on the other edges when the node fails.

    Args:
        others: more parents; the source is the first.
        name: of the node, in errors and logs.
        join: the rule for parents that end.
        prefetch: elements that each parent may run ahead, 1 or more.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return merge(flow, *others, name=name, join=join, prefetch=prefetch)

    return apply
