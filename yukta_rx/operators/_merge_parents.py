"""merge_parents: several parents into one node, under a join rule. Feature: ENG-03."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.errors import UpstreamFailedError
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.flow import Flow
from yukta_rx.streams.plan import NodePlan, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yukta_rx.streams.plan import Join


class AllSuccess:
    """The default join rule of a workflow: the node fails as soon as one parent fails.

    Args:
        optional: names of parents whose failure does not count.
    """

    __slots__ = ("_optional",)

    def __init__(self, optional: Iterable[str] = ()) -> None:
        self._optional = frozenset(optional)

    def parent_failed(self, parent: str, error: BaseException) -> BaseException | None:
        """Give up at once; what waits on the edges is dropped."""
        return None if parent in self._optional else UpstreamFailedError(parent, error)

    def parent_ended(self, parent: str, error: BaseException | None) -> BaseException | None:
        """A parent that succeeded changes nothing."""
        return None if error is None else self.parent_failed(parent, error)


class AtLeast:
    """Carry on with the parents that worked; fail once fewer than `needed` can still succeed.

    A parent is judged when all it sent is worked off, so nothing that a failed parent emitted
    before is lost. Needed 0 is ALL_DONE, 1 is ONE_SUCCESS, any other number is N_OF_M.

    Args:
        needed: parents that have to succeed.
        counted: names of the parents that count; the failure of another is passed over.
    """

    __slots__ = ("_counted", "_failed", "_needed")

    def __init__(self, needed: int, counted: Iterable[str]) -> None:
        self._needed = needed
        self._counted = frozenset(counted)
        self._failed: set[str] = set()

    def parent_failed(self, parent: str, error: BaseException) -> BaseException | None:
        """Wait until what it sent is worked off."""
        return None

    def parent_ended(self, parent: str, error: BaseException | None) -> BaseException | None:
        """Give up if too few are left that could succeed."""
        if error is None or parent not in self._counted:
            return None
        self._failed.add(parent)
        left = len(self._counted) - len(self._failed)
        return UpstreamFailedError(parent, error) if left < self._needed else None


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
        parent's elements are worked off; with `AllSuccess` the node fails at once, with
        `AtLeast` when fewer parents are left than have to succeed.
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
