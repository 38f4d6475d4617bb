"""Sessions and workflows over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.config.settings import Settings


@pytest.mark.feature("DUR-05")
async def test_a_session_is_made_changed_and_removed(client: Any, make: Any) -> None:
    made = await client("PUT", "/api/sessions/s", {"name": "One", "workflows": [make.line()]})
    changed = await client(
        "PUT", "/api/sessions/s", {"workflows": [make.line(count=4), make.echo()]}
    )
    same = await client("PUT", "/api/sessions/s", {"workflows": [make.line(count=4), make.echo()]})
    emptied = await client("PUT", "/api/sessions/s", {})
    removed = await client("DELETE", "/api/sessions/s")
    gone = await client("GET", "/api/sessions/s")

    assert (made.status, made.headers["Location"]) == (201, "/api/sessions/s")
    assert made.body["created"] == ["w"]
    assert (changed.status, changed.body["changed"], changed.body["created"]) == (
        200,
        ["w"],
        ["echo"],
    )
    assert sorted(same.body["unchanged"]) == ["echo", "w"]
    assert sorted(emptied.body["removed"]) == ["echo", "w"]
    assert removed.status == 204
    assert (gone.status, gone.code) == (404, "session_not_found")


@pytest.mark.feature("DUR-05")
async def test_a_plan_changes_nothing(client: Any, make: Any) -> None:
    plan = await client("PUT", "/api/sessions/s?dryRun=true", {"workflows": [make.line()]})

    assert (plan.status, plan.body["created"]) == (200, ["w"])
    assert (await client("GET", "/api/sessions/s")).status == 404


@pytest.mark.feature("DEF-02")
async def test_a_session_with_one_wrong_workflow_is_refused_whole(client: Any, make: Any) -> None:
    wrong = make.line("wrong")
    wrong["nodes"][1]["type"] = "TRANSFROM"

    answer = await client("PUT", "/api/sessions/s", {"workflows": [make.line(), wrong]})

    assert (answer.status, answer.code) == (422, "validation")
    [fault] = answer.body["errors"]
    assert fault["pointer"].startswith("/workflows/1/nodes/1")
    assert fault["nodeId"] == "double"
    assert (await client("GET", "/api/sessions/s")).status == 404


@pytest.mark.parametrize("body", [[], "x", 1, None, {"sessionId": "other"}, {"nome": "x"}])
async def test_a_session_document_that_is_wrong_is_refused(client: Any, body: Any) -> None:
    answer = await client("PUT", "/api/sessions/s", data=__import__("json").dumps(body))

    assert (answer.status, answer.code) == (422, "validation")


@pytest.mark.feature("DUR-05")
async def test_sessions_are_listed_page_by_page(client: Any, make: Any) -> None:
    for name in ("c", "a", "b"):
        await client.session_with(make.line(), session=name)

    first = await client.ok("GET", "/api/sessions?limit=2")
    rest = await client.ok("GET", f"/api/sessions?limit=2&afterCursor={first['nextCursor']}")
    full = await client.ok("GET", "/api/sessions?include=workflows")

    assert [item["sessionId"] for item in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["nextCursor"] is None
    assert full["items"][0]["workflows"] == [make.line()]


@pytest.mark.feature("DUR-05")
async def test_settings_of_a_session_are_patched(client: Any) -> None:
    await client.ok("PUT", "/api/sessions/s", {"name": "One", "tags": {"a": "b"}})

    patched = await client.ok(
        "PATCH", "/api/sessions/s", {"name": None, "executionTimeoutMs": 5000}
    )
    refused = await client("PATCH", "/api/sessions/s", {"executionTimeoutMs": 0})

    assert "name" not in patched
    assert (patched["executionTimeoutMs"], patched["tags"]) == (5000, {"a": "b"})
    assert (refused.status, refused.code) == (422, "validation")


@pytest.mark.feature("DEF-01")
async def test_what_was_read_is_not_sent_again_and_not_changed_blindly(
    client: Any, make: Any
) -> None:
    await client.session_with(make.line())
    for path, change in [
        ("/api/sessions/s", {"name": "x"}),
        ("/api/sessions/s/workflows/w", make.line(count=9)),
    ]:
        read = await client("GET", path)
        tag = read.headers["ETag"]
        same = await client("GET", path, headers={"If-None-Match": f'"other", {tag}'})
        body = {**change, "workflows": [make.line()]} if "name" in change else change
        taken = await client("PUT", path, body, headers={"If-Match": tag})
        stale = await client("PUT", path, body, headers={"If-Match": tag})
        listed = await client(
            "PUT", path, body, headers={"If-Match": f'"x", {taken.headers["ETag"]}'}
        )
        again = await client("PUT", path, body, headers={"If-None-Match": "*"})

        assert same.status == 304
        assert taken.status == 200
        assert taken.headers["ETag"] != tag
        assert (stale.status, stale.code) == (412, "stale_definition")
        assert {"expected", "current"} <= stale.body.keys()
        assert listed.status == 200
        assert (again.status, again.code) == (412, "stale_definition")


async def test_a_condition_that_makes_no_sense_is_refused(client: Any, make: Any) -> None:
    await client.session_with(make.line())

    for headers in ({"If-Match": '"a'}, {"If-None-Match": '"a"'}):
        answer = await client("PUT", "/api/sessions/s", {}, headers=headers)
        assert (answer.status, answer.code) == (400, "invalid_parameter")
    nothing = await client("PUT", "/api/sessions/new", {}, headers={"If-Match": "*"})
    assert (nothing.status, nothing.code) == (412, "stale_definition")


# --- workflows -----------------------------------------------------------------------------------


@pytest.mark.feature("DEF-01")
async def test_a_workflow_is_saved_read_changed_and_removed(client: Any, make: Any) -> None:
    await client.session_with()
    path = "/api/sessions/s/workflows/w"

    made = await client("PUT", path, make.line())
    same = await client("PUT", path, make.line())
    changed = await client("PUT", path, make.line(count=7))
    read = await client("GET", path)
    listed = await client.ok("GET", "/api/sessions/s/workflows")
    removed = await client("DELETE", path, headers={"If-Match": read.headers["ETag"]})
    gone = await client("GET", path)

    assert (made.status, made.body["version"], made.headers["Location"]) == (201, 1, path)
    assert (same.status, same.body["unchanged"]) == (200, True)
    assert (changed.status, changed.body["version"]) == (200, 2)
    assert read.body == make.line(count=7)
    assert read.headers["ETag"] == f'"{changed.body["definitionVersion"]}"'
    assert [item["workflowId"] for item in listed["items"]] == ["w"]
    assert removed.status == 204
    assert (gone.status, gone.code) == (404, "workflow_not_found")


async def test_the_list_of_workflows_shows_the_newest_run(client: Any, make: Any) -> None:
    await client.session_with(make.line(), make.echo())
    await client.ended(await client.start())
    newest = await client.start()
    await client.ended(newest)

    items = (await client.ok("GET", "/api/sessions/s/workflows"))["items"]

    assert "newestRun" not in items[0]
    assert items[1]["newestRun"] == {"executionId": newest, "status": "SUCCESS"}


@pytest.mark.feature("DEF-02")
async def test_a_wrong_workflow_is_refused_with_node_and_option(client: Any, make: Any) -> None:
    await client.session_with()
    wrong = make.line()
    wrong["nodes"][0]["config"]["cuont"] = 1
    wrong["nodes"].append({"nodeId": "a/b", "type": "TRANSFORM"})

    answer = await client("PUT", "/api/sessions/s/workflows/w", wrong)
    report = await client.ok("POST", "/api/workflows/validate", wrong)

    assert (answer.status, answer.code) == (422, "validation")
    by_pointer = {fault["pointer"]: fault for fault in answer.body["errors"]}
    assert by_pointer["/nodes/0/config/cuont"]["nodeId"] == "numbers"
    assert "/nodes/3/nodeId" in by_pointer
    assert report["valid"] is False
    assert report["errors"] == answer.body["errors"]


@pytest.mark.feature("DEF-02")
@pytest.mark.parametrize("bad", ["a/b", "x:y@z", "é", "%2F", "x" * 300, "", "../x", "a\0b"])
async def test_case_37_a_bad_id_is_refused_in_a_document(client: Any, make: Any, bad: str) -> None:
    await client.session_with()
    node = make.line()
    node["nodes"][0]["nodeId"] = bad

    for path, body in [
        ("/api/sessions/s/workflows/w", {**make.line(), "workflowId": bad}),
        ("/api/sessions/s/workflows/w", node),
        ("/api/sessions/s", {"sessionId": bad}),
        ("/api/sessions/s", {"workflows": [{**make.line(), "workflowId": bad}]}),
    ]:
        answer = await client("PUT", path, body)
        assert (answer.status, answer.code) == (422, "validation")


@pytest.mark.feature("DEF-02")
@pytest.mark.parametrize(
    "bad", ["..%2F..%2Fx", "..%2Fs", "..%5C..%5Cx", ".", "%2E%2E", "a%00b", "%2Fetc%2Fpasswd"]
)
async def test_case_39_no_id_leads_out_of_its_place(client: Any, bad: str) -> None:
    from yarl import URL

    base = str(client.session._base_url).rstrip("/")
    quoted = "%2E" if bad == "." else bad

    for path in (f"/api/sessions/{quoted}", f"/api/sessions/s/workflows/{quoted}"):
        answer = await client("PUT", URL(base + path, encoded=True), {}, checked=False)
        # The client library itself resolves a bare dot before it sends it.
        assert answer.status in (400, 404, 405), (path, answer.body)
    assert (await client.ok("GET", "/api/sessions"))["items"] == []


@pytest.mark.feature("DEF-02")
async def test_case_39_ids_that_look_alike_are_different(client: Any, make: Any) -> None:
    for name in ("CON", "con", "Con", "nul", "a.b", "a-b"):
        await client.ok("PUT", f"/api/sessions/{name}", {"description": name})

    for name in ("CON", "con", "Con", "nul", "a.b", "a-b"):
        assert (await client.ok("GET", f"/api/sessions/{name}"))["description"] == name


@pytest.mark.feature("DEF-02")
async def test_a_document_is_examined_without_saving_it(client: Any, make: Any) -> None:
    other = await client.ok("POST", "/api/sessions/x/workflows/y/validate", make.line())
    good = await client.ok("POST", "/api/sessions/x/workflows/w/validate", make.line())
    rubbish = await client.ok("POST", "/api/workflows/validate", [1, 2])
    no_json = await client("POST", "/api/workflows/validate", data=b"{")
    empty = await client("POST", "/api/workflows/validate")

    assert [fault["pointer"] for fault in other["errors"]] == ["/workflowId"]
    assert good == {"valid": True, "errors": [], "warnings": []}
    assert rubbish["valid"] is False
    assert (no_json.status, no_json.code) == (400, "malformed_json")
    assert (empty.status, empty.code) == (400, "malformed_json")


@pytest.mark.feature("DEF-01")
async def test_what_has_live_runs_is_not_removed_unless_forced(client: Any, make: Any) -> None:
    await client.session_with(make.line("endless", count=0, every_ms=5))
    execution_id = await client.start("endless")

    for method, path in [
        ("DELETE", "/api/sessions/s"),
        ("DELETE", "/api/sessions/s/workflows/endless"),
        ("PUT", "/api/sessions/s"),
    ]:
        answer = await client(method, path, {} if method == "PUT" else None)
        assert (answer.status, answer.code) == (409, "in_use"), (method, path)
    forced = await client("DELETE", "/api/sessions/s?force=true")

    assert forced.status == 204
    assert (await client.ended(execution_id))["status"] == "CANCELLED"


class TestAConditionIsWanted:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(http={"require_if_match": True})

    @pytest.mark.feature("DEF-01")
    async def test_a_change_without_a_condition_is_refused(self, client: Any, make: Any) -> None:
        made = await client(
            "PUT",
            "/api/sessions/s",
            {"workflows": [make.line()]},
            headers={"If-None-Match": "*"},
        )
        blind = await client("PUT", "/api/sessions/s", {})
        removed = await client("DELETE", "/api/sessions/s/workflows/w")
        based = await client(
            "PUT", "/api/sessions/s", {}, headers={"If-Match": made.headers["ETag"]}
        )

        assert made.status == 201
        assert (blind.status, blind.code) == (428, "precondition_required")
        assert (removed.status, removed.code) == (428, "precondition_required")
        assert based.status == 200


@pytest.mark.feature("DUR-05")
async def test_a_session_counts_its_workflows_and_live_runs(client: Any, make: Any) -> None:
    await client.session_with(make.line(count=0, every_ms=1), make.echo(), session="busy")
    await client.session_with(session="idle")
    runs = [await client.start(session="busy") for _ in range(2)]
    ended = await client.start("echo", session="busy")
    await client.ended(ended)

    listed = (await client.ok("GET", "/api/sessions"))["items"]
    shown = await client.ok("GET", "/api/sessions/busy")

    assert [item["counters"] for item in listed] == [
        {"workflows": 2, "live": 2, "queued": 0},
        {"workflows": 0, "live": 0, "queued": 0},
    ]
    assert shown["counters"] == listed[0]["counters"]
    for run in runs:
        await client.ok("POST", f"/api/executions/{run}/stop?mode=KILL")


@pytest.mark.feature("DEF-01")
async def test_a_save_that_says_nothing_new_adds_no_version_but_takes_its_note(
    client: Any, make: Any
) -> None:
    await client.session_with(make.line())
    path = "/api/sessions/s/workflows/w"

    again = await client("PUT", f"{path}?note=seen", make.line())

    assert (again.status, again.body["unchanged"], again.body["version"]) == (200, True, 1)
    [row] = (await client.ok("GET", f"{path}/versions"))["items"]
    assert row["note"] == "seen"
