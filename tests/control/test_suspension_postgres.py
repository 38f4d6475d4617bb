"""Suspended runs of a server with a database: answers, crashes, a takeover, a store that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.control.crash import dethroned
from tests.control.suspended import PLUGINS, asleep, line
from tests.durability.conftest import postgres, postgres_schema, postgres_server
from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.approvals import answer_to
from yukta_rx.control.commands import Recover
from yukta_rx.control.handles import Execution
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.slow, pytest.mark.durable, pytest.mark.feature("CTL-05", "DUR-03")]

__all__ = ["postgres", "postgres_schema", "postgres_server"]


def document(count: int, **config: Any) -> dict[str, Any]:
    """Numbers that wait for the signal `go`; every second one gets to the end."""
    return line(
        ("in", "SEQUENCE_TRIGGER", {"count": count}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", **config}),
        ("keep", "KEEP", {}),
        ("out", "COLLECT_TERMINAL", {}),
    )


@pytest.fixture
def engine(postgres, postgres_schema) -> Callable[..., Engine]:
    """An engine on the database that suspends soon."""

    def on(**settings: Any) -> Engine:
        given = {
            "profile": "postgres",
            "postgres.url": postgres_schema,
            "execution.suspend-after": "200ms",
            "execution.shutdown-timeout": "100ms",
            **settings,
        }
        overrides = {f"yukta.{name}": value for name, value in given.items()}
        loaded = load_settings(overrides=overrides, environ={})
        return Engine(loaded, registry=PluginRegistry.load(loaded, extra=PLUGINS))

    return on


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not met():
            await asyncio.sleep(0.01)


async def suspended(engine: Engine, asked: int, runs: int = 1) -> list[str]:
    """Wait until runs are suspended in which so many messages wait; the ids of the requests."""
    await until(lambda: len(open_requests(engine)) == asked and asleep(engine) == runs)
    return open_requests(engine)


def open_requests(engine: Engine) -> list[str]:
    return [one["approvalId"] for one in engine.approvals.page(lambda _: True, 500)[0]]


async def answer(engine: Engine, approval: str, decision: str = "yes") -> Any:
    request = await engine.approvals.find(approval)
    return await engine.gateway.command(answer_to(request, decision), actor="ann", via="REST")


async def recover(engine: Engine, execution_id: str) -> str:
    result = await engine.gateway.command(Recover(execution_id), actor="ann", via="REST")
    found: str = result.started.execution_id
    return found


async def results(engine: Engine, execution_id: str) -> list[Any]:
    """The results of a run in their order."""
    async with asyncio.timeout(30):
        found = [one async for one in Execution(engine, execution_id).results()]
    assert [one.cursor for one in found] == list(range(1, len(found) + 1))
    return [one.payload["n"] for one in found if one.type == "RESULT"]


async def states(schema: str) -> list[tuple[str, str]]:
    """Of each request in the database, in order, its message and its state."""
    made = await asyncpg.connect(schema)
    try:
        rows = await made.fetch("SELECT * FROM input_request ORDER BY request_id")
    finally:
        await made.close()
    return [(row["execution_id"], str(row["state"])) for row in rows]


def numbers(engine: Engine, execution_id: str) -> dict[str, tuple[int, int]]:
    return {one["nodeId"]: (one["in"], one["out"]) for one in engine.gateway.nodes(execution_id)}


async def test_answers_wake_a_suspended_run_and_its_record_is_that_of_any_run(
    engine, postgres_schema
) -> None:
    async with engine() as before:
        run = await before.start("s", document(6, maxWaiting=2))
        for n in range(6):
            asked = await suspended(before, min(2, 6 - n))
            assert run.detail["suspended"] is True
            effect = await answer(before, asked[0])
            assert effect.answer == "ACCEPTED"
        assert await run.wait(30) is TaskStatus.SUCCESS
        seen = numbers(before, run.execution_id)
        assert seen == {"in": (0, 6), "ask": (6, 6), "keep": (6, 3), "out": (3, 0)}
        assert await results(before, run.execution_id) == [0, 2, 4]
        rows = (await before.gateway.history(run.execution_id, 100)).items
        kinds = [row["type"] for row in rows]
        assert (kinds[0], kinds[-1]) == ("RUN_STARTED", "RUN_FINISHED")
        assert [kinds.count(kind) for kind in ("RUN_STARTED", "RUN_FINISHED")] == [1, 1]
        outputs = await before.gateway.outputs(run.execution_id, "ask", 100)
        told = sorted(one["payload"]["n"] for one in outputs["items"])
        assert told == list(range(6))

    async with engine() as after:
        # All of it was written.
        assert await results(after, run.execution_id) == [0, 2, 4]
        again = await Execution(after, run.execution_id).restart()
        await suspended(after, 2)
        assert again.detail["suspended"] is True
        await again.stop(StopMode.KILL)
    found = await states(postgres_schema)
    assert found == [
        *[(run.execution_id, "ANSWERED")] * 6,
        *[(again.execution_id, "CANCELLED")] * 2,
    ]


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("ends", ["crash", "shutdown"])
async def test_a_run_that_was_suspended_when_its_server_ended_goes_on(
    engine, ends: str, resumes: bool
) -> None:
    async with dethroned(engine()) if ends == "crash" else engine() as before:
        run = await before.start("s", document(6, maxWaiting=3))
        for _ in range(2):
            asked = await suspended(before, 3)
            await answer(before, asked[0])
        asked = await suspended(before, 3)

    async with engine(**{"restart.auto-resume": resumes}) as after:
        old = run.execution_id
        assert after.gateway.summary(old)["status"] == "ABORTED"
        if resumes:
            await until(lambda: after.gateway.resumes._newest.get(old) is not None)
            new = after.gateway.resumes._newest[old]
        else:
            new = await recover(after, old)
        # They are asked no second time.
        assert await suspended(after, 3) == asked
        assert after.gateway.summary(new)["suspended"] is True
        for left in (3, 3, 2, 1):
            await answer(after, (await suspended(after, left))[0])
        assert await after.gateway.end_of(new, 30) == "SUCCESS"
        assert await results(after, new) == [0, 2, 4]
        assert numbers(after, new)["ask"] == (6, 6)


async def test_an_answer_that_was_written_is_not_lost_with_the_server(engine) -> None:
    async with dethroned(engine()) as before:
        run = await before.start("s", document(4))
        asked = await suspended(before, 4)
        await answer(before, asked[0])
        # Nothing is awaited here until nothing is written any more.
    async with engine() as after:
        new = await recover(after, run.execution_id)
        assert await suspended(after, 3) == asked[1:]
        for left in (3, 2, 1):
            await answer(after, (await suspended(after, left))[0])
        assert await after.gateway.end_of(new, 30) == "SUCCESS"
        assert await results(after, new) == [0, 2]


async def test_a_server_that_crashes_again_and_again_loses_nothing(engine) -> None:
    """Each server gives one answer, and is cut off while the run is suspended."""
    execution_id, asked = "", []
    for n in range(4):
        async with dethroned(engine()) as running:
            if not n:
                execution_id = (await running.start("s", document(4))).execution_id
            else:
                execution_id = await recover(running, execution_id)
            asked = await suspended(running, 4 - n)
            await answer(running, asked[0])
            if n < 3:
                assert await suspended(running, 3 - n) == asked[1:]
            else:
                assert await running.gateway.end_of(execution_id, 30) == "SUCCESS"
                assert await results(running, execution_id) == [0, 2]


async def test_another_server_takes_over_while_runs_are_suspended(
    engine, postgres_schema, caplog
) -> None:
    async with engine() as first:
        runs = [await first.start("s", document(2))]
        runs += [await first.start("s", "w") for _ in range(2)]
        asked = await suspended(first, 6, runs=3)
        database = first.stores.database
        await database.change(lambda made: raise_epoch(made, database.part, "two (host, pid 1)"))
        # That is how this server learns of it, since a suspended run writes nothing.
        with pytest.raises(StaleLeaderError):
            await answer(first, asked[0])
        await until(lambda: not first._starter.live.every())
        for run in runs:
            error = first.tracker.state(run.execution_id).as_dict()["error"]
            assert error["detail"] == "another server took over while it ran"
        assert "this server steps down: two leads" in caplog.text
        assert set(await states(postgres_schema)) == {(run.execution_id, "OPEN") for run in runs}

        async with engine() as second:
            new = [await recover(second, run.execution_id) for run in runs]
            assert await suspended(second, 6, runs=3) == asked
            for approval in asked:
                await answer(second, approval)
            for execution_id in new:
                assert await second.gateway.end_of(execution_id, 30) == "SUCCESS"
                assert await results(second, execution_id) == [0]


WAITING = "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'input_request'::regclass"


async def test_an_answer_that_cannot_be_written_is_refused_and_the_run_waits_on(
    engine, postgres_schema
) -> None:
    async with engine() as running:
        run = await running.start("s", document(2))
        asked = await suspended(running, 2)
        locking = await asyncpg.connect(postgres_schema)
        try:
            async with locking.transaction():
                await locking.execute("LOCK TABLE input_request IN EXCLUSIVE MODE")
                given = asyncio.ensure_future(answer(running, asked[0]))
                async with asyncio.timeout(60):
                    while not given.done():
                        cut = f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) AS waiting"
                        await locking.fetch(cut)
                        await asyncio.sleep(0.01)
        finally:
            await locking.close()
        with pytest.raises(StoreUnavailableError):
            await given
        # It was taken up for that, and is suspended once more, with all that it had.
        assert await suspended(running, 2) == asked
        for left in (2, 1):
            await answer(running, (await suspended(running, left))[0])
        assert await run.wait(30) is TaskStatus.SUCCESS
        assert await results(running, run.execution_id) == [0]


async def test_a_time_that_is_up_is_written_and_the_run_ends(engine, postgres_schema) -> None:
    async with engine() as running:
        run = await running.start("s", document(2, timeoutSeconds=1.5, onTimeout="CONTINUE"))
        await suspended(running, 2)
        assert await run.wait(30) is TaskStatus.SUCCESS
        assert await results(running, run.execution_id) == [0]
    assert await states(postgres_schema) == [(run.execution_id, "EXPIRED")] * 2
