"""Runs of three nodes in a line, for tests of what can be seen of a run."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import StopMode


@processor("SLOW")
async def slow(msg, cfg, ctx):
    """Send on what came, ten seconds later."""
    await asyncio.sleep(10)
    return msg


@processor("BROKEN", blocking=False)
def broken(msg, cfg, ctx):
    """Fail at the third message."""
    if msg.payload["n"] == 2:
        raise LookupError("no third message, please")
    return msg


@processor("TELLS", blocking=False)
def tells(msg, cfg, ctx):
    """Put a secret into the payload."""
    return {"n": msg.payload["n"], "password": "open-sesame", "rest": "x" * 200}


def line(mid: str = "SLOW", *, count: int = 0, every_ms: int = 0, **engine: Any) -> dict[str, Any]:
    """Numbers that go through a node."""
    config = {"count": count, "intervalMs": every_ms}
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": config},
            {"nodeId": "mid", "type": mid, "config": {"engine": engine}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "mid"}, {"source": "mid", "target": "out"}],
    }


@asynccontextmanager
async def live_run(document: dict[str, Any], seconds: float = 5, **options: Any):
    """An engine with a run that has gone on for some seconds."""
    registry = PluginRegistry.load(Settings(), extra=[slow, broken, tells])
    async with Engine(registry=registry, **options) as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(seconds)
        yield engine, run
        for live in tuple(engine._starter.live.values()):
            live.stop(StopMode.KILL)


def told(facts: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Kind and node of each fact."""
    return [(fact["kind"], fact.get("nodeId")) for fact in facts]
