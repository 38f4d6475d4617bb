"""Start payloads and recorded outputs over HTTP, from memory and from files, over a restart too."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Settings
from yukta_rx.http.server import HttpServer
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor
from yukta_rx.security.masking import MASK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.feature("OBS-01", "DUR-02")

SECRET = 'hunter2-"quoted"-hunter2'
PAYLOAD = {
    "text": "grüße 名前",
    "big": 2**70,
    "float": 1.0,
    "nothing": None,
    "list": [1, {"a": []}],
}


@processor("TELL", blocking=False)
async def tell(msg: Message, config: PluginConfig, ctx: NodeContext) -> Any:
    """Put a secret into what it passes on."""
    return Message.of({"told": ctx.secrets.get("mail")}, {"h": "x"})  # type: ignore[union-attr]


@processor("HANG", blocking=False)
async def hang(msg: Message, config: PluginConfig, ctx: NodeContext) -> Any:
    """Pass on two messages, and never come to an end with the third."""
    if msg.payload["n"] > 1:
        await asyncio.get_running_loop().create_future()
    return msg


PLUGINS = [tell, hang]

STUCK = {
    "workflowId": "stuck",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 3}},
        {"nodeId": "hang", "type": "HANG"},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "hang"}, {"source": "hang", "target": "out"}],
}


def settings_of(profile: str, folder: Path, **more: Any) -> Settings:
    given = {"profile": profile, "data.dir": str(folder), "execution.shutdown-timeout": "100ms"}
    given |= {name.replace("__", ".").replace("_", "-"): value for name, value in more.items()}
    return load_settings(
        environ={}, overrides={f"yukta.{name}": value for name, value in given.items()}
    )


@asynccontextmanager
async def serving(settings: Settings, connect: Any, **options: Any) -> AsyncIterator[Any]:
    engine = Engine(settings, plugins=PLUGINS)
    async with engine, HttpServer(engine, port=0) as server:
        client = await connect(server, **options)
        client.engine = engine
        yield client


def outputs_of(run: str, node: str, query: str = "") -> str:
    return f"/api/executions/{run}/nodes/{node}/outputs{query}"


async def recorded(client: Any, run: str, node: str, count: int) -> Any:
    """What is recorded of a node, once it is so much."""
    while True:
        shown = await client.ok("GET", outputs_of(run, node))
        if len(shown["items"]) >= count:
            return shown
        await asyncio.sleep(0)


# --- start payloads ------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["memory", "file"])
async def test_a_run_shows_what_it_was_started_with(
    profile: str, connect: Any, make: Any, tmp_path: Path
) -> None:
    settings = settings_of(profile, tmp_path, payload__claim_check_bytes="1KiB")
    large = {"text": "x" * 3000}
    async with serving(settings, connect) as client:
        await client.session_with(make.line("w"))
        runs = [await client.start("w", payload) for payload in (PAYLOAD, large, {})]
        at_once = [await client.ok("GET", f"/api/executions/{run}/payload") for run in runs]
        for run in runs:
            await client.ended(run)
    assert at_once == [PAYLOAD, large, {}]
    if profile == "file":
        async with serving(settings, connect) as client:
            again = [await client.ok("GET", f"/api/executions/{run}/payload") for run in runs]
        assert again == at_once


async def test_a_start_payload_that_is_gone_is_named(
    connect: Any, make: Any, tmp_path: Path
) -> None:
    settings = settings_of("file", tmp_path, payload__claim_check_bytes="1KiB")
    async with serving(settings, connect) as client:
        await client.session_with(make.line("w"))
        run = await client.start("w", {"text": "x" * 3000})
        await client.ended(run)
        objects = tmp_path / "execution-log" / "blobs" / "objects"

        def lose() -> str:
            [blob] = [path for path in objects.rglob("*") if path.is_file()]
            blob.unlink()
            return blob.name

        lost = await asyncio.to_thread(lose)
        answer = await client("GET", f"/api/executions/{run}/payload")
        history = await client.ok("GET", f"/api/executions/{run}/history")

    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert f"run {run}: blob {lost} of" in answer.body["detail"]
    assert history["items"][0]["type"] == "RUN_STARTED"


class TestKeys:
    """Who may see them."""

    KEYS = ("the-key-of-all-sessions", "the-key-of-one", "the-key-of-two", "the-key-of-viewers")

    @pytest.fixture
    def settings(self) -> Settings:
        names = ("all", "one", "two", "viewer")
        roles = ("ADMIN", "OPERATOR", "OPERATOR", "VIEWER")
        sessions: list[Any] = [{}, {"sessions": ["one"]}, {"sessions": ["two"]}, {}]
        keys = [
            {"name": name, "key": key, "role": role, **limited}
            for name, key, role, limited in zip(names, self.KEYS, roles, sessions, strict=True)
        ]
        return Settings(api_keys=keys, tracker={"max_executions": 1})

    @pytest.mark.feature("SEC-01")
    async def test_operators_of_the_session_see_them_also_of_a_run_that_only_the_log_has(
        self, server: Any, connect: Any, make: Any
    ) -> None:
        whole, one, two, viewer = [
            await connect(server, headers={"X-API-Key": key}) for key in self.KEYS
        ]
        await whole.session_with(make.line("w"), session="one")
        run = await whole.start("w", {"a": 1}, session="one")
        await whole.ended(run)
        paths = f"/api/executions/{run}/payload", outputs_of(run, "numbers")

        shown = [await one.ok("GET", path) for path in paths]
        foreign = [await two("GET", path) for path in paths]
        refused = [await viewer("GET", path) for path in paths]
        await whole.ended(await whole.start("w", session="one"))
        forgotten = await one.ok("GET", paths[0])
        still_foreign = await two("GET", paths[0])
        nobody = await whole("GET", "/api/executions/nobody/payload")

        assert (shown[0], len(shown[1]["items"])) == ({"a": 1}, 3)
        assert {answer.code for answer in foreign} == {"execution_not_found"}
        assert {answer.code for answer in refused} == {"forbidden"}
        assert forgotten == {"a": 1}
        assert {still_foreign.code, nobody.code} == {"execution_not_found"}


@pytest.mark.feature("SEC-02")
async def test_secrets_are_masked_in_both(
    connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YUKTA_SECRET_MAIL", SECRET)
    document = {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "API_TRIGGER"},
            {"nodeId": "tell", "type": "TELL"},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "tell"}, {"source": "tell", "target": "out"}],
    }
    async with serving(settings_of("memory", tmp_path), connect) as client:
        await client.session_with(document)
        run = await client.start("w", {"mail": {"password": f"it is {SECRET}"}})
        await client.ended(run)
        payload = await client.ok("GET", f"/api/executions/{run}/payload")
        [first] = (await client.ok("GET", outputs_of(run, "in")))["items"]
        [second] = (await client.ok("GET", outputs_of(run, "tell")))["items"]

    assert payload == first["payload"] == {"mail": {"password": f"it is {MASK}"}}
    assert (second["payload"], second["headers"]) == ({"told": MASK}, {"h": "x"})


# --- outputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["memory", "file"])
async def test_outputs_are_paged_to_their_end(
    profile: str, connect: Any, make: Any, tmp_path: Path
) -> None:
    settings = settings_of(profile, tmp_path)
    async with serving(settings, connect) as client:
        await client.session_with(make.line("w", count=5))
        run = await client.start("w")
        await client.ended(run)
        whole = await client.ok("GET", outputs_of(run, "double"))
        first = await client.ok("GET", outputs_of(run, "double", "?limit=2"))
        cursor = first["nextCursor"]
        rest = await client.ok("GET", outputs_of(run, "double", f"?limit=3&afterCursor={cursor}"))
        behind = await client.ok("GET", outputs_of(run, "double", "?afterCursor=5"))
        out = await client.ok("GET", outputs_of(run, "out"))

    assert [item["payload"]["n"] for item in whole["items"]] == [0, 1, 2, 3, 4]
    assert all(item["payload"]["seen"] for item in whole["items"])
    assert len({item["id"] for item in whole["items"]}) == 5
    assert (whole["nextCursor"], whole["complete"]) == (None, True)
    assert first["items"] + rest["items"] == whole["items"]
    assert (len(first["items"]), first["complete"], rest["nextCursor"]) == (2, True, None)
    assert behind == {"items": [], "nextCursor": None, "complete": True}
    assert out == {"items": [], "nextCursor": None, "complete": True}
    if profile == "file":
        async with serving(settings, connect) as client:
            assert await client.ok("GET", outputs_of(run, "double")) == whole
            assert await client.ok("GET", outputs_of(run, "out")) == out


async def test_of_a_run_that_a_server_left_behind_the_next_one_shows_what_is_recorded(
    connect: Any, tmp_path: Path
) -> None:
    settings = settings_of("file", tmp_path)
    async with serving(settings, connect) as client:
        await client.session_with(STUCK)
        run = await client.start("stuck")
        live = await recorded(client, run, "hang", 2)
    async with serving(settings, connect) as client:
        shown = await client.ok("GET", outputs_of(run, "hang"))
        whole = await client.ok("GET", outputs_of(run, "in"))
        detail = await client.ok("GET", f"/api/executions/{run}")

    assert [item["payload"]["n"] for item in live["items"]] == [0, 1]
    assert (live["nextCursor"], live["complete"]) == ("2", False)
    assert (detail["status"], shown) == ("ABORTED", live)
    assert (len(whole["items"]), whole["complete"]) == (3, True)


async def test_a_start_that_waits_has_emitted_nothing_yet(
    connect: Any, make: Any, tmp_path: Path
) -> None:
    settings = settings_of("memory", tmp_path, execution__max_concurrent="1")
    async with serving(settings, connect) as client:
        await client.session_with(STUCK, make.line("w"))
        await client.start("stuck")
        answer = await client(
            "POST", "/api/workflow/s/w/start", {"a": 1}, headers={"Prefer": "respond-async"}
        )
        run = answer.body["executionId"]
        shown = await client.ok("GET", outputs_of(run, "numbers"))
        payload = await client.ok("GET", f"/api/executions/{run}/payload")

    assert answer.status == 202
    assert shown == {"items": [], "nextCursor": "0", "complete": False}
    assert payload == {"a": 1}


async def test_what_is_not_kept_says_why(connect: Any, make: Any, tmp_path: Path) -> None:
    small = {"restart__messages_per_node": "3", "restart__retained_executions": "1"}
    async with serving(settings_of("memory", tmp_path, **small), connect) as client:
        await client.session_with(make.line("w", count=4), STUCK)
        old = await client.start("w")
        await client.ended(old)
        over = await client("GET", outputs_of(old, "numbers"))
        cut = await client.start("stuck")
        await recorded(client, cut, "hang", 2)
        await client.ok("POST", f"/api/executions/{cut}/stop?mode=CANCEL")
        await client.ended(cut)
        evicted = await client("GET", outputs_of(old, "numbers"))
        unfinished = await client("GET", outputs_of(cut, "hang"))

    answers = [over, evicted, unfinished]
    assert {(answer.status, answer.code) for answer in answers} == {(409, "output_not_kept")}
    assert [answer.body["reason"] for answer in answers] == [
        *("output_over_cap", "evicted", "node_unfinished")
    ]
    assert over.body["nodeId"] == "numbers"
    assert "yukta.restart" in over.body["detail"]


@pytest.mark.parametrize("profile", ["memory", "file"])
async def test_of_a_run_that_ended_a_node_of_which_nothing_is_recorded_is_not_waited_for(
    profile: str, connect: Any, tmp_path: Path
) -> None:
    first = {**STUCK["nodes"][0], "config": {"count": 3, "start": 2}}
    stuck = {**STUCK, "nodes": [first, *STUCK["nodes"][1:]]}
    settings = settings_of(profile, tmp_path)
    async with serving(settings, connect) as client:
        await client.session_with(stuck)
        runs = [await client.start("stuck") for _ in range(2)]
        for run in runs:
            await recorded(client, run, "in", 1)
        live = await client.ok("GET", outputs_of(runs[0], "hang"))
        await client.ok("POST", f"/api/executions/{runs[0]}/stop?mode=CANCEL")
        while runs[0] not in await client.engine.stores.archive.ids():
            await asyncio.sleep(0)
        stopped = await client("GET", outputs_of(runs[0], "hang"))
    assert live == {"items": [], "nextCursor": "0", "complete": False}
    answers = [stopped]
    if profile == "file":
        async with serving(settings, connect) as client:
            answers += [await client("GET", outputs_of(run, "hang")) for run in runs]

    for answer in answers:
        assert (answer.status, answer.code) == (409, "output_not_kept")
        assert (answer.body["reason"], answer.body["nodeId"]) == ("node_unfinished", "hang")


async def test_what_is_not_there_and_what_is_no_place_are_refused(client: Any, make: Any) -> None:
    await client.session_with(make.line("w"))
    run = await client.start("w")
    await client.ended(run)

    answers = [
        await client("GET", outputs_of("nobody", "numbers")),
        await client("GET", outputs_of(run, "nobody")),
        await client("GET", outputs_of(run, "numbers", "?afterCursor=x")),
    ]

    assert [(answer.status, answer.code) for answer in answers] == [
        (404, "execution_not_found"),
        (404, "node_not_found"),
        (400, "invalid_cursor"),
    ]
