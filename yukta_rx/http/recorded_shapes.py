"""The shapes of what is recorded of a run: its start payload, the outputs of its nodes.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import Any

from pydantic import RootModel

from yukta_rx.http.shapes import Shape


class StartPayload(RootModel[Any]):
    """What a run was started with; any JSON value. Secrets are masked."""


class OutputShape(Shape):
    """A message that a node emitted; `port` is absent for its main output. Secrets are masked."""

    id: str
    port: str | None = None
    payload: Any
    headers: dict[str, Any]


class OutputPage(Shape):
    """What a node emitted, in order.

    `complete` says whether the node has emitted all that it will; `nextCursor` is null once all of
    that was shown.
    """

    items: list[OutputShape]
    next_cursor: str | None = None
    complete: bool
