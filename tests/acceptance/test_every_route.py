"""A real server process, and a real client that drives every route in one story."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from yukta_rx.http.table import ROUTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]

CONDITION = {"when": "payload.n % 2 == 0"}
TICKS = {
    "nodes": [
        {
            "nodeId": "in",
            "type": "SEQUENCE_TRIGGER",
            "config": {"count": 0, "intervalMs": 5},
        },
        {"nodeId": "even", "type": "FILTER", "config": CONDITION},
        {"nodeId": "out", "type": "CONSOLE_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "even"}, {"source": "even", "target": "out"}],
}
ONE = {
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}

ASKING = {"sessionId": "asking", "workflowId": "asking"}


class Client:
    """Calls routes by their path in the table and remembers which."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.called: set[tuple[str, str]] = set()

    async def __call__(
        self, method: str, template: str, body: Any = None, *, status: int = 200, **ids: Any
    ) -> Any:
        """The answer of a route, JSON or text; fails unless it has the expected status."""
        headers = ids.pop("headers", {"Accept": "application/json"})
        query = ids.pop("query", None)
        self.called.add((method, template))
        path = template.format(**ids)
        async with self._session.request(
            method, self._url + path, json=body, params=query, headers=headers
        ) as answer:
            text = await answer.text(errors="replace")
            assert answer.status == status, f"{method} {path}: {answer.status} {text}"
            if answer.content_type in ("application/json", "application/problem+json"):
                return await answer.json()
            return text

    async def frames(self, template: str, until: str, **ids: Any) -> str:
        """What an event stream sends until `until` has come."""
        self.called.add(("GET", template))
        path = template.format(**ids)
        seen = ""
        async with self._session.get(
            self._url + path, headers={"Accept": "text/event-stream"}
        ) as answer:
            assert answer.content_type == "text/event-stream"
            async for chunk in answer.content.iter_any():
                seen += chunk.decode()
                if until in seen:
                    break
        return seen


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A server process on a free port; killed in the end if it still lives."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "yukta_rx", "serve", "--port", "0"),
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("YUKTA_")},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        url = ""
        while not url:
            line = (await process.stderr.readline()).decode()
            assert line, "the server ended before it was ready"
            url = next((word.rstrip(",") for word in line.split() if "http://" in word), "")
        yield process, url
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.slow
@pytest.mark.feature("CTL-01", "OBS-01", "OBS-03", "DEF-01")
async def test_every_route_of_a_real_server_does_what_it_says() -> None:
    async with serving() as (process, url), aiohttp.ClientSession() as session:
        call = Client(session, url)
        await server_routes(call)
        await who_asks(call)
        await definitions(call)
        await versions(call)
        execution_id, other_id = await starts(call)
        await reads(call, execution_id)
        await graphs(call, execution_id)
        await explanations(call, execution_id)
        await streams(call, execution_id)
        await held_messages(call, execution_id)
        await admission(call)
        await commands(call, execution_id)
        await pipeline(call, other_id)
        await supervisors(call, other_id)
        await node_end(call, other_id)
        await restarts(call)
        await signals(call)
        await removals(call)

        untouched = {(route.method, path) for route in ROUTES for path in route.paths}
        assert untouched - call.called == set()

        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0


async def server_routes(call: Client) -> None:
    """Probes, catalogue, versions."""
    for probe in ("/health", "/health/live", "/health/ready", "/health/leader"):
        await call("GET", probe)
    assert "yukta_executions_running" in await call("GET", "/metrics")
    assert (await call("GET", "/openapi.json"))["openapi"].startswith("3.1")
    assert await call("GET", "/api/version")
    matrix = await call("GET", "/api/durability")
    assert {row["store"] for row in matrix["items"]} == {"memory"}
    assert (await call("GET", "/api/diagnostics"))["stores"]["down"] == {}
    types = {item["type"] for item in (await call("GET", "/api/plugins"))["items"]}
    assert {"FILTER", "BATCH", "API_TRIGGER"} <= types
    assert (await call("GET", "/api/plugins/{type}", type="FILTER"))["kind"] == "PROCESSOR"
    assert await call("GET", "/api/plugins/{type}/schema", type="FILTER")
    checked = await call(
        "POST", "/api/plugins/{type}/validate-config", {"when": "1 +"}, type="FILTER"
    )
    assert checked["valid"] is False
    assert await call("GET", "/api/events/types")


