"""An engine whose database fails: what is told, what is refused, and what goes on afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.durability.postgres import migrate
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.partition import LOCK, PartitionLock
from yukta_rx.errors import ConfigError, NotLeaderError, StaleLeaderError, StoreUnavailableError
from yukta_rx.model.status import TaskStatus
from yukta_rx.testing.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.durable,
    pytest.mark.timeout(120),
    pytest.mark.feature("DUR-04", "DUR-05", "SCL-02"),
]

FLOW = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 200, "intervalMs": 5}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}

CUT = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE classid = $1::oid"


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of our own, so that it can be killed and frozen."""
    try:
        context = postgres_server(("fsync=off", "full_page_writes=off"))
        server = context.__enter__()
    except ConfigError as error:
        pytest.skip(str(error))
    try:
        migrate.upgrade(server.url)
        yield server
    finally:
        context.__exit__(None, None, None)


def engine_on(server: PostgresServer, **more: str) -> Engine:
    environ = {"YUKTA_PROFILE": "postgres", "YUKTA_POSTGRES_URL": server.url}
    return Engine(load_settings("/dev/null", environ | more))


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await met():
            await asyncio.sleep(0.02)


async def down(engine: Engine) -> dict[str, str]:
    """What is said to be down, once something is."""
    found: dict[str, str] = {}

    async def is_down() -> bool:
        found.update(await engine.readiness.down())
        return bool(found)

    await until(is_down)
    return found


async def up(engine: Engine) -> None:
    async def all_is_well() -> bool:
        return await engine.readiness.fault() is None

    await until(all_is_well)


async def results_of(run: Any) -> list[int]:
    found = [item async for item in run.results()]
    return [item.payload["n"] for item in found if item.type == "RESULT"]


@pytest.mark.parametrize(
    ("fail", "mend"),
    [(PostgresServer.kill, PostgresServer.start), (PostgresServer.freeze, PostgresServer.thaw)],
    ids=["killed", "frozen"],
)
async def test_a_start_is_refused_and_the_store_named_and_runs_go_on_afterwards(
    own_server: PostgresServer, fail: Any, mend: Any
) -> None:
    async with engine_on(own_server) as engine:
        run = await engine.start("s", FLOW)
        await asyncio.to_thread(fail, own_server)
        try:
            told = await down(engine)
            fault = await engine.readiness.fault()
            with pytest.raises(StoreUnavailableError) as refused:
                await engine.start("s", "w")
        finally:
            await asyncio.to_thread(mend, own_server)
        await up(engine)
        again = await engine.start("s", "w")
        assert await again.wait() is TaskStatus.SUCCESS
        assert await run.wait() is TaskStatus.SUCCESS
        assert await results_of(run) == list(range(200))

    assert told["postgres"]
    assert fault is not None
    assert "postgres" in fault.members["stores"]
    assert refused.value.members["store"] in ("postgres", "execution-log")


async def test_where_nobody_knows_who_leads_nothing_is_admitted_and_runs_go_on(
    own_server: PostgresServer,
) -> None:
    async with engine_on(own_server) as engine:
        run = await engine.start("s", FLOW)
        engine.stores.leading.doubt("nobody knows")
        with pytest.raises(StoreUnavailableError, match="nobody knows"):
            await engine.start("s", "w")
        told = (await engine.readiness.down())["postgres"]
        engine.stores.leading.sure()
        assert await (await engine.start("s", "w")).wait() is TaskStatus.SUCCESS
        assert await run.wait() is TaskStatus.SUCCESS

    assert told == "nobody knows"


async def test_a_database_that_sleeps_is_not_one_that_is_lost(own_server: PostgresServer) -> None:
    calls: list[str] = []

    def called(word: str) -> Callable[[], None]:
        return lambda: calls.append(word)

    async with Database(own_server.url, size=2) as database:
        lock = PartitionLock(
            database,
            "one",
            lost=called("lost"),
            regained=called("regained"),
            stale=called("stale"),
        )
        async with lock:
            held = await database.fetchval("SELECT pid FROM pg_locks WHERE classid = $1::oid", LOCK)
            await asyncio.to_thread(own_server.freeze)
            try:
                await until(lambda: said(calls, "lost"))
                assert not lock.held
            finally:
                await asyncio.to_thread(own_server.thaw)
            await until(lambda: said(calls, "regained"))
            assert lock.held
            # The very connection: nobody could have had the lock meanwhile.
            again = await database.fetchval(
                "SELECT pid FROM pg_locks WHERE classid = $1::oid", LOCK
            )
    assert (calls, again) == (["lost", "regained"], held)


async def said(calls: list[str], word: str) -> bool:
    return word in calls


async def test_whose_lock_is_cut_goes_on_and_whose_partition_is_taken_steps_down(
    own_server: PostgresServer,
) -> None:
    async with engine_on(own_server) as engine:
        database = engine.stores.database
        assert database is not None
        run = await engine.start("s", FLOW)
        assert await database.fetchval(CUT, LOCK) == 1
        await up(engine)
        assert engine.leadership.leads

        await database.change(lambda made: raise_epoch(made, database.part, "two (there, pid 1)"))

        async def over() -> bool:
            return not engine.leadership.leads

        await until(over)
        assert await run.wait() is TaskStatus.ABORTED
        assert engine.leadership.leader is not None
        assert engine.leadership.leader.instance_id == "two"
        with pytest.raises(NotLeaderError, match="two leads"):
            await engine.start("s", "w")
        with pytest.raises(StaleLeaderError):
            await engine.definitions.apply_session({"sessionId": "another"})
        # A standby is ready, and says nothing of stores that are fine.
        assert await engine.readiness.fault() is None
        page = "\n".join(
            f"{sample.name} {sample.value}"
            for family in engine.meters.collect()
            for sample in family.samples
        )
        entries = await engine.stores.execution_log.read(run.execution_id)

    refused = [line for line in page.splitlines() if line.startswith("yukta_store_stale_refused")]
    assert float(refused[0].split()[1]) > 0
    # What the other server does with the run is not for this one to say.
    assert [entry.event.as_dict()["type"] for entry in entries] == ["RUN_STARTED"]


async def test_the_pool_and_what_waits_to_be_written_can_be_watched(
    own_server: PostgresServer,
) -> None:
    async with engine_on(own_server) as engine:
        run = await engine.start("s", FLOW)
        assert await run.wait() is TaskStatus.SUCCESS
        gauges = engine.meters.gauges()

    assert 0 <= gauges["yukta.postgres.connections.idle"] <= gauges["yukta.postgres.connections"]
    assert gauges["yukta.postgres.connections"] >= 1
    assert gauges["yukta.postgres.connections.wanted"] == 0
    assert "yukta.postgres.rows.waiting" in gauges


async def test_an_account_that_may_not_change_the_schema_is_enough(
    own_server: PostgresServer,
) -> None:
    async with Database(own_server.url) as owner:
        for statement in (
            "CREATE ROLE yukta_app LOGIN",
            "GRANT USAGE ON SCHEMA public TO yukta_app",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO yukta_app",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO yukta_app",
        ):
            await owner.change(lambda made, sql=statement: made.execute(sql))
    url = own_server.url.replace("postgres@", "yukta_app@", 1)
    environ = {"YUKTA_PROFILE": "postgres", "YUKTA_POSTGRES_URL": url}
    async with Engine(load_settings("/dev/null", environ)) as engine:
        run = await engine.start("s", FLOW)
        assert await run.wait() is TaskStatus.SUCCESS
        assert await results_of(run) == list(range(200))
