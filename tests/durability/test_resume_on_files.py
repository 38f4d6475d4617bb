"""Runs recorded in files, cut off behind each record, and gone on with by another store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.durability.test_file_checkpoints import POOL, opened, put, texts
from tests.engine.conftest import World
from tests.engine.test_resume import listed
from tests.engine.test_resume_nodes import calls, crashes_of
from yukta_rx.testing.clock import virtual_time

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