async def who_asks(call: Client) -> None:
    """Without a key everybody may do everything, and no cookie is to be had."""
    assert (await call("GET", "/api/whoami"))["role"] == "ADMIN"
    shown = {item["name"]: item for item in (await call("GET", "/api/config"))["items"]}
    assert shown["yukta.http.port"]["value"] == 0
    assert shown["yukta.api-key"]["value"] is None
    refused = await call("POST", "/api/auth/session", {"key": "any"}, status=401)
    assert refused["code"] == "unauthenticated"
    await call("DELETE", "/api/auth/session", status=204)


async def definitions(call: Client) -> None:
    """Sessions and workflows."""
    session = "/api/sessions/{sessionId}"
    workflow = session + "/workflows/{workflowId}"
    await call("PUT", session, {"sessionId": "s"}, status=201, sessionId="s")
    await call("PATCH", session, {"name": "mine"}, sessionId="s")
    saved = await call("PUT", workflow, TICKS, status=201, sessionId="s", workflowId="ticks")
    await call("PUT", workflow, ONE, status=201, sessionId="s", workflowId="one")
    again = await call("PUT", workflow, TICKS, sessionId="s", workflowId="ticks")
    assert (saved["version"], again["unchanged"]) == (1, True)
    await call("GET", workflow, sessionId="s", workflowId="ticks")
    assert len((await call("GET", session + "/workflows", sessionId="s"))["items"]) == 2
    assert (await call("GET", session, sessionId="s"))["name"] == "mine"
    assert len((await call("GET", "/api/sessions"))["items"]) == 1
    broken = {**ONE, "workflowId": "one", "edges": []}
    found = await call("POST", workflow + "/validate", broken, sessionId="s", workflowId="one")
    assert found["valid"] is False
    assert (await call("POST", "/api/workflows/validate", {**ONE, "workflowId": "x"}))["valid"]


async def versions(call: Client) -> None:
    """Versions of a workflow, and sessions as one file."""
    workflow = "/api/sessions/{sessionId}/workflows/{workflowId}"
    ids = {"sessionId": "s", "workflowId": "one"}
    await call("PUT", workflow, {**ONE, "description": "second"}, **ids)
    path = workflow + "/versions"
    assert [row["version"] for row in (await call("GET", path, **ids))["items"]] == [2, 1]
    diff = await call("GET", path + "/diff", query={"from": "1"}, **ids)
    assert diff["description"] == {"from": None, "to": "second"}
    await call("POST", path + "/note", {"version": 1, "note": "good"}, status=204, **ids)
    assert (await call("GET", path + "/{version}", version=1, **ids))["note"] == "good"
    back = await call("POST", path + "/{version}/rollback", version=1, **ids)
    assert (back["version"], back["unchanged"]) == (3, False)
    told = await call("POST", workflow + "/dry-run", **ids)
    assert (told["order"], told["admission"]) == (["in", "out"], "WOULD_RUN")
    packed = await call("GET", "/api/export", headers={"Accept": "application/zip"})
    assert packed.startswith("PK")
    bundle = {"sessions": [{"sessionId": "s", "workflows": [{**ONE, "workflowId": "one"}]}]}
    plan = await call("POST", "/api/import", bundle, query={"dryRun": "true"})
    assert plan["sessions"][0]["unchanged"] == ["one"]


async def restarts(call: Client) -> None:
    """A run again, whole and from a node; a failed node again; nothing crashed."""
    run = "/api/executions/{executionId}"
    fails = {"nodeId": "mid", "type": "TRANSFORM", "config": {"set": {"a": "${payload.no.where}"}}}
    document = {
        "nodes": [ONE["nodes"][0], fails, ONE["nodes"][1]],
        "edges": [{"source": "in", "target": "mid"}, {"source": "mid", "target": "out"}],
    }
    workflow = "/api/sessions/{sessionId}/workflows/{workflowId}"
    await call("PUT", workflow, document, status=201, sessionId="s", workflowId="failing")
    form = "/api/workflow/{sessionId}/{workflowId}/run"
    ended = await call("POST", form, sessionId="s", workflowId="failing")
    ids = {"executionId": ended["execution"]["executionId"], "nodeId": "mid"}
    for path in ("/restart", "/nodes/{nodeId}/restart", "/nodes/{nodeId}/retry"):
        again = await call("POST", run + path, status=201, **ids)
        told = await call("GET", run + "/wait", executionId=again["executionId"])
        assert (told["status"], told["restartedFrom"]) == ("FAILURE", ids["executionId"])
    for method in ("POST", "GET"):
        refused = await call(method, run + "/recover", status=409, **ids)
        assert refused["reason"] == "not_aborted"


