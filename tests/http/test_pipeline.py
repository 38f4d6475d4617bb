"""Batches, held commands and the audit of all runs, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.control.commands import StopNode
from yukta_rx.control.reviewers import Deny, Hold

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("CTL-01", "CTL-06")


class Policy:
    """Nodes are stopped by two, and never the last one."""

    id = "policy"

    async def review(self, request: Any) -> Any:
        if not isinstance(request.command, StopNode):
            return None
        if request.command.node_id == "out":
            return Deny("the last node stays")
        return Hold("two have to agree")


@pytest.fixture
async def engine(settings: Any) -> AsyncIterator[Engine]:
    async with Engine(settings, reviewers=[Policy()]) as made:
        yield made


@pytest.fixture
async def run(client: Any, make: Any) -> tuple[Any, str]:
    """A client and the id of a run that goes on until it is stopped."""
    await client.session_with(make.line("endless", count=0, every_ms=5))
    return client, await client.start("endless")


async def test_a_batch_answers_for_each_command_in_order(run: Any) -> None:
    client, execution_id = run
    other = await client.start("endless")
    commands = [
        {"type": "PauseWorkflow", "executionId": execution_id, "reason": "look"},
        {"type": "PauseWorkflow", "executionId": "nothing-there"},
        {"type": "StepNode", "executionId": other, "nodeId": "nowhere"},
        {"type": "StopNode", "executionId": other, "nodeId": "out"},
        {"type": "StopWorkflow", "executionId": other, "mode": "kill", "commandId": "c-1"},
        {"type": "StopWorkflow", "executionId": other, "mode": "kill", "commandId": "c-1"},
        {"type": "ResumeWorkflow", "executionId": other},
    ]

    results = (await client.ok("POST", "/api/commands", {"commands": commands}))["results"]

    assert [item.get("outcome") or item["code"] for item in results] == [
        "APPLIED",
        "execution_not_found",
        "node_not_found",
        "control_rejected",
        "APPLIED",
        "APPLIED",
        "execution_not_running",
    ]
    assert results[4] == results[5]
    assert (await client.ok("GET", f"/api/executions/{execution_id}"))["paused"] is True
    assert results[1]["status"] == 404


async def test_an_atomic_batch_is_applied_whole_or_not_at_all(run: Any) -> None:
    client, execution_id = run
    pause = {"type": "PauseWorkflow", "executionId": execution_id}
    wrong = {"type": "PauseNode", "executionId": execution_id, "nodeId": "nowhere"}
    path = "/api/commands?atomic=true"

    refused = await client("POST", path, {"commands": [pause, wrong]})
    before = (await client.ok("GET", f"/api/executions/{execution_id}"))["paused"]
    applied = await client.ok("POST", path, {"commands": [pause, pause]})

    assert (refused.status, refused.code) == (422, "validation")
    assert [(e["pointer"], e["code"]) for e in refused.body["errors"]] == [
        ("/commands/1", "node_not_found")
    ]
    assert before is False
    assert [item["outcome"] for item in applied["results"]] == ["APPLIED", "NO_OP"]


@pytest.mark.parametrize(
    ("commands", "pointer"),
    [
        ([], "/commands"),
        ([{"type": "Explode", "executionId": "x"}], "/commands/0"),
        ([{"type": "PauseWorkflow"}], "/commands/0"),
        ([{"type": "PauseWorkflow", "executionId": "../x"}], "/commands/0"),
        ([{"type": "PauseWorkflow", "executionId": "x", "force": True}], "/commands/0"),
        ([{"type": "StopWorkflow", "executionId": "x", "mode": "GENTLY"}], "/commands/0"),
        ([{"type": "PauseWorkflow", "executionId": "x"}] * 101, "/commands"),
    ],
)
async def test_a_batch_with_a_wrong_command_is_refused_whole_by_place(
    client: Any, commands: Any, pointer: str
) -> None:
    refused = await client("POST", "/api/commands", {"commands": commands})

    assert (refused.status, refused.code) == (422, "validation")
    assert all(error["pointer"].startswith(pointer) for error in refused.body["errors"])


async def test_a_refused_command_names_the_reviewer_and_its_reason(run: Any) -> None:
    client, execution_id = run

    refused = await client("POST", f"/api/executions/{execution_id}/nodes/out/stop")

    assert (refused.status, refused.code) == (403, "control_rejected")
    assert (refused.body["reviewer"], refused.body["reason"]) == ("policy", "the last node stays")


async def test_a_held_command_is_listed_and_its_giver_cannot_approve_it(run: Any) -> None:
    client, execution_id = run
    held = await client("POST", f"/api/executions/{execution_id}/nodes/double/stop?reason=x")
    place = f"/api/control/held/{held.body['commandId']}"

    [row] = (await client.ok("GET", "/api/control/held"))["items"]
    own = await client("POST", place, {"decision": "approve"})
    unknown = await client("POST", "/api/control/held/nothing", {"decision": "approve"})
    vague = await client("POST", place, {"decision": "perhaps"})

    assert (held.status, held.body["outcome"]) == (202, "HELD")
    assert (row["command"], row["nodeId"], row["args"]) == ("StopNode", "double", {"mode": "DRAIN"})
    assert (own.status, own.code) == (403, "forbidden")
    assert (unknown.status, unknown.code) == (404, "command_not_found")
    assert (vague.status, vague.body["errors"][0]["pointer"]) == (422, "/decision")


async def test_a_second_actor_approves_what_another_gave(run: Any, engine: Engine) -> None:
    client, execution_id = run
    command = StopNode(execution_id=execution_id, node_id="double")
    held = await engine.gateway.command(command, actor="sup", via="SUPERVISOR")

    done = await client.ok(
        "POST", f"/api/control/held/{held.command_id}", {"decision": "approve", "reason": "ok"}
    )

    assert (done["outcome"], done["actor"], done["command"]) == ("APPLIED", "sup", "StopNode")
    assert "approved by anonymous: ok" in done["reason"]
    assert (await client.ok("GET", "/api/control/held"))["items"] == []


async def test_the_audit_of_all_runs_is_filtered_and_paged(run: Any) -> None:
    client, execution_id = run
    for path in ("pause", "pause", "resume", "pause?dryRun=true"):
        await client.ok("POST", f"/api/executions/{execution_id}/{path}")
    await client("POST", "/api/executions/nothing-there/pause")
    listed = "/api/control/audit"

    first = await client.ok("GET", f"{listed}?limit=3")
    rest = await client.ok("GET", f"{listed}?limit=3&afterCursor={first['nextCursor']}")
    refused = (await client.ok("GET", f"{listed}?outcome=rejected"))["items"]
    pauses = await client.ok("GET", f"{listed}?command=PauseWorkflow&executionId={execution_id}")
    nobody = await client.ok("GET", f"{listed}?actor=nobody")
    bad = await client("GET", f"{listed}?afterCursor=999")

    rows = [*first["items"], *rest["items"]]
    assert [row["command"] for row in rows] == [
        *("PauseWorkflow", "PauseWorkflow", "ResumeWorkflow", "PauseWorkflow", "PauseWorkflow")
    ]
    assert rest["nextCursor"] is None
    assert [row["executionId"] for row in refused] == ["nothing-there"]
    assert "sessionId" not in refused[0]
    assert [row["outcome"] for row in pauses["items"]] == ["APPLIED", "APPLIED", "DRY_RUN"]
    assert nobody["items"] == []
    assert (bad.status, bad.code) == (400, "invalid_cursor")


async def test_a_command_for_a_run_that_is_not_known_is_in_the_feed_too(client: Any) -> None:
    await client("POST", "/api/executions/nothing-there/pause")

    events = (await client.ok("GET", "/api/events?type=control.*"))["items"]

    assert [(event["type"], event["executionId"]) for event in events] == [
        ("control.rejected", "nothing-there")
    ]
