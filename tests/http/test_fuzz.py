"""Whatever is sent to a route that exists, with ids that exist, is answered properly.

The client of these tests checks every answer: announced in the OpenAPI document, shaped as it says
there, a problem body when it is an error. So a test only has to look for statuses of defects.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from yarl import URL

from yukta_rx.app import Engine
from yukta_rx.http.route import Body, Kind, Media, Query, Route
from yukta_rx.http.server import HttpServer
from yukta_rx.http.table import ROUTES
from yukta_rx.model.codec import dumps_plain

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from yukta_rx.config.settings import Settings

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        *("sessionId", "workflowId", "payload", "labels", "nodes", "edges", "type", "config", "n"),
        *("nodeId", "mode", "reason", "enabled", "options", "workflows", "tags", "engine", "s"),
        *("PauseNode", "StepWorkflow", "echo", "", "source", "target", "retry", "stepMode"),
    ]
)
LIKELY = st.recursive(
    JSON | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("If-Match", "If-None-Match", "Idempotency-Key", "Last-Event-ID", "Accept", "Prefer"),
            *("Content-Type", "X-Request-Id", "Origin", "Range", "Accept-Encoding"),
        ]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
    | st.sampled_from(["*", '"a"', "0", "application/json", "text/event-stream", "null"]),
    max_size=3,
)
OPEN_ENDED = {Media.EVENTS}


def values(query: Query) -> SearchStrategy[str]:
    right = {
        Kind.TEXT: TEXT,
        Kind.ID: st.sampled_from(["s", "echo", "a/b"]),
        Kind.WHOLE: st.integers(-2, 10_001).map(str),
        # Nobody waits for long.
        Kind.NUMBER: st.sampled_from(["0", "0.01", "-1", "nan", "inf", "1e999"]),
        Kind.BOOLEAN: st.sampled_from(["true", "false", "1", "perhaps"]),
        Kind.TIME: st.sampled_from(["2026-01-01T00:00:00Z", "now", "0001-01-01T00:00:00+14:00"]),
        Kind.WORD: st.sampled_from([*query.words, "OTHER"]),
    }[query.kind]
    return right if query.name == "timeout" else right | TEXT


@st.composite
def requests(draw: DrawFn) -> tuple[Route, dict[str, Any]]:
    """A route, and what to send there."""
    route = draw(st.sampled_from([route for route in ROUTES if route.media not in OPEN_ENDED]))
    query = [
        (declared.name, draw(values(declared)))
        for declared in route.query
        if declared.name == "timeout" or draw(st.integers(0, 3)) == 0
    ]
    if draw(st.integers(0, 9)) == 0:
        query.append((draw(TEXT), draw(TEXT)))
    options: dict[str, Any] = {"query": query, "headers": draw(HEADERS)}
    if route.body is not Body.NONE:
        raw = draw(LIKELY.map(dumps_plain) | st.binary(max_size=30))
        options["data"] = raw
    return route, options


@pytest.mark.slow
@pytest.mark.feature("SEC-03")
def test_no_request_makes_the_server_stumble(connect_once: Any) -> None:
    """One server for all examples; what earlier ones changed is part of the game."""
    loop, send = connect_once

    @hypothesis.settings(
        max_examples=400,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(requests())
    def stumbles(request: tuple[Route, dict[str, Any]]) -> None:
        answer = loop.run_until_complete(send(*request))
        assert answer.status < 500, answer.body

    stumbles()


@pytest.fixture
def connect_once(make: Any, checking_client: Any, settings: Settings) -> Any:
    loop = asyncio.new_event_loop()
    engine = Engine(settings)
    server_box: list[Any] = []

    async def open_all() -> None:
        await engine.__aenter__()
        server = HttpServer(engine, port=0)
        await server.__aenter__()
        client = checking_client(server)
        server_box.extend([server, client])

    async def refresh(client: Any) -> str:
        """Have the session, its workflow and a live run, whatever the last request did."""
        document = make.line("echo", count=0, every_ms=50)
        await client("PUT", "/api/sessions/s", {"workflows": [document]})
        live = await client.ok("GET", "/api/executions?status=RUNNING&sessionId=s&limit=1")
        if live["items"]:
            return str(live["items"][0]["executionId"])
        return str(await client.start("echo"))

    async def send(route: Route, options: dict[str, Any]) -> Any:
        server, client = server_box
        execution_id = await refresh(client)
        ids = {
            "sessionId": "s",
            "workflowId": "echo",
            "executionId": execution_id,
            "nodeId": "double",
            "type": "TRANSFORM",
        }
        path = route.path
        for name, value in ids.items():
            path = path.replace("{" + name + "}", value)
        headers = options["headers"]
        if route.media is Media.EITHER:
            headers = {**headers, "Accept": "application/json"}
        url = URL(server.url + path).with_query(options["query"])
        return await client(route.method, url, data=options.get("data"), headers=headers)

    async def close_all() -> None:
        server, client = server_box
        await client.session.close()
        await server.__aexit__(None, None, None)
        await engine.close()

    loop.run_until_complete(open_all())
    yield loop, send
    loop.run_until_complete(close_all())
    loop.close()
