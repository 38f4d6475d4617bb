"""Runs recorded in files, cut off behind each record, and gone on with by another store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.durability.test_file_checkpoints import POOL, opened, put, texts
from tests.engine.conftest import World
from tests.engine.test_resume import Crashes, listed
from tests.engine.test_resume_nodes import calls, crashes_of
from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import run_virtual, virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")

NODES = {
    "in": "NUMBERS",
    "double": "DOUBLE",
    "fan": "FAN",
    "out": "THREAD_END",
    "side": "COLLECT_TERMINAL",
}


@virtual_time
async def test_a_run_goes_on_from_what_any_crash_leaves_of_the_files(tmp_path: Path) -> None:
    crashes = crashes_of(World(), NODES, "in>double>fan>out, fan.side>side", row=5)
    store = await opened(tmp_path / "whole")
    outcome = await crashes.run(store, "run")
    await store.close()
    wanted = crashes.shown()
    assert outcome.status == "SUCCESS"
    assert wanted
    [(name, text)] = (await POOL.call(texts, tmp_path / "whole")).items()
    ends = [at + 1 for at, byte in enumerate(text) if byte == ord("\n")]
    assert len(ends) > 20

    for end in ends:
        folder = await POOL.call(put, tmp_path / "cut", {name: text[:end]})
        left = await opened(folder)
        done = await listed(left, "run")
        calls.clear()
        _, outcome = await crashes.resume(left, "run", "again")
        await left.close()
        assert outcome.status == "SUCCESS"
        assert crashes.shown() == wanted
        assert not done & Counter(calls)
        reopened = await opened(folder)
        states = await reopened.states("again")
        await reopened.close()
        assert all(states[node].complete for node in NODES)


@pytest.mark.parametrize("mode", ["APPEND", "REPLACE"])
def test_a_file_of_a_run_that_goes_on_has_every_line_once(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "out.jsonl"
    settings = Settings(files={"allowed_dirs": [tmp_path]})
    options = {"path": str(file), "mode": mode}
    document = {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 20}},
            {"nodeId": "file", "type": "FILE_TERMINAL", "config": options},
        ],
        "edges": [{"source": "in", "target": "file"}],
    }
    prepared = prepare(parse_definition(document), PluginRegistry.load(settings), settings=settings)

    async def run() -> None:
        crashes = Crashes(prepared, row=5, settings=settings)
        store = await opened(tmp_path / "whole")
        await crashes.run(store, "run")
        await store.close()
        wanted = await POOL.call(file.read_text)
        assert len(wanted.splitlines()) == 20
        lines_of = {
            item.message_id: f'{{"n":{item.payload["n"]}}}\n'
            for item in crashes.results
            if item.type == "RESULT"
        }
        [(name, text)] = (await POOL.call(texts, tmp_path / "whole")).items()
        lines = text.splitlines(keepends=True)

        for place in range(1, len(lines) + 1):
            folder = await POOL.call(put, tmp_path / "cut", {name: b"".join(lines[:place])})
            left = await opened(folder)
            over = (await left.states("run")).get("file")
            # What the crash left of the file: a new one only if it was renamed.
            before = "".join(
                lines_of[made] for node, made in await listed(left, "run") if node == "file"
            )
            if mode == "REPLACE":
                before = wanted if over is not None and over.complete else ""
            await POOL.call(file.write_text, before)
            await crashes.resume(left, "run", "again")
            await left.close()
            found = await POOL.call(file.read_text)
            assert Counter(found.splitlines()) == Counter(wanted.splitlines())

    run_virtual(run())
