"""A server that takes up what it found: starts and runs that it cannot go on with, or not yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from tests.control.test_large_payloads import BLOB as LARGE_BLOB
from tests.control.test_large_payloads import LARGE, LIMIT, POOL, lose_blob, moments
from tests.control.test_start_is_one_write import LINE, SETTINGS, listed
from yukta_rx.control.commands import SetBreakpoint
from yukta_rx.durability.file.queued_starts import NAME as QUEUE
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.app import Engine

pytestmark = pytest.mark.feature("DUR-01", "ADM-01")

HEAVY = {**SETTINGS, **LIMIT}
RESUMING = {**HEAVY, "restart.auto-resume": True}


async def starts(folder: Path, payload: Any, **settings: Any) -> tuple[Path, list[str]]:
    """What a crash leaves of a run and of a start that waits for its slot; their ids."""
    given = {**HEAVY, **settings}
    async with doomed(engine_on(folder, **given)) as engine:
        runs = await engine.start("s", LINE, payload)
        waits = await engine.start("s", "w", payload, idempotency_key="k", patience=0)
        await moments()
        return await image(folder, "after"), [runs.execution_id, waits.execution_id]


async def hide_blob(folder: Path) -> Path:
    """Let the file of a blob be unreadable; where it is meanwhile."""
    path = folder / "blobs" / "objects" / LARGE_BLOB.sha256[:2] / LARGE_BLOB.sha256
    hidden = path.with_name("hidden")
    await POOL.call(path.rename, folder / hidden.name)
    await POOL.call(path.mkdir)
    return folder / hidden.name


async def show_blob(folder: Path, hidden: Path) -> None:
    """Undo `hide_blob`."""
    path = folder / "blobs" / "objects" / LARGE_BLOB.sha256[:2] / LARGE_BLOB.sha256
    await POOL.call(path.rmdir)
    await POOL.call(hidden.rename, path)


async def change_queue(folder: Path, old: bytes, new: bytes) -> None:
    """Change what the queue's file says."""
    path = folder / "execution-log" / QUEUE
    text = await POOL.call(path.read_bytes)
    assert text.count(old) == 1
    await POOL.call(path.write_bytes, text.replace(old, new))


async def end_of(engine: Engine, execution_id: str) -> dict[str, Any]:
    await engine.history.settled()
    rows = (await engine.gateway.history(execution_id, 100)).items
    [end] = [row for row in rows if row["type"] == "RUN_FINISHED"]
    return end


# --- starts that waited --------------------------------------------------------------------------


