"""What a stage has in its hands: taken from its edges, in a call, and not over.

A circuit that is given up leaves that to another one, whose stage begins with it.

Features: ENG-01, CTL-05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.streams.aio import AsyncStage
from yukta_rx.streams.concurrent import ConcurrentStage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.stage import Stage


def in_hand(stage: Stage) -> list[tuple[Edge, Any]] | None:
    """The elements in a call, in order; behind the one of a stage that calls one by one its batch.

    None if a call has ended and what it gave has not left, or if it is another kind of stage.
    """
    if isinstance(stage, ConcurrentStage):
        over = any(call.outputs is not None or call.error is not None for call in stage.calls)
        if over or stage.failing or stage.leaving:
            return None
        return [(call.edge, call.item) for call in stage.calls]
    if not isinstance(stage, AsyncStage):
        return None
    if not stage.busy:
        return []
    held = [edge for edge in stage.ins if edge.held]
    if stage.flushed or stage.chunk or not stage.batch or len(held) != 1:
        return None
    return [(held[0], item) for item in stage.batch]


def out(stage: Stage) -> int:
    """How many of these are in a call: all of them, or the first."""
    return len(in_hand(stage) or ()) if isinstance(stage, ConcurrentStage) else 1


def take_up(stage: Stage, hand: Sequence[tuple[Edge, Any]]) -> None:
    """Let a stage that has just started begin with these, whatever its gate says."""
    if isinstance(stage, ConcurrentStage):
        for edge, item in hand:
            stage.take_up(edge, item)
    elif isinstance(stage, AsyncStage) and hand:
        edge, _ = hand[0]
        edge.held = len(hand)
        stage.again = edge, [item for _, item in hand]
