"""Explanations, and taps of edges. Feature: OBS-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import explain_shapes
from yukta_rx.http.route import Kind, Media, Query, Role, Route
from yukta_rx.http.routes import explain
from yukta_rx.http.tables.parts import EXECUTION, NAMED

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/executions/{executionId}/why",
        handler=explain.why,
        summary="Why a run, or a node of it, stands where it does",
        tag="runs",
        query=(Query("node", "Begin at this node.", Kind.ID),),
        responses={200: explain_shapes.Explanation},
        errors=(*EXECUTION, "node_not_found"),
    ),
    Route(
        method="GET",
        path="/api/executions/{executionId}/edges/{source}/{target}/tap",
        handler=explain.tap,
        summary="A sample of the messages that go over an edge, while somebody listens",
        tag="streams",
        role=Role.OPERATOR,
        query=(
            Query(
                "maxPerSec",
                "Messages per second at most.",
                Kind.WHOLE,
                default=5,
                low=1,
                high=100,
            ),
            Query(
                "maxBytes",
                "Bytes of a payload, and of headers; what is longer is cut.",
                Kind.WHOLE,
                default=16_384,
                low=256,
                high=262_144,
            ),
            Query("sourcePort", "The port of the edge, where several edges are meant.", Kind.ID),
            NAMED,
        ),
        responses={200: explain_shapes.TapMessage},
        errors=(
            *EXECUTION,
            *("node_not_found", "edge_not_found", "execution_not_running", "too_many_streams"),
        ),
        media=Media.EVENTS,
    ),
)
