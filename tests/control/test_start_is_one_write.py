"""A start that waits is there whole or not at all, whichever of its two writes the server died in.

The child process dies where one of the two files would outgrow what it may have: in the middle of
a write, as the system ends a process. What it had written is what the next server finds.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.execution_log import NOW
from tests.control.crash import engine_on
from yukta_rx.durability.file.execution_log import NAME as LOG
from yukta_rx.durability.file.queued_starts import NAME as QUEUE
from yukta_rx.errors import UnavailableError
from yukta_rx.model.codec import encode
from yukta_rx.model.execution_log import SCHEDULER, ControlApplied, encode_event
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.durable, pytest.mark.feature("DUR-01", "ADM-01")]

SIZE = 1 << 20

FILLING = {
    LOG: encode_event(
        ControlApplied(
            execution_id=SCHEDULER, time=NOW, command="x", args={"filling": "x" * SIZE}, via="REST"
        )
    ),
    QUEUE: encode({"op": "take", "executionId": "nobody", "filling": "x" * SIZE}),
}
"""By file, a line that means nothing for starts and makes it the largest one of all."""

LINE = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "wait", "type": "DELAY", "config": {"ms": 60_000}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "wait"}, {"source": "wait", "target": "out"}],
}

SETTINGS = {"execution.max-concurrent": 1}

PROGRAM = """
import asyncio, resource, signal, sys
from pathlib import Path
from tests.contract.execution_log import NOW
from tests.control.crash import engine_on
from tests.control.test_start_is_one_write import LINE, SETTINGS

async def main():
    folder, name, room = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    async with engine_on(folder, **SETTINGS) as engine:
        first = await engine.start("s", LINE, {"n": 1})
        print(first.execution_id, flush=True)
        while len((await engine.gateway.history(first.execution_id, 10)).items) < 2:
            await asyncio.sleep(0.01)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        most = (folder / "execution-log" / name).stat().st_size + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        await engine.start("s", "w", {"n": 2}, idempotency_key="k", patience=0)
        print("told", flush=True)

asyncio.run(main())
"""


async def died(folder: Path, name: str, room: int) -> list[str]:
    """What a server said that died when one file would have grown by more than `room`."""
    log = folder / "execution-log"
    log.mkdir(parents=True)
    (log / name).write_bytes(FILLING[name] + b"\n")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(folder), name, str(room)), stdout=PIPE
    )
    said, _ = await child.communicate()
    assert child.returncode == -signal.SIGXFSZ
    return said.decode().split()


def listed(engine: Any) -> dict[str, str]:
    return {run.execution_id: str(run.status) for run in engine.tracker.runs()}


@pytest.mark.parametrize("room", [0, 100])
@pytest.mark.parametrize("name", [LOG, QUEUE])
def test_a_start_that_was_cut_in_one_of_its_writes_never_was(
    tmp_path: Path, name: str, room: int
) -> None:
    [first] = asyncio.run(died(tmp_path / "data", name, room))

    @virtual_time
    async def main() -> None:
        async with engine_on(tmp_path / "data", **SETTINGS) as engine:
            assert listed(engine) == {first: "ABORTED"}
            assert await engine.stores.queued_starts.list() == []
            again = await engine.start("s", "w", {"n": 2}, idempotency_key="k", patience=0)
            assert await engine.tracker.wait(again.execution_id, 600)
            assert listed(engine)[again.execution_id] == "SUCCESS"

    main()


@pytest.mark.parametrize("turns", range(0, 40, 2))
@virtual_time
async def test_a_start_that_is_refused_at_any_moment_has_an_end_or_never_was(
    tmp_path: Path, turns: int
) -> None:
    async with engine_on(tmp_path / "data", **SETTINGS) as engine:
        first = await engine.start("s", LINE, {"n": 1})
        waits = asyncio.ensure_future(engine.start("s", "w", {"n": 2}))
        for _ in range(turns):
            await asyncio.sleep(0)
    [error] = await asyncio.gather(waits, return_exceptions=True)
    assert isinstance(error, UnavailableError)

    async with engine_on(tmp_path / "data", **SETTINGS) as engine:
        others = listed(engine)
        assert others.pop(first.execution_id) != "RUNNING"
        assert set(others.values()) <= {"CANCELLED"}
        assert await engine.stores.queued_starts.list() == []


@virtual_time
async def test_a_start_that_gets_its_slot_while_it_is_written_is_seen_from_then_on(
    tmp_path: Path,
) -> None:
    async with engine_on(tmp_path / "data", **SETTINGS) as engine:
        await engine.start("s", LINE, {"n": 1})
        told, written = engine.history.on_start, []

        def on_start(start: Any) -> None:
            told(start)
            written.append(start.execution_id)
            engine._starter.scheduler.set_limits(2, 0)

        engine.history.on_start = on_start
        waits = asyncio.ensure_future(engine.start("s", "w", {"n": 2}))
        seen = []
        while not waits.done():
            await asyncio.sleep(0)
            seen += [engine.gateway.summary(name)["status"] for name in written]
        assert [waits.result().execution_id] == written
        assert list(dict.fromkeys(seen)) == ["PENDING", "RUNNING"]
