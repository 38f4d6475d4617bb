"""NodeHost: what the nodes of one run share; and what their plugins count.

A node knows its host and not its run, so that nothing of a run that has ended is kept in a circle.

Features: ENG-02, OBS-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.streams.clock import LoopClock


@dataclass(slots=True, eq=False)
class NodeHost:
    """What the nodes of one run share.

    Attributes:
        loop: where they live.
        clock: the time of the loop.
        wall: the time of day.
        changed: called with a node and its status before, once for each that it accepts.
        say: says an event: type, data, node id.
        mask: takes secrets out of a text.
        held_bytes: what one attempt at a message may hold back.
        spill_dir: where edge buffers keep their files.
    """

    loop: asyncio.AbstractEventLoop
    clock: LoopClock
    wall: Callable[[], datetime]
    changed: Callable[[NodeRuntime, TaskStatus], None]
    say: Callable[[str, dict[str, Any], str | None], None]
    mask: Callable[[str], str]
    held_bytes: int
    spill_dir: Path | None

    def say_of(self, node_id: str) -> Callable[[str, dict[str, Any]], None]:
        """What says an event of one node: type and data."""
        return partial(_say, self.say, node_id)


class PluginCounts:
    """What the plugin of one node counts by outcome, and what of that was reported."""

    __slots__ = ("_reported", "total")

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self._reported: dict[str, int] | None = None

    def add(self, outcome: str, n: int) -> None:
        """Count; may be called from a thread."""
        self.total[outcome] = self.total.get(outcome, 0) + n

    def fresh(self) -> dict[str, int]:
        """What was counted since the last call."""
        if not self.total:
            return {}
        reported, self._reported = self._reported or {}, dict(self.total)
        return {
            outcome: n - reported.get(outcome, 0)
            for outcome, n in self._reported.items()
            if n != reported.get(outcome, 0)
        }


def _say(
    say: Callable[[str, dict[str, Any], str | None], None],
    node_id: str,
    kind: str,
    data: dict[str, Any],
) -> None:
    say(kind, data, node_id)


def nobody(_node: NodeRuntime, _previous: TaskStatus) -> None:
    """Whom the nodes of a run that is over tell of their status."""
