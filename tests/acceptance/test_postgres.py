"""Server processes on a real PostgreSQL: one leads, and what becomes of the work when it fails."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from asyncio.subprocess import DEVNULL
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.acceptance.servers import Served, started
from yukta_rx.durability.postgres import migrate
from yukta_rx.durability.postgres.partition import LOCK
from yukta_rx.errors import ConfigError
from yukta_rx.testing.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.durable,
    pytest.mark.timeout(180),
    pytest.mark.feature("DUR-04", "SCL-02"),
]

OPTIONS = ("fsync=off", "full_page_writes=off", "max_connections=60")
"""What is acknowledged outlives the server, as long as the machine lives."""

FLOWS = {
    # Some seconds of work, so that it is under way when something happens.
    "stream": {"count": 600, "intervalMs": 5},
    "short": {"count": 3},
}

names = itertools.count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server of our own, so that it can be killed and frozen."""
    with postgres_of_our_own() as server:
        yield server


def postgres_of_our_own(*options: str) -> Any:
    try:
        return postgres_server((*OPTIONS, *options))
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def another_postgres() -> Iterator[PostgresServer]:
    """One that is not the same afterwards."""
    with postgres_of_our_own() as server:
        yield server


async def ask(url: str, sql: str, *args: Any) -> Any:
    """The first value of a statement."""
    made = await asyncpg.connect(url)
    try:
        return await made.fetchval(sql, *args)
    finally:
        await made.close()


@pytest.fixture
async def url(postgres: PostgresServer) -> str:
    """A database with the schema in it."""
    return await new_database(postgres)


