"""What is recorded of a run: its start payload, the outputs of its nodes. Feature: OBS-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import recorded_shapes
from yukta_rx.http.route import Role, Route
from yukta_rx.http.routes import recorded
from yukta_rx.http.tables.parts import EXECUTION, NUMBERED

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/executions/{executionId}/payload",
        handler=recorded.payload,
        summary="What a run was started with",
        tag="runs",
        role=Role.OPERATOR,
        responses={200: recorded_shapes.StartPayload},
        errors=(*EXECUTION, "store_unavailable"),
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/nodes/{nodeId}/outputs",
        handler=recorded.outputs,
        summary="What a node emitted, as far as that is recorded",
        tag="runs",
        role=Role.OPERATOR,
        query=NUMBERED,
        responses={200: recorded_shapes.OutputPage},
        errors=(
            *EXECUTION,
            *("node_not_found", "output_not_kept", "invalid_cursor", "store_unavailable"),
        ),
    ),
)
