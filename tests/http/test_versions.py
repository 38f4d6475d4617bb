"""Versions, differences, notes, rollbacks, graphs and dry runs over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition

pytestmark = pytest.mark.feature("DEF-01")

WORKFLOW = "/api/sessions/s/workflows/w"


@pytest.fixture
async def three(client: Any, make: Any) -> list[Any]:
    """Three versions of `w`; the answers to their saves."""
    await client.session_with()
    return [
        await client("PUT", f"{WORKFLOW}?note={note}", make.line(count=count))
        for count, note in ((1, "first"), (2, ""), (3, ""))
    ]


async def versions(client: Any) -> list[dict[str, Any]]:
    return list((await client.ok("GET", f"{WORKFLOW}/versions"))["items"])


async def test_versions_are_listed_newest_first_and_page_by_page(client: Any, three: Any) -> None:
    whole = await client.ok("GET", f"{WORKFLOW}/versions")
    first = await client.ok("GET", f"{WORKFLOW}/versions?limit=2")
    rest = await client.ok("GET", f"{WORKFLOW}/versions?limit=2&afterCursor={first['nextCursor']}")

    assert [item["version"] for item in whole["items"]] == [3, 2, 1]
    assert [item["current"] for item in whole["items"]] == [True, False, False]
    assert [item.get("note") for item in whole["items"]] == [None, None, "first"]
    assert {item["actor"] for item in whole["items"]} == {"anonymous"}
    assert whole["items"][0]["definitionVersion"] == three[2].headers["ETag"].strip('"')
    assert first["items"] + rest["items"] == whole["items"]
    assert (whole["nextCursor"], rest["nextCursor"]) == (None, None)
    wrong = await client("GET", f"{WORKFLOW}/versions?afterCursor=x")
    assert (wrong.status, wrong.code) == (400, "invalid_cursor")


async def test_a_version_is_shown_with_its_document(client: Any, make: Any, three: Any) -> None:
    shown = await client("GET", f"{WORKFLOW}/versions/1")

    assert shown.body["document"] == make.line(count=1)
    assert (shown.body["note"], shown.body["current"]) == ("first", False)
    assert three[0].headers["ETag"] == f'"{shown.body["definitionVersion"]}"'


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/versions/9", 404, "version_not_found"),
        ("/versions/x", 400, "invalid_parameter"),
        ("/versions/-1", 400, "invalid_parameter"),
        ("/versions/diff", 400, "invalid_parameter"),
        ("/versions/diff?from=0", 400, "invalid_parameter"),
        ("/versions/diff?from=9", 404, "version_not_found"),
        ("/versions/diff?from=1&to=9", 404, "version_not_found"),
    ],
)
async def test_a_version_that_is_not_there_is_a_clear_refusal(
    client: Any, three: Any, path: str, status: int, code: str
) -> None:
    answer = await client("GET", WORKFLOW + path)

    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize("path", ["versions", "versions/1", "versions/diff?from=1", "graph"])
async def test_what_is_read_of_no_workflow_is_not_found(client: Any, path: str) -> None:
    await client.session_with()
    no_workflow = await client("GET", f"/api/sessions/s/workflows/none/{path}")
    no_session = await client("GET", f"/api/sessions/none/workflows/w/{path}")

    assert (no_workflow.status, no_workflow.code) == (404, "workflow_not_found")
    assert (no_session.status, no_session.code) == (404, "session_not_found")


async def test_a_word_beside_the_versions_is_no_version(client: Any, three: Any) -> None:
    for method, path, allowed in (
        ("GET", "versions/note", "POST"),
        ("POST", "versions/diff", "GET"),
        ("DELETE", "versions/1", "GET"),
    ):
        answer = await client(method, f"{WORKFLOW}/{path}", checked=False)

        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == allowed


async def test_a_diff_is_a_patch_per_node(client: Any, make: Any, three: Any) -> None:
    changed = make.line(count=3)
    changed["nodes"].append({"nodeId": "more", "type": "NULL_TERMINAL"})
    changed["edges"].append({"source": "numbers", "target": "more"})
    await client.ok("PUT", WORKFLOW, {**changed, "description": "with more"})

    to_current = await client.ok("GET", f"{WORKFLOW}/versions/diff?from=1")
    between = await client.ok("GET", f"{WORKFLOW}/versions/diff?from=1&to=2")

    patch = [{"op": "replace", "path": "/config/count", "value": 3}]
    assert to_current["nodesChanged"] == [{"nodeId": "numbers", "changes": patch}]
    assert (to_current["from"], to_current["to"]) == (1, 4)
    assert to_current["nodesAdded"] == ["more"]
    assert to_current["edgesAdded"] == [{"source": "numbers", "target": "more"}]
    assert to_current["description"] == {"from": None, "to": "with more"}
    assert between["nodesChanged"][0]["changes"][0]["value"] == 2
    assert (between["nodesAdded"], "description" in between) == ([], False)


async def test_a_note_is_written_by_query_or_body_and_taken_away(client: Any, three: Any) -> None:
    path = f"{WORKFLOW}/versions/note"
    by_query = await client("POST", f"{path}?version=2&note=gr%C3%BC%C3%9Fe")
    by_body = await client("POST", path, {"version": 3, "note": "body"})
    away = await client("POST", f"{path}?version=1&note=")

    assert [answer.status for answer in (by_query, by_body, away)] == [204, 204, 204]
    assert [row.get("note") for row in await versions(client)] == ["body", "grüße", None]
    await client.ok("POST", path, {"version": 3, "note": None})
    assert "note" not in (await versions(client))[0]


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("", {}, 400, "invalid_parameter"),
        ("", {"note": "x"}, 400, "invalid_parameter"),
        ("?version=x&note=y", None, 400, "invalid_parameter"),
        ("?version=1&note=" + "x" * 2001, None, 400, "invalid_parameter"),
        ("", {"version": 1, "note": "x" * 2001}, 422, "validation"),
        ("", {"version": "1", "note": "x"}, 422, "validation"),
        ("", {"version": 1, "nite": "x"}, 422, "validation"),
        ("?version=9&note=x", None, 404, "version_not_found"),
    ],
)
async def test_a_note_about_nothing_is_refused(
    client: Any, three: Any, query: str, body: Any, status: int, code: str
) -> None:
    answer = await client("POST", f"{WORKFLOW}/versions/note{query}", body)

    assert (answer.status, answer.code) == (status, code)


async def test_a_rollback_makes_a_new_version_and_is_not_done_blindly(
    client: Any, make: Any, three: Any
) -> None:
    stale = await client(
        "POST", f"{WORKFLOW}/versions/1/rollback", headers={"If-Match": three[0].headers["ETag"]}
    )
    several = f'"x", {three[2].headers["ETag"]}'
    done = await client("POST", f"{WORKFLOW}/versions/1/rollback", headers={"If-Match": several})
    again = await client("POST", f"{WORKFLOW}/versions/1/rollback")
    gone = await client("POST", f"{WORKFLOW}/versions/9/rollback")

    assert (stale.status, stale.code) == (412, "stale_definition")
    assert (done.status, done.body["version"], done.body["unchanged"]) == (200, 4, False)
    assert done.headers["ETag"] == three[0].headers["ETag"]
    assert (again.body["version"], again.body["unchanged"]) == (4, True)
    assert (gone.status, gone.code) == (404, "version_not_found")
    assert await client.ok("GET", WORKFLOW) == make.line(count=1)


async def test_a_start_runs_the_version_that_it_pins(client: Any, three: Any) -> None:
    pinned = await client.ended(await client.start(payload={"yukta.version": 1}))
    current = await client.ended(await client.start())
    missing = await client("POST", "/api/workflow/s/w/start", {"yukta.version": 9})

    tags = [answer.headers["ETag"].strip('"') for answer in three]
    assert (pinned["definitionVersion"], current["definitionVersion"]) == (tags[0], tags[2])
    assert (missing.status, missing.code) == (404, "version_not_found")


async def test_the_feed_tells_of_saves_and_rollbacks(client: Any, three: Any) -> None:
    await client.ok("POST", f"{WORKFLOW}/versions/1/rollback")

    page = await client.ok("GET", "/api/events?type=definition.*")
    assert [event["type"] for event in page["items"]] == [
        *["definition.saved"] * 3,
        "definition.rolled_back",
    ]
    last = page["items"][-1]
    assert (last["sessionId"], last["workflowId"]) == ("s", "w")
    assert last["data"] == (await versions(client))[0]


class TestStrict:
    """A server that wants a condition on every change."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(http={"require_if_match": True})

    async def test_a_rollback_needs_one_too(self, client: Any, make: Any) -> None:
        only_new = {"If-None-Match": "*"}
        await client.ok("PUT", "/api/sessions/s", {"workflows": [make.line()]}, headers=only_new)

        answer = await client("POST", f"{WORKFLOW}/versions/1/rollback")

        assert (answer.status, answer.code) == (428, "precondition_required")


