"""Signals and approvals against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.control.reviewers import Deny
from yukta_rx.http.server import HttpServer

pytestmark = pytest.mark.feature("CTL-05")


def asking(workflow_id: str = "w", count: int = 2, **config: Any) -> dict[str, Any]:
    """Numbers that wait for the signal `go`."""
    return {
        "workflowId": workflow_id,
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": count}},
            {
                "nodeId": "ask",
                "type": "WAIT_FOR_SIGNAL",
                "config": {"signal": "go", "prompt": "Is ${payload.n} fine?", **config},
            },
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
    }


async def approvals(client: Any, wanted: int, path: str = "/api/approvals") -> list[Any]:
    """The open approvals, once there are so many."""
    async with asyncio.timeout(15):
        while True:
            items = (await client.ok("GET", path))["items"]
            if len(items) == wanted:
                return list(items)
            await asyncio.sleep(0.005)


async def results(client: Any, execution_id: str, session: str = "s") -> list[dict[str, Any]]:
    path = f"/api/sessions/{session}/executions/{execution_id}/results"
    page = await client.ok("GET", path, headers={"Accept": "application/json"})
    return [item for item in page["items"] if item["type"] == "RESULT"]


async def test_a_signal_in_the_query_goes_to_the_message_that_waits(client) -> None:
    await client.session_with(asking(count=1))
    run = await client.start()
    await approvals(client, 1)

    path = f"/api/executions/{run}/nodes/ask/signal?name=go&decision=sure&data=all+right"
    answer = await client("POST", path)

    assert (answer.status, answer.body["answer"]) == (200, "ACCEPTED")
    assert (await client.ended(run))["status"] == "SUCCESS"
    [result] = await results(client, run)
    assert result["headers"] == {
        "signal.name": "go",
        "signal.decision": "sure",
        "signal.data": "all right",
    }


async def test_a_signal_in_the_body_may_carry_any_json_value(client) -> None:
    data = {"list": [1, None, {"text": "ä" * 9000}], "yes": True}
    await client.session_with(asking(count=1))
    run = await client.start()
    await approvals(client, 1)

    body = {"name": "go", "data": data, "reason": "because"}
    await client.ok("POST", f"/api/executions/{run}/nodes/ask/signal", body)

    await client.ended(run)
    [result] = await results(client, run)
    assert result["headers"]["signal.data"] == data
    [row] = (await client.ok("GET", f"/api/executions/{run}/commands"))["items"]
    assert row["args"] == {"name": "go", "decision": None, "data": data}
    assert row["reason"] == "because"


async def test_a_signal_that_nobody_waits_for_is_queued_and_the_101st_refused(client) -> None:
    await client.session_with(asking(count=1, signal="other"))
    run = await client.start()
    path = f"/api/executions/{run}/nodes/ask/signal?name=go"

    answers = [await client("POST", path) for _ in range(101)]

    assert {answer.status for answer in answers[:100]} == {202}
    assert {answer.body["answer"] for answer in answers[:100]} == {"QUEUED"}
    assert (answers[100].status, answers[100].code) == (429, "signal_buffer_full")
    assert 500 < int(answers[100].headers["Retry-After"]) <= 600


async def test_who_cannot_be_given_a_signal_says_why(client) -> None:
    await client.session_with(asking(count=1))
    run = await client.start()
    await approvals(client, 1)
    base = "/api/executions"

    found = [
        await client("POST", path)
        for path in (
            f"{base}/{run}/nodes/out/signal?name=go",
            f"{base}/{run}/nodes/nobody/signal?name=go",
            f"{base}/no-such-run/nodes/ask/signal?name=go",
            f"{base}/{run}/nodes/ask/signal?name=two+words",
            f"{base}/{run}/nodes/ask/signal?name=x%0Aevent%3A+spoof",
            f"{base}/{run}/nodes/ask/signal?decision=yes",
        )
    ]
    await client.ok("POST", f"{base}/{run}/stop?mode=KILL")
    found.append(await client("POST", f"{base}/{run}/nodes/ask/signal?name=go"))

    assert [(answer.status, answer.code) for answer in found] == [
        (409, "signal_not_registered"),
        (404, "node_not_found"),
        (404, "execution_not_found"),
        (400, "invalid_parameter"),
        (400, "invalid_parameter"),
        (400, "invalid_parameter"),
        (409, "execution_not_running"),
    ]
    assert "name" in found[5].body["detail"]


async def test_approvals_are_listed_oldest_first_by_session_and_in_pages(client) -> None:
    await client.session_with(asking(count=3))
    await client.session_with(asking(count=1), session="t")
    first = await client.start()
    await approvals(client, 3)
    second = await client.start(session="t")
    await approvals(client, 4)

    everything = await approvals(client, 4)
    page = await client.ok("GET", "/api/approvals?limit=3")
    rest = await client.ok("GET", f"/api/approvals?limit=3&afterCursor={page['nextCursor']}")
    here = await approvals(client, 1, "/api/sessions/t/approvals")
    nowhere = await client("GET", "/api/sessions/nobody/approvals")
    wrong = await client("GET", "/api/approvals?afterCursor=%2F%2F")

    assert [item["executionId"] for item in everything] == [first] * 3 + [second]
    assert page["items"] + rest["items"] == everything
    assert rest["nextCursor"] is None
    assert here == everything[3:]
    assert (nowhere.status, nowhere.code) == (404, "session_not_found")
    assert (wrong.status, wrong.code) == (400, "invalid_cursor")
    shown = {**everything[0]}
    for name in ("approvalId", "messageId", "since", "expiresAt"):
        assert shown.pop(name)
    assert shown == {
        "executionId": first,
        "sessionId": "s",
        "workflowId": "w",
        "nodeId": "ask",
        "signal": "go",
        "prompt": "Is 0 fine?",
        "payloadPreview": '{"n":0}',
    }


async def test_an_approval_is_answered_once(client) -> None:
    await client.session_with(asking(count=2, onReject="CONTINUE"))
    run = await client.start()
    first, second = await approvals(client, 2)
    path = f"/api/approvals/{second['approvalId']}"

    answered = await client("POST", path, {"decision": "Reject", "comment": "too late"})
    again = await client("POST", path, {"decision": "approve"})

    assert (answered.status, answered.body["answer"]) == (200, "ACCEPTED")
    assert (again.status, again.code) == (409, "already_answered")
    assert [item["approvalId"] for item in await approvals(client, 1)] == [first["approvalId"]]
    await client.ok("POST", f"/api/approvals/{first['approvalId']}", {"decision": "approve"})
    await client.ended(run)
    heads = [result["headers"]["signal.decision"] for result in await results(client, run)]
    assert heads == ["approve", "Reject"]
    rows = (await client.ok("GET", f"/api/executions/{run}/commands"))["items"]
    assert [(row["command"], row["outcome"]) for row in rows] == [
        ("SignalNode", "APPLIED"),
        ("SignalNode", "REJECTED"),
        ("SignalNode", "APPLIED"),
    ]
    assert rows[0]["reason"] == "too late"
    assert rows[0]["args"]["approvalId"] == second["approvalId"]
    ended = await client("POST", path, {"decision": "approve"})
    assert (ended.status, ended.code) == (409, "execution_not_running")


async def test_an_approval_that_expired_or_never_was_says_so(client) -> None:
    document = asking(count=2, timeoutSeconds=0.05, onTimeout="DROP")
    document["nodes"][0]["config"] |= {"count": 0, "intervalMs": 20_000}
    await client.session_with(document)
    run = await client.start()
    async with client.stream(f"/api/events/stream?executionId={run}&type=approval.*") as stream:
        gone = (await stream.type("approval.expired")).json["data"]

    expired = await client("POST", f"/api/approvals/{gone['approvalId']}", {"decision": "yes"})
    never = await client("POST", "/api/approvals/never-was", {"decision": "yes"})
    wrong = [
        await client("POST", f"/api/approvals/{gone['approvalId']}", body)
        for body in ({}, {"decision": ""}, {"decision": "yes", "more": 1}, {"decision": 1})
    ]

    assert (expired.status, expired.code) == (409, "already_answered")
    assert (never.status, never.code) == (404, "approval_not_found")
    assert [answer.status for answer in wrong] == [422] * 4


async def test_what_a_run_waits_for_is_in_its_detail(client) -> None:
    await client.session_with(asking(count=2))
    run = await client.start()
    await approvals(client, 2)

    [reason] = (await client.ok("GET", f"/api/executions/{run}"))["waitingOn"]

    assert (reason["kind"], reason["nodeId"]) == ("APPROVAL", "ask")
    assert reason["detail"] == "2 messages wait for signal `go`: Is 0 fine?"
    await client.ok("POST", f"/api/executions/{run}/stop?mode=KILL")
    assert (await client.ok("GET", f"/api/executions/{run}"))["waitingOn"] == []
    assert await approvals(client, 0) == []


async def test_the_one_door_and_batches_take_signals_too(client) -> None:
    await client.session_with(asking(count=2))
    run = await client.start()
    await approvals(client, 2)
    signal = {"type": "SignalNode", "executionId": run, "nodeId": "ask", "name": "go"}

    one = await client("POST", f"/api/executions/{run}/commands", {**signal, "data": None})
    many = await client.ok("POST", "/api/commands", {"commands": [signal, signal]})
    wrong = await client(
        "POST", f"/api/executions/{run}/commands", {**signal, "signal": "go", "name": "a b"}
    )

    assert (one.status, one.body["answer"]) == (200, "ACCEPTED")
    assert [item.get("answer", item.get("code")) for item in many["results"]] in (
        ["ACCEPTED", "QUEUED"],
        # The run may have ended by then.
        ["ACCEPTED", "execution_not_running"],
        ["ACCEPTED", "signal_not_registered"],
    )
    assert wrong.status == 422


async def test_a_dry_run_answers_nothing(client) -> None:
    await client.session_with(asking(count=1))
    run = await client.start()
    [one] = await approvals(client, 1)

    path = f"/api/executions/{run}/nodes/ask/signal?name=go&dryRun=true"
    signal = await client("POST", path)
    answer = await client(
        "POST", f"/api/approvals/{one['approvalId']}?dryRun=true", {"decision": "yes"}
    )

    assert (signal.status, signal.body["outcome"]) == (200, "DRY_RUN")
    assert (answer.status, answer.body["outcome"]) == (200, "DRY_RUN")
    assert await approvals(client, 1) == [one]


async def test_a_repeat_with_the_same_key_gets_the_first_answer_back(client) -> None:
    await client.session_with(asking(count=2))
    await client.start()
    first, second = await approvals(client, 2)
    headers = {"Idempotency-Key": "once"}

    answers = [
        await client(
            "POST",
            f"/api/approvals/{first['approvalId']}",
            {"decision": "yes"},
            headers=dict(headers),
        )
        for _ in range(2)
    ]

    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].body == answers[1].body
    assert await approvals(client, 1) == [second]


async def test_events_say_what_is_asked_and_answered(client) -> None:
    await client.session_with(asking(count=1))
    run = await client.start()
    [one] = await approvals(client, 1)
    body = {"decision": "yes", "data": [1]}
    await client.ok("POST", f"/api/approvals/{one['approvalId']}", body)
    await client.ended(run)

    page = await client.ok("GET", f"/api/events?executionId={run}&type=approval.*")

    asked, answered = page["items"]
    assert (asked["type"], answered["type"]) == ("approval.requested", "approval.answered")
    assert asked["nodeId"] == "ask"
    assert asked["data"] == one
    assert answered["data"] == {**one, "decision": "yes", "answeredBy": "anonymous"}


class NoYes:
    """Lets nobody say yes."""

    order = 0

    async def review(self, request: Any) -> Any:
        decision = getattr(request.command, "decision", None)
        return Deny("nobody says yes here") if decision == "yes" else None


async def test_answers_are_reviewed(settings, connect) -> None:
    async with (
        Engine(settings, reviewers=[NoYes()]) as engine,
        HttpServer(engine, port=0) as server,
    ):
        client = await connect(server)
        await client.session_with(asking(count=1))
        run = await client.start()
        [one] = await approvals(client, 1)
        path = f"/api/approvals/{one['approvalId']}"

        refused = await client("POST", path, {"decision": "yes"})
        answered = await client("POST", path, {"decision": "approve"})

        assert (refused.status, refused.code) == (403, "control_rejected")
        assert answered.status == 200
        assert (await client.ended(run))["status"] == "SUCCESS"
