"""Large payloads in the files of an engine: kept apart, there again after a crash, missed aloud."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from yukta_rx.control.commands import Recover, RestartWorkflow
from yukta_rx.control.handles import Execution
from yukta_rx.durability.stores.blobs import blob_of
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")

POOL = BlockingPool(1)
"""Threads of the engine's kind: virtual time waits for them."""

LARGE = {"text": "large " * 500, "n": 7}
BLOB = blob_of(codec.encode(LARGE))
LIMIT = {"payload.claim-check-bytes": "1KiB"}
HANGS: set[str] = set()

FLOW = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "PAYLOAD"},
        {"nodeId": "wait", "type": "WAIT"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "wait"}, {"source": "wait", "target": "out"}],
}


@trigger("PAYLOAD", blocking=False, replayable=True)
async def payload(cfg, ctx):
    """Emit the start payload."""
    yield ctx.payload


@processor("WAIT", blocking=False)
async def wait(msg, cfg, ctx):
    """Pass on, or hang."""
    while ctx.execution_id in HANGS or "all" in HANGS:
        await asyncio.sleep(1)
    return msg.payload


@pytest.fixture(autouse=True)
def fresh() -> None:
    HANGS.clear()


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load(None, extra=[payload, wait])


async def payloads_of(run: Any) -> list[Any]:
    return [item.payload async for item in run.results() if item.type == "RESULT"]


async def text_of(folder: Path) -> bytes:
    """All lines of a folder."""

    def read() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(folder.rglob("*.jsonl")))

    return await POOL.call(read)


async def names_in(folder: Path) -> list[str]:
    """Names of the files below a folder."""
    return await POOL.call(lambda: [one.name for one in folder.rglob("*") if one.is_file()])


async def moments(n: int = 30) -> None:
    """Let what is under way be written."""
    for _ in range(n):
        await asyncio.sleep(0.01)


async def lose_blob(folder: Path) -> None:
    """Remove a blob from the folder of one switch."""
    path = folder / "blobs" / "objects" / BLOB.sha256[:2] / BLOB.sha256
    await POOL.call(path.unlink)


