"""A server starts on files that are damaged where it can do without, and says what it misses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path


@processor("HANG", blocking=False)
async def hang(msg, cfg, ctx):
    """Let the first message through, and no other."""
    while msg.payload != 0:
        await asyncio.sleep(1)
    return msg


@processor("SPLIT_UP", blocking=False)
async def split_up(msg, cfg, ctx):
    """Three of one."""
    for n in range(3):
        yield n


LINE = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "split", "type": "SPLIT_UP"},
        {"nodeId": "hang", "type": "HANG"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [
        {"source": "in", "target": "split"},
        {"source": "split", "target": "hang"},
        {"source": "hang", "target": "out"},
    ],
}


async def damaged(folder: Path, old: bytes, new: bytes) -> None:
    """Change the one file of a folder."""

    def work() -> None:
        [file] = folder.iterdir()
        data = file.read_bytes()
        assert old in data
        file.write_bytes(data.replace(old, new))

    pool = BlockingPool(1)
    try:
        await pool.call(work)
    finally:
        pool.close()


@virtual_time
@pytest.mark.feature("OBS-03", "DUR-01")
async def test_a_damaged_result_is_missed_by_who_reads_it_and_by_nobody_else(
    tmp_path: Path,
) -> None:
    registry = PluginRegistry.load(None, extra=[hang, split_up])
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        run = await engine.start("s", LINE, {})
        for _ in range(50):
            await asyncio.sleep(0.1)
        after = await image(tmp_path / "data", "after")
    await damaged(after / "restart" / "results", b'"messageId":"', b'"messageId":"\xff')

    async with engine_on(after, registry) as engine:
        assert engine.gateway.detail(run.execution_id)["status"] == "ABORTED"
        recorder = engine.results.recorder
        assert recorder is not None
        with pytest.raises(StoreUnavailableError, match=f"result 1 of run {run.execution_id}"):
            await recorder.read(run.execution_id, 0, 10)
        [end] = await recorder.read(run.execution_id, 1, 10)
        assert (end.type, end.truncated) == ("EXECUTION_END", True)
