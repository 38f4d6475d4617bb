"""Where the signals of a run's nodes go, and what its plugins wait with. Feature: CTL-05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.plugins.signals import Place

if TYPE_CHECKING:
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.run import Run
    from yukta_rx.plugins.signals import NodeSignals


def place_of(run: Run, node: NodeRuntime) -> Place:
    """Return where signals for a node of a run go."""
    return Place(run.session_id, run.workflow_id, run.execution_id, run.lineage, node.id)


def signals_of(run: Run, node: NodeRuntime) -> NodeSignals | None:
    """Return what a node's plugin waits with; None if it does not, or nobody could answer."""
    if run.signals is None or not node.prepared.spec.signals:
        return None
    mask = run.secrets.masker.mask
    return run.signals.node(place_of(run, node), node.clock, run.say_of(node.id), mask)
