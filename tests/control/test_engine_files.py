"""An embedded engine whose stores are files: what the next one finds, and that it is alone."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.engine.run import Run
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.config.settings import Settings

pytestmark = pytest.mark.feature("DUR-05", "OV-15")

FLOW = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 3}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings("/dev/null", {"YUKTA_PROFILE": "file", "YUKTA_DATA_DIR": str(tmp_path)})


async def run_once(settings: Settings) -> str:
    async with Engine(settings) as engine:
        run = await engine.start("s", FLOW)
        assert await run.wait() is TaskStatus.SUCCESS
        return run.execution_id


async def test_the_next_engine_has_workflows_history_and_results(settings: Settings) -> None:
    execution_id = await run_once(settings)

    async with Engine(settings) as engine:
        session = await engine.definitions.get_session("s")
        entries = await engine.stores.execution_log.read(execution_id)
        results = await engine.stores.results.read(execution_id)
        again = await engine.start("s", "w")
        status = await again.wait()

    assert session is not None
    types = [entry.event.as_dict()["type"] for entry in entries]
    assert (types[0], types[-1]) == ("RUN_STARTED", "RUN_FINISHED")
    assert results is not None
    assert results.ended
    assert [item.payload["n"] for item in results.items if item.type == "RESULT"] == [0, 1, 2]
    assert status is TaskStatus.SUCCESS


async def test_two_engines_of_one_process_do_not_share_a_folder(settings: Settings) -> None:
    async with Engine(settings) as first:
        second = Engine(settings)
        with pytest.raises(StoreUnavailableError) as refused:
            await second.open()
        still = await first.start("s", FLOW)
        assert await still.wait() is TaskStatus.SUCCESS

    assert f"(pid {os.getpid()} on" in refused.value.detail
    assert first.instance_id in refused.value.detail


async def test_an_engine_that_could_not_be_opened_can_be_closed_and_made_anew(
    settings: Settings,
) -> None:
    async with Engine(settings):
        refused = Engine(settings)
        with pytest.raises(StoreUnavailableError):
            await refused.open()
        await refused.close()

    await run_once(settings)


async def test_what_is_open_is_logged_row_by_row(settings: Settings, caplog: Any) -> None:
    caplog.set_level("INFO", logger="yukta_rx.durability.open")

    await run_once(settings)

    told = [record.getMessage() for record in caplog.records if "durability: " in record.message]
    assert any(
        line.startswith("durability: history and audit (file: ")
        and line.endswith("outlives process crash, power loss")
        for line in told
    )
    assert any(line.endswith("browser logins (memory) outlives nothing") for line in told)


def runs_in_memory(execution_id: str) -> list[Run]:
    return [
        one for one in gc.get_objects() if type(one) is Run and one.execution_id == execution_id
    ]


async def test_a_run_that_ended_is_not_kept_for_its_results(settings: Settings) -> None:
    async with Engine(settings) as engine:
        held = await engine.start("s", FLOW, step_mode=True)
        assert len(runs_in_memory(held.execution_id)) == 1
        await held.resume()
        assert await held.wait() is TaskStatus.SUCCESS
        await engine._starter.ended(held.execution_id)
        # The tasks of its end have gone by then.
        await asyncio.sleep(0)
        gc.collect()

        assert engine.results.get(held.execution_id) is not None
        assert runs_in_memory(held.execution_id) == []
