"""The shapes of breakpoints and of the message that one holds. Feature: CTL-02."""

from __future__ import annotations

from typing import Any

from yukta_rx.http.shapes import Count, Shape, Time


class BreakpointShape(Shape):
    """A breakpoint of a node, and how many messages it has held."""

    node_id: str
    expression: str | None = None
    op: str | None = None
    value: Any = None
    when: str | None = None
    hits: Count


class BreakpointPage(Shape):
    """The breakpoints of a node, in the order in which they were set."""

    items: list[BreakpointShape]
    next_cursor: None = None


class HeldMessage(Shape):
    """The message that a breakpoint holds; `id` is the id of the message."""

    id: str
    payload: Any
    headers: dict[str, Any]
    since: Time
