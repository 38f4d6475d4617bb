"""Commands that are in force while the execution log cannot be written: the answer says so."""

from __future__ import annotations

import asyncio
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import PauseWorkflow
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from yukta_rx.config.settings import Settings

pytestmark = pytest.mark.feature("DUR-01", "CTL-01")

ASKS = {
    "workflowId": "asks",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 1}},
        {"nodeId": "ask", "type": "WAIT_FOR_SIGNAL", "config": {"signal": "go"}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
}


class Full(MemoryExecutionLogStore):
    """A store on a disk that may be full."""

    full = False

    def _append(self, events: Sequence[Any]) -> None:
        if self.full:
            raise OSError("no space left on device")
        super()._append(events)


@pytest.fixture
def disk(engine: Engine) -> Full:
    made = Full(10, 1000)
    engine.history._store = made
    return made


@contextmanager
def full_from(size: int) -> Iterator[None]:
    """No file of this process grows beyond a size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def unrecorded(engine: Engine) -> float:
    return engine.meters.counter("yukta.control.unrecorded").value


async def asked(client: Any) -> Any:
    while not (items := (await client.ok("GET", "/api/approvals"))["items"]):
        await asyncio.sleep(0)
    return items[0]


async def written_again(engine: Engine) -> None:
    while engine.history.failing:
        await asyncio.sleep(0.01)


async def commands_in(client: Any, run: str) -> list[str]:
    items = (await client.ok("GET", f"/api/executions/{run}/history"))["items"]
    return [item["command"] for item in items if item["type"] == "CONTROL_APPLIED"]


async def test_a_command_says_that_it_is_not_written_and_no_more_once_it_is(
    client: Any, make: Any, engine: Engine, disk: Full
) -> None:
    await client.session_with(make.line("w", count=0, every_ms=5))
    run = await client.start("w")
    place, key = f"/api/executions/{run}", {"Idempotency-Key": "k-1"}
    before = await client.ok("POST", f"{place}/resume")
    disk.full = True
    paused = await client.ok("POST", f"{place}/pause", headers=key)
    again = await client.ok("POST", f"{place}/pause")
    tried = await client.ok("POST", f"{place}/resume?dryRun=true")
    shown = await client.ok("GET", place)
    counted = unrecorded(engine)
    disk.full = False
    await written_again(engine)
    repeated = await client.ok("POST", f"{place}/pause", headers=key)

    assert "recorded" not in before
    assert (paused["outcome"], paused["recorded"]) == ("APPLIED", False)
    assert (again["outcome"], again["recorded"]) == ("NO_OP", False)
    assert (tried["outcome"], tried.get("recorded")) == ("DRY_RUN", None)
    assert shown["paused"]
    assert counted == 2
    assert (repeated["commandId"], repeated.get("recorded")) == (paused["commandId"], None)
    assert await commands_in(client, run) == ["ResumeWorkflow", "PauseWorkflow", "PauseWorkflow"]


async def test_each_of_several_commands_says_it_for_itself(
    client: Any, make: Any, engine: Engine, disk: Full
) -> None:
    await client.session_with(make.line("w", count=0, every_ms=5))
    run = await client.start("w")
    disk.full = True
    commands = [
        {"type": "PauseWorkflow", "executionId": run},
        {"type": "PauseWorkflow", "executionId": "nobody"},
    ]
    answer = await client.ok("POST", "/api/commands", {"commands": commands})
    disk.full = False
    await written_again(engine)

    done, refused = answer["results"]
    assert (done["recorded"], refused["code"]) == (False, "execution_not_found")
    assert unrecorded(engine) == 1


async def test_an_answered_approval_says_it_as_well(
    client: Any, engine: Engine, disk: Full
) -> None:
    await client.session_with(ASKS)
    run = await client.start("asks")
    approval = await asked(client)
    disk.full = True
    answer = await client.ok(
        "POST", f"/api/approvals/{approval['approvalId']}", {"decision": "approve"}
    )
    ended = await client.ended(run)
    disk.full = False
    await written_again(engine)

    assert (answer["answer"], answer["recorded"]) == ("ACCEPTED", False)
    assert (ended["status"], ended["recorded"]) == ("SUCCESS", False)
    assert unrecorded(engine) == 1
    assert await commands_in(client, run) == ["SignalNode"]


# --- a real disk ---------------------------------------------------------------------------------


@pytest.fixture
def in_files(tmp_path: Path) -> Settings:
    overrides = {
        "yukta.profile": "file",
        "yukta.data.dir": str(tmp_path),
        "yukta.execution.shutdown-timeout": "100ms",
    }
    return load_settings(environ={}, overrides=overrides)


async def test_on_a_full_disk_a_run_can_be_paused_and_the_next_server_knows_of_it(
    in_files: Settings, tmp_path: Path, connect: Any, make: Any
) -> None:
    log = tmp_path / "execution-log" / "executions.jsonl"
    async with Engine(in_files) as engine, HttpServer(engine, port=0) as server:
        client = await connect(server)
        await client.session_with(make.line("w", count=0, every_ms=5))
        run = await client.start("w")
        await engine.history.settled()
        size = await asyncio.to_thread(lambda: log.stat().st_size)
        with full_from(size):
            command = PauseWorkflow(run)
            result = await engine.gateway.command(command, actor="ada", via="REST")
        await written_again(engine)
    async with Engine(in_files) as engine, HttpServer(engine, port=0) as server:
        known = await commands_in(await connect(server), run)

    assert (result.as_dict()["outcome"], result.as_dict()["recorded"]) == ("APPLIED", False)
    assert known[0] == "PauseWorkflow"


async def test_an_answer_that_cannot_be_kept_is_refused_and_can_be_given_again(
    in_files: Settings, connect: Any
) -> None:
    async with Engine(in_files) as engine, HttpServer(engine, port=0) as server:
        client = await connect(server)
        await client.session_with(ASKS)
        run = await client.start("asks")
        path = f"/api/approvals/{(await asked(client))['approvalId']}"
        with full_from(1):
            refused = await client("POST", path, {"decision": "approve"})
        still = await asked(client)
        await written_again(engine)
        await client.ok("POST", path, {"decision": "approve"})
        ended = await client.ended(run)

    assert (refused.status, refused.code) == (503, "store_unavailable")
    assert path.endswith(still["approvalId"])
    assert ended["status"] == "SUCCESS"
