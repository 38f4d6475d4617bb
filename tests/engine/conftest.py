"""Runs of small workflows in virtual time, with plugins that each test brings along."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.run import Run
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry


@processor("PASS", blocking=False, pure=True)
def pass_on(msg, cfg, ctx):
    """Pass messages on."""
    return msg


@processor("BOOM", blocking=False, pure=True)
def boom(msg, cfg, ctx):
    """Fail at every message."""
    raise LookupError(f"no luck with {msg.payload}")


class World:
    """Makes runs and remembers what each said."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.events: list[Any] = []
        self.results: list[Any] = []

    def run(self, nodes: dict[str, Any], edges: str, *plugins: Any, **options: Any) -> Run:
        """A run of `nodes` (id to type, or (type, config)) joined as `edges` says.

        "a > b > c, b.port > d" is a line, and an edge from a named port; "a >? b" is an edge whose
        parent is not required.
        """
        settings = options.pop("settings", self.settings)
        registry = PluginRegistry.load(settings, extra=[pass_on, boom, *plugins])
        document = {"workflowId": "w", "nodes": [], "edges": []}
        for node_id, made in nodes.items():
            kind, config = (made, {}) if isinstance(made, str) else made[:2]
            node = {"nodeId": node_id, "type": kind, "config": config}
            if not isinstance(made, str) and len(made) > 2:
                node["timeoutSeconds"] = made[2]
            document["nodes"].append(node)
        for chain in filter(None, map(str.strip, edges.split(","))):
            for left, right in pairwise(part.strip() for part in chain.split(">")):
                source, _, port = left.lstrip("? ").partition(".")
                edge = {"source": source, "target": right.partition(".")[0].lstrip("? ")}
                if right.startswith("?"):
                    edge["required"] = False
                document["edges"].append(edge | ({"sourcePort": port} if port else {}))
        if "workflow_options" in options:
            document["options"] = options.pop("workflow_options")
        prepared = prepare(parse_definition(document), registry, settings=settings)
        return Run(
            prepared,
            settings=settings,
            emit=self.events.append,
            publish=self.results.append,
            **options,
        )

    # -- what was said

    def payloads(self, node_id: str | None = None) -> list[Any]:
        """Payloads of the results, of one terminal or of all."""
        return [
            item.payload
            for item in self.results
            if item.type == "RESULT" and node_id in (None, item.node_id)
        ]

    def statuses(self, node_id: str) -> list[str]:
        """The statuses that a node went through."""
        return [
            event.data["status"]
            for event in self.events
            if event.type == "node.status" and event.node_id == node_id
        ]

    def lines(self) -> list[tuple[str, str]]:
        """Every log line with its node."""
        return [(e.node_id, e.data["line"]) for e in self.events if e.type == "node.log"]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def new_world():
    """Makes a world per example of a property test."""
    return World