# --- graphs --------------------------------------------------------------------------------------


async def test_a_workflow_is_a_graph_with_a_layout(client: Any, three: Any) -> None:
    shown = await client.ok("GET", f"{WORKFLOW}/graph")

    assert shown["layers"] == [["numbers"], ["double"], ["out"]]
    assert shown["nodes"][1] == {
        "nodeId": "double",
        "type": "TRANSFORM",
        "kind": "PROCESSOR",
        "layer": 1,
        "row": 0,
    }
    assert shown["definitionVersion"] == (await versions(client))[0]["definitionVersion"]
    assert "status" not in shown


@pytest.mark.parametrize(
    ("accept", "mermaid"),
    [
        ("text/vnd.mermaid", True),
        ("text/*", True),
        ("text/vnd.mermaid, application/json;q=0.5", True),
        ("application/json", False),
        ("application/json, text/vnd.mermaid;q=0.5", False),
        ("*/*", False),
        ("text/vnd.mermaid;q=0, */*", False),
    ],
)
async def test_a_graph_is_json_or_mermaid_as_the_client_likes(
    client: Any, three: Any, accept: str, mermaid: bool
) -> None:
    answer = await client("GET", f"{WORKFLOW}/graph", headers={"Accept": accept})

    assert answer.status == 200
    kind = answer.headers["Content-Type"]
    if mermaid:
        assert kind == "text/vnd.mermaid; charset=utf-8"
        assert answer.body.startswith(b'flowchart LR\n  n0(["numbers<br/>SEQUENCE_TRIGGER"])')
    else:
        assert kind.startswith("application/json")


