"""Continuation: a start that takes up another run, and what is kept of a run for that.

Features: CTL-04, DUR-03.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.engine.replay import NO_REPLAY, Replay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from yukta_rx.control.start_request import StartRequest
    from yukta_rx.engine.run import Run
    from yukta_rx.model.workflow import WorkflowDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a start takes up another run.

    Attributes:
        source: the run that is taken up; None for a start that is only pinned to its definition.
        resumes: whether it had been aborted and goes on; else it is run again.
        definition: what the new run runs, whatever is saved by now.
        base_dir: folder that relative paths in it start from.
        lineage: what ids of messages derive from; the new run's own id if None.
        replay: the recorded outputs that stand in for some nodes.
        carried: nodes whose record the new run begins with.
        asked: what was asked for, as plain JSON, for a start that waits longer than the server
            lives: `{type, nodeId?, version, rerun?}`.
    """

    source: str | None = None
    resumes: bool = False
    definition: WorkflowDefinition
    base_dir: Path | None
    lineage: str | None = None
    replay: Replay = NO_REPLAY
    carried: frozenset[str] = frozenset()
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reads_from(self) -> str | None:
        """The run whose outputs are replayed; None if none are."""
        return self.source if self.replay.outputs or self.replay.partial else None

    def about(self) -> dict[str, str]:
        """What is shown with the new run: `resumedFrom` or `restartedFrom`."""
        if self.source is None:
            return {}
        return {"resumedFrom" if self.resumes else "restartedFrom": self.source}


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
