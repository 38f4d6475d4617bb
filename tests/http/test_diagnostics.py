"""What a server says of itself: before it has started, of what survives, of what it is made of."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import __version__
from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Role, Settings
from yukta_rx.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-05", "OBS-04")

VIEWER, ADMIN = "a-key-that-may-only-look", "a-key-that-may-do-everything"


@pytest.fixture
def settings() -> Settings:
    keys = [{"name": "viewer", "key": VIEWER, "role": str(Role.VIEWER)}]
    keys.append({"name": "admin", "key": ADMIN, "role": str(Role.ADMIN)})
    return Settings(api_keys=keys, execution={"shutdown_timeout": timedelta(milliseconds=100)})


# --- before it has started -----------------------------------------------------------------------


async def test_a_server_that_starts_is_alive_and_takes_nothing_until_it_is_done(
    connect: Callable[..., Any],
) -> None:
    engine = Engine(Settings())

    async with HttpServer(engine, port=0) as server:
        client = await connect(server)
        live = await client("GET", "/health/live")
        ready = await client("GET", "/health/ready")
        whole = await client("GET", "/health")
        others = [
            await client(method, path, checked=method != "POST")
            for method, path in (
                *(("GET", "/api/executions"), ("GET", "/metrics"), ("GET", "/openapi.json")),
                *(("POST", "/api/workflow/s/w/start"), ("GET", "/api/durability")),
            )
        ]
        with engine.readiness.during("applying workflows"):
            await engine.open()
            still = await client("GET", "/health/ready")
        after = await client("GET", "/health/ready")
        runs = await client("GET", "/api/executions")
        await engine.close()

    assert live.status == 200
    assert [one.code for one in (ready, whole, *others)] == ["recovering"] * 7
    assert ready.body["detail"] == "the server is starting"
    assert ready.headers["Retry-After"] == "1"
    assert still.body["detail"] == "the server is applying workflows"
    assert (after.status, runs.status) == (200, 200)


# --- what survives -------------------------------------------------------------------------------


async def test_a_viewer_sees_what_survives_what(
    server: HttpServer, connect: Callable[..., Any]
) -> None:
    viewer = await connect(server, headers={"X-API-Key": VIEWER})

    shown = await viewer.ok("GET", "/api/durability")

    assert shown["profile"] == "memory"
    assert shown["summary"][0] == "a restart loses:"
    assert {row["store"] for row in shown["items"]} == {"memory"}
    assert all(row["survives"] == [] for row in shown["items"])


async def test_a_mixed_deployment_is_shown_as_it_is(
    connect: Callable[..., Any], tmp_path: Path
) -> None:
    settings = load_settings(
        "/dev/null", {"YUKTA_PROFILE": "file", "YUKTA_DATA_DIR": str(tmp_path)}
    ).model_copy(update={"kv": Settings().kv})

    async with Engine(settings) as engine, HttpServer(engine, port=0) as server:
        client = await connect(server)
        shown = await client.ok("GET", "/api/durability")
        made_of = await client.ok("GET", "/api/diagnostics")

    rows = {row["item"]: row for row in shown["items"]}
    assert rows["history"]["survives"] == ["process_crash", "power_loss"]
    assert rows["history"]["folder"] == str(tmp_path / "execution-log")
    assert rows["key-values"]["survives"] == []
    assert rows["key-values"]["settings"] == ["yukta.kv.store-type"]
    assert made_of["stores"]["types"]["kv"] == "memory"
    assert made_of["stores"]["types"]["restart"] == "file"


# --- diagnostics ---------------------------------------------------------------------------------


async def test_an_administrator_sees_versions_tasks_and_queues_and_no_key(
    server: HttpServer, engine: Engine, connect: Callable[..., Any]
) -> None:
    admin = await connect(server, headers={"X-API-Key": ADMIN})

    shown = await admin.ok("GET", "/api/diagnostics")

    tasks = {task["name"]: task for task in shown["loop"]["tasks"]}
    assert shown["versions"]["yukta_rx"] == __version__
    assert shown["versions"]["packages"]["aiohttp"]
    assert shown["process"]["pid"] == os.getpid()
    assert shown["process"]["instanceId"] == engine.instance_id
    assert tasks["yukta tracker"]["count"] == 1
    assert tasks["yukta tracker"]["at"].startswith("yukta_rx.")
    assert shown["queues"]["yukta.tracker.queue.depth"] >= 0
    assert shown["stores"]["down"] == {}
    assert ADMIN not in json.dumps(shown)


async def test_nobody_else_does(server: HttpServer, connect: Callable[..., Any]) -> None:
    viewer, nobody = await connect(server, headers={"X-API-Key": VIEWER}), await connect(server)

    refused = [await one("GET", "/api/diagnostics") for one in (viewer, nobody)]
    stranger = await nobody("GET", "/api/durability")

    assert [one.code for one in refused] == ["forbidden", "unauthenticated"]
    assert stranger.code == "unauthenticated"


async def test_what_a_store_could_not_read_is_shown_with_its_place(
    connect: Callable[..., Any], tmp_path: Path
) -> None:
    overrides = {"yukta.profile": "file", "yukta.data.dir": str(tmp_path)}
    broken = tmp_path / "session/workflows/s/w/current.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")

    engine = Engine(load_settings(environ={}, overrides=overrides))
    async with engine, HttpServer(engine, port=0) as server:
        client = await connect(server)
        shown = (await client.ok("GET", "/api/diagnostics"))["stores"]
        count = engine.meters.counter("yukta.store.quarantined", store="session")

    assert shown["quarantinedCount"] == 1
    assert [one["place"] for one in shown["quarantined"]] == [str(broken)]
    assert shown["quarantined"][0]["reason"].startswith("line 1, column 2: not JSON")
    assert count.value == 1


async def test_many_tasks_of_one_name_are_one_line(
    server: HttpServer, connect: Callable[..., Any]
) -> None:
    admin = await connect(server, headers={"X-API-Key": ADMIN})
    going = [asyncio.create_task(asyncio.Event().wait(), name="waits") for _ in range(300)]

    shown = await admin.ok("GET", "/api/diagnostics")
    for task in going:
        task.cancel()

    assert [task["count"] for task in shown["loop"]["tasks"] if task["name"] == "waits"] == [300]
    assert shown["loop"]["tasks"][0]["name"] == "waits"