async def test_a_graph_of_another_kind_is_not_acceptable(client: Any, three: Any) -> None:
    answer = await client("GET", f"{WORKFLOW}/graph", headers={"Accept": "image/svg+xml"})

    assert (answer.status, answer.code) == (406, "not_acceptable")


async def test_a_run_is_a_graph_with_the_status_of_its_nodes(
    client: Any, make: Any, three: Any
) -> None:
    run = await client.start()
    await client.ended(run)
    # A run keeps the graph that it ran, whatever becomes of the definition.
    await client.ok("PUT", WORKFLOW, make.chatty("w"))

    shown = await client.ok("GET", f"/api/executions/{run}/graph")
    drawn = await client(
        "GET", f"/api/executions/{run}/graph", headers={"Accept": "text/vnd.mermaid"}
    )

    assert (shown["executionId"], shown["status"]) == (run, "SUCCESS")
    assert [(node["nodeId"], node["layer"], node["status"]) for node in shown["nodes"]] == [
        ("numbers", 0, "SUCCESS"),
        ("double", 1, "SUCCESS"),
        ("out", 2, "SUCCESS"),
    ]
    assert [(edge["source"], edge["target"]) for edge in shown["edges"]] == [
        ("numbers", "double"),
        ("double", "out"),
    ]
    assert b"double<br/>TRANSFORM<br/>SUCCESS" in drawn.body
    missing = await client("GET", "/api/executions/none/graph")
    assert (missing.status, missing.code) == (404, "execution_not_found")


# --- dry runs ------------------------------------------------------------------------------------


