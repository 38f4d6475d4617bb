"""Runs that were started, cancelled and restarted, by the thousand, leave nothing behind.

`YUKTA_TEST_RUNS=10000` makes as many.
"""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import RestartWorkflow, StopWorkflow
from yukta_rx.control.starter import StartRequest
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = [
    pytest.mark.feature("ADM-01", "CTL-04", "OBS-01"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

RUNS = int(os.environ.get("YUKTA_TEST_RUNS", "2500"))
TOGETHER = 25
LOOK = RUNS // 10 // TOGETHER * TOGETHER
"""Turns between two looks at the memory."""

KEPT = {
    "yukta.execution.max-concurrent": 20,
    "yukta.tracker.max-executions": 200,
    "yukta.tracker.cleanup-ttl": "60s",
    "yukta.results.max-executions": 20,
    "yukta.streaming.replay-events": 200,
    "yukta.streaming.status-history-max-executions": 20,
    "yukta.control.audit-rows": 200,
    "yukta.start.idempotency-max-keys": 20,
    "yukta.execution-log.retained-runs": 20,
    "yukta.execution-log.compact-after": 100,
    "yukta.restart.retained-executions": 60,
}
"""So little that everything that is kept for a while is full after a few hundred runs."""

ENDLESS = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 0, "intervalMs": 50}},
        {"nodeId": "ask", "type": "WAIT_FOR_SIGNAL", "config": {"signal": "go", "maxWaiting": 2}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
}


async def two_runs(engine: Engine, turn: int) -> None:
    """Start a run, cancel it, restart it from the archive, cancel that one as well."""
    gateway = engine.gateway
    who: dict[str, Any] = {"actor": "ann", "via": "REST"}
    started = await gateway.start(
        StartRequest(session_id="s", workflow_id="w", idempotency_key=f"key-{turn}")
    )
    await asyncio.sleep(0.2)
    stop = StopWorkflow(execution_id=started.execution_id, mode=StopMode.CANCEL)
    await gateway.command(stop, **who, command_id="stop-it")
    await gateway.wait(started.execution_id, 60)
    again = await gateway.command(RestartWorkflow(execution_id=started.execution_id), **who)
    assert again.started is not None
    await gateway.command(
        StopWorkflow(execution_id=again.started.execution_id, mode=StopMode.KILL), **who
    )


def objects() -> int:
    """Objects that are alive and that the collector knows."""
    gc.collect()
    return len(gc.get_objects())


@virtual_time
async def test_runs_started_cancelled_and_restarted_leave_memory_flat() -> None:
    settings = load_settings(environ={}, overrides=KEPT)
    counts = []
    async with Engine(settings) as engine:
        await engine.definitions.apply_session({"sessionId": "s", "workflows": [ENDLESS]})
        tasks = set(asyncio.all_tasks())
        for begin in range(0, RUNS // 2, TOGETHER):
            turns = range(begin, begin + TOGETHER)
            async with asyncio.TaskGroup() as group:
                for turn in turns:
                    group.create_task(two_runs(engine, turn))
            if begin % LOOK == LOOK - TOGETHER:
                await asyncio.sleep(700)
                counts.append(objects())

        assert set(asyncio.all_tasks()) <= tasks
        assert engine._starter.live == {}
    assert max(counts[1:]) < counts[0] * 1.01, counts
