"""A registry with the built-in plugins and a few of the tests' own, and documents made of them."""

from itertools import pairwise
from typing import Any

import pytest

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.validate import validate
from yukta_rx.plugins.contract import PluginConfig, processor
from yukta_rx.plugins.registry import PluginRegistry


class WaitConfig(PluginConfig):
    """Options of WAIT."""

    seconds: float = 60


@processor("PASS", blocking=False)
def pass_on(msg, cfg, ctx):
    """Pass messages on."""
    return msg


@processor("WAIT", config=WaitConfig, ports=["late"], default_timeout=lambda cfg: cfg.seconds)
async def wait(msg, cfg, ctx):
    """Pass messages on, in its own time."""
    return msg


@pytest.fixture(scope="session")
def settings():
    return Settings()


@pytest.fixture(scope="session")
def registry(settings):
    return PluginRegistry.load(settings, extra=[pass_on, wait])


def node(node_id, type="PASS", **rest) -> dict[str, Any]:
    return {"nodeId": node_id, "type": type, **rest}


def edge(source, target, port=None, **rest) -> dict[str, Any]:
    return {"source": source, "target": target, **({"sourcePort": port} if port else {}), **rest}


def engine(node_id, type="PASS", **policy):
    return node(node_id, type, config={"engine": policy})


def workflow(nodes, edges, **rest):
    return {"workflowId": "w", "nodes": list(nodes), "edges": list(edges), **rest}


def line(*middle, **rest):
    """A trigger, the given processors, a terminal, joined in a line."""
    nodes = [node("in", "API_TRIGGER"), *middle, node("out", "COLLECT_TERMINAL")]
    ids = [item["nodeId"] for item in nodes]
    return workflow(nodes, [edge(*pair) for pair in pairwise(ids)], **rest)


class Documents:
    """What tests build documents with."""

    node = staticmethod(node)
    edge = staticmethod(edge)
    engine = staticmethod(engine)
    workflow = staticmethod(workflow)
    line = staticmethod(line)


@pytest.fixture(scope="session")
def doc():
    return Documents


@pytest.fixture
def examine(registry, settings):
    """Validate a document as a build that executes every policy would."""

    def run(document, **options):
        options.setdefault("unsupported", frozenset())
        return validate(document, registry, settings=options.pop("settings", settings), **options)

    return run


@pytest.fixture
def faults(examine):
    """The (code, pointer) pairs of a document's faults."""

    def run(document, **options):
        return [(fault.code, fault.pointer) for fault in examine(document, **options).faults]

    return run
