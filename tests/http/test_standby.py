"""A server that does not lead: what it answers, and what it sends to the one that does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.leadership import Leader
from yukta_rx.http.route import Body, Media
from yukta_rx.http.server import HttpServer
from yukta_rx.http.table import ROUTES

pytestmark = pytest.mark.feature("SCL-02")

LEADER = Leader("first", "http://10.0.0.1:8080")
SHOWN = {"instanceId": "first", "url": "http://10.0.0.1:8080"}
STREAMS = [route for route in ROUTES if route.media in (Media.EVENTS, Media.EITHER)]
CHANGING = [route for route in ROUTES if route.for_leader]


def path_of(route: Any) -> str:
    path = route.path
    for name in route.placeholders:
        path = path.replace("{" + name + "}", "1" if name == "version" else "x")
    return str(path)


@pytest.fixture
def standby(engine: Engine) -> Engine:
    engine.leadership.stand_by(LEADER)
    return engine


async def whole(client: Any, path: str) -> str:
    """All that an event stream says, which ends by itself."""
    async with client.session.get(path, headers={"Accept": "text/event-stream"}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Yukta-Leader"] == "false"
        return str(await response.text())


@pytest.mark.parametrize("route", STREAMS, ids=lambda route: route.path)
async def test_a_stream_says_who_leads_and_ends(standby: Engine, client: Any, route: Any) -> None:
    said = await whole(client, path_of(route))

    lines = said.splitlines()
    assert lines[0] == "retry: 5000"
    assert lines[1] == "event: stream.standby"
    assert json.loads(lines[2].removeprefix("data: ")) == {"leader": SHOWN}
    assert len([line for line in lines if line]) == 3


async def test_a_stream_says_that_nobody_is_known_to_lead(engine: Engine, client: Any) -> None:
    engine.leadership.stand_by()

    said = await whole(client, "/api/events/stream?named=false")

    assert said == 'retry: 5000\ndata: {"leader":null}\n\n'


@pytest.mark.parametrize("route", CHANGING, ids=lambda route: f"{route.method} {route.path}")
async def test_what_changes_something_is_refused_with_the_address_of_the_leader(
    standby: Engine, client: Any, route: Any
) -> None:
    # Nothing is said of a body that the leader will look at.
    body = None if route.body is Body.NONE else {"no": "such member"}
    answer = await client(route.method, path_of(route), body, checked=False)

    assert (answer.status, answer.code) == (503, "not_leader")
    assert answer.body["leader"] == SHOWN
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["Yukta-Leader"] == "false"
    client.check_shape(route.method, path_of(route), answer)


async def test_starts_that_it_refused_are_counted(standby: Engine, client: Any) -> None:
    for path in ("workflow/s/w/start", "workflow/s/w/run", "executions/x/restart"):
        await client("POST", f"/api/{path}", {}, checked=False)
    await client("POST", "/api/executions/x/pause", {}, checked=False)

    page = (await client("GET", "/metrics", checked=False)).body.decode()
    assert 'yukta_executions_rejected_total{reason="not_leader"} 3.0' in page


async def test_it_is_ready_and_says_that_it_does_not_lead(standby: Engine, client: Any) -> None:
    ready = await client("GET", "/health/ready", checked=False)
    leads = await client("GET", "/health/leader", checked=False)
    whole_health = await client("GET", "/health", checked=False)

    assert ready.status == 200
    assert (leads.status, leads.code, leads.body["leader"]) == (503, "not_leader", SHOWN)
    assert whole_health.status == 200
    assert whole_health.body["components"]["lease"]["leader"] is False


async def test_what_is_only_read_or_examined_is_answered(
    engine: Engine, client: Any, make: Any
) -> None:
    await client.session_with(make.line())
    engine.leadership.stand_by(LEADER)

    for method, path, body in (
        ("GET", "/api/executions", None),
        ("GET", "/api/sessions/s/workflows/w", None),
        ("GET", "/api/events", None),
        ("POST", "/api/workflows/validate", make.line()),
        ("POST", "/api/sessions/s/workflows/w/dry-run", {}),
    ):
        answer = await client(method, path, body, checked=False)
        assert answer.status == 200, (path, answer.body)


async def test_streams_that_are_open_when_it_loses_the_lead_end_with_who_leads(
    engine: Engine, client: Any, make: Any
) -> None:
    await client.session_with(make.line(every_ms=60_000, count=0))
    run = await client.start()
    async with (
        client.stream("/api/events/stream") as feed,
        client.stream(f"/api/executions/{run}/progress") as progress,
    ):
        await feed.type("stream.hello")
        await progress.next()
        engine.leadership.stand_by(LEADER)

        for stream in (feed, progress):
            *_, last = await stream.rest()
            assert (last.type, last.json) == ("stream.standby", {"leader": SHOWN})
            assert stream.parser.retry == 5000
    engine.leadership.lead()


async def test_it_takes_work_again_once_it_leads(standby: Engine, client: Any, make: Any) -> None:
    standby.leadership.lead()

    await client.session_with(make.line())
    run = await client.start()
    assert (await client.ended(run))["status"] == "SUCCESS"
    async with client.stream("/api/events/stream") as stream:
        assert (await stream.next()).json["leader"] is True
    assert (await client("GET", "/health/leader")).status == 200


async def test_a_key_is_looked_at_before_anything_is_said(connect: Any) -> None:
    keys = [
        {"name": "v", "key": "the-key-of-somebody-who-reads", "role": "VIEWER"},
        {
            "name": "one",
            "key": "the-key-of-somebody-with-one-session",
            "role": "OPERATOR",
            "sessions": ["s"],
        },
    ]
    async with Engine(Settings(api_keys=keys)) as engine, HttpServer(engine, port=0) as server:
        engine.leadership.stand_by(LEADER)
        nobody = await connect(server)
        viewer = await connect(server, headers={"X-API-Key": keys[0]["key"]})
        limited = await connect(server, headers={"X-API-Key": keys[1]["key"]})

        start = {"sessionId": "s", "workflowId": "w"}
        for client, status in ((nobody, 401), (viewer, 403), (limited, 503)):
            answer = await client("POST", "/api/workflow/start", start, checked=False)
            assert answer.status == status
        assert (await nobody("GET", "/api/events/stream", checked=False)).status == 401
        for path in ("/api/events/stream", "/api/executions/x/logs"):
            assert "stream.standby" in await whole(limited, path)
