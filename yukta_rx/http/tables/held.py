"""Breakpoints and held messages of a node. Feature: CTL-02."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import held_shapes
from yukta_rx.http.route import Role, Route
from yukta_rx.http.routes import held
from yukta_rx.http.tables.parts import EXECUTION

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/executions/{executionId}/nodes/{nodeId}/breakpoint",
        handler=held.breakpoints,
        summary="The breakpoints of a node",
        tag="runs",
        responses={200: held_shapes.BreakpointPage},
        errors=(*EXECUTION, "node_not_found"),
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/nodes/{nodeId}/held",
        handler=held.held,
        summary="The message that a breakpoint holds",
        tag="runs",
        role=Role.OPERATOR,
        responses={200: held_shapes.HeldMessage},
        errors=(*EXECUTION, "node_not_found", "nothing_held"),
    ),
)