async def new_database(postgres: PostgresServer, more: str = "") -> str:
    name = f"yukta_{os.getpid()}_{next(names)}"
    await ask(postgres.url, f"CREATE DATABASE {name} {more}")
    made = postgres.url.rpartition("/")[0] + f"/{name}"
    await asyncio.to_thread(migrate.upgrade, made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where servers start, with the workflows of the session `s`."""
    (tmp_path / "flows" / "s").mkdir(parents=True)
    for name, config in FLOWS.items():
        nodes = [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": config},
            {"nodeId": "pass", "type": "FILTER", "config": {"when": "payload.n >= 0"}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ]
        edges = [{"source": "in", "target": "pass"}, {"source": "pass", "target": "out"}]
        document = {"workflowId": name, "nodes": nodes, "edges": edges}
        (tmp_path / "flows" / "s" / f"{name}.json").write_text(json.dumps(document))
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Callable[..., Any]:
    """A server process on a database."""

    @asynccontextmanager
    async def on(url: str, instance: str = "one", **settings: str) -> AsyncIterator[Served]:
        own = {"PROFILE": "postgres", "POSTGRES_URL": url, "HA_INSTANCE_ID": instance}
        async with started(folder, "--apply", "flows", **own | settings) as made:
            yield made

    return on


def counted(name: str) -> list[int]:
    return list(range(FLOWS[name]["count"]))


async def whole(served: Served, name: str, execution_id: str) -> None:
    """A run has ended well, and all of it is there."""
    shown = await served.over(execution_id)
    assert shown["status"] == "SUCCESS", shown
    assert [one["n"] for one in await served.results(execution_id)] == counted(name)
    page = await served.get(f"/api/executions/{execution_id}/history?limit=100")
    types = [row["type"] for row in page["items"]]
    assert (types[0], types[-1]) == ("RUN_STARTED", "RUN_FINISHED")


# --- one leads -----------------------------------------------------------------------------------


async def test_a_second_server_is_refused_and_told_who_leads(server, url: str) -> None:
    async with server(url) as first:
        await first.serves()
        async with server(url, "two") as second:
            assert await second.ended() == 1
            told = "\n".join(second.said)
        assert "another server leads partition 0" in told
        assert "one (" in told
        assert f"pid {first.process.pid})" in told
        await whole(first, "short", await first.start("short"))


async def test_a_server_that_was_killed_is_followed_at_once_and_its_run_goes_on(
    server, url: str
) -> None:
    async with server(url) as first:
        await first.serves()
        run = await first.start("stream")
        done = await first.start("short")
        await whole(first, "short", done)
        await first.kill()
    # It waits for the lock for 5 s, and no longer.
    async with server(url, "two", RESTART_AUTO_RESUME="true") as second:
        await second.serves()
        assert (await second.over(run))["status"] == "ABORTED"
        await whole(second, "short", done)
        new = await resumed(second, run)
        await whole(second, "stream", new)


async def resumed(served: Served, run: str) -> str:
    async with asyncio.timeout(60):
        while True:
            page = await served.get(f"/api/executions/{run}/history?limit=100")
            for row in page["items"]:
                if row["type"] == "RUN_RESUMED":
                    found: str = row["newExecutionId"]
                    return found
            await asyncio.sleep(0.05)


async def test_a_server_that_slept_through_a_takeover_writes_nothing_and_steps_down(
    server, url: str
) -> None:
    async with server(url) as first, AsyncExitStack() as stack:
        await first.serves()
        run = await first.start("stream")
        while not await ask(url, "SELECT count(*) FROM node_checkpoint"):
            await asyncio.sleep(0.02)
        first.send(signal.SIGSTOP)
        cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE classid = $1::oid"
        assert await ask(url, cut, LOCK) == 1
        second = await stack.enter_async_context(server(url, "two", RESTART_AUTO_RESUME="true"))
        await second.serves()
        epoch = await ask(url, "SELECT epoch FROM leader_epoch")
        new = await resumed(second, run)
        first.send(signal.SIGCONT)

        await first.until("steps down")
        status, shown = await first.call("GET", "/health/leader")
        assert (status, shown["code"]) == (503, "not_leader")
        assert shown["leader"]["instanceId"] == "two"
        status, shown = await first.call("POST", "/api/workflow/s/short/start")
        assert (status, shown["code"]) == (503, "not_leader")
        async with asyncio.timeout(30):
            while not await first.meter("yukta_store_stale_refused_total"):
                await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            while await first.meter("yukta_executions_running"):
                await asyncio.sleep(0.05)

        await whole(second, "stream", new)
        assert (await second.over(run))["status"] == "ABORTED"
        # All that was written since is of the new epoch.
        ended = "SELECT epoch FROM execution_log WHERE execution_id = $1 ORDER BY seq DESC LIMIT 1"
        assert await ask(url, ended, run) == epoch
        assert await ask(url, ended, new) == epoch
        first.send(signal.SIGTERM)
        assert await first.ended() == 0


async def test_a_server_whose_lock_is_cut_goes_on_with_its_epoch(server, url: str) -> None:
    async with server(url) as first:
        await first.serves()
        epoch = await ask(url, "SELECT epoch FROM leader_epoch")
        run = await first.start("stream")
        cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1"
        await ask(url.rpartition("/")[0] + "/postgres", cut, url.rpartition("/")[2])
        await first.until("is led as before")
        await whole(first, "stream", run)
        await whole(first, "short", await first.start("short"))
        assert await ask(url, "SELECT epoch FROM leader_epoch") == epoch
        assert await first.meter("yukta_store_stale_refused_total") == 0


# --- the database fails --------------------------------------------------------------------------


class Starting:
    """Starts runs all the time, and notes what was acknowledged and what was refused."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.acknowledged: list[str] = []
        self.refused: list[dict[str, Any]] = []
        self._task = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        while True:
            status, shown = await self._served.call("POST", "/api/workflow/s/short/start")
            if status < 300:
                self.acknowledged.append(shown["executionId"])
            else:
                assert status == 503, shown
                self.refused.append(shown)
            await asyncio.sleep(0.02)

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not met():
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def not_ready(served: Served) -> dict[str, Any]:
    """What /health/ready says once the server is not ready."""
    async with asyncio.timeout(60):
        while True:
            status, shown = await served.call("GET", "/health/ready")
            if status == 503:
                found: dict[str, Any] = shown
                return found
            await asyncio.sleep(0.05)


async def ready(served: Served) -> None:
    async with asyncio.timeout(60):
        while (await served.call("GET", "/health/ready"))[0] != 200:
            await asyncio.sleep(0.05)


async def fails_and_returns(
    served: Served, fail: Callable[[], Any], mend: Callable[[], Any], store: str = "postgres"
) -> None:
    """Work goes on over an outage, which is told, and nothing acknowledged is lost."""
    run = await served.start("stream")
    starting = Starting(served)
    await starting.until(lambda: len(starting.acknowledged) > 3)
    await fail()
    await starting.until(lambda: bool(starting.refused))
    told = await not_ready(served)
    known = len(starting.acknowledged)
    await mend()
    await starting.until(lambda: len(starting.acknowledged) > known + 3)
    await starting.end()
    await ready(served)

    assert {one["code"] for one in starting.refused} == {"store_unavailable"}
    assert told["code"] == "store_unavailable"
    assert store in told["stores"]
    await whole(served, "stream", run)
    for one in starting.acknowledged:
        await whole(served, "short", one)
    assert await served.meter("yukta_checkpoint_errors_total") == 0


async def test_work_goes_on_when_the_database_was_killed(
    server, url: str, postgres: PostgresServer
) -> None:
    async with server(url) as served:
        await served.serves()
        await fails_and_returns(
            served,
            lambda: asyncio.to_thread(postgres.kill),
            lambda: asyncio.to_thread(postgres.start),
        )


async def test_work_goes_on_when_the_database_was_restarted(
    server, url: str, postgres: PostgresServer
) -> None:
    async with server(url) as served:
        await served.serves()
        await fails_and_returns(
            served,
            lambda: asyncio.to_thread(postgres.stop),
            lambda: asyncio.to_thread(postgres.start),
        )


async def test_work_goes_on_when_the_database_was_frozen(
    server, url: str, postgres: PostgresServer
) -> None:
    async with server(url) as served:
        await served.serves()
        await fails_and_returns(
            served,
            lambda: asyncio.to_thread(postgres.freeze),
            lambda: asyncio.to_thread(postgres.thaw),
        )


async def test_work_goes_on_when_others_had_taken_all_connections(
    server, url: str, postgres: PostgresServer
) -> None:
    taken: list[Any] = []
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1"

    async def fail() -> None:
        # Whatever comes free is taken, until the server has none.
        name = url.rpartition("/")[2]
        first = await asyncpg.connect(postgres.url)
        taken.append(first)
        while await first.fetchval(cut, name) or len(taken) < 55:
            with suppress(asyncpg.TooManyConnectionsError):
                while True:
                    taken.append(await asyncpg.connect(postgres.url))

    async def mend() -> None:
        for one in taken:
            await one.close()

    async with server(url) as served:
        await served.serves()
        await fails_and_returns(served, fail, mend)


@asynccontextmanager
async def small_disk(postgres: PostgresServer) -> AsyncIterator[Path]:
    """A file system of a few megabytes with a tablespace `small` on it."""
    place = postgres.data.parent / "small"
    place.mkdir()
    options = ("-t", "tmpfs", "-o", "size=40m", "tmpfs", str(place))
    mounted = await asyncio.create_subprocess_exec("mount", *options, stderr=DEVNULL)
    if await mounted.wait():
        pytest.skip("a file system can only be mounted by root")
    try:
        space = place / "space"
        space.mkdir()
        owner = postgres.data.stat()
        os.chown(space, owner.st_uid, owner.st_gid)
        await ask(postgres.url, f"CREATE TABLESPACE small LOCATION '{space}'")
        yield place
    finally:
        await (await asyncio.create_subprocess_exec("umount", "-l", str(place))).wait()


def fill(disk: Path) -> Path:
    """Take all the space that there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return filler


async def test_work_goes_on_when_the_disk_was_full(
    server, another_postgres: PostgresServer
) -> None:
    async with small_disk(another_postgres) as disk:
        url = await new_database(another_postgres, "TABLESPACE small")
        async with server(url) as served:
            await served.serves()
            await fails_and_returns(
                served,
                lambda: asyncio.to_thread(fill, disk),
                lambda: asyncio.to_thread((disk / "filler").unlink),
                store="execution-log",
            )
