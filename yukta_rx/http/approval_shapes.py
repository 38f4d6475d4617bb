"""Shapes of approvals. Feature: CTL-05."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from yukta_rx.http.shapes import Request, Shape, Time


class AnswerBody(Request):
    """What is answered."""

    decision: str = Field(
        min_length=1,
        max_length=100,
        description="`reject`, in any case, is a no; every other word is a yes.",
    )
    data: Any = Field(None, description="Any JSON value; the message is tagged with it.")
    comment: Annotated[str, Field(max_length=1000)] | None = None


class Approval(Shape):
    """A message that waits for a signal."""

    approval_id: str
    execution_id: str
    session_id: str
    workflow_id: str
    node_id: str
    message_id: str
    signal: str
    since: Time
    expires_at: Time | None = None
    prompt: str | None = None
    payload_preview: str


class ApprovalEvent(Approval):
    """A message that waited for a signal, and what was answered."""

    decision: str
    answered_by: str


class ApprovalPage(Shape):
    """Messages that wait for signals, the oldest first."""

    items: list[Approval]
    next_cursor: str | None = None
