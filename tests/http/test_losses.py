"""The loss ledger over HTTP, and starts that must lose nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.http.server import HttpServer
from yukta_rx.http.table import ROUTES

if TYPE_CHECKING:
    from pathlib import Path

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


async def all_results(client: Any, run: str) -> list[Any]:
    """Every result that is kept; what is not written yet comes on a page of its own."""
    found: list[Any] = []
    cursor = "0"
    while cursor is not None:
        place = f"/api/sessions/s/executions/{run}/results?limit=500&afterCursor={cursor}"
        page = await client.ok("GET", place, headers={"Accept": "application/json"})
        found += page["items"]
        cursor = page["nextCursor"]
    return found


@pytest.mark.feature("OBS-03", "DUR-05")
async def test_an_endless_run_loses_its_oldest_stored_results_and_says_so(
    tmp_path: Path, connect: Any, make: Any
) -> None:
    overrides = {
        "yukta.profile": "file",
        "yukta.data.dir": str(tmp_path),
        "yukta.results.stored-per-run": 20,
        "yukta.results.retained-events": 5,
        "yukta.execution.shutdown-timeout": "100ms",
    }
    settings = load_settings(environ={}, overrides=overrides)
    async with Engine(settings) as engine, HttpServer(engine, port=0) as server:
        client = await connect(server)
        await client.session_with(make.line("w", count=0, every_ms=1, size=8000))
        run = await client.start("w")
        while not (ledger := await client.ok("GET", f"/api/executions/{run}/losses"))["items"]:
            await asyncio.sleep(0.01)
        await client.ok("POST", f"/api/executions/{run}/stop")
        await client.ended(run)
        await engine.results.recorder.written()  # type: ignore[union-attr]
        at_once = await all_results(client, run)
    async with Engine(settings) as engine, HttpServer(engine, port=0) as server:
        again = await all_results(await connect(server), run)

    [row] = ledger["items"]
    assert (row["place"], row["reason"]) == ("results", "expired")
    first, last = at_once[0], at_once[-1]
    assert int(first["cursor"]) > row["count"] > 0
    assert (last["type"], last["truncated"]) == ("EXECUTION_END", True)
    assert [item["cursor"] for item in again] == [item["cursor"] for item in at_once]
    assert again[-1]["truncated"]
