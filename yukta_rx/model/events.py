"""What happens in a run, as the engine says it and the feed repeats it: the one vocabulary.

Feature: OBS-01.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from yukta_rx.model.times import rfc3339


def _names(family: str, *members: str) -> tuple[str, ...]:
    return tuple(f"{family}.{member}" for member in members)


EVENT_TYPES: frozenset[str] = frozenset(
    (
        *_names(
            "execution",
            *("queued", "started", "status", "progress", "finished", "aborted", "recovered"),
        ),
        *_names("node", "status", "retry", "attempt_discarded", "message_failed", "dead_letter"),
        *_names("node", "breakpoint_hit", "stats", "log"),
        *_names("edge", "stats", "dropped"),
        *_names("control", "applied", "rejected"),
        *_names("approval", "requested", "answered", "expired"),
        *_names("scheduler", "limits_changed", "rejected"),
        *_names("supervisor", "command", "failed", "dropped"),
        *_names("worker", "connected", "draining", "lost"),
        *_names("leader", "acquired", "lost"),
        *_names("definition", "saved", "rolled_back"),
    )
)
"""Every event type; the `stream.*` frames of a connection are not events and not listed."""

SAMPLE_TYPES: frozenset[str] = frozenset({"execution.progress", "node.stats", "edge.stats"})
"""Types of which only the newest per key matters; all others are facts and never merged."""


class ExecutionEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One thing that happened.

    Attributes:
        type: one of `EVENT_TYPES`.
        time: wall-clock time, aware.
        session_id: the session of the run.
        workflow_id: its workflow.
        execution_id: the run.
        node_id: the node concerned; None for the run as a whole.
        data: the facts, named in camelCase as they are sent.
    """

    type: str
    time: datetime
    session_id: str
    workflow_id: str
    execution_id: str
    node_id: str | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: camelCase names, no `nodeId` for an event of the whole run."""
        shown: dict[str, Any] = {
            "type": self.type,
            "time": rfc3339(self.time),
            "sessionId": self.session_id,
            "workflowId": self.workflow_id,
            "executionId": self.execution_id,
        }
        if self.node_id is not None:
            shown["nodeId"] = self.node_id
        shown["data"] = self.data
        return shown