async def graphs(call: Client, execution_id: str) -> None:
    """A workflow and a run as graphs."""
    workflow = "/api/sessions/{sessionId}/workflows/{workflowId}/graph"
    shown = await call("GET", workflow, sessionId="s", workflowId="ticks")
    assert shown["layers"] == [["in"], ["even"], ["out"]]
    run = await call(
        "GET",
        "/api/executions/{executionId}/graph",
        executionId=execution_id,
        headers={"Accept": "text/vnd.mermaid"},
    )
    assert "even<br/>FILTER<br/>RUNNING" in run


async def explanations(call: Client, execution_id: str) -> None:
    """Why a run stands where it does, and a look into one of its edges."""
    why = "/api/executions/{executionId}/why"
    facts = (await call("GET", why, executionId=execution_id, query={"node": "out"}))["facts"]
    assert facts[0]["nodeId"] == "out"
    tap = "/api/executions/{executionId}/edges/{source}/{target}/tap"
    edge = {"executionId": execution_id, "source": "in", "target": "even"}
    assert '"payload":{"n":' in await call.frames(tap, "tap.message", **edge)
    payload = "/api/executions/{executionId}/payload"
    assert await call("GET", payload, executionId=execution_id) == {}
    outputs = "/api/executions/{executionId}/nodes/{nodeId}/outputs"
    shown = await call("GET", outputs, executionId=execution_id, nodeId="even")
    assert [item["payload"] for item in shown["items"]][:1] in ([], [{"n": 0}])
    assert not shown["complete"]


async def starts(call: Client) -> tuple[str, str]:
    """Every form of a start; the ids of two runs that go on."""
    body = {"sessionId": "s", "workflowId": "ticks"}
    first = await call("POST", "/api/workflow/start", body, status=201)
    second = await call("POST", "/workflow/start", body, status=201)
    named = {"sessionId": "s", "workflowId": "one"}
    form = "/api/workflow/{sessionId}/{workflowId}"
    await call("POST", form + "/start", {"a": 1}, status=201, **named)
    ran = await call("POST", form + "/run", {"a": 2}, **named)
    assert ran["execution"]["status"] == "SUCCESS"
    assert [item["payload"] for item in ran["results"]] == [{"a": 2}]
    stopped = await call("POST", form + "/stop", sessionId="s", workflowId="one")
    assert stopped["results"] == []
    return str(first["executionId"]), str(second["executionId"])


async def reads(call: Client, execution_id: str) -> None:
    """Everything that can be read of a run, as JSON."""
    run = "/api/executions/{executionId}"
    ids = {"executionId": execution_id, "nodeId": "even", "sessionId": "s"}
    assert len((await call("GET", "/api/executions", query={"limit": "2"}))["items"]) == 2
    detail = await call("GET", run, query={"include": "nodes,edges,children"}, **ids)
    assert [node["nodeId"] for node in detail["nodes"]] == ["in", "even", "out"]
    for part in ("/progress", "/nodes", "/nodes/{nodeId}", "/edges", "/children", "/logs"):
        await call("GET", run + part, **ids)
    assert await call("GET", run + "/losses", **ids) == {"lossless": True, "items": []}
    await call("GET", run + "/wait", status=204, query={"timeout": "0.05"}, **ids)
    in_session = "/api/sessions/{sessionId}/executions/{executionId}"
    for part in ("/results", "/logs"):
        await call("GET", in_session + part, **ids)
    assert (await call("GET", "/api/events", query={"limit": "5"}))["items"]


async def streams(call: Client, execution_id: str) -> None:
    """The same as event streams."""
    run = "/api/executions/{executionId}"
    ids = {"executionId": execution_id, "sessionId": "s"}
    feed = await call.frames("/api/events/stream", "event: node.log")
    assert feed.startswith("retry: 2000")
    assert "event: stream.hello" in feed
    await call.frames(run + "/progress", "data: ", **ids)
    await call.frames(run + "/logs", "data: ", **ids)
    await call.frames("/api/sessions/{sessionId}/executions/{executionId}/results", "data: ", **ids)


