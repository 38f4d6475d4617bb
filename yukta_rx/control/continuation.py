"""Continuation: a start that takes up another run, and what is kept of a run for that.

Feature: CTL-04.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.engine.replay import NO_REPLAY, Replay

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.control.start_request import StartRequest
    from yukta_rx.engine.run import Run
    from yukta_rx.model.workflow import WorkflowDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a start takes up another run.

    Attributes:
        restarted_from: the run that is run again.
        definition: what the new run runs, whatever is saved by now.
        base_dir: folder that relative paths in it start from.
        lineage: what ids of messages derive from; the new run's own id if None.
        replay: the recorded outputs that stand in for some nodes.
    """

    restarted_from: str
    definition: WorkflowDefinition
    base_dir: Path | None
    lineage: str | None = None
    replay: Replay = NO_REPLAY

    @property
    def reads_from(self) -> str | None:
        """The run whose outputs are replayed; None if none are."""
        return self.restarted_from if self.replay.outputs else None


def archived(run: Run, request: StartRequest, base_dir: Path | None) -> ArchivedRun:
    """What is kept of a run, so that it can be run again."""
    return ArchivedRun(
        execution_id=run.execution_id,
        session_id=run.session_id,
        definition=run.definition,
        lineage=run.lineage,
        base_dir=base_dir,
        payload=request.payload,
        options=request.options,
        labels=request.labels,
    )
