"""The shapes of why a run stands where it does, and of what a tap shows. Feature: OBS-01."""

from __future__ import annotations

from typing import Any, Literal

from yukta_rx.http.shapes import Count, Shape, Time

FactKind = Literal[
    "QUEUE",
    "APPROVAL",
    "BREAKPOINT",
    "PAUSE",
    "BACK_PRESSURE",
    "BACKOFF",
    "WORKER",
    "RUNNING",
    "OPENING",
    "INPUT",
    "BUSY",
    "CHILD_RUN",
    "ENDED",
    "ERROR",
]


class FactShape(Shape):
    """One step of an explanation."""

    kind: FactKind
    node_id: str | None = None
    since: Time
    detail: str


class Explanation(Shape):
    """Facts, each explained by those behind it; the last of them is a root cause."""

    facts: list[FactShape]


class TapMessage(Shape):
    """A message that went over an edge, in an event `tap.message`.

    Where `truncated` is true, the payload or the headers may be the beginning of their JSON, as a
    text. `skipped` messages passed unseen since the one before.
    """

    time: Time
    message_id: str
    payload: Any
    headers: dict[str, Any] | str
    truncated: bool
    skipped: Count
