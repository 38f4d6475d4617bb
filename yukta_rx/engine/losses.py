"""What a run's messages lose that no event has told, and the verdict of a run that must lose none.

What an edge buffer drops, and an operator, is told by `edge.dropped` events as it happens. The
rest is only counted where it happens, since there it must cost nothing; it is read here.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yukta_rx.model.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from yukta_rx.engine.node import NodeRuntime

UNROUTED: Final = "UNROUTED"
"""Emitted for a named port that no edge leaves by, or for children that are all gone."""

DISCARDED: Final = "DISCARDED"
"""Waited for a node, or was under way in it, when that came to an end or was told to drop it."""

CODE: Final = "losses"


class Loss(NamedTuple):
    """What one node lost for one reason.

    Attributes:
        node_id: the node.
        reason: UNROUTED or DISCARDED.
        dropped: how many messages so far.
        sample: ids of the first of them, as far as they are known.
    """

    node_id: str
    reason: str
    dropped: int
    sample: list[str]


def untold(nodes: Iterable[NodeRuntime]) -> Iterator[Loss]:
    """What was lost and not told by a buffer.

    What `DROP_HELD` discarded is among the discarded.
    """
    for node in nodes:
        if node.stage is None:
            continue
        unrouted = node.stage.unrouted
        told = 0 if node.drops is None else node.drops.total
        if unrouted:
            yield Loss(node.id, UNROUTED, unrouted, _ids(node.stage.strays))
        if discarded := node.dropped - unrouted - told:
            yield Loss(node.id, DISCARDED, discarded, _ids(node.stage.wasted))


def _ids(messages: Iterable[object]) -> list[str]:
    return [msg.id for msg in messages if isinstance(msg, Message)]


def lossless_fault(nodes: Iterable[NodeRuntime]) -> dict[str, Any] | None:
    """The error of a run that must lose no message: `{code, detail, nodeId}`; None if it lost none.

    It names the node that lost most.
    """
    lost = {node.id: node.dropped for node in nodes}
    total = sum(lost.values())
    if not total:
        return None
    worst = max(lost, key=lost.__getitem__)
    where = f"{lost[worst]} of them at node {worst}"
    detail = f"the run is lossless and lost {total} messages, {where}"
    return {"code": CODE, "detail": detail, "nodeId": worst}
