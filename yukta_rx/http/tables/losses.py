"""What a run has lost. Feature: OBS-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import loss_shapes
from yukta_rx.http.route import Route
from yukta_rx.http.routes import losses
from yukta_rx.http.tables.parts import EXECUTION

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/executions/{executionId}/losses",
        handler=losses.losses,
        summary="What a run has lost, by place, node and reason",
        tag="runs",
        responses={200: loss_shapes.Losses},
        errors=(*EXECUTION, "store_unavailable"),
    ),
)