async def test_a_dry_run_tells_what_a_start_would_do_and_starts_nothing(
    client: Any, make: Any, three: Any
) -> None:
    told = await client.ok("POST", f"{WORKFLOW}/dry-run")
    pinned = await client.ok("POST", f"{WORKFLOW}/dry-run", {"yukta.version": 1})

    assert told["order"] == ["numbers", "double", "out"]
    assert told["admission"] == "WOULD_RUN"
    assert told["nodes"][0]["resolvedConfig"] == {"count": 3, "intervalMs": 0}
    assert told["nodes"][1]["clocks"]["idleTimeoutMs"] == 30_000
    assert told["nodes"][0]["missingVariables"] == []
    assert pinned["nodes"][0]["resolvedConfig"]["count"] == 1
    assert (await client.ok("GET", "/api/executions?count=true"))["count"] == 0
    wrong = await client("POST", f"{WORKFLOW}/dry-run", {"yukta.version": 9})
    assert (wrong.status, wrong.code) == (404, "version_not_found")


async def test_a_dry_run_takes_the_payload_that_a_start_would_take(client: Any, three: Any) -> None:
    for path in (f"{WORKFLOW}/dry-run", "/api/workflow/s/w/start"):
        wrong = await client("POST", path, ["no object"])
        assert (wrong.status, wrong.code) == (422, "validation")
        assert wrong.body["errors"][0]["pointer"] == "/payload"


class TestLimited:
    """A server with one slot and one place in the queue."""

    @pytest.fixture
    def settings(self) -> Settings:
        limits = {"max_concurrent": 1, "queue_capacity": 1}
        return Settings(execution={**limits, "shutdown_timeout": timedelta(milliseconds=100)})

    @pytest.mark.feature("ADM-01")
    async def test_a_dry_run_says_whether_a_start_would_be_admitted(
        self, client: Any, make: Any
    ) -> None:
        await client.session_with(make.line(count=0, every_ms=5))
        said = []
        for _ in range(3):
            said.append((await client.ok("POST", f"{WORKFLOW}/dry-run"))["admission"])
            if len(said) < 3:
                path = "/api/workflow/s/w/start"
                await client.ok("POST", path, {}, headers={"Prefer": "respond-async"})

        assert said == ["WOULD_RUN", "WOULD_QUEUE", "WOULD_REJECT"]

    @pytest.mark.feature("ADM-01")
    async def test_a_run_that_waits_for_a_slot_has_its_graph_already(
        self, client: Any, make: Any
    ) -> None:
        await client.session_with(make.line(count=0, every_ms=5))
        await client.start()
        respond = {"Prefer": "respond-async"}
        queued = await client.ok("POST", "/api/workflow/s/w/start", {}, headers=respond)
        path = f"/api/executions/{queued['executionId']}"

        shown = await client.ok("GET", f"{path}/graph")
        await client.ok("POST", f"{path}/stop?mode=KILL")
        ended = await client.ok("GET", f"{path}/graph")
        await client.ok("DELETE", "/api/sessions/s?force=true")
        gone = await client.ok("GET", f"{path}/graph")

        assert (shown["status"], {node["status"] for node in shown["nodes"]}) == (
            "QUEUED",
            {"PENDING"},
        )
        assert shown["layers"] == [["numbers"], ["double"], ["out"]]
        assert (ended["layers"], "status" in ended["nodes"][0]) == (shown["layers"], False)
        assert gone["nodes"] == []


async def test_a_dry_run_of_what_is_no_longer_valid_says_why(
    client: Any, make: Any, three: Any, engine: Any
) -> None:
    # As a store may hold it that was filled where there was a further plugin.
    gone = make.line()
    gone["nodes"][1]["type"] = "GONE"
    record = await engine.definitions.get("s", "w")
    stored = replace(record, definition=parse_definition(gone))
    await engine.definitions._definitions.write("s", [stored])

    answer = await client("POST", f"{WORKFLOW}/dry-run")

    assert (answer.status, answer.code) == (422, "validation")
    assert answer.body["errors"][0]["nodeId"] == "double"