@virtual_time
async def test_a_start_that_waits_outlives_a_store_that_gives_no_answer(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with doomed(engine_on(folder, **HEAVY)) as engine:
        await engine.start("s", LINE, {"n": 1})
        waiting = [
            (await engine.start("s", "w", payload, patience=0)).execution_id
            for payload in ({"n": 2}, LARGE, {"n": 3})
        ]
        await moments()
        after = await image(folder, "after")
    hidden = await hide_blob(after / "execution-log")
    with pytest.raises(StoreUnavailableError, match="Is a directory"):
        await engine_on(after, **HEAVY).open()
    await show_blob(after / "execution-log", hidden)
    async with engine_on(after, **HEAVY) as engine:
        assert await engine.tracker.wait(waiting[-1], 600)
        assert [listed(engine)[name] for name in waiting] == ["SUCCESS"] * 3


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_start_that_cannot_go_on_waiting_is_shown_and_its_key_starts_anew(
    tmp_path: Path,
) -> None:
    after, [_, waits] = await starts(tmp_path / "data", LARGE)
    await lose_blob(after / "execution-log")
    async with engine_on(after, **HEAVY) as engine:
        assert listed(engine)[waits] == "ERROR"
        shown = engine.gateway.detail(waits)["error"]
        assert "is missing" in shown["detail"]
        assert (await end_of(engine, waits))["error"] == shown
        assert await engine.stores.queued_starts.list() == []
        again = await engine.start("s", "w", LARGE, idempotency_key="k", patience=0)
        assert again.execution_id != waits
        assert engine.results.recorder is not None
        await engine.results.recorder.written()
        part = await engine.stores.results.read(waits)
        assert part is not None
        assert [(one.type, str(one.status)) for one in part.items] == [("EXECUTION_END", "ERROR")]


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_start_of_an_earlier_server_that_gets_no_slot_sets_its_key_free(
    tmp_path: Path,
) -> None:
    given = {"execution.queue-timeout": "30s"}
    folder = tmp_path / "data"
    async with doomed(engine_on(folder, **SETTINGS, **given)) as engine:
        await engine.start("s", LINE, {"n": 1})
        ids = []
        for n in range(2):
            start = await engine.start("s", "w", {"n": n}, idempotency_key=f"k{n}", patience=0)
            ids.append(start.execution_id)
        await moments()
        after = await image(folder, "after")
    async with engine_on(after, **SETTINGS, **given) as engine:
        # The first of them runs for a minute.
        await asyncio.sleep(40)
        assert [listed(engine)[one] for one in ids] == ["RUNNING", "TIMED_OUT"]
        kept, new = [
            await engine.start("s", "w", {"n": n}, idempotency_key=f"k{n}", patience=0)
            for n in range(2)
        ]
        assert kept.execution_id == ids[0]
        assert new.execution_id not in ids


@virtual_time
async def test_a_start_that_another_version_wrote_goes_on_without_what_it_did_not_say(
    tmp_path: Path,
) -> None:
    after, [_, waits] = await starts(tmp_path / "data", {"n": 1})
    await change_queue(after, b',"traceparent":null', b"")
    async with engine_on(after, **SETTINGS) as engine:
        assert await engine.tracker.wait(waits, 600)
        assert listed(engine)[waits] == "SUCCESS"


@virtual_time
async def test_a_start_whose_request_cannot_be_read_ends_and_keeps_no_server_from_opening(
    tmp_path: Path,
) -> None:
    after, [_, waits] = await starts(tmp_path / "data", {"n": 1})
    await change_queue(after, b'"labels":{}', b'"labels":7')
    async with engine_on(after, **SETTINGS) as engine:
        error = (await end_of(engine, waits))["error"]
        assert error["code"] == "bad_input"
        told = f"the request of queued start {waits} cannot be read: Expected `object`, got `int`"
        assert error["detail"].startswith(told)
        assert listed(engine)[waits] == "ERROR"


# --- interrupted runs ----------------------------------------------------------------------------


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_run_is_resumed_once_the_store_answers_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with doomed(engine_on(folder, **HEAVY)) as engine:
        old = (await engine.start("s", LINE, LARGE)).execution_id
        await moments()
        after = await image(folder, "after")
    hidden = await hide_blob(after / "execution-log")
    async with engine_on(after, **RESUMING) as engine:
        await asyncio.sleep(100)
        assert listed(engine) == {old: "ABORTED"}
        await show_blob(after / "execution-log", hidden)
        await asyncio.sleep(150)
        assert list(listed(engine).values()) == ["SUCCESS", "ABORTED"]


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_run_whose_payload_is_gone_is_not_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with doomed(engine_on(folder, **HEAVY)) as engine:
        old = (await engine.start("s", LINE, LARGE)).execution_id
        await moments()
        after = await image(folder, "after")
    await lose_blob(after / "execution-log")
    async with engine_on(after, **RESUMING) as engine:
        await asyncio.sleep(200)
        assert listed(engine) == {old: "ABORTED"}
        assert len(engine.gateway.audit(old)) == 1


@pytest.mark.feature("CTL-03", "DUR-03")
@virtual_time
async def test_a_run_of_many_commands_that_was_being_stopped_is_not_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with doomed(engine_on(folder, **SETTINGS)) as engine:
        run = await engine.start("s", LINE, {"n": 1})
        for n in range(120):
            point = SetBreakpoint(run.execution_id, "out", when=f"payload.n == {n % 5 + 2}")
            await engine.gateway.command(point, actor="ada", via="REST")
        await run.stop(StopMode.DRAIN)
        await moments()
        after = await image(folder, "after")
    async with engine_on(after, **RESUMING) as engine:
        await asyncio.sleep(200)
        assert listed(engine) == {run.execution_id: "ABORTED"}
