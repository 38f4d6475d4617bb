"""The stages in front of a node's own: its edge buffer, and what takes out inputs it had finished.

Features: ENG-01, DUR-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.streams.buffer import BufferStage
from yukta_rx.streams.known import KnownStage

if TYPE_CHECKING:
    from yukta_rx.streams.stage import Stage


def in_front(stage: Stage) -> tuple[Stage, ...]:
    """The stages in front of a node's own that belong to the node, the nearest first."""
    found: list[Stage] = []
    while True:
        before = [edge.src for edge in stage.ins]
        if len(before) != 1 or not isinstance(before[0], BufferStage | KnownStage):
            return tuple(found)
        [stage] = before
        found.append(stage)


def buffer_of(fronts: tuple[Stage, ...]) -> Stage | None:
    """The buffer among them, if there is one."""
    return next((front for front in fronts if isinstance(front, BufferStage)), None)


def drain(stage: Stage, fronts: tuple[Stage, ...]) -> None:
    """Take nothing more from the parents; what has left them is worked off."""
    for one in (stage, *fronts[:-1]):
        one.draining = True
    (fronts[-1] if fronts else stage).drain()
