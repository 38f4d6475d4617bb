"""Explanations and taps of edges over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("OBS-01")


@pytest.fixture
async def run(client: Any, make: Any) -> AsyncIterator[tuple[Any, str]]:
    """A client, and the path of a run that makes a message every 20 ms."""
    await client.session_with(make.line("endless", count=0, every_ms=20, size=300))
    path = f"/api/executions/{await client.start('endless')}"
    yield client, path
    await client("POST", f"{path}/stop?mode=KILL")


async def test_a_paused_run_explains_itself_from_any_node(run: Any) -> None:
    client, path = run
    await client.ok("POST", f"{path}/nodes/double/pause")

    facts = (await client.ok("GET", f"{path}/why?node=out"))["facts"]
    whole = (await client.ok("GET", f"{path}/why"))["facts"]

    assert [(fact["kind"], fact["nodeId"]) for fact in facts] == [
        ("INPUT", "out"),
        ("PAUSE", "double"),
    ]
    assert whole[0]["kind"] == "RUNNING"
    assert facts[-1] in whole


async def test_a_node_or_run_that_there_is_not_is_said_so(run: Any) -> None:
    client, path = run

    node = await client("GET", f"{path}/why?node=nowhere")
    missing = await client("GET", "/api/executions/nowhere/why")

    assert (node.status, node.code) == (404, "node_not_found")
    assert (missing.status, missing.code) == (404, "execution_not_found")


async def test_a_tap_shows_messages_and_ends_with_the_run(run: Any) -> None:
    client, path = run
    async with client.stream(f"{path}/edges/double/out/tap?maxPerSec=10") as stream:
        first = (await stream.type("tap.message")).json
        skipped = [(await stream.type("tap.message")).json["skipped"] for _ in range(11)]
        await client.ok("POST", f"{path}/stop?mode=KILL")
        rest = await stream.rest()

    assert set(first) == {"time", "messageId", "payload", "headers", "truncated", "skipped"}
    assert first["payload"]["seen"] is True
    assert first["truncated"] is False
    assert max(skipped) > 10
    assert rest[-1].type == "tap.end"


async def test_a_payload_is_cut_at_the_bytes_that_are_asked_for(run: Any) -> None:
    client, path = run
    async with client.stream(f"{path}/edges/double/out/tap?maxBytes=256") as stream:
        shown = (await stream.type("tap.message")).json

    assert shown["truncated"] is True
    assert len(shown["payload"]) == 256


async def test_the_tap_is_taken_off_when_the_listener_leaves(run: Any, engine: Any) -> None:
    client, path = run
    stage = next(iter(engine._starter.live.values())).node("numbers").stage
    before = stage.tap

    async with client.stream(f"{path}/edges/numbers/double/tap") as stream:
        await stream.type("tap.message")
        during = stage.tap
    async with asyncio.timeout(10):
        while len(engine.gateway.taps):
            await asyncio.sleep(0.01)

    assert during is not before
    assert stage.tap is before


@pytest.mark.parametrize(
    ("edge", "code"),
    [
        ("numbers/out", "edge_not_found"),
        ("nowhere/out", "node_not_found"),
        ("out/numbers", "edge_not_found"),
    ],
)
async def test_an_edge_that_there_is_not_is_said_so(run: Any, edge: str, code: str) -> None:
    client, path = run

    answer = await client("GET", f"{path}/edges/{edge}/tap")

    assert (answer.status, answer.code) == (404, code)


async def test_a_run_that_has_ended_cannot_be_tapped(client: Any, make: Any) -> None:
    await client.session_with(make.line(count=1))
    execution_id = await client.start()
    await client.ended(execution_id)

    answer = await client("GET", f"/api/executions/{execution_id}/edges/double/out/tap")
    facts = (await client.ok("GET", f"/api/executions/{execution_id}/why"))["facts"]

    assert (answer.status, answer.code) == (409, "execution_not_running")
    assert [fact["kind"] for fact in facts] == ["ENDED"]


@pytest.mark.parametrize("query", ["maxPerSec=0", "maxPerSec=101", "maxBytes=255", "maxBytes=x"])
async def test_a_tap_has_limits(run: Any, query: str) -> None:
    client, path = run

    answer = await client("GET", f"{path}/edges/double/out/tap?{query}")

    assert (answer.status, answer.code) == (400, "invalid_parameter")


async def test_more_taps_than_twenty_are_refused(run: Any, engine: Any) -> None:
    client, path = run
    execution_id = path.rpartition("/")[2]
    wanted = {"source": "numbers", "target": "double", "port": None}
    readers = [
        engine.gateway.tap(execution_id, **wanted, max_per_sec=1, max_bytes=256) for _ in range(20)
    ]

    answer = await client("GET", f"{path}/edges/double/out/tap")
    for reader in readers:
        reader.close()

    assert (answer.status, answer.code) == (429, "too_many_streams")
    assert int(answer.headers["Retry-After"]) == 5
