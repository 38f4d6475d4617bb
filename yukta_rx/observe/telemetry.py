"""RunTelemetry: what the tracker sees, as meters.

Feature: OBS-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from yukta_rx.metrics import Count, Meters, Timing
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.observe.state import NodeMark, RunState


class RunTelemetry:
    """Counts nodes and runs that ended, and what the tracker had to drop.

    What every run touches is asked of the meters once, and then kept; there are as many as node
    types and statuses.
    """

    __slots__ = ("_dropped", "_durations", "_ends", "_meters", "_runs")

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._ends: dict[tuple[str, TaskStatus], Count] = {}
        self._durations: dict[str, Timing] = {}
        self._runs: dict[TaskStatus, Timing] = {}
        self._dropped: dict[tuple[str, str], Count] = {}

    def node_ended(self, node: NodeMark) -> None:
        """A node reached its terminal status."""
        module, status = node.module, node.status
        count = self._ends.get((module, status))
        if count is None:
            count = self._meters.counter("yukta.node.executions", module=module, status=str(status))
            self._ends[module, status] = count
        count.add()
        seconds = node.seconds
        if seconds is None:
            return
        timer = self._durations.get(module)
        if timer is None:
            timer = self._meters.timer("yukta.node.duration", module=module)
            self._durations[module] = timer
        timer.observe(seconds)

    def run_started(self, run: RunState) -> None:
        """A run began; one that was queued had to wait for that."""
        if run.start_time is not None and run.queued_time is not None:
            waited = (run.start_time - run.queued_time).total_seconds()
            self._meters.timer("yukta.execution.queue.wait").observe(waited)

    def run_ended(self, run: RunState, nodes: Iterable[Mapping[str, Any]]) -> None:
        """A run ended; `nodes` are its final `NodeState`."""
        if run.start_time is not None and run.end_time is not None:
            timer = self._runs.get(run.status)
            if timer is None:
                timer = self._meters.timer("yukta.execution.duration", status=str(run.status))
                self._runs[run.status] = timer
            timer.observe((run.end_time - run.start_time).total_seconds())
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
        count = self._dropped.get((type, kind))
        if count is None:
            count = self._meters.counter("yukta.tracker.dropped", type=type, kind=kind)
            self._dropped[type, kind] = count
        count.add(n)
