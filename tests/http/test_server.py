"""The server around the routes: headers, doors, limits, health, embedding, shutdown."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from yukta_rx.app import Engine
from yukta_rx.errors import EngineError
from yukta_rx.http.app import create_app
from yukta_rx.http.server import HttpServer
from yukta_rx.http.state import SHARED

# --- conventions ---------------------------------------------------------------------------------


async def test_a_request_id_is_given_back_or_made(client: Any) -> None:
    given = await client("GET", "/api/version", headers={"X-Request-Id": "mine-1"})
    made = await client("GET", "/api/version")
    unfit = await client("GET", "/api/version", headers={"X-Request-Id": "a b"})

    assert given.headers["X-Request-Id"] == "mine-1"
    assert len(made.headers["X-Request-Id"]) == 32
    assert unfit.headers["X-Request-Id"] != "a b"


@pytest.mark.feature("SEC-03")
async def test_a_defect_is_logged_with_the_request_id_and_shows_nothing(
    client: Any, engine: Any, monkeypatch: Any, caplog: Any
) -> None:
    def broken(*_args: Any) -> Any:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr(engine.gateway, "count", broken)
    answer = await client("GET", "/api/executions?count=true", headers={"X-Request-Id": "r-1"})

    assert (answer.status, answer.code) == (500, "internal")
    assert "secret" not in json.dumps(answer.body)
    [record] = [record for record in caplog.records if record.name == "yukta.http"]
    assert "r-1" in record.getMessage()
    assert record.exc_info is not None


async def test_an_error_of_ours_that_no_one_may_see_is_a_defect_too(
    client: Any, engine: Any, monkeypatch: Any, caplog: Any
) -> None:
    def broken(*_args: Any) -> Any:
        raise EngineError("secret of the inside")

    monkeypatch.setattr(engine.gateway, "count", broken)
    answer = await client("GET", "/api/executions?count=true")

    assert (answer.status, answer.code) == (500, "internal")
    assert "secret" not in json.dumps(answer.body)
    assert "secret" in caplog.text


@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize("path", ["/api/version", "/api/events/stream", "/nothing", "/health/live"])
async def test_a_strange_host_is_refused_everywhere(client: Any, path: str) -> None:
    answer = await client("GET", path, headers={"Host": "evil.example"})

    assert (answer.status, answer.code) == (403, "host_not_allowed")


@pytest.mark.feature("SEC-01")
async def test_a_foreign_page_cannot_start_anything(client: Any, make: Any) -> None:
    await client.session_with(make.line())
    foreign = {"Origin": "http://evil.example"}

    answer = await client("POST", "/api/workflow/s/w/start", {}, headers=dict(foreign))
    read = await client("GET", "/api/executions", headers=dict(foreign))

    assert (answer.status, answer.code) == (403, "origin_not_allowed")
    assert read.body["items"] == []
    assert "Access-Control-Allow-Origin" not in read.headers


@pytest.mark.feature("SEC-01")
async def test_a_page_of_an_allowed_origin_may_read_and_ask_first(client: Any) -> None:
    origin = {"Origin": "http://localhost:3000"}

    read = await client("GET", "/api/version", headers=dict(origin))
    asked = await client(
        "OPTIONS",
        "/api/workflow/start",
        checked=False,
        headers={**origin, "Access-Control-Request-Method": "POST"},
    )

    assert read.headers["Access-Control-Allow-Origin"] == origin["Origin"]
    assert asked.status == 204
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]


async def test_who_takes_no_json_gets_none(client: Any) -> None:
    answer = await client("GET", "/api/executions", headers={"Accept": "text/html"})

    assert (answer.status, answer.code) == (406, "not_acceptable")


_BODY = b"POST /api/workflows/validate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
_BOMB = gzip.compress(b" " * 30_000_000)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"POST /workflow/start HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /api/version HTTP/1.0\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[::1/api/version HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"TRACE /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        _BODY + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        _BODY + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        _BODY + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}XX\r\n0\r\n\r\n",
        _BODY + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        _BODY + b"Content-Encoding: deflate\r\nContent-Length: 5\r\n\r\nhello",
        _BODY + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(_BOMB), _BOMB),
    ],
)
async def test_whatever_is_no_request_is_answered_with_a_problem(
    server: Any, raw: bytes, caplog: Any
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(raw)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert b"application/problem+json" in head
    assert json.loads(body)["code"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_expectation_is_met_or_passed_over(server: Any, client: Any, make: Any) -> None:
    await client.session_with(make.echo())
    for expectation in ("100-continue", "a-miracle"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"POST /api/workflow/s/echo/start HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\nContent-Length: 2\r\nExpect: "
            + expectation.encode()
            + b"\r\n\r\n{}"
        )
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert b"201 Created" in answer
        assert (b"100 Continue" in answer) is (expectation == "100-continue")


# --- health, meters, catalogue -------------------------------------------------------------------


@pytest.mark.feature("SCL-02")
@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/health/leader"])
async def test_a_probe_is_answered_by_each_method(client: Any, path: str) -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        answer = await client(method, path)
        assert answer.status == 200
    assert (await client.ok("GET", path)) == {"status": "UP"}


async def test_health_shows_each_part(client: Any) -> None:
    body = await client.ok("GET", "/health")

    assert body["status"] == "UP"
    assert set(body["components"]) == {"store", "log", "tracker", "lease", "disk"}


async def test_a_server_that_shuts_down_is_not_ready_but_alive(client: Any, engine: Any) -> None:
    await engine.close()

    ready = await client("GET", "/health/ready")
    whole = await client("GET", "/health")
    live = await client("GET", "/health/live")

    assert (ready.status, ready.code) == (503, "shutting_down")
    assert (whole.status, whole.body["components"]["tracker"]["status"]) == (503, "DOWN")
    assert live.status == 200


async def test_a_loop_that_stands_still_is_not_alive(
    client: Any, server: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(server.app[SHARED].pulse, "_lag", 6.0)

    answer = await client("GET", "/health/live")

    assert (answer.status, answer.code) == (503, "recovering")
    assert "6.0 s late" in answer.body["detail"]


@pytest.mark.feature("OBS-04")
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/plain", "text/plain"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
        ("*/*", "text/plain"),
    ],
)
async def test_meters_are_shown_in_the_format_that_is_asked_for(
    client: Any, make: Any, accept: str, kind: str
) -> None:
    await client.session_with(make.line())
    await client.ended(await client.start())

    answer = await client("GET", "/metrics", headers={"Accept": accept})

    assert answer.headers["Content-Type"].startswith(kind)
    assert b"yukta_executions_running" in answer.body
    assert (b"# EOF" in answer.body) is (kind != "text/plain")


async def test_a_client_learns_what_runs_and_what_fits(client: Any, engine: Any) -> None:
    body = await client.ok("GET", "/api/version")

    assert body["instanceId"] == engine.instance_id
    assert body["limits"]["maxBodyBytes"] == 1024 * 1024


@pytest.mark.feature("EXT-01")
async def test_node_types_are_listed_with_their_schemas(client: Any) -> None:
    listed = await client.ok("GET", "/api/plugins?errors=true")
    one = await client.ok("GET", "/api/plugins/TRANSFORM")
    schema = await client.ok("GET", "/api/plugins/TRANSFORM/schema")
    missing = await client("GET", "/api/plugins/TRANSFROM")

    assert one in listed["items"]
    assert listed["errors"] == []
    assert schema == one["configSchema"]
    assert (missing.status, missing.code) == (404, "plugin_not_found")
    assert "did you mean TRANSFORM" in missing.body["detail"]


@pytest.mark.feature("EXT-01")
@pytest.mark.parametrize(
    ("config", "valid"), [({"count": 3}, True), ({"cuont": 3}, False), ([], False), ("x", False)]
)
async def test_a_configuration_is_examined(client: Any, config: Any, valid: bool) -> None:
    body = await client.ok("POST", "/api/plugins/SEQUENCE_TRIGGER/validate-config", config)

    assert body["valid"] is valid
    assert bool(body["errors"]) is not valid


# --- embedding -----------------------------------------------------------------------------------


async def test_two_engines_in_one_process_know_nothing_of_each_other(
    connect: Any, make: Any
) -> None:
    async with (
        Engine() as one,
        Engine() as two,
        HttpServer(one, port=0) as first,
        HttpServer(two, port=0) as second,
    ):
        here, there = await connect(first), await connect(second)
        await here.session_with(make.chatty())
        async with there.stream("/api/events/stream") as stream:
            await stream.next()
            await here.ended(await here.start("chatty"))
            await there.session_with(make.chatty(), session="t")
            await there.start("chatty", session="t")
            await stream.type("execution.finished")
        items = [(await c.ok("GET", "/api/executions"))["items"] for c in (here, there)]

    assert {e.json["sessionId"] for e in stream.events if "sessionId" in e.json} == {"t"}
    assert [[item["sessionId"] for item in page] for page in items] == [["s"], ["t"]]
    assert here is not there


async def test_an_app_is_mounted_in_another(engine: Any, make: Any) -> None:
    outer = web.Application()
    outer.add_subapp("/flows", create_app(engine))
    runner = web.AppRunner(outer)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}/flows/") as session:
        async with session.put("api/sessions/s", json={"workflows": [make.line()]}) as made:
            assert made.status == 201
        async with session.post("api/workflow/s/w/start") as started:
            assert started.status == 201
            assert started.headers["Yukta-Version"]
        async with session.get("api/nothing") as missing:
            assert (await missing.json(content_type=None))["code"] == "route_not_found"
        stream = await session.get("api/events/stream")
        await stream.content.readline()
        began = asyncio.get_running_loop().time()
        await runner.cleanup()
        assert asyncio.get_running_loop().time() - began < 1
        assert b"stream.closing" in await stream.content.read()


async def test_an_address_that_is_taken_is_an_error_and_leaves_nothing(
    engine: Any, server: Any
) -> None:
    with pytest.raises(OSError, match="address already in use"):
        async with HttpServer(engine, port=server.port):
            pass


# --- work under way at shutdown ------------------------------------------------------------------


async def test_a_command_under_way_is_finished_at_shutdown(
    engine: Any, connect: Any, make: Any, monkeypatch: Any
) -> None:
    reached, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    real = engine.definitions.apply_session

    async def slow(*args: Any, **options: Any) -> Any:
        reached.set()
        await go_on.wait()
        result = await real(*args, **options)
        done.set()
        return result

    monkeypatch.setattr(engine.definitions, "apply_session", slow)
    server = HttpServer(engine, port=0)
    await server.__aenter__()
    client = await connect(server)

    async with asyncio.TaskGroup() as group:
        request = group.create_task(leave_early(client, reached))
        await reached.wait()
        await request
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await server.__aexit__(None, None, None)

    assert done.is_set()
    assert (await engine.definitions.get_session("s")).session_id == "s"


async def leave_early(client: Any, reached: asyncio.Event) -> None:
    """Send a request and go away while it is worked on."""
    async with asyncio.TaskGroup() as group:
        sent = group.create_task(cancellable(client))
        await reached.wait()
        sent.cancel()


async def cancellable(client: Any) -> None:
    async with client.session.put("/api/sessions/s", data=b"{}") as response:
        await response.read()


async def test_a_failure_after_the_client_left_is_logged(
    engine: Any, server: Any, client: Any, monkeypatch: Any, caplog: Any
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*_args: Any, **_options: Any) -> Any:
        reached.set()
        await go_on.wait()
        raise RuntimeError("too late")

    monkeypatch.setattr(engine.definitions, "apply_session", slow)

    await leave_early(client, reached)
    await asyncio.sleep(0.05)
    with caplog.at_level(logging.WARNING, "yukta.http"):
        go_on.set()
        await asyncio.sleep(0.05)

    assert "failed after its client had left: too late" in caplog.text
