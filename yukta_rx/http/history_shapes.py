"""The shapes of the execution log. Feature: DUR-01."""

from __future__ import annotations

from typing import Literal

from yukta_rx.http.shapes import Shape, Time


class HistoryEvent(Shape):
    """One event; what else it has depends on its type."""

    seq: int
    type: Literal[
        "RUN_STARTED",
        "RUN_FINISHED",
        "RUN_ABORTED",
        "RUN_RESUMED",
        "NODE_FINISHED",
        "CONTROL_APPLIED",
        "CONTROL_REJECTED",
        "IDEMPOTENCY_KEY",
    ]
    time: Time
    execution_id: str
    node_id: str | None = None
    status: str | None = None


class HistoryPage(Shape):
    """Events of a run, oldest first."""

    items: list[HistoryEvent]
    next_cursor: str | None = None
