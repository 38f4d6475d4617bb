"""Steering runs over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Client = Callable[..., Awaitable[Any]]


@pytest.fixture
async def run(client: Any, make: Any) -> tuple[Any, str]:
    """A client and the path of a run that goes on until it is stopped."""
    await client.session_with(make.line("endless", count=0, every_ms=5))
    return client, f"/api/executions/{await client.start('endless')}"


@pytest.mark.feature("CTL-02")
async def test_a_run_is_paused_and_resumed_and_reads_show_it(run: Any) -> None:
    client, path = run

    paused = await client.ok("POST", f"{path}/pause")
    shown = await client.ok("GET", path)
    again = await client.ok("POST", f"{path}/pause")
    resumed = await client.ok("POST", f"{path}/resume")

    assert (paused["command"], paused["outcome"]) == ("PauseWorkflow", "APPLIED")
    assert paused["state"] == {"status": "RUNNING", "paused": True, "stepMode": False}
    assert shown["paused"] is True
    assert again["outcome"] == "NO_OP"
    assert (resumed["outcome"], resumed["state"]["paused"]) == ("APPLIED", False)
    assert [paused["seq"], again["seq"], resumed["seq"]] == [1, 2, 3]


@pytest.mark.feature("CTL-02")
async def test_a_paused_run_lets_through_what_it_is_stepped(run: Any) -> None:
    client, path = run
    await client.ok("POST", f"{path}/pause")
    before = (await client.ok("GET", f"{path}/nodes/numbers"))["out"]

    await client.ok("POST", f"{path}/step?n=2")
    await asyncio.sleep(0.1)

    after = (await client.ok("GET", f"{path}/nodes/numbers"))["out"]
    assert after - before <= 2


@pytest.mark.feature("CTL-02")
async def test_one_node_is_steered_alone(run: Any) -> None:
    client, path = run

    paused = await client.ok("POST", f"{path}/nodes/double/pause")
    node = await client.ok("GET", f"{path}/nodes/double")
    other = await client.ok("GET", f"{path}/nodes/out")
    stepped = await client.ok("POST", f"{path}/nodes/double/step", {"n": 3})
    resumed = await client.ok("POST", f"{path}/nodes/double/resume")

    assert (paused["nodeId"], node["paused"], other["paused"]) == ("double", True, False)
    assert stepped["command"] == "StepNode"
    assert resumed["command"] == "ResumeNode"


@pytest.mark.feature("CTL-02")
@pytest.mark.parametrize("how", ["query", "body"])
async def test_step_mode_is_switched(run: Any, how: str) -> None:
    client, path = run

    if how == "query":
        answer = await client.ok("PUT", f"{path}/step-mode?enabled=true")
    else:
        answer = await client.ok("PUT", f"{path}/step-mode", {"enabled": True})

    assert answer["state"]["stepMode"] is True
    assert (await client.ok("GET", path))["stepMode"] is True


@pytest.mark.feature("CTL-03")
@pytest.mark.parametrize("mode", ["DRAIN", "CANCEL", "kill"])
async def test_a_run_is_stopped(run: Any, mode: str) -> None:
    client, path = run

    await client.ok("POST", f"{path}/stop?mode={mode}")

    shown = await client.ended(path.rpartition("/")[2])
    assert shown["status"] in ("STOPPED", "CANCELLED")


@pytest.mark.feature("CTL-03")
async def test_every_live_run_of_a_workflow_is_stopped(run: Any) -> None:
    client, path = run
    second = await client.start("endless")

    answer = await client.ok("POST", "/api/workflow/s/endless/stop?mode=KILL&reason=enough")

    ids = {result["executionId"] for result in answer["results"]}
    assert ids == {path.rpartition("/")[2], second}
    for execution_id in ids:
        await client.ended(execution_id)
    assert await client.ok("POST", "/api/workflow/s/endless/stop") == {"results": []}
    missing = await client("POST", "/api/workflow/s/nothing/stop")
    assert (missing.status, missing.code) == (404, "workflow_not_found")


@pytest.mark.feature("CTL-01")
async def test_a_run_that_has_ended_takes_no_command(run: Any) -> None:
    client, path = run
    await client.ok("POST", f"{path}/stop?mode=KILL")
    await client.ended(path.rpartition("/")[2])

    for below in ("pause", "resume", "step", "stop", "nodes/double/pause"):
        answer = await client("POST", f"{path}/{below}")
        assert (answer.status, answer.code) == (409, "execution_not_running"), below


@pytest.mark.feature("CTL-01")
async def test_a_run_or_node_that_is_not_there_is_not_found(run: Any) -> None:
    client, path = run

    no_run = await client("POST", "/api/executions/nothing/pause")
    no_node = await client("POST", f"{path}/nodes/nothing/pause")

    assert (no_run.status, no_run.code) == (404, "execution_not_found")
    assert (no_node.status, no_node.code) == (404, "node_not_found")


@pytest.mark.feature("CTL-01")
async def test_commands_go_through_one_door_too(run: Any) -> None:
    client, path = run
    door = f"{path}/commands"

    paused = await client.ok("POST", door, {"type": "PauseNode", "nodeId": "double"})
    stepped = await client.ok("POST", door, {"type": "StepWorkflow", "n": 2, "reason": "look"})

    assert (paused["command"], paused["nodeId"]) == ("PauseNode", "double")
    assert stepped["command"] == "StepWorkflow"


@pytest.mark.feature("CTL-01")
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/type"),
        ({"type": "Explode"}, "/type"),
        ({"type": ["PauseNode"]}, "/type"),
        ({"type": "PauseNode"}, "/nodeId"),
        ({"type": "PauseNode", "nodeId": "a/b"}, "/nodeId"),
        ({"type": "StepWorkflow", "n": "many"}, "/n"),
        ({"type": "StopWorkflow", "mode": "SOON"}, "/mode"),
        ({"type": "PauseWorkflow", "extra": 1}, "/extra"),
        ({"type": "PauseWorkflow", "executionId": "other"}, "/executionId"),
        ([], ""),
        ("PauseWorkflow", ""),
    ],
)
async def test_a_command_that_is_wrong_is_refused_with_the_place(
    run: Any, body: Any, pointer: str
) -> None:
    client, path = run

    answer = await client("POST", f"{path}/commands", body)

    assert (answer.status, answer.code) == (422, "validation")
    assert pointer in [fault["pointer"] for fault in answer.body["errors"]]


@pytest.mark.feature("CTL-01")
@pytest.mark.parametrize(
    ("below", "parameter"),
    [
        ("step?n=0", "n"),
        ("step?n=x", "n"),
        ("stop?mode=SOON", "mode"),
        ("stop?mod=KILL", "mod"),
        ("pause?dryRun=perhaps", "dryRun"),
        ("pause?reason=" + "x" * 1001, "reason"),
    ],
)
async def test_a_wrong_parameter_of_a_command_is_named(
    run: Any, below: str, parameter: str
) -> None:
    client, path = run

    answer = await client("POST", f"{path}/{below}")

    assert (answer.status, answer.code) == (400, "invalid_parameter")
    assert answer.body["parameter"] == parameter


@pytest.mark.parametrize(
    ("method", "below", "body"),
    [
        ("POST", "step", {"n": 0}),
        ("POST", "step", {"n": True}),
        ("POST", "step", {"n": 1.5}),
        ("POST", "stop", {"mode": "SOON"}),
        ("POST", "pause", {"why": "x"}),
        ("POST", "pause", []),
        ("PUT", "step-mode", {"enabled": "yes"}),
        ("PUT", "step-mode", {}),
    ],
)
async def test_a_wrong_field_of_a_command_is_refused(
    run: Any, method: str, below: str, body: Any
) -> None:
    client, path = run

    answer = await client(method, f"{path}/{below}", body)

    assert (answer.status, answer.code) == (422, "validation")


@pytest.mark.feature("CTL-01")
async def test_a_dry_run_changes_nothing(run: Any) -> None:
    client, path = run

    answer = await client.ok("POST", f"{path}/pause?dryRun=true")
    refused = await client("POST", f"{path}/nodes/nothing/pause?dryRun=true")

    assert answer["outcome"] == "DRY_RUN"
    assert (await client.ok("GET", path))["paused"] is False
    assert refused.status == 404


@pytest.mark.feature("CTL-01")
async def test_a_command_that_is_sent_again_is_applied_once(run: Any) -> None:
    client, path = run
    key = {"Idempotency-Key": "once"}

    first = await client.ok("POST", f"{path}/pause", headers=dict(key))
    await client.ok("POST", f"{path}/resume")
    again = await client.ok("POST", f"{path}/pause", headers=dict(key))

    assert again == first
    assert (await client.ok("GET", path))["paused"] is False


@pytest.mark.feature("CTL-01")
async def test_the_audit_shows_who_did_what_and_why(run: Any) -> None:
    client, path = run
    await client.ok("POST", f"{path}/pause?reason=lunch")
    await client("POST", f"{path}/nodes/nothing/pause")
    await client.ok(
        "POST", f"{path}/resume", {"reason": "back"}, headers={"User-Agent": "yukta-cli"}
    )

    page = await client.ok("GET", f"{path}/commands?limit=2")
    rest = await client.ok("GET", f"{path}/commands?afterCursor={page['nextCursor']}")
    bad = await client("GET", f"{path}/commands?afterCursor=x")

    rows = page["items"] + rest["items"]
    assert [(row["command"], row["outcome"]) for row in rows] == [
        ("PauseWorkflow", "APPLIED"),
        ("PauseNode", "REJECTED"),
        ("ResumeWorkflow", "APPLIED"),
    ]
    assert [rows[0]["reason"], rows[2]["reason"]] == ["lunch", "back"]
    assert [rows[0]["via"], rows[2]["via"]] == ["REST", "CLI"]
    assert rows[0]["actor"] == "anonymous"
    assert bad.code == "invalid_cursor"


@pytest.mark.feature("CTL-01")
async def test_commands_of_many_clients_are_applied_one_after_the_other(run: Any) -> None:
    client, path = run

    answers = await asyncio.gather(
        *(client.ok("POST", f"{path}/{('pause', 'resume')[i % 2]}") for i in range(40))
    )

    rows = (await client.ok("GET", f"{path}/commands?limit=100"))["items"]
    assert sorted(answer["seq"] for answer in answers) == list(range(1, 41))
    assert [row["seq"] for row in rows] == list(range(1, 41))
