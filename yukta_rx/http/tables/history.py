"""The execution log of a run. Feature: DUR-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import history_shapes
from yukta_rx.http.route import Route
from yukta_rx.http.routes import history
from yukta_rx.http.tables.parts import EXECUTION, NUMBERED

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/executions/{executionId}/history",
        handler=history.history,
        summary="What was recorded of a run: start, commands, nodes, end",
        tag="runs",
        query=NUMBERED,
        responses={200: history_shapes.HistoryPage},
        errors=(*EXECUTION, "invalid_cursor", "store_unavailable"),
    ),
)
