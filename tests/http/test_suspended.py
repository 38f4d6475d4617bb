"""A suspended run against a real server: it says so, reads leave it so, and an answer ends that."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.settings import Settings
from yukta_rx.http.openapi import openapi_document
from yukta_rx.http.route import Media
from yukta_rx.http.table import ROUTES

if TYPE_CHECKING:
    from yukta_rx.app import Engine

pytestmark = pytest.mark.feature("CTL-05")

ASKING = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 2}},
        {"nodeId": "ask", "type": "WAIT_FOR_SIGNAL", "config": {"signal": "go"}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
}


@pytest.fixture
def settings() -> Settings:
    short = timedelta(milliseconds=200)
    return Settings(execution={"shutdown_timeout": short, "suspend_after": short})


async def suspended(client: Any, run: str) -> dict[str, Any]:
    """The run, once it says that it is suspended."""
    async with asyncio.timeout(30):
        while True:
            shown: dict[str, Any] = await client.ok("GET", f"/api/executions/{run}")
            if shown.get("suspended"):
                return shown
            await asyncio.sleep(0.02)


async def running(client: Any) -> int:
    """What the gauge says of runs that hold a slot."""
    async with client.session.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith("yukta_executions_running ")]
    return int(float(value))


READS = [
    route.path
    for route in ROUTES
    if route.method == "GET" and "{executionId}" in route.path and route.media is not Media.EVENTS
]
"""All that can be asked of one run; only a tap on an edge takes it up."""

NONE_THERE = {"held": 404, "wait": 204, "recover": 409}
"""What is answered where there is nothing to show."""


async def test_a_client_sees_that_a_run_is_suspended_and_does_not_wake_it(
    client: Any, engine: Engine
) -> None:
    await client.session_with(ASKING)
    run = await client.start()
    shown = await suspended(client, run)
    assert (shown["status"], shown["suspended"], shown["paused"]) == ("RUNNING", True, False)
    assert [fact["kind"] for fact in shown["waitingOn"]] == ["APPROVAL"]
    asleep = engine._starter.live.suspended[run]

    as_json = {"Accept": "application/json"}
    for route in READS:
        path = route.format(executionId=run, nodeId="ask", sessionId="s")
        query = "?timeout=0" if path.endswith("/wait") else ""
        answer = await client("GET", path + query, headers=as_json)
        assert answer.status == NONE_THERE.get(path.rpartition("/")[2], 200), path
    [listed] = (await client.ok("GET", "/api/executions"))["items"]
    assert (listed["executionId"], listed["suspended"]) == (run, True)
    [listed] = (await client.ok("GET", "/api/executions?status=RUNNING&workflowId=w"))["items"]
    assert listed["suspended"] is True
    progress = await client.ok("GET", f"/api/executions/{run}/progress", headers=as_json)
    assert progress["execution"]["suspended"] is True
    [status] = {(await client("GET", f"/health/{one}")).status for one in ("live", "ready")}
    assert (status, await running(client)) == (200, 1)
    assert engine._starter.live.suspended[run] is asleep


async def test_a_run_that_was_answered_says_so_no_more(client: Any) -> None:
    await client.session_with(ASKING)
    run = await client.start()
    path = f"/api/executions/{run}"
    for _ in range(2):
        await suspended(client, run)
        before = (await client("GET", path)).headers["ETag"]
        [one, *_] = (await client.ok("GET", "/api/approvals"))["items"]
        assert await client.ok("POST", f"/api/approvals/{one['approvalId']}", {"decision": "yes"})
        # It may be suspended again by then, but it is not what it was.
        assert (await client("GET", path, headers={"If-None-Match": before})).status == 200
    shown = await client.ended(run)
    assert (shown["status"], "suspended" in shown) == ("SUCCESS", False)
    [listed] = (await client.ok("GET", "/api/executions"))["items"]
    assert "suspended" not in listed
    assert await running(client) == 0


async def test_who_follows_a_run_is_told_of_what_an_answer_leads_to(client: Any) -> None:
    await client.session_with(ASKING)
    run = await client.start()
    await suspended(client, run)
    async with client.stream(f"/api/executions/{run}/progress") as stream:
        first = await stream.type("execution.progress")
        assert first.json["execution"]["executionId"] == run
        for one in (await client.ok("GET", "/api/approvals"))["items"]:
            await client.ok("POST", f"/api/approvals/{one['approvalId']}", {"decision": "yes"})
        last = (await stream.rest())[-1].json["execution"]
    assert (last["status"], "suspended" in last) == ("SUCCESS", False)


def test_the_reference_says_what_the_field_means() -> None:
    shapes = openapi_document(ROUTES)["components"]["schemas"]
    for name in ("ExecutionSummary", "ExecutionDetail"):
        field = shapes[name]["properties"]["suspended"]
        assert "put aside" in field["description"]
        assert "suspended" not in shapes[name]["required"]