async def held_messages(call: Client, execution_id: str) -> None:
    """A breakpoint holds a message, which is edited, dropped, and the next one let go."""
    node = "/api/executions/{executionId}/nodes/{nodeId}"
    ids = {"executionId": execution_id, "nodeId": "even"}
    await call("POST", node + "/breakpoint", {"when": "payload.n >= 0"}, **ids)
    [point] = (await call("GET", node + "/breakpoint", **ids))["items"]
    assert point["when"] == "payload.n >= 0"
    while not (await call("GET", node, **ids)).get("held"):
        pass
    first = await call("GET", node + "/held", **ids)
    await call("PUT", node + "/held", {"payload": {"n": 2}}, **ids)
    edited = await call("GET", node + "/held", **ids)
    assert (edited["id"], edited["payload"]) == (first["id"], {"n": 2})
    await call("POST", node + "/held/drop", **ids)
    while not (await call("GET", node, **ids)).get("held"):
        pass
    await call("POST", node + "/held/release", **ids)
    await call("DELETE", node + "/breakpoint", **ids)
    await call("POST", node + "/resume", **ids)


async def admission(call: Client) -> None:
    """Limits, the queue, and the priority of what waits there."""
    running = (await call("GET", "/api/scheduler/limits"))["running"]
    assert running >= 1
    assert (await call("GET", "/scheduler/limits"))["source"] == "CONFIG"
    tight = {"maxConcurrent": running, "perWorkflow": 0}
    assert (await call("PUT", "/api/scheduler/limits", tight))["outcome"] == "APPLIED"
    ids = []
    for _ in range(2):
        told = await call(
            "POST",
            "/api/workflow/start",
            {"sessionId": "s", "workflowId": "one"},
            status=202,
            headers={"Prefer": "respond-async"},
        )
        ids.append(told["executionId"])
    first, second = ids
    await call("PUT", "/api/executions/{executionId}/priority", {"priority": 2}, executionId=second)
    await call("PUT", "/executions/{executionId}/priority", {"priority": 1}, executionId=first)
    queue = (await call("GET", "/api/scheduler/queue"))["items"]
    assert [row["executionId"] for row in queue] == [second, first]
    await call("POST", "/api/executions/{executionId}/stop", executionId=second)
    await call("PUT", "/scheduler/limits", {"maxConcurrent": 0, "perWorkflow": 0})
    run = "/api/executions/{executionId}"
    assert (await call("GET", run + "/wait", executionId=first))["status"] == "SUCCESS"
    assert (await call("GET", run, executionId=second))["status"] == "CANCELLED"


async def commands(call: Client, execution_id: str) -> None:
    """Every command of a run and of a node; the last one ends the run."""
    run = "/api/executions/{executionId}"
    node = run + "/nodes/{nodeId}"
    ids = {"executionId": execution_id, "nodeId": "even"}
    assert (await call("POST", node + "/pause", **ids))["outcome"] == "APPLIED"
    assert (await call("POST", node + "/pause", **ids))["outcome"] == "NO_OP"
    await call("POST", node + "/step", query={"n": "2"}, **ids)
    await call("POST", node + "/resume", **ids)
    paused = await call("POST", run + "/pause", query={"reason": "look"}, **ids)
    assert paused["state"]["paused"] is True
    await call("POST", run + "/step", **ids)
    await call("POST", run + "/resume", **ids)
    await call("PUT", run + "/step-mode", {"enabled": True}, **ids)
    await call("POST", run + "/commands", {"type": "SetStepMode", "enabled": False}, **ids)
    await call("POST", node + "/skip", **ids)
    assert (await call("GET", node, **ids))["skipping"] is True
    await call("DELETE", node + "/skip", query={"reason": "seen"}, **ids)
    where = {"expression": "payload.n", "equals": "-1"}
    await call("POST", node + "/breakpoint", where, **ids)
    shown = (await call("GET", run, **ids))["breakpoints"]
    assert [(point["nodeId"], point["value"]) for point in shown] == [("even", "-1")]
    await call("DELETE", node + "/breakpoint", **ids)
    await call("POST", run + "/stop", query={"mode": "KILL"}, **ids)
    assert (await call("GET", run + "/wait", **ids))["status"] == "CANCELLED"
    refused = await call("POST", run + "/pause", status=409, **ids)
    assert refused["code"] == "execution_not_running"
    audit = (await call("GET", run + "/commands", **ids))["items"]
    log = (await call("GET", run + "/history", **ids))["items"]
    assert [log[0]["type"], log[-1]["type"]] == ["RUN_STARTED", "CONTROL_REJECTED"]
    given = [row["command"] for row in audit]
    assert given[given.index("PauseNode") :][:3] == ["PauseNode", "PauseNode", "StepNode"]
    assert audit[-1]["outcome"] == "REJECTED"


