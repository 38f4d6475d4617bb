"""The loss ledger over HTTP, and starts that must lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.http.table import ROUTES

pytestmark = pytest.mark.feature("OBS-01")

SWITCH = {"cases": [{"port": "even", "when": "payload.n % 2 == 0"}], "otherwise": "odd"}


def lossy(**options: Any) -> dict[str, Any]:
    """Ten numbers, of which the odd ones go to a port that no edge leaves by."""
    return {
        "workflowId": "lossy",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 10}},
            {"nodeId": "even", "type": "SWITCH", "config": SWITCH},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [
            {"source": "in", "target": "even"},
            {"source": "even", "target": "out", "sourcePort": "even"},
        ],
        "options": options,
    }


async def test_the_ledger_of_an_ended_run_is_shown_and_its_totals_agree(client: Any) -> None:
    await client.session_with(lossy())
    execution_id = await client.start("lossy")
    ended = await client.ended(execution_id)

    shown = await client.ok("GET", f"/api/executions/{execution_id}/losses")

    assert ended["status"] == "SUCCESS"
    [row] = shown["items"]
    assert len(set(row.pop("sample"))) == 5
    assert row == {"place": "edge", "nodeId": "even", "reason": "UNROUTED", "count": 5}
    assert shown["lossless"] is False
    path = f"/api/sessions/s/executions/{execution_id}/results"
    page = await client.ok("GET", path, headers={"Accept": "application/json"})
    end = page["items"][-1]
    assert (end["type"], end["totals"]["dropped"]) == ("EXECUTION_END", 5)


async def test_a_run_that_lost_nothing_has_an_empty_ledger(client: Any, make: Any) -> None:
    await client.session_with(make.line())
    execution_id = await client.start()
    await client.ended(execution_id)

    shown = await client.ok("GET", f"/api/executions/{execution_id}/losses")

    assert shown == {"lossless": True, "items": []}


async def test_a_start_that_must_lose_nothing_fails_with_the_code_losses(client: Any) -> None:
    await client.session_with(lossy())
    body = {"sessionId": "s", "workflowId": "lossy", "options": {"lossless": True}}

    made = await client.ok("POST", "/api/workflow/start", body)
    ended = await client.ended(made["executionId"])

    assert (ended["status"], ended["error"]["code"]) == ("FAILURE", "losses")
    assert ended["error"]["nodeId"] == "even"


async def test_a_lossless_workflow_with_a_buffer_that_drops_is_not_saved(client: Any) -> None:
    document = lossy(lossless=True)
    document["nodes"][1]["config"] = {**SWITCH, "engine": {"edgeBuffer": {"size": 3}}}
    await client.session_with()

    answer = await client("PUT", "/api/sessions/s/workflows/lossy", document)

    assert answer.status == 422
    (fault,) = answer.body["errors"]
    assert (fault["code"], fault["pointer"]) == (
        "invalid_option",
        "/nodes/1/config/engine/edgeBuffer",
    )


async def test_the_ledger_of_no_run_is_not_found(client: Any) -> None:
    answer = await client("GET", "/api/executions/01JABCDEFGHJKMNPQRSTVWXYZ0/losses")

    assert (answer.status, answer.code) == (404, "execution_not_found")


def test_a_viewer_may_read_it() -> None:
    (route,) = [route for route in ROUTES if "/api/executions/{executionId}/losses" in route.paths]

    assert (route.method, str(route.role)) == ("GET", "VIEWER")
