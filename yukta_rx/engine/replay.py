"""Replay: recorded outputs in place of nodes, in a run that begins in the middle of its graph.

A replayed node is a source: it emits what was recorded, with its ports and ids, under credit, and
ends SUCCESS; it is recorded again, so the new run can be restarted too. A node that is left alone
has no stage: it ends SKIPPED when the run begins, and its edges are not there. What a resumed run
does with nodes that had not finished is in `resume`.

Features: CTL-04, DUR-03.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.engine.opening import Ready
from yukta_rx.engine.resume import leaving
from yukta_rx.errors import EngineError
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.aio import AsyncIterableBody
from yukta_rx.streams.sync import MapBody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from yukta_rx.durability.stores.checkpoints import Rows
    from yukta_rx.engine.node import NodeRuntime


@dataclass(frozen=True, slots=True)
class Replay:
    """How a run takes up another one.

    Attributes:
        outputs: the recorded outputs, by the node that they stand in for.
        alone: nodes that do nothing.
        partial: what is recorded of nodes that had not finished: that is emitted first, the
            inputs that it covers are passed over, and the rest is worked on.
        finished: nodes that had ended and feed nobody that works: they end SUCCESS at once.
        passed: terminals that had ended: what reaches them is a result, their plugin is not called.
    """

    outputs: Mapping[str, Rows] = field(default_factory=dict)
    alone: frozenset[str] = frozenset()
    partial: Mapping[str, Rows] = field(default_factory=dict)
    finished: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()

    def replaces(self, node_id: str) -> bool:
        """Whether the plugin of a node is not called."""
        return node_id in self.outputs or node_id in self.passed or not self.has_stage(node_id)

    def has_stage(self, node_id: str) -> bool:
        """Whether a node is part of the running graph."""
        return node_id not in self.alone and node_id not in self.finished

    def begin(self, nodes: Mapping[str, NodeRuntime]) -> None:
        """Give the nodes that are not part of the running graph the status that they have."""
        for node_id in self.alone:
            nodes[node_id].advance(TaskStatus.SKIPPED)
        for node_id in self.finished:
            nodes[node_id].advance(TaskStatus.SUCCESS)

    def ready(self) -> dict[str, Ready]:
        """What stands in for plugins, ready to be wired: it emits what was recorded, or passes."""
        sources = {
            node_id: Ready(AsyncIterableBody(_emitter(node_id, rows)))
            for node_id, rows in self.outputs.items()
        }
        return sources | {node_id: Ready(MapBody(None, exact=True)) for node_id in self.passed}


NO_REPLAY: Final = Replay()


def _emitter(node_id: str, rows: Rows) -> Callable[[], AsyncIterator[Any]]:
    async def emit() -> AsyncIterator[Any]:
        try:
            async with aclosing(rows()) as recorded:
                async for row in recorded:
                    for port, msg in row.messages:
                        yield leaving(port, msg)
        except Exception as error:
            # Not a failure of the node's plugin, which is not called.
            raise EngineError(f"what node {node_id} emitted cannot be read: {error}") from error

    return emit