async def pipeline(call: Client, execution_id: str) -> None:
    """Batches, and what is known of commands of all runs."""
    pause = {"type": "PauseWorkflow", "executionId": execution_id}
    many = [pause, pause, {**pause, "type": "ResumeWorkflow"}, {**pause, "executionId": "none"}]
    results = (await call("POST", "/api/commands", {"commands": many}))["results"]
    outcomes = [item.get("outcome") or item["code"] for item in results]
    assert outcomes == ["APPLIED", "NO_OP", "APPLIED", "execution_not_found"]
    audit = await call("GET", "/api/control/audit", query={"outcome": "REJECTED"})
    assert audit["items"][-1]["executionId"] == "none"
    assert (await call("GET", "/api/control/held"))["items"] == []
    place = "/api/control/held/{commandId}"
    refused = await call("POST", place, {"decision": "approve"}, status=404, commandId="none")
    assert refused["code"] == "command_not_found"


async def supervisors(call: Client, execution_id: str) -> None:
    """A program registers, watches, steers and is switched off."""
    path = "/api/supervisors/{supervisorId}"
    ids = {"supervisorId": "robot"}
    lease = await call("POST", "/api/supervisors", {"id": "robot"}, status=201)
    assert lease["leaseToken"]
    frames = await call.frames(path + "/events", "stream.hello", **ids)
    assert "epoch" in frames
    pause = {"type": "PauseWorkflow", "executionId": execution_id, "reason": "robots decide"}
    done = await call("POST", path + "/commands", {"commands": [pause]}, **ids)
    assert [item["outcome"] for item in done["results"]] == ["APPLIED"]
    await call("POST", "/api/executions/{executionId}/resume", executionId=execution_id)
    assert (await call("PUT", path, {"enabled": False}, **ids))["state"] == "DISABLED"
    assert (await call("GET", path, **ids))["counts"] == {"APPLIED": 1}
    assert [one["id"] for one in (await call("GET", "/api/supervisors"))["items"]] == ["robot"]


async def node_end(call: Client, execution_id: str) -> None:
    """A node that is stopped shows its children a normal end, and the run ends well."""
    run = "/api/executions/{executionId}"
    ids = {"executionId": execution_id, "nodeId": "even"}
    await call("POST", run + "/nodes/{nodeId}/stop", query={"mode": "CANCEL"}, **ids)
    ended = await call("GET", run + "/wait", query={"timeout": "10"}, **ids)
    assert ended["status"] == "SUCCESS"
    node = await call("GET", run + "/nodes/{nodeId}", **ids)
    assert node["status"] == "CANCELLED"


async def signals(call: Client) -> None:
    """Messages that wait for people, and what they answer."""
    waits = {"nodeId": "ask", "type": "WAIT_FOR_SIGNAL", "config": {"signal": "go"}}
    workflow = {
        "workflowId": "asking",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 2}},
            waits,
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
    }
    await call("PUT", "/api/sessions/{sessionId}", {"workflows": [workflow]}, status=201, **ASKING)
    started = await call("POST", "/api/workflow/start", ASKING, status=201)
    ids = {"executionId": started["executionId"], "nodeId": "ask", **ASKING}
    waiting: list[Any] = []
    while len(waiting) < 2:
        waiting = (await call("GET", "/api/sessions/{sessionId}/approvals", **ids))["items"]
    assert (await call("GET", "/api/approvals"))["items"] == waiting
    second = {"approvalId": waiting[1]["approvalId"]}
    await call("POST", "/api/approvals/{approvalId}", {"decision": "fine"}, **second)
    node = "/api/executions/{executionId}/nodes/{nodeId}"
    signal = await call("POST", node + "/signal", query={"name": "go", "decision": "yes"}, **ids)
    assert signal["answer"] == "ACCEPTED"
    ended = await call("GET", "/api/executions/{executionId}/wait", **ids)
    assert ended["status"] == "SUCCESS"


async def removals(call: Client) -> None:
    """What is in use stays; what is not goes."""
    workflow = "/api/sessions/{sessionId}/workflows/{workflowId}"
    body = {"sessionId": "s", "workflowId": "ticks"}
    await call("POST", "/api/workflow/start", body, status=201)
    used = await call("DELETE", workflow, status=409, sessionId="s", workflowId="ticks")
    assert used["code"] == "in_use"
    form = "/api/workflow/{sessionId}/{workflowId}/stop"
    await call("POST", form, query={"mode": "KILL"}, sessionId="s", workflowId="ticks")
    await call("DELETE", workflow, status=204, sessionId="s", workflowId="ticks")
    await call("DELETE", "/api/sessions/{sessionId}", status=204, sessionId="s")
    await call("GET", "/api/sessions/{sessionId}", status=404, sessionId="s")
