"""Interrupting runs for a shutdown, so that another server goes on with them. Feature: DUR-03."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import PluginKind

if TYPE_CHECKING:
    from yukta_rx.engine.run import Run


def is_calm(run: Run) -> bool:
    """Whether no call of a paused run is out, but of those that wait for signals or are triggers.

    What a trigger gives later is either recorded before it leaves or gone; what waits for a signal
    asks again.
    """
    asking: set[str] = set()
    if run.signals is not None:
        asking = {asked[0].node_id for asked in run.signals.of_run(run.execution_id)}
    return not any(
        node.stage is not None and not node.stage.ended and node.stage.working()
        for node in run.nodes.values()
        if node.kind is not PluginKind.TRIGGER and node.id not in asking
    )


def interrupt(run: Run, detail: str = "the server was shut down while it ran") -> None:
    """End a run at once as if the server had died: ABORTED, so that it can be resumed."""
    run.end_with(TaskStatus.ABORTED, {"code": "aborted", "detail": detail})
