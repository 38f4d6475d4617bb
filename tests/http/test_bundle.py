"""Sessions taken out and brought in as one file: whole, safe, all or none."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from yukta_rx.config.settings import Settings

pytestmark = pytest.mark.feature("DEF-01", "DUR-05")


def packed(*members: tuple[Any, Any], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of these names and documents, in this order."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, document in members:
            text = document if isinstance(document, (str, bytes)) else json.dumps(document)
            archive.writestr(name, text)
    return data.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


async def bring(client: Any, data: bytes, query: str = "") -> Any:
    return await client("POST", f"/api/import{query}", data=data)


async def test_an_export_is_a_zip_of_folders(client: Any, make: Any) -> None:
    await client.ok("PUT", "/api/sessions/a", {"name": "Ünïcode", "workflows": [make.line()]})
    await client.ok("PUT", "/api/sessions/b", {"workflows": [make.echo(), make.line()]})

    whole = await client("GET", "/api/export")
    one = await client("GET", "/api/export?session=b")
    both = await client("GET", "/api/export?session=b&session=a,b")
    none = await client("GET", "/api/export?session=none")
    empty = await client("GET", "/api/export?session=")

    assert whole.headers["Content-Type"] == "application/zip"
    assert "yukta-export.zip" in whole.headers["Content-Disposition"]
    assert unpacked(whole.body) == {
        "a/_session.json": {"sessionId": "a", "name": "Ünïcode"},
        "a/w.json": make.line(),
        "b/_session.json": {"sessionId": "b"},
        "b/echo.json": make.echo(),
        "b/w.json": make.line(),
    }
    assert sorted(unpacked(one.body)) == ["b/_session.json", "b/echo.json", "b/w.json"]
    assert len(unpacked(both.body)) == 5
    assert (none.status, none.code) == (404, "session_not_found")
    assert (empty.status, empty.code) == (400, "invalid_parameter")
    assert (await client("GET", "/api/export")).body == whole.body


async def test_what_was_exported_can_be_imported_to_the_digit(client: Any, make: Any) -> None:
    exact = make.line()
    exact["nodes"][1]["config"]["set"] = {"big": 2**70, "float": 1.0, "text": "\u2028 é \u0000"}
    await client.ok(
        "PUT",
        "/api/sessions/a",
        {"tags": {"k": "v"}, "executionTimeoutMs": 7, "workflows": [exact, make.echo()]},
    )
    before = await client.ok("GET", "/api/sessions/a")
    data = (await client("GET", "/api/export")).body
    await client.ok("DELETE", "/api/sessions/a")

    result = await bring(client, data)

    assert result.status == 200
    assert [sorted(item["created"]) for item in result.body["sessions"]] == [["echo", "w"]]
    after = await client.ok("GET", "/api/sessions/a")
    assert after["etag"] == before["etag"]
    again = await bring(client, data)
    assert [item["unchanged"] for item in again.body["sessions"]] == [["echo", "w"]]


async def test_a_dry_run_is_a_plan_and_prune_takes_out_the_rest(client: Any, make: Any) -> None:
    await client.session_with(make.line(), make.echo(), session="a")
    data = packed(("a/w.json", make.line(count=9)), ("b/deep/er/x.json", make.echo("x")))

    plan = (await bring(client, data, "?dryRun=true&prune=true")).body["sessions"]
    assert await client.ok("GET", "/api/sessions/a/workflows/w") == make.line()
    kept = (await bring(client, data)).body["sessions"]
    pruned = (await bring(client, data, "?prune=true")).body["sessions"]

    assert plan == [
        {"sessionId": "a", "created": [], "changed": ["w"], "unchanged": [], "removed": ["echo"]},
        {"sessionId": "b", "created": ["x"], "changed": [], "unchanged": [], "removed": []},
    ]
    assert (kept[0]["changed"], kept[0]["removed"]) == (["w"], [])
    assert (pruned[0]["unchanged"], pruned[0]["removed"]) == (["w"], ["echo"])
    # The sessions that a bundle does not have are none of its business.
    await client.session_with(make.line(), session="c")
    await bring(client, data, "?prune=true")
    assert (await client("GET", "/api/sessions/c/workflows/w")).status == 200


async def test_an_import_is_all_or_nothing_and_names_the_files_at_fault(
    client: Any, make: Any
) -> None:
    wrong = make.line("wrong")
    wrong["nodes"][1]["type"] = "TRANSFROM"
    data = packed(
        ("a/w.json", make.line()),
        ("b/wrong.json", wrong),
        ("c/_session.json", {"sessionId": "c", "executionTimeoutMs": 0}),
        ("d/w.json", make.line()),
        ("d/again.json", make.line()),
    )

    refused = await bring(client, data)

    assert (refused.status, refused.code) == (422, "validation")
    pointers = {fault["pointer"] for fault in refused.body["errors"]}
    assert {"/b~1wrong.json/nodes/1/type", "/c/executionTimeoutMs"} <= pointers
    assert "/d~1w.json/workflowId" in pointers
    assert (await client.ok("GET", "/api/sessions"))["items"] == []


async def test_json_is_a_bundle_too_and_its_etag_a_condition(client: Any, make: Any) -> None:
    first = await client.ok("POST", "/api/import", {"sessions": [{"sessionId": "a", "name": "x"}]})
    shown = (await client.ok("GET", "/api/sessions?include=workflows"))["items"]
    shown[0]["workflows"] = [make.line()]

    # What is read of a session can be sent back as it is.
    taken = await client("POST", "/api/import", {"sessions": shown})
    stale = await client("POST", "/api/import", {"sessions": shown})

    assert first["sessions"][0]["sessionId"] == "a"
    assert (taken.status, taken.body["sessions"][0]["created"]) == (200, ["w"])
    assert (stale.status, stale.code) == (412, "stale_definition")
    assert (await client.ok("GET", "/api/sessions/a"))["name"] == "x"


async def test_a_session_without_settings_in_the_bundle_keeps_its_own(
    client: Any, make: Any
) -> None:
    await client.ok("PUT", "/api/sessions/a", {"executionTimeoutMs": 5, "workflows": []})

    await client.ok("POST", "/api/import", {"sessions": [
        {"sessionId": "a", "workflows": [make.line()]},
    ]})  # fmt: skip
    kept = await client.ok("GET", "/api/sessions/a")
    await client.ok("POST", "/api/import", {"sessions": [{"sessionId": "a", "name": "n"}]})
    given = await client.ok("GET", "/api/sessions/a")

    assert (kept["executionTimeoutMs"], kept["workflowIds"]) == (5, ["w"])
    assert (given["executionTimeoutMs"], given["name"]) == (3_600_000, "n")


async def test_pruning_what_runs_is_refused_whole(client: Any, make: Any) -> None:
    await client.session_with(make.line(count=0, every_ms=1), session="a")
    run = await client.start(session="a")

    refused = await client("POST", "/api/import?prune=true", {"sessions": [
        {"sessionId": "new", "workflows": [make.line()]},
        {"sessionId": "a", "workflows": []},
    ]})  # fmt: skip

    assert (refused.status, refused.code) == (409, "in_use")
    assert (await client("GET", "/api/sessions/new")).status == 404
    await client.ok("POST", f"/api/executions/{run}/stop?mode=KILL")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_json"),
        (b"{", 400, "malformed_json"),
        (b"[]", 422, "validation"),
        (b'{"sessions": {}}', 422, "validation"),
        (b'{"sessions": [1]}', 422, "validation"),
        (b'{"sessions": [], "more": 1}', 422, "validation"),
        (b'{"sessions": [{"workflows": []}]}', 422, "validation"),
        (b'{"sessions": [{"sessionId": "a", "etag": 1}]}', 422, "validation"),
        (b'{"sessions": [{"sessionId": "a", "workflows": {}}]}', 422, "validation"),
        (b'{"sessions": [{"sessionId": "a"}, {"sessionId": "a"}]}', 422, "validation"),
        (b"PK", 422, "validation"),
        (b"PK\x05\x06" + bytes(18), 422, "validation"),
        (packed(("a/x.txt", "x")), 422, "validation"),
        (packed(("a/x.json", "{")), 422, "validation"),
        (packed(("a/_session.json", {"sessionId": "b"})), 422, "validation"),
        (packed(("a/_session.json", {"workflows": []})), 422, "validation"),
        (packed(("-a/w.json", {"workflowId": "w", "nodes": []})), 422, "validation"),
    ],
)
async def test_what_is_no_bundle_is_refused(
    client: Any, body: bytes, status: int, code: str
) -> None:
    answer = await bring(client, body)

    assert (answer.status, answer.code) == (status, code)


# --- zips that nobody honest writes --------------------------------------------------------------


@pytest.mark.feature("SEC-03")
@pytest.mark.parametrize(
    "name",
    ["../x.json", "a/../../x.json", "/etc/x.json", "a\\x.json", "C:/x.json", "a/..", "..\\x.json"],
)
async def test_case_39_a_path_that_leads_out_is_refused(client: Any, make: Any, name: str) -> None:
    answer = await bring(client, packed(("a/w.json", make.line()), (name, make.line("x"))))

    assert (answer.status, answer.code) == (422, "validation")
    assert "not a path below the bundle" in answer.body["detail"]
    assert (await client.ok("GET", "/api/sessions"))["items"] == []


@pytest.mark.feature("SEC-03")
async def test_case_39_a_name_that_is_cut_at_a_nul_is_refused(client: Any, make: Any) -> None:
    data = packed(("a/wXx.json", make.line())).replace(b"a/wXx.json", b"a/w\0x.json")

    answer = await bring(client, data)

    assert (answer.status, answer.code) == (422, "validation")


@pytest.mark.feature("SEC-03")
async def test_a_zip_bomb_is_refused_before_it_is_unpacked(client: Any) -> None:
    bomb = packed(("a/w.json", b" " * (17 << 20)))
    assert len(bomb) < 100_000

    answer = await bring(client, bomb)

    assert (answer.status, answer.code) == (422, "validation")
    assert "unpacks to 17825792 bytes; 16777216 are allowed" in answer.body["detail"]


@pytest.mark.feature("SEC-03")
async def test_a_zip_that_lies_about_its_sizes_gets_no_more_than_it_claims(client: Any) -> None:
    bomb = packed(("a/w.json", b" " * (17 << 20)))
    size = (17 << 20).to_bytes(4, "little")

    answer = await bring(client, bomb.replace(size, (10).to_bytes(4, "little")))

    assert (answer.status, answer.code) == (422, "validation")


@pytest.mark.feature("SEC-03")
async def test_a_zip_of_too_many_members_is_refused(client: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("yukta_rx.definitions.bundle.MAX_MEMBERS", 2)

    answer = await bring(client, packed(*((f"{n}.txt", "") for n in range(3))))

    assert "more than 2 members" in answer.body["detail"]


@pytest.mark.feature("SEC-03")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", ["twice", "bzip2", "encrypted", "broken"])
async def test_a_zip_that_cannot_be_read_for_sure_is_refused(
    client: Any, make: Any, kind: str
) -> None:
    member = ("a/w.json", make.line())
    if kind == "twice":
        data = packed(member, ("a/w.json", make.line(count=8)))
    elif kind == "bzip2":
        data = packed(member, method=zipfile.ZIP_BZIP2)
    else:
        data = packed(member)
        at = data.index(b"PK\x01\x02")
        if kind == "encrypted":
            data = data[: at + 8] + bytes([data[at + 8] | 1]) + data[at + 9 :]
        else:
            data = data[:60] + b"\xff\xff\xff" + data[63:]

    answer = await bring(client, data)

    assert (answer.status, answer.code) == (422, "validation")
    assert (await client.ok("GET", "/api/sessions"))["items"] == []


class TestStrict:
    """A server that wants a condition on every change."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(http={"require_if_match": True})

    async def test_a_session_that_is_there_changes_only_with_its_etag(
        self, client: Any, make: Any
    ) -> None:
        data = packed(("a/w.json", make.line()))
        new = await bring(client, data)
        blind = await bring(client, packed(("a/w.json", make.echo("w"))))
        planned = await bring(client, packed(("a/w.json", make.echo("w"))), "?dryRun=true")
        shown = (await client.ok("GET", "/api/sessions?include=workflows"))["items"]
        shown[0]["workflows"] = [make.echo("w")]
        based = await client("POST", "/api/import", {"sessions": shown})

        assert [new.status, planned.status, based.status] == [200, 200, 200]
        assert (blind.status, blind.code) == (428, "precondition_required")
        assert based.body["sessions"][0]["changed"] == ["w"]


class TestSmall:
    """A server that takes small bodies only."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(limits={"max_body": 1000})

    async def test_a_bundle_is_a_body_like_any_other(self, client: Any) -> None:
        answer = await bring(client, b"PK" + bytes(1000))

        assert (answer.status, answer.code) == (413, "body_too_large")
