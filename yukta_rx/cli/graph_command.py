"""`yukta graph`: a workflow or a run as a drawing of text.  Feature: DEF-01."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target
    from yukta_rx.definitions.graph import Graph


@click.command(name="graph")
@click.argument("what", metavar="FILE|SESSION/WORKFLOW|ID")
@click.option("--mermaid", is_flag=True, help="A Mermaid flowchart.")
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, what: str, mermaid: bool) -> int:
    """Draw a workflow file, or a workflow or run of a server with the status of its nodes."""
    if os.path.exists(what) or what.endswith(".json"):
        graph, about = _of_file(what)
        _draw(console, graph, about, mermaid)
        return 0
    from yukta_rx.cli.client import checked_id, with_client
    from yukta_rx.cli.places import workflow_path

    place = workflow_path(what) if "/" in what else f"/api/executions/{checked_id('ID', what)}"

    async def work(client: Client) -> int:
        from yukta_rx.definitions.graph import Graph

        found = (await client.get(f"{place}/graph")).json()
        parts = {name: found.pop(name) for name in ("nodes", "edges", "layers")}
        _draw(console, Graph(**parts), found, mermaid)
        return 0

    return with_client(target, work)


def _of_file(path: str) -> tuple[Graph, dict[str, Any]]:
    from yukta_rx.cli.documents import check_file, settings_for
    from yukta_rx.definitions.graph import graph_of
    from yukta_rx.plugins.registry import PluginRegistry

    settings = settings_for(None)
    registry = PluginRegistry.load(settings)
    checked = check_file(path, registry, settings)
    definition = checked.validation.definition if checked.validation else None
    if checked.faults or definition is None:
        raise checked.refusal()
    about = {"workflowId": definition.workflow_id, "definitionVersion": definition.version}
    return graph_of(definition, registry), about


def _draw(console: Console, graph: Graph, about: dict[str, Any], mermaid: bool) -> None:
    from yukta_rx.model.codec import dumps_plain

    if mermaid:
        console.result(graph.as_mermaid().rstrip().encode())
    elif console.as_json:
        console.result(dumps_plain(about | graph.as_dict()))
    else:
        for line in graph.as_text():
            console.line(line)