@virtual_time
async def test_a_large_payload_is_once_in_each_folder_and_the_result_is_there_again(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    folder = tmp_path / "data"
    async with engine_on(folder, registry, **LIMIT) as engine:
        run = await engine.start("s", FLOW, LARGE)
        assert await run.wait() is TaskStatus.SUCCESS
    for switch in ("execution-log", "restart"):
        assert await names_in(folder / switch / "blobs" / "objects") == [BLOB.sha256]
    owners = folder / "restart" / "blobs" / "owners" / "archive"
    assert await names_in(owners) == [BLOB.sha256]
    for name in ("execution-log", "restart", "restart/results", "restart/outputs"):
        written = await text_of(folder / name)
        assert b'"$yukta":"blob"' in written
        assert b"large large" not in written

    async with engine_on(folder, registry, **LIMIT) as engine:
        part = await engine.stores.results.read(run.execution_id)
        assert part is not None
        assert [one.payload for one in part.items if one.type == "RESULT"] == [LARGE]


@pytest.mark.parametrize("how", [Recover, RestartWorkflow], ids=["resume", "restart"])
@virtual_time
async def test_a_run_that_a_crash_cut_off_goes_on_with_its_large_payload(
    tmp_path: Path, registry: PluginRegistry, how: Any
) -> None:
    HANGS.add("all")
    async with doomed(engine_on(tmp_path / "data", registry, **LIMIT)) as engine:
        old = (await engine.start("s", FLOW, LARGE)).execution_id
        await moments()
        after = await image(tmp_path / "data", "after")
    HANGS.clear()

    async with engine_on(after, registry, **LIMIT) as engine:
        result = await engine.gateway.command(how(old), actor="ada", via="REST")
        run = Execution(engine, result.started.execution_id)
        assert await run.wait() is TaskStatus.SUCCESS
        assert await payloads_of(run) == [LARGE]


@virtual_time
async def test_a_run_whose_start_payload_is_gone_is_not_resumed_and_says_which_blob(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    HANGS.add("all")
    async with doomed(engine_on(tmp_path / "data", registry, **LIMIT)) as engine:
        old = (await engine.start("s", FLOW, LARGE)).execution_id
        await moments()
        after = await image(tmp_path / "data", "after")
    await lose_blob(after / "execution-log")

    async with engine_on(after, registry, **LIMIT) as engine:
        with pytest.raises(StoreUnavailableError) as refused:
            await engine.gateway.command(Recover(old), actor="ada", via="REST")
        history = (await engine.gateway.history(old, 10)).items

    told = f"the start payload of run {old}: blob {BLOB.sha256} of {BLOB.size} bytes is missing"
    assert told in refused.value.detail
    assert history[0]["type"] == "RUN_STARTED"


@virtual_time
async def test_a_run_that_ended_is_restarted_with_its_large_payload_or_says_which_blob_is_gone(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    folder = tmp_path / "data"
    async with engine_on(folder, registry, **LIMIT) as engine:
        run = await engine.start("s", FLOW, LARGE)
        assert await run.wait() is TaskStatus.SUCCESS
    old = run.execution_id
    assert b'"apart":true' in await POOL.call((folder / "restart" / "archive.jsonl").read_bytes)
    async with engine_on(folder, registry, **LIMIT) as engine:
        result = await engine.gateway.command(RestartWorkflow(old), actor="ada", via="REST")
        again = Execution(engine, result.started.execution_id)
        assert await again.wait() is TaskStatus.SUCCESS
        assert await payloads_of(again) == [LARGE]
    await lose_blob(folder / "restart")

    async with engine_on(folder, registry, **LIMIT) as engine:
        with pytest.raises(StoreUnavailableError) as refused:
            await engine.gateway.command(RestartWorkflow(old), actor="ada", via="REST")
        outputs = await engine.gateway.outputs(old, "out", 10)

    told = f"the start payload of run {old}: blob {BLOB.sha256} of {BLOB.size} bytes is missing"
    assert told in refused.value.detail
    assert outputs["complete"]


@virtual_time
async def test_starts_that_waited_have_their_large_payloads_and_one_without_ends_with_an_error(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    HANGS.add("all")
    settings = {"execution.max-concurrent": 1, **LIMIT}
    async with doomed(engine_on(tmp_path / "data", registry, **settings)) as engine:
        await engine.start("s", FLOW, {"n": 1})
        waits = await engine.start("s", "w", LARGE, patience=0)
        small = await engine.start("s", "w", {"n": 2}, patience=0)
        await moments()
        after, lossy = [await image(tmp_path / "data", name) for name in ("after", "lossy")]
    HANGS.clear()
    await lose_blob(lossy / "execution-log")

    assert b"large large" not in await text_of(after / "execution-log")
    async with engine_on(after, registry, **settings) as engine:
        assert await engine.tracker.wait(waits.execution_id, 100)
        assert engine.results.recorder is not None
        await engine.results.recorder.written()
        part = await engine.stores.results.read(waits.execution_id)
        assert part is not None
        assert part.items[0].payload == LARGE
    owners = after / "execution-log" / "blobs" / "owners"
    assert await names_in(owners / "queued-starts") == []

    async with engine_on(lossy, registry, **settings) as engine:
        assert await engine.tracker.wait(small.execution_id, 100)
        await engine.history.settled()
        [row] = [
            row
            for row in (await engine.gateway.history(waits.execution_id, 10)).items
            if row["type"] == "RUN_FINISHED"
        ]
    assert (row["status"], row["error"]["code"]) == ("ERROR", "store_unavailable")
    assert f"blob {BLOB.sha256} of {BLOB.size} bytes is missing" in row["error"]["detail"]


@virtual_time
async def test_a_damaged_line_of_the_outputs_is_counted(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    HANGS.add("all")
    async with doomed(engine_on(tmp_path / "data", registry)) as engine:
        await engine.start("s", FLOW, {"n": 1})
        await moments()
        # What is damaged at the very end cannot be told from a write that was cut off.
        await engine.start("s", FLOW, {"n": 5})
        await moments()
        after = await image(tmp_path / "data", "after")
    [name] = await names_in(after / "restart" / "outputs")
    file = after / "restart" / "outputs" / name
    text = await POOL.call(file.read_bytes)
    await POOL.call(file.write_bytes, text.replace(b'"n":1', b'"n":2'))

    async with engine_on(after, registry) as engine:
        assert engine.meters.counter("yukta.store.quarantined", store="restart").value == 1


@virtual_time
async def test_stores_that_share_a_folder_share_its_blobs(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    shared = str(tmp_path / "shared")
    settings = {"execution-log.dir": shared, "restart.dir": shared, **LIMIT}
    settings |= {"results.stored-runs": 0}
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        run = await engine.start("s", FLOW, LARGE)
        assert await run.wait() is TaskStatus.SUCCESS
    for _ in range(2):
        async with engine_on(tmp_path / "data", registry, **settings) as engine:
            # What the results needed may go, and takes nothing away from the others.
            await engine.stores.results.trim(0)
            assert await engine.gateway.payload(run.execution_id) == LARGE
            shown = await engine.gateway.outputs(run.execution_id, "wait", 10)
            assert [item["payload"] for item in shown["items"]] == [LARGE]
            assert await names_in(tmp_path / "shared" / "blobs" / "objects") == [BLOB.sha256]
