"""Starting and reading runs over HTTP."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Client = Callable[..., Awaitable[Any]]


@pytest.fixture
async def ready(client: Any, make: Any) -> Any:
    """A client of a server with the workflows of these tests."""
    await client.session_with(make.line(), make.echo(), make.line("endless", count=0, every_ms=5))
    return client


# --- starting ------------------------------------------------------------------------------------


@pytest.mark.feature("ENG-06")
@pytest.mark.parametrize("path", ["/workflow/start", "/api/workflow/start"])
async def test_a_run_is_started_by_a_body_that_names_it(ready: Any, path: str) -> None:
    body = {"sessionId": "s", "workflowId": "w", "payload": {"a": 1}, "labels": {"team": "x"}}

    answer = await ready("POST", path, body)

    assert answer.status == 201
    execution_id = answer.body["executionId"]
    assert answer.headers["Location"] == f"/api/executions/{execution_id}"
    shown = await ready.ended(execution_id)
    assert shown["status"] == "SUCCESS"
    assert shown["labels"] == {"team": "x"}


async def test_every_link_of_a_start_leads_somewhere(ready: Any) -> None:
    started = await ready.ok("POST", "/api/workflow/s/w/start", {})

    for name, path in started["links"].items():
        method = "POST" if name == "stop" else "GET"
        answer = await ready(method, path, headers={"Accept": "application/json"})
        assert answer.status in (200, 409), (name, answer.body)


async def test_the_body_of_the_short_form_is_the_payload(ready: Any) -> None:
    done = await ready.ok("POST", "/api/workflow/s/echo/run", {"order": 7})

    assert {item["nodeId"]: item["payload"] for item in done["results"]}["out"] == {"order": 7}
    assert {item["type"] for item in done["results"]} == {"RESULT"}
    assert done["execution"]["status"] == "SUCCESS"
    assert done["truncated"] is False


async def test_a_payload_may_be_left_out_and_needs_no_content_type(ready: Any) -> None:
    started = await ready("POST", "/api/workflow/s/echo/start")
    curled = await ready(
        "POST",
        "/api/workflow/s/echo/start",
        data=b'{"a": 1}',
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )

    assert (started.status, curled.status) == (201, 201)


async def test_a_run_that_takes_longer_answers_where_to_look(ready: Any) -> None:
    answer = await ready("POST", "/api/workflow/s/endless/run?timeout=0.05", {})

    assert answer.status == 202
    shown = await ready.ok("GET", answer.headers["Location"])
    assert shown["status"] == "RUNNING"


async def test_a_run_that_fails_is_no_error_of_the_request(ready: Any, make: Any) -> None:
    document = make.echo("split")
    document["nodes"][0]["config"] = {"splitPath": "items"}
    await ready.session_with(document, session="t")

    done = await ready.ok("POST", "/api/workflow/t/split/run", {"items": 5})

    assert done["execution"]["status"] == "FAILURE"
    assert "Traceback" not in str(done["execution"]["error"])


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"workflowId": "w"}, "/sessionId"),
        ({"sessionId": "s", "workflowId": "w", "payloads": {}}, "/payloads"),
        ({"sessionId": "a/b", "workflowId": "w"}, "/sessionId"),
        ({"sessionId": "s", "workflowId": "x" * 200}, "/workflowId"),
        ({"sessionId": "s", "workflowId": "w", "payload": [1]}, "/payload"),
        ({"sessionId": "s", "workflowId": "w", "stepMode": "yes"}, "/stepMode"),
        ({"sessionId": "s", "workflowId": "w", "labels": {"a": 1}}, "/labels/a"),
        ({"sessionId": "s", "workflowId": "w", "options": {"x": 1}}, "/options/x"),
        ([], ""),
        (3, ""),
    ],
)
async def test_a_body_that_is_wrong_is_refused_with_the_place(
    ready: Any, body: Any, pointer: str
) -> None:
    answer = await ready("POST", "/workflow/start", body)

    assert (answer.status, answer.code) == (422, "validation")
    assert pointer in [fault["pointer"] for fault in answer.body["errors"]]


@pytest.mark.feature("DUR-04")
@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"{", 400, "malformed_json"),
        (b'{"a": NaN}', 400, "malformed_json"),
        (b'{"a": "\\ud800"}', 400, "malformed_json"),
        (b"\xff\xfe", 400, "malformed_json"),
        (b"[" * 300 + b"]" * 300, 422, "unserialisable_payload"),
        (b'{"a": ' * 250 + b"1" + b"}" * 250, 422, "unserialisable_payload"),
    ],
)
async def test_a_payload_that_cannot_be_kept_exactly_is_refused_whole(
    ready: Any, raw: bytes, status: int, code: str
) -> None:
    answer = await ready("POST", "/api/workflow/s/echo/start", data=raw)

    assert (answer.status, answer.code) == (status, code)
    assert "pointer" in answer.body


async def test_case_33_a_payload_comes_through_as_it_was_sent(ready: Any) -> None:
    payload = {"nul": "x\0y", "big": 2**70, "line": "a\u2028b", "float": 1.0, "deep": [[{}]]}

    done = await ready.ok("POST", "/api/workflow/s/echo/run", payload)

    assert done["results"][0]["payload"] == payload


async def test_what_is_not_there_is_named(ready: Any) -> None:
    no_session = await ready("POST", "/api/workflow/nobody/w/start", {})
    no_workflow = await ready("POST", "/api/workflow/s/nothing/start", {})

    assert (no_session.status, no_session.code) == (404, "session_not_found")
    assert (no_workflow.status, no_workflow.code) == (404, "workflow_not_found")


async def test_a_body_over_the_limit_is_refused_and_the_connection_lives(ready: Any) -> None:
    limit = 1024 * 1024
    fits = b'{"a": "' + b"x" * (limit - 9) + b'"}'

    exact = await ready("POST", "/api/workflow/s/echo/start", data=BytesIO(fits))
    assert exact.status == 201
    over = await ready("POST", "/api/workflow/s/echo/start", data=BytesIO(fits + b" "))
    assert (over.status, over.code, over.body["limitBytes"]) == (413, "body_too_large", limit)

    async def chunks() -> Any:
        for _ in range(20):
            yield b"x" * 100_000

    chunked = await ready("POST", "/api/workflow/s/echo/start", data=chunks())
    assert (chunked.status, chunked.code) == (413, "body_too_large")
    assert (await ready("GET", "/api/executions")).status == 200


# --- repeated starts -----------------------------------------------------------------------------


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize("key", ['"8e03"', "8e03"])
async def test_a_repeated_start_gets_the_first_run_back(ready: Any, key: str) -> None:
    headers = {"Idempotency-Key": key}

    first = await ready("POST", "/api/workflow/s/w/start", {"a": 1}, headers=dict(headers))
    again = await ready("POST", "/api/workflow/s/w/start", {"a": 1}, headers=dict(headers))
    other = await ready("POST", "/api/workflow/s/w/start", {"a": 2}, headers=dict(headers))

    assert (first.status, again.status) == (201, 200)
    assert again.body["executionId"] == first.body["executionId"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (other.status, other.code) == (422, "idempotency_key_reused")


@pytest.mark.feature("ADM-02")
async def test_case_40_parallel_starts_with_one_key_are_one_run(ready: Any) -> None:
    answers = await asyncio.gather(
        *(
            ready("POST", "/api/workflow/s/w/start", {}, headers={"Idempotency-Key": "k"})
            for _ in range(20)
        )
    )

    assert len({answer.body["executionId"] for answer in answers}) == 1
    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert (await ready.ok("GET", "/api/executions?count=true"))["count"] == 1


async def test_a_client_that_leaves_early_does_not_undo_its_start(ready: Any, engine: Any) -> None:
    for _ in range(10):
        request = asyncio.ensure_future(ready.session.post("/api/workflow/s/w/start", data=b"{}"))
        await asyncio.sleep(0.002)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    await asyncio.sleep(0.05)
    states = engine.tracker.runs()
    for state in states:
        assert (await ready.ended(state.execution_id))["status"] == "SUCCESS"


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.feature("OBS-01")
async def test_runs_are_listed_page_by_page_newest_first(ready: Any) -> None:
    ids = [await ready.start() for _ in range(5)]

    seen, cursor = [], ""
    while True:
        page = await ready.ok("GET", f"/api/executions?limit=2{cursor}")
        seen += [item["executionId"] for item in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = f"&afterCursor={page['nextCursor']}"

    assert seen == ids[::-1]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=SUCCESS", True),
        ("status=success&status=FAILURE", True),
        ("status=FAILURE,ERROR", False),
        ("sessionId=s", True),
        ("sessionId=other", False),
        ("workflowId=w,echo", True),
        ("workflowId=other", False),
        ("startedAfter=2020-01-01T00:00:00Z", True),
        ("startedBefore=2020-01-01T00:00:00Z", False),
        ("startedAfter=2020-01-01T00:00:00+02:00", True),
        ("actor=anonymous", True),
        ("actor=somebody", False),
        ("parentExecutionId=x", False),
        ("q=0", True),
        ("q=zzz", False),
    ],
)
async def test_a_list_of_runs_can_be_narrowed(ready: Any, query: str, found: bool) -> None:
    execution_id = await ready.start()
    await ready.ended(execution_id)

    page = await ready.ok("GET", f"/api/executions?{query}")
    counted = await ready.ok("GET", f"/api/executions?{query}&count=true")

    assert [item["executionId"] for item in page["items"]] == ([execution_id] if found else [])
    assert counted == {"count": int(found), "countCapped": False}


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("limit=1e2", "limit"),
        ("status=DONE", "status"),
        ("sesionId=s", "sesionId"),
        ("sessionId=a/b", "sessionId"),
        ("startedAfter=yesterday", "startedAfter"),
        ("startedAfter=2020-01-01T00:00:00", "startedAfter"),
        ("count=maybe", "count"),
        ("actor=", "actor"),
    ],
)
async def test_a_wrong_query_parameter_is_named(ready: Any, query: str, parameter: str) -> None:
    answer = await ready("GET", f"/api/executions?{query}")

    assert (answer.status, answer.code) == (400, "invalid_parameter")
    assert answer.body["parameter"] == parameter


async def test_a_cursor_that_is_none_is_refused(ready: Any) -> None:
    answer = await ready("GET", "/api/executions?afterCursor=a/b")

    assert (answer.status, answer.code) == (400, "invalid_cursor")


async def test_a_run_is_shown_with_the_parts_that_are_asked_for(ready: Any) -> None:
    execution_id = await ready.start()
    await ready.ended(execution_id)

    bare = await ready.ok("GET", f"/api/executions/{execution_id}")
    full = await ready.ok("GET", f"/api/executions/{execution_id}?include=nodes,edges,children")

    assert not {"nodes", "edges", "children"} & bare.keys()
    assert [node["nodeId"] for node in full["nodes"]] == ["numbers", "double", "out"]
    assert [edge["passed"] for edge in full["edges"]] == [3, 3]
    assert full["children"] == []


async def test_a_run_that_did_not_change_is_not_sent_again(ready: Any) -> None:
    execution_id = await ready.start()
    await ready.ended(execution_id)
    first = await ready("GET", f"/api/executions/{execution_id}")

    tag = first.headers["ETag"]
    again = await ready("GET", f"/api/executions/{execution_id}", headers={"If-None-Match": tag})

    assert tag.startswith('W/"')
    assert (again.status, again.body) == (304, b"")


@pytest.mark.feature("OBS-01")
async def test_nodes_and_edges_of_a_run_are_read(ready: Any) -> None:
    execution_id = await ready.start()
    await ready.ended(execution_id)
    base = f"/api/executions/{execution_id}"

    nodes = await ready.ok("GET", f"{base}/nodes")
    node = await ready.ok("GET", f"{base}/nodes/double")
    edges = await ready.ok("GET", f"{base}/edges")
    missing = await ready("GET", f"{base}/nodes/other")
    children = await ready.ok("GET", f"{base}/children")

    assert nodes["nextCursor"] is None
    assert node in nodes["items"]
    assert (node["in"], node["out"], node["status"]) == (3, 3, "SUCCESS")
    assert [edge["passed"] for edge in edges["items"]] == [3, 3]
    assert (missing.status, missing.code) == (404, "node_not_found")
    assert children["items"] == []


@pytest.mark.parametrize(
    "below",
    ["", "/nodes", "/nodes/n", "/edges", "/wait", "/progress", "/logs", "/children", "/commands"],
)
async def test_a_run_that_is_not_there_is_not_found_anywhere(ready: Any, below: str) -> None:
    answer = await ready(
        "GET", f"/api/executions/no-such-run{below}", headers={"Accept": "application/json"}
    )

    assert (answer.status, answer.code) == (404, "execution_not_found")


async def test_a_wait_that_takes_too_long_answers_with_nothing(ready: Any) -> None:
    execution_id = await ready.start("endless")

    answer = await ready("GET", f"/api/executions/{execution_id}/wait?timeout=0.05")

    assert (answer.status, answer.body) == (204, b"")


async def test_results_progress_and_logs_are_read_as_json(ready: Any) -> None:
    execution_id = await ready.start("echo", {"a": 1})
    await ready.ended(execution_id)
    json = {"Accept": "application/json"}
    base = f"/api/sessions/s/executions/{execution_id}"

    results = await ready.ok("GET", f"{base}/results", headers=dict(json))
    first = await ready.ok("GET", f"{base}/results?limit=1", headers=dict(json))
    rest = await ready.ok(
        "GET", f"{base}/results?afterCursor={first['nextCursor']}", headers=dict(json)
    )
    logs = await ready.ok("GET", f"{base}/logs", headers=dict(json))
    progress = await ready.ok("GET", f"/api/executions/{execution_id}/progress", headers=dict(json))

    assert [item["type"] for item in results["items"]][-1] == "EXECUTION_END"
    assert results["nextCursor"] is None
    assert first["items"] + rest["items"] == results["items"]
    assert [line["line"] for line in logs["items"]] == ['{"a":1}']
    assert progress["execution"]["status"] == "SUCCESS"


async def test_results_of_a_run_of_another_session_are_not_found(ready: Any) -> None:
    await ready.ok("PUT", "/api/sessions/other", {})
    execution_id = await ready.start()

    answer = await ready(
        "GET",
        f"/api/sessions/other/executions/{execution_id}/results",
        headers={"Accept": "application/json"},
    )

    assert (answer.status, answer.code) == (404, "execution_not_found")


async def test_log_lines_can_be_narrowed(ready: Any) -> None:
    execution_id = await ready.start("echo", {"a": 1})
    await ready.ended(execution_id)
    json = {"Accept": "application/json"}
    base = f"/api/executions/{execution_id}/logs"

    for query, count in [
        ("nodeId=say", 1),
        ("nodeId=out", 0),
        ("stream=stdout", 1),
        ("stream=stderr", 0),
        ("q=a", 1),
        ("q=zzz", 0),
    ]:
        page = await ready.ok("GET", f"{base}?{query}", headers=dict(json))
        assert len(page["items"]) == count, query


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 30, "\u0661"])
async def test_a_cursor_of_a_run_is_a_number(ready: Any, cursor: str) -> None:
    execution_id = await ready.start()

    answer = await ready(
        "GET",
        f"/api/sessions/s/executions/{execution_id}/results",
        params={"afterCursor": cursor},
        headers={"Accept": "application/json"},
    )

    assert (answer.status, answer.code) == (400, "invalid_cursor")
