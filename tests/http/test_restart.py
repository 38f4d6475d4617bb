"""Restart, restart from a node, retry and recover over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.feature("CTL-04")


def branches(workflow_id: str = "w", *, fails: bool = False) -> dict[str, Any]:
    """Numbers into two branches, one of which may fail at a path that is not there."""
    path = "${payload.nowhere}" if fails else "${payload.n}"
    return {
        "workflowId": workflow_id,
        "nodes": [
            {"nodeId": "numbers", "type": "SEQUENCE_TRIGGER", "config": {"count": 3}},
            {"nodeId": "left", "type": "TRANSFORM", "config": {"set": {"was": path}}},
            {"nodeId": "end", "type": "COLLECT_TERMINAL"},
            {"nodeId": "aside", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [
            {"source": "numbers", "target": "left"},
            {"source": "left", "target": "end"},
            {"source": "numbers", "target": "aside"},
        ],
        "options": {"onTerminalFailure": "FINISH_OTHERS"},
    }


async def ended_run(client: Any, workflow: str = "w", payload: Any = None) -> str:
    run = str(await client.start(workflow, payload))
    await client.ended(run)
    return run


async def results(client: Any, run: str) -> list[tuple[str, str]]:
    page = await client.ok(
        "GET",
        f"/api/sessions/s/executions/{run}/results",
        headers={"Accept": "application/json"},
    )
    return sorted(
        (item["nodeId"], item["messageId"]) for item in page["items"] if item["type"] == "RESULT"
    )


async def test_a_restart_answers_with_the_new_run_and_where_it_is(client: Any) -> None:
    await client.session_with(branches())
    run = await ended_run(client)

    answer = await client("POST", f"/api/executions/{run}/restart")
    new = answer.body["executionId"]
    detail = await client.ended(new)

    assert answer.status == 201
    assert answer.headers["Location"] == f"/api/executions/{new}"
    assert answer.body["links"]["self"] == f"/api/executions/{new}"
    assert (detail["status"], detail["restartedFrom"]) == ("SUCCESS", run)
    assert detail["restartable"] == {"ok": True}
    assert detail["resumable"] == {"ok": False, "reason": "not_aborted"}
    old_ids, new_ids = [{uid for _, uid in await results(client, which)} for which in (run, new)]
    assert old_ids.isdisjoint(new_ids)


async def test_a_restart_takes_another_payload_and_version(client: Any, make: Any) -> None:
    await client.session_with(make.echo())
    run = await ended_run(client, "echo", {"a": 1})
    await client.ok("PUT", "/api/sessions/s/workflows/echo", {**make.echo(), "description": "new"})
    made = [
        await client.ok("POST", f"/api/executions/{run}/restart", {"payload": {"b": 2}, **more})
        for more in ({"version": "current"}, {"version": "1"}, {})
    ]
    for one in made:
        await client.ended(one["executionId"])

    versions = [one["definitionVersion"] for one in made]
    assert versions[1] == versions[2] != versions[0]
    page = await client.ok(
        "GET",
        f"/api/sessions/s/executions/{made[0]['executionId']}/results",
        headers={"Accept": "application/json"},
    )
    assert page["items"][0]["payload"] == {"b": 2}


async def test_a_node_is_restarted_with_the_ids_of_before(client: Any) -> None:
    await client.session_with(branches())
    run = await ended_run(client)

    answer = await client("POST", f"/api/executions/{run}/nodes/left/restart")
    new = answer.body["executionId"]
    detail = await client.ended(new)
    nodes = await client.ok("GET", f"/api/executions/{new}/nodes")

    assert (answer.status, detail["status"]) == (201, "SUCCESS")
    assert {node["nodeId"]: node["status"] for node in nodes["items"]} == {
        "numbers": "SUCCESS",
        "left": "SUCCESS",
        "end": "SUCCESS",
        "aside": "SKIPPED",
    }
    before = [item for item in await results(client, run) if item[0] == "end"]
    assert await results(client, new) == before


async def test_a_failed_node_is_retried_and_another_is_not(client: Any) -> None:
    await client.session_with(branches(fails=True))
    run = await ended_run(client)

    answer = await client("POST", f"/api/executions/{run}/nodes/left/retry")
    again = await client.ended(answer.body["executionId"])
    other = await client("POST", f"/api/executions/{run}/nodes/numbers/retry")

    assert (answer.status, again["status"]) == (201, "FAILURE")
    assert (other.status, other.code) == (409, "node_not_failed")


async def test_what_is_not_kept_or_not_finished_is_refused_and_said(
    client: Any, engine: Any
) -> None:
    await client.session_with(branches(), branches("big"))
    failed = branches("bad", fails=True)
    await client.ok("PUT", "/api/sessions/s/workflows/bad", failed)
    bad = await ended_run(client, "bad")
    unfinished = await client("POST", f"/api/executions/{bad}/nodes/end/restart")
    nowhere = await client("POST", f"/api/executions/{bad}/nodes/nowhere/restart")
    version = await client("POST", f"/api/executions/{bad}/restart", {"version": "9"})
    for _ in range(engine.settings.restart.retained_executions):
        await ended_run(client)
    evicted = [
        await client("POST", f"/api/executions/{bad}{path}")
        for path in ("/restart", "/nodes/left/restart", "/nodes/left/retry")
    ]
    detail = await client.ok("GET", f"/api/executions/{bad}")

    assert (unfinished.status, unfinished.code) == (409, "not_restartable")
    assert (unfinished.body["reason"], unfinished.body["nodes"]) == (
        "parents_not_finished",
        ["left"],
    )
    assert (nowhere.status, nowhere.code) == (404, "node_not_found")
    assert (version.status, version.code) == (404, "version_not_found")
    assert {(one.status, one.code, one.body["reason"]) for one in evicted} == {
        (409, "not_restartable", "evicted")
    }
    assert detail["restartable"] == {"ok": False, "reason": "evicted"}
    rows = await client.ok("GET", f"/api/executions/{bad}/commands")
    assert {row["outcome"] for row in rows["items"]} == {"REJECTED"}
    assert len(rows["items"]) == 6


async def test_an_output_over_the_cap_is_refused_and_said(client: Any) -> None:
    document = branches()
    document["nodes"][0]["config"]["count"] = 500
    await client.session_with(document)
    run = await ended_run(client)

    refused = await client("POST", f"/api/executions/{run}/nodes/left/restart")

    assert (refused.status, refused.code) == (409, "not_restartable")
    assert (refused.body["reason"], refused.body["nodes"]) == ("output_over_cap", ["numbers"])


async def test_a_live_run_is_cancelled_by_its_restart(client: Any, make: Any) -> None:
    await client.session_with(make.line("endless", count=0, every_ms=5))
    run = await client.start("endless")

    new = (await client.ok("POST", f"/api/executions/{run}/restart"))["executionId"]
    old = await client.ok("GET", f"/api/executions/{run}")
    await client.ok("POST", f"/api/executions/{new}/stop?mode=CANCEL")

    assert old["status"] == "CANCELLED"
    assert (await client.ended(new))["status"] == "CANCELLED"


async def test_only_a_crashed_run_is_recovered(client: Any) -> None:
    await client.session_with(branches())
    run = await ended_run(client)

    refused = await client("POST", f"/api/executions/{run}/recover")
    unknown = await client("POST", "/api/executions/nobody/recover")

    assert (refused.status, refused.code) == (409, "not_recoverable")
    assert refused.body["reason"] == "not_aborted"
    assert (unknown.status, unknown.code) == (404, "execution_not_found")


async def test_the_one_door_and_a_dry_run_take_restarts_too(client: Any) -> None:
    await client.session_with(branches())
    run = await ended_run(client)
    path = f"/api/executions/{run}"

    door = await client.ok("POST", f"{path}/commands", {"type": "RestartFromNode", "nodeId": "end"})
    dry = await client.ok("POST", f"{path}/restart?dryRun=true")
    repeated = [
        await client.ok("POST", f"{path}/restart", headers={"Idempotency-Key": '"once"'})
        for _ in range(2)
    ]

    assert (door["outcome"], bool(door["newExecutionId"])) == ("APPLIED", True)
    assert (dry["outcome"], "newExecutionId" in dry) == ("DRY_RUN", False)
    assert repeated[0]["executionId"] == repeated[1]["executionId"]
