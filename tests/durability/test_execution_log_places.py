"""The execution log in a file, of which memory holds no line: what is read is what was written."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.execution_log import COMPACT_AFTER, NOW, RETAINED, finished, note, of, started
from yukta_rx.durability.file.execution_log import NAME, FileExecutionLogStore
from yukta_rx.metrics import Meters
from yukta_rx.model.execution_log import RunStarted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.feature("DUR-01"), pytest.mark.durable]

MIB = 1 << 20


def in_files(folder: Path, **more: Any) -> FileExecutionLogStore:
    return FileExecutionLogStore(folder, more.pop("retained", RETAINED), **more)


@contextmanager
def measured() -> Iterator[list[int]]:
    """Bytes that are held more at the end than at the beginning, and the most in between."""
    found: list[int] = []
    gc.collect()
    tracemalloc.start()
    try:
        yield found
        gc.collect()
        found += tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


@pytest.mark.slow
async def test_memory_holds_no_payload_and_no_line(tmp_path: Path) -> None:
    """500 runs with 200 kB each are 100 MB in the file."""
    text = "x" * 200_000
    store = in_files(tmp_path, retained=1000, compact_after=100_000)
    await store.start()
    with measured() as written:
        for n in range(500):
            await store.append_start(started(f"r{n}", {"text": text, "n": n}))
            await store.append([finished(f"r{n}")])
    await store.close()
    with measured() as opened:
        async with in_files(tmp_path, retained=1000, compact_after=100_000) as store:
            runs = await store.runs()
            assert len(runs) == 500
            del runs
            last = await store.start_of("r499")
            assert last is not None
            assert last.payload == {"text": text, "n": 499}
            del last

    assert (tmp_path / NAME).stat().st_size > 100_000_000
    assert written[0] < 2 * MIB
    assert opened[0] < 2 * MIB
    # A piece of the file is read at a time, and turns of lines are decoded.
    assert max(written[1], opened[1]) < 16 * MIB


@pytest.mark.slow
async def test_lines_are_found_wherever_they_are_moved_while_they_are_read(tmp_path: Path) -> None:
    chance = random.Random(7)

    async def lives(store: Any, name: str) -> None:
        for n in range(25):
            run, size = f"{name}{n}", chance.choice((1, 300, 20_000))
            given = {"run": run, "text": "y" * size}
            await store.append_start(started(run, given))
            commands = [note(run, f"{run}-{k}") for k in range(chance.randrange(4))]
            await store.append(commands)
            start = await store.start_of(run)
            assert start.payload == given
            assert await of(store, run) == [started(run, given), *commands]
            assert run in {one.execution_id for one in await store.unfinished()}
            await store.append([finished(run)])

    async with in_files(tmp_path, compact_after=COMPACT_AFTER) as store:
        live = {"text": "z" * 5000}
        await store.append_start(started("live", live))
        await asyncio.gather(*(lives(store, name) for name in "abcdefgh"))
        assert (await store.start_of("live")).payload == live
        before = [(one.started.execution_id, one.ended) for one in await store.runs()]
    async with in_files(tmp_path, compact_after=COMPACT_AFTER) as store:
        after = [(one.started.execution_id, one.ended) for one in await store.runs()]
        assert after[-RETAINED:] == before[-RETAINED:]
        assert ("live", None) in after
        assert (await store.start_of("live")).payload == live


async def test_a_line_that_only_a_reader_finds_damaged_is_set_aside_by_him(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, meters = tmp_path / NAME, Meters()
    async with in_files(tmp_path, compact_after=1000) as store:
        await store.append_start(started("a", b"raw"))
        await store.append([note("a"), finished("a")])
        await store.append_start(started("b"))
    good = path.read_bytes()
    # JSON still, but no bytes.
    path.write_bytes(good.replace(b'"v":"cmF3"', b'"v":"!!!!"'))

    async with in_files(tmp_path, compact_after=1000, meters=meters) as store:
        assert store.quarantined == []
        assert await of(store, "a") == [note("a"), finished("a")]
        assert await store.start_of("a") is None
        assert [run.started.execution_id for run in await store.runs()] == ["b"]
        assert [str(one).partition(":")[0] for one in store.quarantined] == [f"{NAME}, seq 1"]
        await store.append([finished("b")])
    assert meters.counter("yukta.store.quarantined", store="execution-log").value == 1
    assert "seq 1: " in caplog.text
    [aside] = (tmp_path / "executions.quarantine.jsonl").read_bytes().splitlines()
    assert "!!!!" in json.loads(aside)["line"]
    async with in_files(tmp_path, compact_after=1000) as store:
        assert await of(store, "a") == [note("a"), finished("a")]
        assert await of(store, "b") == [started("b"), finished("b")]


async def test_lists_of_runs_have_no_start_payloads_and_all_else(tmp_path: Path) -> None:
    given = RunStarted(
        execution_id="a\u0000b",
        time=NOW,
        session_id="s",
        workflow_id="w",
        payload={"big": "x" * 1000},
        labels={"team": "grüße \u0000"},
        options={"a": [1, 2.5]},
        breakpoints=({"nodeId": "n"},),
        parent_execution_id="p",
    )
    async with in_files(tmp_path, compact_after=1000) as store:
        await store.append_start(given)
    async with in_files(tmp_path, compact_after=1000) as store:
        [run], [open_run] = await store.runs(), await store.unfinished()
        assert run.started == open_run
        assert open_run.payload is None
        assert open_run.as_dict() == given.as_dict()
        assert await store.start_of("a\u0000b") == given
