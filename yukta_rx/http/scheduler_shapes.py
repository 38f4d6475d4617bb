"""The shapes of the scheduler: limits, what waits, what was refused. Features: ADM-01, ADM-03."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from yukta_rx.http.shapes import Count, Shape, Time


class SchedulerLimits(Shape):
    """The limits in force, 0 for none, and how far they are used."""

    max_concurrent: Count
    per_workflow: Count
    per_session: Count
    on_limit: Literal["QUEUE", "REJECT"]
    queue_capacity: Count
    running: Count
    queued: Count
    source: Literal["CONFIG", "LOG"]


class WaitingStart(Shape):
    """A start that waits for a slot."""

    position: int = Field(ge=1)
    execution_id: str
    session_id: str
    workflow_id: str
    priority: float
    queued_time: Time
    wait_reason: Literal["MAX_CONCURRENT", "PER_WORKFLOW", "PER_SESSION"]
    detail: str


class QueuePage(Shape):
    """Every start that waits, in the order in which they get slots."""

    items: list[WaitingStart]
    next_cursor: None = None


class RejectedStart(Shape):
    """A start was refused, or waited too long."""

    reason: Literal[
        "shutdown", "limit", "queue_full", "workflow_queue_full", "queue_timeout", "not_leader"
    ]
    session_id: str
    workflow_id: str
    execution_id: str | None = None
