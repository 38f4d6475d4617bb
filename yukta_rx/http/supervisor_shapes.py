"""The shapes of supervisors, as OpenAPI shows them. Feature: CTL-07."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from yukta_rx.http.shapes import Count, Id, Request, Shape, Time


class SupervisorBody(Request):
    """A program that registers, or renews its lease with the token of it."""

    id: Id("id")  # type: ignore[valid-type]
    description: str = Field("", max_length=1000)
    lease_seconds: Annotated[float, Field(strict=True)] = Field(
        30,
        ge=0,
        le=3600,
        description="How long the lease lasts without being used; 0 gives it back.",
    )
    lease_token: str | None = Field(
        None, max_length=200, description="Of the lease that is to be renewed."
    )


class SupervisorChange(Request):
    """What is to be changed; members that are left out stay as they are."""

    enabled: Annotated[bool, Field(strict=True)] | None = Field(
        None, description="The switch: false stops it at once."
    )
    dry_run: Annotated[bool, Field(strict=True)] | None = Field(
        None, description="Only record its commands."
    )
    max_commands_per_second: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None


class LeaseState(Shape):
    """How long an external supervisor is believed to live."""

    seconds: float
    expires_at: Time
    expired: bool


class SupervisorState(Shape):
    """A supervisor, or a reviewer (kind CONTROL_PLANE)."""

    id: str
    kind: Literal["CONTROL_PLANE", "SUPERVISOR"]
    order: int
    enabled: bool
    dry_run: bool
    max_commands_per_second: int | None = Field(
        description="Commands per second that it may send; null for a reviewer."
    )
    counts: dict[str, Count] = Field(
        description="Commands by outcome: those of a command, or in lower case why it was not even"
        " given."
    )
    dropped_events: Count
    external: bool
    state: str | None = Field(
        None, description="RUNNING, BACKOFF, ENDED, DISABLED, EXPIRED or FAILED."
    )
    last_error: str | None = None
    description: str | None = None
    lease: LeaseState | None = None


class SupervisorLease(SupervisorState):
    """A supervisor with the token of its lease."""

    lease_token: str


class SupervisorPage(Shape):
    """All supervisors and reviewers."""

    items: list[SupervisorState]
    next_cursor: None = None
