"""Node types. Feature: EXT-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import resources
from yukta_rx.http.route import Body, Reach, Route
from yukta_rx.http.routes import admin
from yukta_rx.http.tables.parts import flag

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/plugins",
        handler=admin.plugins,
        summary="Every node type",
        tag="plugins",
        reach=Reach.OPEN,
        query=(flag("errors", "Also those that cannot be loaded."),),
        responses={200: resources.PluginPage},
    ),
    Route(
        method="GET",
        path="/api/plugins/{type}",
        handler=admin.plugin,
        summary="One node type",
        tag="plugins",
        reach=Reach.OPEN,
        responses={200: resources.Plugin},
        errors=("plugin_not_found",),
    ),
    Route(
        method="GET",
        path="/api/plugins/{type}/schema",
        handler=admin.plugin_schema,
        summary="The JSON Schema of a node type's configuration",
        tag="plugins",
        reach=Reach.OPEN,
        responses={200: resources.JsonSchema},
        errors=("plugin_not_found",),
    ),
    Route(
        method="POST",
        path="/api/plugins/{type}/validate-config",
        handler=admin.validate_config,
        anywhere=True,
        summary="Examine a configuration",
        tag="plugins",
        reach=Reach.OPEN,
        body=Body.OPTIONAL,
        responses={200: resources.ConfigReport},
        errors=("plugin_not_found", "malformed_json"),
    ),
)
