"""A session: the scope that groups workflows, runs and their configuration.

Feature: DUR-05.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, field_validator

from yukta_rx.model.policy import DocumentModel, fault
from yukta_rx.model.workflow import WorkflowDefinition, id_of_kind

DEFAULT_EXECUTION_TIMEOUT_MS = 3_600_000


class SessionConfig(DocumentModel):
    """The configuration of a session.

    Attributes:
        session_id: unique on the server.
        name: for people.
        description: for people.
        project_path: where the project that uses it lives; for people.
        initiator: who made it.
        initiated_time: when, aware.
        tags: free labels.
        execution_timeout_ms: deadline of each run in milliseconds.
        workflows: the definitions that are applied with it.
    """

    session_id: Annotated[str, id_of_kind("sessionId")]
    name: str | None = None
    description: str | None = None
    project_path: str | None = None
    initiator: str | None = None
    initiated_time: datetime | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    execution_timeout_ms: Annotated[int, Field(ge=1, strict=True)] = DEFAULT_EXECUTION_TIMEOUT_MS
    workflows: tuple[WorkflowDefinition, ...] = ()

    @field_validator("initiated_time", mode="before")
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        if value is None or isinstance(value, (str, datetime)):
            return value
        raise fault("invalid_value", "must be a time as text, 2026-01-31T12:00:00Z")

    @property
    def execution_timeout(self) -> float:
        """Deadline of each run in seconds."""
        return self.execution_timeout_ms / 1000
