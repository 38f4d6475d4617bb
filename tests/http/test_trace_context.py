"""traceparent over HTTP: in with a start, on with a request of a node, back with every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("OBS-05")

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def settings() -> Settings:
    return Settings(http_request={"allow_private": True})


@pytest.fixture
async def asked() -> AsyncIterator[list[Any]]:
    """The headers that a server was sent; its address is the first."""
    from aiohttp import web

    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.Response()

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(host, port, *_)] = runner.addresses
    seen.append(f"http://{host}:{port}/")
    yield seen
    await runner.cleanup()


def asking(url: str) -> dict[str, Any]:
    return {
        "workflowId": "asking",
        "nodes": [
            {"nodeId": "start", "type": "API_TRIGGER"},
            {"nodeId": "same", "type": "TRANSFORM", "config": {"set": {"a": 1}}},
            {"nodeId": "ask", "type": "HTTP_REQUEST", "config": {"url": url}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [
            {"source": "start", "target": "same"},
            {"source": "same", "target": "ask"},
            {"source": "ask", "target": "out"},
        ],
    }


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/workflow/s/asking/start", {}),
        ("/api/workflow/start", {"sessionId": "s", "workflowId": "asking", "payload": {}}),
    ],
)
async def test_the_context_of_a_start_reaches_the_request_of_a_node(
    client: Any, asked: list[Any], path: str, body: Any
) -> None:
    await client.session_with(asking(asked[0]))

    answer = await client("POST", path, body, headers={"traceparent": PARENT})
    await client.ended(answer.body["executionId"])

    assert answer.headers["traceparent"] == PARENT
    assert asked[1]["traceparent"] == PARENT


@pytest.mark.parametrize("header", ["nonsense", f"{PARENT}, {PARENT}", f"ff{PARENT[2:]}"])
async def test_a_malformed_context_is_as_none(client: Any, asked: list[Any], header: str) -> None:
    await client.session_with(asking(asked[0]))

    path = "/api/workflow/s/asking/start"
    answer = await client("POST", path, {}, headers={"traceparent": header})
    await client.ended(answer.body["executionId"])

    assert "traceparent" not in answer.headers
    assert "traceparent" not in asked[1]


async def test_refusals_have_it_too(client: Any) -> None:
    answer = await client("GET", "/api/executions/none", headers={"traceparent": PARENT})

    assert answer.status == 404
    assert answer.headers["traceparent"] == PARENT
