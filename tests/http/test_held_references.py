"""Over HTTP a payload is shown as it is, however it travels in its run."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.load import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.config.settings import Settings

pytestmark = pytest.mark.feature("CTL-02", "DUR-02", "OBS-03")

LARGE = {"n": 1, "text": "large " * 500}

FLOW = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "wait", "type": "DELAY", "config": {"ms": 1}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "wait"}, {"source": "wait", "target": "out"}],
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {
        "profile": "file",
        "data.dir": str(tmp_path),
        "payload.claim-check-bytes": "1KiB",
        "execution.shutdown-timeout": "100ms",
        "files.allowed-dirs": str(tmp_path),
    }
    overrides = {f"yukta.{name}": value for name, value in given.items()}
    return load_settings(overrides=overrides, environ={})


async def test_a_held_message_and_a_result_have_their_payloads(client: Any) -> None:
    await client.session_with(FLOW)
    point = {"nodeId": "out", "when": 'payload.n == 1 and "large" in payload.text'}
    body = {"sessionId": "s", "workflowId": "w", "payload": LARGE, "breakpoints": [point]}
    started = await client.ok("POST", "/api/workflow/start", body)
    run = started["executionId"]
    path = f"/api/executions/{run}"
    node = f"{path}/nodes/out"
    async with asyncio.timeout(10):
        while (held := await client("GET", f"{node}/held")).status == 404:
            await asyncio.sleep(0.01)
    assert held.body["payload"] == LARGE

    await client.ok("POST", f"{node}/held/release")
    await client.ended(run)
    place = f"/api/sessions/s/executions/{run}/results?limit=10"
    results = await client.ok("GET", place, headers={"Accept": "application/json"})
    assert [one["payload"] for one in results["items"] if one["type"] == "RESULT"] == [LARGE]


async def test_a_held_message_that_was_in_a_file_has_its_payload(
    client: Any, tmp_path: Path
) -> None:
    items = [{"n": n, "text": f"large {n} " * 300} for n in range(12)]
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f"{json.dumps(one)}\n" for one in items))
    spill = {"edgeBuffer": {"size": 2, "overflow": "SPILL"}}
    nodes = [
        {"nodeId": "in", "type": "FILE_TRIGGER", "config": {"path": str(lines)}},
        {"nodeId": "wait", "type": "DELAY", "config": {"ms": 1, "engine": spill}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ]
    pairs = ("in", "wait"), ("wait", "out")
    edges = [{"source": source, "target": target} for source, target in pairs]
    await client.session_with({"workflowId": "w", "nodes": nodes, "edges": edges})
    body = {"sessionId": "s", "workflowId": "w", "breakpoints": [{"nodeId": "wait"}]}
    started = await client.ok("POST", "/api/workflow/start", body)
    node = f"/api/executions/{started['executionId']}/nodes/wait"
    shown = []
    async with asyncio.timeout(10):
        for _ in items:
            while (held := await client("GET", f"{node}/held")).status == 404:
                await asyncio.sleep(0.01)
            assert held.status == 200, held.body
            shown.append(held.body["payload"])
            await client.ok("POST", f"{node}/held/release")
    await client.ended(started["executionId"])

    assert shown == items
