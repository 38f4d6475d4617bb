"""Admission over HTTP: starts that wait, the queue, limits and priorities, on a real server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.settings import Settings
from yukta_rx.http.prefer import preference

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Client = Callable[..., Awaitable[Any]]

pytestmark = pytest.mark.feature("ADM-01")

ASYNC = {"Prefer": "respond-async"}
START = "/api/workflow/start"
ENDLESS = {"sessionId": "s", "workflowId": "endless"}
SHORT = {"sessionId": "s", "workflowId": "w"}


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    """One slot, unless the test says otherwise."""
    group = {"max_concurrent": 1, "shutdown_timeout": timedelta(milliseconds=100)}
    return Settings(execution={**group, **getattr(request, "param", {})})


@pytest.fixture
async def busy(client: Any, make: Any) -> tuple[Any, str]:
    """A client of a server whose only slot is taken, and the run that has it."""
    await client.session_with(make.line(), make.line("endless", count=0, every_ms=5))
    return client, await client.start("endless")


async def queue(client: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await client.ok("GET", "/api/scheduler/queue"))["items"]
    return items


async def until_queued(client: Any, count: int) -> list[dict[str, Any]]:
    """The queue once so many starts wait in it."""
    async with asyncio.timeout(15):
        while len(items := await queue(client)) < count:
            await asyncio.sleep(0.01)
    return items


async def kill(client: Any, execution_id: str) -> None:
    await client.ok("POST", f"/api/executions/{execution_id}/stop?mode=KILL")


async def test_a_start_that_has_to_wait_is_answered_at_once_when_asked_to(busy: Any) -> None:
    client, blocker = busy

    answer = await client("POST", START, SHORT, headers=ASYNC)

    assert answer.status == 202
    execution_id = answer.body["executionId"]
    assert answer.headers["Location"] == f"/api/executions/{execution_id}"
    assert answer.headers["Preference-Applied"] == "respond-async"
    assert (answer.body["status"], answer.body["queuePosition"]) == ("QUEUED", 1)
    assert answer.body["definitionVersion"]
    detail = await client.ok("GET", f"/api/executions/{execution_id}")
    assert (detail["status"], detail["queuePosition"]) == ("QUEUED", 1)
    assert detail["queuedTime"] == detail["waitingOn"][0]["since"]
    assert detail["waitingOn"][0]["kind"] == "QUEUE"
    listed = await client.ok("GET", "/api/executions?status=QUEUED")
    assert [run["executionId"] for run in listed["items"]] == [execution_id]
    await kill(client, blocker)
    assert (await client.ended(execution_id))["status"] == "SUCCESS"


async def test_a_start_that_fits_is_answered_as_ever(client: Any, make: Any) -> None:
    await client.session_with(make.line())

    answer = await client("POST", START, SHORT, headers=ASYNC)

    assert answer.status == 201
    assert "Preference-Applied" not in answer.headers


async def test_a_client_can_say_how_long_it_waits_for_the_slot(busy: Any) -> None:
    client, blocker = busy

    soon = await client("POST", START, SHORT, headers={"Prefer": "wait=0"})
    waiting = asyncio.create_task(
        client("POST", "/api/workflow/s/w/start", {}, headers={"Prefer": "wait=600"})
    )
    await until_queued(client, 2)
    await kill(client, blocker)
    answer = await waiting

    assert (soon.status, soon.headers["Preference-Applied"]) == (202, "wait=0")
    assert (answer.status, answer.headers["Preference-Applied"]) == (201, "wait=600")
    assert answer.body["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("header", "patience", "asynchronous"),
    [
        (None, None, False),
        ("", None, False),
        ("respond-async", 0, True),
        ("Respond-Async , WAIT=10", 10, True),
        ("wait=5; foo=bar, wait=7", 5, False),
        ('wait="30"', 30, False),
        ("wait=-1, wait=, wait=x, wait", None, False),
        ("handling=lenient, respond-async=no", None, False),
        ("respond-async;foo", 0, True),
        ("wait=99999999999", None, False),
    ],
)
def test_preferences_are_read_and_what_cannot_be_read_is_passed_over(
    header: str | None, patience: float | None, asynchronous: bool
) -> None:
    found = preference(header)

    assert (found.patience, found.asynchronous) == (patience, asynchronous)


async def test_a_client_that_leaves_while_it_waits_leaves_its_start_in_the_queue(
    busy: Any,
) -> None:
    client, blocker = busy
    gone = asyncio.create_task(client("POST", START, SHORT))
    [row] = await until_queued(client, 1)
    gone.cancel()
    await asyncio.wait((gone,))
    await client.ok("GET", "/health")

    assert await queue(client) == [row]
    await kill(client, blocker)
    assert (await client.ended(row["executionId"]))["status"] == "SUCCESS"


async def test_running_and_waiting_for_the_end_counts_the_wait_for_the_slot(busy: Any) -> None:
    client, blocker = busy

    late = await client("POST", "/api/workflow/s/w/run?timeout=0.05", {})
    assert (late.status, late.body["status"]) == (202, "QUEUED")
    running = asyncio.create_task(client("POST", "/api/workflow/s/w/run?timeout=15", {}))
    await until_queued(client, 2)
    await kill(client, blocker)

    answer = await running
    assert (answer.status, answer.body["execution"]["status"]) == (200, "SUCCESS")


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "waiting", "code"),
    [
        ({"on_limit": "REJECT"}, 0, "limit"),
        ({"queue_capacity": 1}, 1, "queue_full"),
        ({"queue_capacity_per_workflow": 1}, 1, "workflow_queue_full"),
    ],
    indirect=["settings"],
)
async def test_a_start_that_may_not_wait_is_refused_with_429(
    busy: Any, waiting: int, code: str
) -> None:
    client, _ = busy
    for _ in range(waiting):
        await client.ok("POST", START, SHORT, headers=ASYNC)

    answer = await client("POST", START, SHORT)

    assert (answer.status, answer.code) == (429, code)
    assert int(answer.headers["Retry-After"]) >= 1
    assert "1 of 1 runs go on" in answer.body["detail"]
    page = (await client("GET", "/metrics", checked=False)).body.decode()
    assert f'yukta_executions_rejected_total{{reason="{code}"}} 1.0' in page
    events = await client.ok("GET", "/api/events?type=scheduler.rejected")
    assert events["items"][0]["data"] == {"reason": code, "sessionId": "s", "workflowId": "w"}


@pytest.mark.parametrize(
    "settings", [{"queue_timeout": timedelta(milliseconds=200)}], indirect=True
)
async def test_a_start_that_waits_too_long_is_refused_with_its_id(busy: Any) -> None:
    client, _ = busy

    answer = await client("POST", START, SHORT)

    assert (answer.status, answer.code) == (429, "queue_timeout")
    shown = await client.ok("GET", f"/api/executions/{answer.body['executionId']}")
    assert (shown["status"], shown["error"]["code"]) == ("TIMED_OUT", "queue_timeout")
    # Who did not wait finds the end where every end is found.
    told = await client.ok("POST", START, SHORT, headers=ASYNC)
    assert (await client.ended(told["executionId"]))["status"] == "TIMED_OUT"


async def test_a_waiting_start_is_stopped_like_a_run(busy: Any) -> None:
    client, _ = busy
    start = asyncio.create_task(client("POST", START, SHORT))
    [row] = await until_queued(client, 1)

    result = await client.ok("POST", f"/api/executions/{row['executionId']}/stop")
    answer = await start

    assert (result["outcome"], result["state"]["status"]) == ("APPLIED", "CANCELLED")
    assert (answer.status, answer.code) == (409, "execution_not_running")
    assert answer.body["executionId"] == row["executionId"]
    refused = await client("POST", f"/api/executions/{row['executionId']}/pause")
    assert refused.code == "execution_not_running"


async def test_stopping_a_workflow_takes_its_waiting_starts_along(busy: Any) -> None:
    client, blocker = busy
    waiting = (await client.ok("POST", START, ENDLESS, headers=ASYNC))["executionId"]
    other = (await client.ok("POST", START, SHORT, headers=ASYNC))["executionId"]

    stopped = await client.ok("POST", "/api/workflow/s/endless/stop?mode=KILL")

    assert [result["executionId"] for result in stopped["results"]] == [waiting, blocker]
    assert (await client.ended(waiting))["status"] == "CANCELLED"
    assert (await client.ended(other))["status"] == "SUCCESS"


async def test_a_command_to_a_waiting_run_says_that_it_is_queued(busy: Any) -> None:
    client, _ = busy
    waiting = (await client.ok("POST", START, SHORT, headers=ASYNC))["executionId"]

    answer = await client("POST", f"/api/executions/{waiting}/pause")

    assert (answer.status, answer.code) == (409, "execution_not_running")
    assert (answer.body["status"], "QUEUED" in answer.body["detail"]) == (409, True)


async def test_who_waits_when_the_server_shuts_down_gets_503(busy: Any, engine: Any) -> None:
    client, _ = busy
    start = asyncio.create_task(client("POST", START, SHORT))
    [row] = await until_queued(client, 1)

    engine.gateway.stop_admitting()
    answer = await start
    late = await client("POST", START, SHORT)

    assert (answer.status, answer.code) == (late.status, late.code) == (503, "shutting_down")
    assert (await client.ended(row["executionId"]))["status"] == "CANCELLED"


# --- the queue, limits and priorities ----------------------------------------------------------


@pytest.mark.feature("ADM-03")
async def test_the_queue_is_shown_in_order_and_a_priority_moves_a_start(busy: Any) -> None:
    client, _ = busy
    first, second = [
        (await client.ok("POST", START, {**SHORT, "payload": {"yukta.priority": n}}, headers=ASYNC))
        for n in (1, 0.5)
    ]
    ids = [first["executionId"], second["executionId"]]
    items = await queue(client)
    assert [(row["executionId"], row["position"], row["priority"]) for row in items] == [
        (ids[0], 1, 1),
        (ids[1], 2, 0.5),
    ]
    assert {row["waitReason"] for row in items} == {"MAX_CONCURRENT"}

    path = f"/executions/{ids[1]}/priority"
    moved = await client.ok("PUT", path, {"priority": 7})
    again = await client.ok("POST", f"/api{path}?priority=7")

    assert (moved["command"], moved["outcome"], again["outcome"]) == (
        "SetPriority",
        "APPLIED",
        "NO_OP",
    )
    assert [row["executionId"] for row in await queue(client)] == [ids[1], ids[0]]
    audit = await client.ok("GET", f"/api/executions/{ids[1]}/commands")
    assert [row["args"] for row in audit["items"]] == [{"priority": 7}] * 2


@pytest.mark.feature("ADM-03")
async def test_a_priority_needs_a_waiting_start_and_a_number(busy: Any) -> None:
    client, blocker = busy
    path = f"/api/executions/{blocker}/priority"

    running = await client("PUT", path, {"priority": 1})
    unknown = await client("PUT", "/api/executions/none/priority", {"priority": 1})
    missing = await client("PUT", path, {})
    text = await client("PUT", path, {"priority": "high"})
    huge = await client("PUT", path, {"priority": 1e300})
    in_payload = await client("POST", START, {**SHORT, "payload": {"yukta.priority": True}})

    assert (running.status, running.code) == (409, "not_queued")
    assert (unknown.status, unknown.code) == (404, "execution_not_found")
    assert {missing.status, text.status, huge.status, in_payload.status} == {422}
    assert huge.body["errors"][0]["pointer"] == "/priority"
    assert in_payload.body["errors"][0]["pointer"] == "/payload/yukta.priority"


@pytest.mark.feature("ADM-03")
@pytest.mark.parametrize("path", ["/scheduler/limits", "/api/scheduler/limits"])
async def test_limits_are_shown_and_changed_live(busy: Any, path: str) -> None:
    client, _ = busy
    waiting = (await client.ok("POST", START, SHORT, headers=ASYNC))["executionId"]
    assert await client.ok("GET", path) == {
        "maxConcurrent": 1,
        "perWorkflow": 0,
        "perSession": 0,
        "onLimit": "QUEUE",
        "queueCapacity": 100,
        "running": 1,
        "queued": 1,
        "source": "CONFIG",
    }

    dry = await client.ok("PUT", f"{path}?dryRun=true", {"maxConcurrent": 9, "perWorkflow": 0})
    assert dry["outcome"] == "DRY_RUN"
    result = await client.ok("PUT", path, {"maxConcurrent": 2, "perWorkflow": 0, "reason": "more"})

    assert (result["executionId"], result["outcome"], result["state"]) == (
        "scheduler",
        "APPLIED",
        {},
    )
    assert (await client.ended(waiting))["status"] == "SUCCESS"
    shown = await client.ok("POST", path, {"maxConcurrent": 5, "perWorkflow": 3})
    assert shown["outcome"] == "APPLIED"
    limits = await client.ok("GET", path)
    assert (limits["maxConcurrent"], limits["perWorkflow"], limits["source"]) == (5, 3, "LOG")
    rows = (await client.ok("GET", "/api/control/audit?executionId=scheduler"))["items"]
    assert [(row["command"], row["outcome"], row.get("reason")) for row in rows] == [
        ("SetLimits", "DRY_RUN", None),
        ("SetLimits", "APPLIED", "more"),
        ("SetLimits", "APPLIED", None),
    ]
    events = await client.ok("GET", "/api/events?type=scheduler.limits_changed")
    assert [event["data"]["maxConcurrent"] for event in events["items"]] == [2, 5]


@pytest.mark.feature("ADM-03")
async def test_wrong_limits_are_named(client: Any) -> None:
    for body, pointers in (
        ({}, ["/maxConcurrent", "/perWorkflow"]),
        ({"maxConcurrent": 1}, ["/perWorkflow"]),
        ({"maxConcurrent": -1, "perWorkflow": 0}, ["/maxConcurrent"]),
        ({"maxConcurrent": "2", "perWorkflow": 0}, ["/maxConcurrent"]),
        ({"maxConcurrent": 1, "perWorkflow": 0, "max": 1}, ["/max"]),
    ):
        answer = await client("PUT", "/api/scheduler/limits", body)
        assert answer.status == 422, body
        assert [fault["pointer"] for fault in answer.body["errors"]] == pointers


@pytest.mark.feature("ADM-03")
async def test_limits_and_priorities_go_through_the_one_door_too(busy: Any) -> None:
    client, _ = busy
    waiting = (await client.ok("POST", START, SHORT, headers=ASYNC))["executionId"]
    limits = {"type": "SetLimits", "maxConcurrent": 0, "perWorkflow": 0}

    wrong = await client("POST", f"/api/executions/{waiting}/commands", limits)
    moved = await client(
        "POST", f"/api/executions/{waiting}/commands", {"type": "SetPriority", "priority": 3}
    )
    batch = await client.ok(
        "POST", "/api/commands", {"commands": [{**limits, "executionId": "scheduler"}]}
    )

    assert (wrong.status, wrong.body["errors"][0]["pointer"]) == (422, "/executionId")
    assert moved.status == 200
    assert batch["results"][0]["outcome"] == "APPLIED"
    assert (await client.ended(waiting))["status"] == "SUCCESS"


@pytest.mark.parametrize(
    "settings",
    [{"max_concurrent": 3, "max_concurrent_per_workflow": 1, "max_concurrent_per_session": 2}],
    indirect=True,
)
async def test_case_51_the_reason_for_waiting_is_the_limit_that_holds_the_start(
    client: Any, make: Any
) -> None:
    flows = [make.line(name, count=0, every_ms=5) for name in ("a", "b", "c")]
    for session in ("s", "t", "u"):
        await client.session_with(*flows, session=session)
    for session, workflow in (("s", "a"), ("s", "b"), ("t", "a")):
        await client.start(workflow, session=session)

    for session, workflow in (("s", "c"), ("t", "a"), ("t", "b"), ("u", "c")):
        await client.ok("POST", f"/api/workflow/{session}/{workflow}/start", {}, headers=ASYNC)

    shown = {(row["sessionId"], row["workflowId"]): row for row in await queue(client)}
    assert {place: row["waitReason"] for place, row in shown.items()} == {
        ("s", "c"): "PER_SESSION",
        ("t", "a"): "PER_WORKFLOW",
        ("t", "b"): "MAX_CONCURRENT",
        ("u", "c"): "MAX_CONCURRENT",
    }
    assert shown["t", "a"]["detail"] == "1 of 1 runs of workflow t/a go on"
    # Sessions with fewer runs go first.
    assert [place[0] for place in shown] == ["u", "t", "s", "t"]
    detail = await client.ok("GET", f"/api/executions/{shown['s', 'c']['executionId']}")
    assert detail["waitingOn"][0]["detail"] == "2 of 2 runs of session s go on"


# --- one key, one run --------------------------------------------------------------------------


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize("headers", [{}, ASYNC], ids=["waiting", "respond-async"])
async def test_case_40_twenty_parallel_starts_with_one_key_are_one_run(
    busy: Any, headers: dict[str, str]
) -> None:
    client, blocker = busy
    given = {"Idempotency-Key": '"8e03"', **headers}
    starts = [
        asyncio.create_task(client("POST", START, SHORT, headers={**given})) for _ in range(20)
    ]
    await until_queued(client, 1)
    if not headers:
        await kill(client, blocker)
    answers = await asyncio.gather(*starts)

    [execution_id] = {answer.body["executionId"] for answer in answers}
    replayed = [answer.headers.get("Idempotency-Replayed") == "true" for answer in answers]
    assert replayed.count(False) == 1
    wanted = {202} if headers else {200, 201}
    assert {answer.status for answer in answers} == wanted
    if headers:
        await kill(client, blocker)
    await client.ended(execution_id)
    events = await client.ok(
        "GET", f"/api/events?type=execution.started&executionId={execution_id}"
    )
    assert len(events["items"]) == 1
    listed = await client.ok("GET", "/api/executions?workflowId=w")
    assert [run["executionId"] for run in listed["items"]] == [execution_id]


# --- breakpoints of a start --------------------------------------------------------------------


@pytest.mark.feature("CTL-02")
async def test_breakpoints_of_a_start_hold_the_first_message(client: Any, make: Any) -> None:
    await client.session_with(make.line())
    body = {**SHORT, "breakpoints": [{"nodeId": "double"}]}
    execution_id = (await client.ok("POST", START, body))["executionId"]

    async with asyncio.timeout(15):
        while True:
            shown = await client.ok("GET", f"/api/executions/{execution_id}?include=nodes")
            if shown["waitingOn"]:
                break
    assert shown["waitingOn"][0]["kind"] == "BREAKPOINT"
    assert [node["in"] for node in shown["nodes"]] == [0, 0, 0]
    await client.ok("DELETE", f"/api/executions/{execution_id}/nodes/double/breakpoint")
    await client.ok("POST", f"/api/executions/{execution_id}/resume")
    assert (await client.ended(execution_id))["status"] == "SUCCESS"


@pytest.mark.feature("CTL-02")
async def test_a_breakpoint_at_a_node_that_is_not_there_is_refused(client: Any, make: Any) -> None:
    await client.session_with(make.line())

    answer = await client("POST", START, {**SHORT, "breakpoints": [{"nodeId": "none"}]})
    shape = await client("POST", START, {**SHORT, "breakpoints": {"nodeId": "double"}})

    assert (answer.status, answer.body["errors"][0]["pointer"]) == (422, "/breakpoints/0/nodeId")
    assert (shape.status, shape.body["errors"][0]["pointer"]) == (422, "/breakpoints")
    assert (await client.ok("GET", "/api/executions"))["items"] == []
