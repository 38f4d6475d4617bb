"""Runs below a run, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.feature("ENG-07")

MESSAGES = 5


@pytest.fixture
async def family(client: Any, make: Any) -> Any:
    """A client of a server where a run with five children has ended, and the run's id."""
    nodes = [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": MESSAGES}},
        {"nodeId": "sub", "type": "SUB_WORKFLOW", "config": {"workflowId": "echo"}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ]
    edges = [{"source": "in", "target": "sub"}, {"source": "sub", "target": "out"}]
    parent = {"workflowId": "parent", "nodes": nodes, "edges": edges}
    await client.session_with(make.echo(), parent)
    done = await client.ok("POST", "/api/workflow/s/parent/run", {})
    return client, done


async def test_children_are_listed_newest_first_and_paged(family: Any) -> None:
    client, done = family
    parent = done["execution"]["executionId"]
    path = f"/api/executions/{parent}/children"

    first = await client.ok("GET", f"{path}?limit=3")
    rest = await client.ok("GET", f"{path}?limit=3&afterCursor={first['nextCursor']}")

    listed = [item["executionId"] for item in first["items"] + rest["items"]]
    assert listed == [item["payload"]["executionId"] for item in done["results"]][::-1]
    assert (len(first["items"]), rest["nextCursor"]) == (3, None)
    assert {item["parentExecutionId"] for item in first["items"]} == {parent}
    assert {item["depth"] for item in first["items"]} == {1}


async def test_the_list_of_runs_filters_by_parent(family: Any) -> None:
    client, done = family
    parent = done["execution"]["executionId"]

    found = await client.ok("GET", f"/api/executions?parentExecutionId={parent}")
    counted = await client.ok("GET", f"/api/executions?parentExecutionId={parent}&count=true")

    assert len(found["items"]) == MESSAGES
    assert counted == {"count": MESSAGES, "countCapped": False}


async def test_a_run_shows_its_children_when_asked(family: Any) -> None:
    client, done = family
    parent = done["execution"]["executionId"]

    detail = await client.ok("GET", f"/api/executions/{parent}?include=children")

    emitted = [item["payload"]["executionId"] for item in done["results"]]
    assert sorted(detail["children"]) == sorted(emitted)


async def test_a_child_has_results_and_an_audit_of_its_own(family: Any) -> None:
    client, done = family
    child = done["results"][0]["payload"]

    results = await client.ok(
        "GET",
        f"/api/sessions/s/executions/{child['executionId']}/results",
        headers={"Accept": "application/json"},
    )
    refused = await client("POST", f"/api/executions/{child['executionId']}/pause")
    audit = await client.ok("GET", f"/api/executions/{child['executionId']}/commands")

    payloads = [item["payload"] for item in results["items"] if item["type"] == "RESULT"]
    assert payloads == child["results"]
    assert (refused.status, refused.code) == (409, "execution_not_running")
    assert [row["outcome"] for row in audit["items"]] == ["REJECTED"]
