"""Breakpoints and held messages over HTTP: typed, listed, let go, dropped, edited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("CTL-02")


@pytest.fixture
async def run(client: Any, make: Any) -> AsyncIterator[tuple[Any, str]]:
    """A client, and the path of a node of a run that makes a message every 20 ms."""
    await client.session_with(make.line("endless", count=0, every_ms=20))
    execution_id = await client.start("endless")
    path = f"/api/executions/{execution_id}"
    yield client, path
    await client("POST", f"{path}/stop?mode=KILL")


async def held(client: Any, node: str) -> dict[str, Any]:
    """The message that the node holds, once it does."""
    async with asyncio.timeout(10):
        while (answer := await client("GET", f"{node}/held")).status == 404:
            assert answer.code == "nothing_held"
    assert answer.status == 200
    return dict(answer.body)


POINTS: list[dict[str, Any]] = [
    {"expression": "payload.n", "equals": "9"},
    {"expression": "payload.n", "op": "equals", "value": 9},
    {"expression": "payload.n", "op": ">", "value": 8},
    {"expression": "payload.n", "op": "in", "value": [9, 10, 11]},
    {"expression": "payload.n", "op": "matches", "value": "^9$"},
    {"when": "payload.n >= 9"},
]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: " ".join(map(str, point.values())))
@pytest.mark.parametrize("name", ["double", "out"])
async def test_a_node_is_held_before_the_message_that_is_meant(
    client: Any, make: Any, name: str, point: dict[str, Any]
) -> None:
    await client.session_with(make.line("slow", count=0, every_ms=30))
    path = f"/api/executions/{await client.start('slow')}"
    node = f"{path}/nodes/{name}"

    first = await client.ok("POST", f"{node}/breakpoint", point)
    again = await client.ok("POST", f"{node}/breakpoint", point)
    message = await held(client, node)
    listed = (await client.ok("GET", f"{node}/breakpoint"))["items"]
    detail = await client.ok("GET", path)
    state = await client.ok("GET", node)
    await client.ok("POST", f"{path}/stop?mode=KILL")

    assert (first["outcome"], again["outcome"]) == ("APPLIED", "NO_OP")
    assert message["payload"]["n"] == 9
    assert message["id"] == state["held"]["messageId"]
    assert message["since"] == state["held"]["since"]
    assert message["headers"] == {}
    assert [shown["hits"] for shown in listed] == [1]
    assert listed == detail["breakpoints"]
    wanted = {"nodeId": name, "hits": 1, **point}
    if "equals" in wanted:
        wanted |= {"op": "equals", "value": wanted.pop("equals")}
    assert listed == [wanted]
    assert [reason["kind"] for reason in detail["waitingOn"]] == ["BREAKPOINT"]


@pytest.mark.parametrize(
    ("point", "pointer"),
    [
        ({"expression": "env.HOME", "equals": "x"}, "/expression"),
        ({"equals": "x"}, "/expression"),
        ({"expression": "payload.n"}, "/equals"),
        ({"expression": "payload.n", "op": "almost", "value": 1}, "/op"),
        ({"expression": "payload.n", "op": "<", "value": [1]}, "/value"),
        ({"expression": "payload.n", "op": "in", "value": 3}, "/value"),
        ({"expression": "payload.n", "op": "matches", "value": "("}, "/value"),
        ({"expression": "payload.n", "op": "matches", "value": "(?=a)"}, "/value"),
        ({"when": "payload.n >"}, "/when"),
        ({"when": "payload.n > 1", "expression": "payload.n"}, "/expression"),
    ],
)
async def test_a_breakpoint_that_cannot_be_read_says_where(
    run: Any, point: dict[str, Any], pointer: str
) -> None:
    client, path = run

    answers = [
        await client("POST", f"{path}/nodes/double/breakpoint", point),
        await client("POST", f"{path}/nodes/double/breakpoint?dryRun=true", point),
    ]

    for answer in answers:
        assert (answer.status, answer.code) == (422, "validation")
        assert [error["pointer"] for error in answer.body["errors"]] == [pointer]
    assert (await client.ok("GET", path))["breakpoints"] == []


async def test_the_query_takes_a_breakpoint_too(run: Any) -> None:
    client, path = run
    node = f"{path}/nodes/double"

    await client.ok("POST", f"{node}/breakpoint?expression=payload.n&op=%3E&value=3")
    message = await held(client, node)

    assert message["payload"]["n"] > 3
    assert (await client.ok("GET", f"{node}/breakpoint"))["items"][0]["value"] == "3"


async def test_a_held_message_is_edited_and_let_go(run: Any) -> None:
    client, path = run
    node = f"{path}/nodes/double"
    await client.ok("POST", f"{node}/breakpoint", {"when": "payload.n % 10 == 5"})
    first = await held(client, node)

    edited = await client.ok("PUT", f"{node}/held", {"payload": {"n": -1, "big": 2**70}})
    still = await held(client, node)
    released = await client.ok("POST", f"{node}/held/release", {"reason": "seen"})
    async with asyncio.timeout(10):
        while (second := await held(client, node))["id"] == first["id"]:
            pass
    place = f"/api/sessions/s/executions/{path.rpartition('/')[2]}/results?limit=500"
    results = await client.ok("GET", place, headers={"Accept": "application/json"})

    assert (edited["command"], edited["outcome"]) == ("EditHeld", "APPLIED")
    assert (still["id"], still["payload"]) == (first["id"], {"n": -1, "big": 2**70})
    assert (released["command"], released["reason"]) == ("ReleaseHeld", "seen")
    assert second["payload"]["n"] == first["payload"]["n"] + 10
    seen = [item["payload"] for item in results["items"]]
    assert {"n": -1, "big": 2**70, "seen": True} in seen
    assert first["payload"]["n"] not in [payload["n"] for payload in seen]


async def test_a_held_message_is_dropped_counted_and_told(run: Any) -> None:
    client, path = run
    node = f"{path}/nodes/double"
    execution_id = path.rpartition("/")[2]
    await client.ok("POST", f"{node}/breakpoint", {"when": "payload.n == 5"})
    message = await held(client, node)

    dropped = await client.ok("POST", f"{node}/held/drop?reason=spoilt")
    state = await client.ok("GET", node)
    gone = await client("GET", f"{node}/held")
    events = await client.ok("GET", f"/api/events?executionId={execution_id}&type=edge.dropped")
    told = await client.ok("GET", f"/api/events?executionId={execution_id}&type=control.applied")

    assert (dropped["command"], dropped["outcome"]) == ("DropHeld", "APPLIED")
    assert (state["dropped"], state["paused"]) == (1, False)
    assert (gone.status, gone.code) == (404, "nothing_held")
    [event] = events["items"]
    assert event["nodeId"] == "double"
    assert event["data"] == {"count": 1, "sample": [message["id"]], "overflow": "DROP_HELD"}
    last = told["items"][-1]["data"]
    assert (last["command"], last["reason"]) == ("DropHeld", "spoilt")


async def test_without_a_held_message_there_is_a_conflict(run: Any) -> None:
    client, path = run
    node = f"{path}/nodes/double"

    for method, below, body in (
        ("POST", "release", None),
        ("POST", "drop", None),
        ("PUT", "", {"payload": 1}),
    ):
        answer = await client(method, f"{node}/held/{below}".rstrip("/"), body)
        assert (answer.status, answer.code) == (409, "not_paused")
    missing = await client("PUT", f"{node}/held", {})
    assert (missing.status, missing.body["errors"][0]["pointer"]) == (422, "/payload")
    for below in ("held", "breakpoint"):
        unknown = await client("GET", f"{path}/nodes/nothing/{below}")
        assert (unknown.status, unknown.code) == (404, "node_not_found")
        nobody = await client("GET", f"/api/executions/nothing/nodes/double/{below}")
        assert (nobody.status, nobody.code) == (404, "execution_not_found")


async def test_a_run_that_has_ended_has_neither_breakpoints_nor_held_messages(run: Any) -> None:
    client, path = run
    node = f"{path}/nodes/double"
    await client.ok("POST", f"{node}/breakpoint")
    await held(client, node)
    await client.ok("POST", f"{path}/stop?mode=KILL")
    await client.ended(path.rpartition("/")[2])

    assert (await client.ok("GET", f"{node}/breakpoint"))["items"] == []
    answer = await client("GET", f"{node}/held")
    assert (answer.status, answer.code) == (404, "nothing_held")
    state = await client.ok("GET", node)
    assert "held" not in state
    assert state["paused"] is False


async def test_case_17_each_of_several_runs_is_resumed_and_reported(client: Any, make: Any) -> None:
    await client.session_with(make.line("w", count=300))
    points = [{"nodeId": "out", "when": "payload.n == 3"}, {"nodeId": "out"}, {"nodeId": "double"}]
    ids = []
    for point in points:
        body = {"sessionId": "s", "workflowId": "w", "breakpoints": [point]}
        started = await client.ok("POST", "/api/workflow/start", body)
        ids.append(started["executionId"])
    paths = [f"/api/executions/{execution_id}" for execution_id in ids]
    for path, point in zip(paths, points, strict=True):
        await held(client, f"{path}/nodes/{point['nodeId']}")
    paused = await client.ok("POST", f"{paths[0]}/nodes/double/pause")
    await client.ok("POST", f"{paths[2]}/stop?mode=KILL")
    await client.ended(ids[2])

    commands = [{"type": "ResumeWorkflow", "executionId": execution_id} for execution_id in ids]
    answer = await client.ok("POST", "/api/commands", {"commands": commands})
    shown = await client.ok("GET", f"{paths[0]}?include=nodes")
    ended = await client.ended(ids[0])
    node = await client.ok("GET", f"{paths[0]}/nodes/out")
    await client.ok("POST", f"{paths[1]}/stop?mode=KILL")

    assert paused["outcome"] == "APPLIED"
    first, second, third = answer["results"]
    assert (first["outcome"], first["state"]["paused"]) == ("APPLIED", False)
    assert second["outcome"] == "APPLIED"
    assert third["code"] == "execution_not_running"
    assert [(n["nodeId"], n["paused"]) for n in shown["nodes"] if n["paused"]] == []
    assert shown["waitingOn"] == []
    assert ended["status"] == "SUCCESS"
    assert (node["in"], node["dropped"]) == (300, 0)
