"""RunTelemetry: what the tracker sees, as meters.

Feature: OBS-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from yukta_rx.metrics import Meters
    from yukta_rx.observe.state import NodeMark, RunState


class RunTelemetry:
    """Counts nodes and runs that ended, and what the tracker had to drop."""

    __slots__ = ("_meters",)

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def node_ended(self, node: NodeMark) -> None:
        """A node reached its terminal status."""
        labels = {"module": node.module, "status": str(node.status)}
        self._meters.counter("yukta.node.executions", **labels).add()
        if node.seconds is not None:
            self._meters.timer("yukta.node.duration", module=node.module).observe(node.seconds)

    def run_started(self, run: RunState) -> None:
        """A run began; one that was queued had to wait for that."""
        if run.start_time is not None and run.queued_time is not None:
            waited = (run.start_time - run.queued_time).total_seconds()
            self._meters.timer("yukta.execution.queue.wait").observe(waited)

    def run_ended(self, run: RunState, nodes: Iterable[Mapping[str, Any]]) -> None:
        """A run ended; `nodes` are its final `NodeState`."""
        if run.start_time is not None and run.end_time is not None:
            seconds = (run.end_time - run.start_time).total_seconds()
            timer = self._meters.timer("yukta.execution.duration", status=str(run.status))
            timer.observe(seconds)
        for node in nodes:
            if node.get("retried"):
                counter = self._meters.counter("yukta.node.retries", module=node["type"])
                counter.add(node["retried"])

    def edge_dropped(self, overflow: str, n: int) -> None:
        """Messages were lost: dropped by the rule of a buffer, or as the loss ledger says."""
        self._meters.counter("yukta.edge.dropped", type=overflow).add(n)

    def dropped(self, type: str, kind: str, n: int = 1) -> None:
        """Something was dropped.

        Args:
            type: what: `log`, `state` or `result`.
            kind: why: `overflow`, `late`, `ended` or `defect`.
            n: how many.
        """
        self._meters.counter("yukta.tracker.dropped", type=type, kind=kind).add(n)
