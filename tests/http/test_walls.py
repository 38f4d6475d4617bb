"""A key that is limited to sessions: on no route is anything of another session to be had."""

from __future__ import annotations

import asyncio
import io
import zipfile
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.reviewers import Hold
from yukta_rx.http.route import Media, Reach, Route
from yukta_rx.http.table import ROUTES
from yukta_rx.model.codec import dumps_plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from yukta_rx.http.server import HttpServer

pytestmark = pytest.mark.feature("SEC-01")

MARK = "hidden"
"""Part of everything that the foreign session has, and of nothing that the requests say."""
ALL, LIMITED = "the-key-that-may-see-all", "the-key-of-the-session-mine"
MINE, THEIRS = "mine", "theirs"


class Holds:
    """Every step needs a second actor."""

    id = "holds"

    async def review(self, request: Any) -> Any:
        return Hold("two have to agree") if request.command.name() == "StepWorkflow" else None


@pytest.fixture
def settings() -> Settings:
    keys = [
        {"name": "all", "key": ALL, "role": "ADMIN"},
        {"name": "mine", "key": LIMITED, "role": "ADMIN", "sessions": [MINE, "not-yet-there"]},
    ]
    return Settings(
        api_keys=keys,
        execution={
            "shutdown_timeout": timedelta(milliseconds=100),
            "max_concurrent_per_workflow": 1,
        },
    )


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Engine]:
    async with Engine(settings, reviewers=[Holds()]) as made:
        yield made


def waits(workflow_id: str, prompt: str) -> dict[str, Any]:
    return {
        "workflowId": workflow_id,
        "nodes": [
            {"nodeId": "start", "type": "API_TRIGGER"},
            {
                "nodeId": "ask",
                "type": "WAIT_FOR_SIGNAL",
                "config": {"signal": "answer", "prompt": prompt},
            },
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "start", "target": "ask"}, {"source": "ask", "target": "out"}],
    }


@dataclass
class World:
    """A server with two sessions, and two clients.

    Attributes:
        all: a client that sees both.
        limited: a client of the one.
        runs: by workflow, the runs of the foreign session.
        ids: what a path may name of it.
    """

    all: Any
    limited: Any
    runs: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def hidden(self) -> list[str]:
        """What no answer to the limited client may hold, unless it said so itself."""
        return [MARK, *self.runs.values(), self.ids["commandId"], self.ids["approvalId"]]


@pytest.fixture
async def world(server: HttpServer, connect: Callable[..., Any], make: Any) -> World:
    made = World(
        await connect(server, headers={"X-API-Key": ALL}),
        await connect(server, headers={"X-API-Key": LIMITED}),
    )
    await made.all.session_with(make.echo(), waits("waits", "shall it?"), session=MINE)
    document = {
        "name": MARK,
        "workflows": [
            make.echo("echo"),
            make.chatty("chatty", count=0, every_ms=10),
            waits("waits", f"{MARK}?"),
        ],
    }
    await made.all.ok("PUT", f"/api/sessions/{THEIRS}", document)
    for workflow in ("echo", "chatty", "waits"):
        made.runs[workflow] = await made.all.start(workflow, {"text": MARK}, THEIRS)
    await made.all.ended(made.runs["echo"])
    queued = await made.all(
        "POST",
        f"/api/workflow/{THEIRS}/chatty/start",
        {},
        headers={"Prefer": "respond-async"},
    )
    made.runs["queued"] = queued.body["executionId"]
    ids = {"sessionId": THEIRS, "workflowId": "waits", "executionId": made.runs["waits"]}
    made.ids = ids | {"nodeId": "ask", "version": "1"}
    place = f"/api/executions/{made.runs['waits']}"
    await made.all.ok("POST", f"{place}/nodes/ask/breakpoint", {"when": f"'{MARK}' in payload"})
    held = await made.all("POST", f"{place}/step?reason={MARK}")
    made.ids["commandId"] = held.body["commandId"]
    async with asyncio.timeout(10):
        while not (found := await made.all.ok("GET", "/api/approvals"))["items"]:
            pass
    made.ids["approvalId"] = found["items"][0]["approvalId"]
    return made


def address(route: Route, path: str, ids: dict[str, str]) -> str:
    for name in route.placeholders_of(path):
        path = path.replace("{" + name + "}", ids.get(name, "nothing"))
    return path + "?timeout=0" if path.endswith("/wait") else path


def body_of(route: Route, ids: dict[str, str]) -> Any:
    """A body that would do something, or one that fits no route."""
    pause = {"type": "PauseWorkflow", "executionId": ids["executionId"]}
    bodies: dict[str, Any] = {
        "/api/workflow/start": {"sessionId": ids["sessionId"], "workflowId": "echo"},
        "/api/commands": {"commands": [pause]},
        "/api/control/held/{commandId}": {"decision": "approve"},
        "/api/approvals/{approvalId}": {"decision": "approve"},
        "/api/import": {"sessions": [{"sessionId": ids["sessionId"], "name": "changed"}]},
    }
    return bodies.get(route.path, {})


async def ask(client: Any, route: Route, path: str, body: Any) -> tuple[int, str]:
    """Status and text of an answer; of a stream that never ends what comes first."""
    headers = {"X-Request-Id": "the-same"}
    if route.media is Media.EITHER:
        headers["Accept"] = "application/json"
    data = None if route.method in ("GET", "DELETE") else dumps_plain(body)
    async with client.session.request(route.method, path, data=data, headers=headers) as answer:
        if answer.status == 200 and route.media is Media.EVENTS:
            return 200, (await answer.content.readuntil(b"\n\n")).decode()
        raw = await answer.read()
        if answer.content_type == "application/zip":
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                raw = b"".join(name.encode() + archive.read(name) for name in archive.namelist())
        return answer.status, raw.decode()


def without(text: str, said: list[str]) -> str:
    """An answer without what its request said."""
    for word in sorted(said, key=len, reverse=True):
        text = text.replace(word, "…")
    return text


async def test_no_route_answers_anything_of_a_foreign_session(world: World) -> None:
    """Nor can anybody tell from an answer whether something is there that is not theirs."""
    absent = dict.fromkeys(world.ids, "absent") | {"version": "1", "nodeId": "ask"}
    walked = 0
    for route in ROUTES:
        if route.role is None:
            continue
        for path in route.paths:
            where = f"{route.method} {path}"
            foreign = await ask(
                world.limited, route, address(route, path, world.ids), body_of(route, world.ids)
            )
            missing = await ask(
                world.limited, route, address(route, path, absent), body_of(route, absent)
            )
            said = [word for word in (*world.ids.values(), *absent.values()) if word != "1"]
            told = without(foreign[1], said)
            assert foreign[0] == missing[0], where
            if route.path not in ("/api/events", "/api/events/stream"):
                # The feed's own numbers count the events of all.
                assert told == without(missing[1], said), where
            assert not any(word in told for word in world.hidden()), where
            if route.bound:
                assert foreign[0] == 404, where
            elif route.reach is Reach.CLOSED:
                assert foreign[0] == 403, where
            walked += 1

    assert walked > 80
    await nothing_happened(world)


async def nothing_happened(world: World) -> None:
    session = await world.all.ok("GET", f"/api/sessions/{THEIRS}?include=workflows")
    assert session["name"] == MARK
    assert [item["workflowId"] for item in session["workflows"]] == ["chatty", "echo", "waits"]
    for workflow in ("chatty", "waits"):
        run = await world.all.ok("GET", f"/api/executions/{world.runs[workflow]}")
        assert (run["status"], run["paused"]) == ("RUNNING", False)
    waiting = (await world.all.ok("GET", "/api/control/held"))["items"]
    assert [item["commandId"] for item in waiting] == [world.ids["commandId"]]
    assert len((await world.all.ok("GET", "/api/approvals"))["items"]) == 1
    rows = (await world.all.ok("GET", f"/api/control/audit?sessionId={THEIRS}"))["items"]
    assert {row["actor"] for row in rows} == {"key:all"}


async def test_the_same_walk_with_a_key_for_all_finds_much(world: World) -> None:
    """So the walk above looks where something is."""
    found = 0
    for route in ROUTES:
        if route.role is None or route.method != "GET":
            continue
        path = address(route, route.path, world.ids)
        status, text = await ask(world.all, route, path, None)
        found += status == 200 and any(word in text for word in world.hidden())

    assert found > 15


async def test_the_own_session_is_there_as_ever(world: World) -> None:
    run = await world.limited.start("waits", {"text": "own"}, MINE)
    own = {"sessionId": MINE, "workflowId": "waits", "executionId": run, "nodeId": "ask"}
    answered = 0
    for route in ROUTES:
        if route.method == "GET" and route.bound and "version" not in route.path:
            status, text = await ask(world.limited, route, address(route, route.path, own), None)
            answered += status in (200, 204)
            assert status != 403
            assert MARK not in text
    runs = await world.limited.ok("GET", "/api/executions")
    sessions = await world.limited.ok("GET", "/api/sessions")
    paused = await world.limited.ok("POST", f"/api/executions/{run}/pause")

    assert answered > 15
    assert [item["executionId"] for item in runs["items"]] == [run]
    assert [item["sessionId"] for item in sessions["items"]] == [MINE]
    assert paused["actor"] == "key:mine"


@pytest.mark.parametrize(
    "query", ["", f"sessionId={THEIRS}", f"sessionId={THEIRS}&sessionId={MINE}", "q=0"]
)
async def test_lists_and_counts_leave_out_what_is_foreign(query: str, world: World) -> None:
    runs = await world.limited.ok("GET", f"/api/executions?{query}")
    count = await world.limited.ok("GET", f"/api/executions?count=true&{query}")

    assert runs["items"] == []
    assert count == {"count": 0, "countCapped": False}


async def test_a_batch_answers_for_what_is_foreign_as_for_what_is_not_there(world: World) -> None:
    run = await world.limited.start("waits", {}, MINE)
    ids = [world.runs["chatty"], run, "absent", world.runs["waits"]]
    commands = [{"type": "PauseWorkflow", "executionId": name} for name in ids]
    limits = {"type": "SetLimits", "executionId": "scheduler", "maxConcurrent": 1}

    body = {"commands": [*commands, {**limits, "perWorkflow": 1}]}
    answer = await world.limited.ok("POST", "/api/commands", body)
    whole = await world.limited("POST", "/api/commands?atomic=true", body)

    outcomes = [item.get("outcome") or item["code"] for item in answer["results"]]
    unknown = "execution_not_found"
    assert outcomes == [unknown, "APPLIED", unknown, unknown, unknown]
    assert whole.status == 422
    assert [fault["pointer"] for fault in whole.body["errors"]] == [
        "/commands/0",
        "/commands/2",
        "/commands/3",
        "/commands/4",
    ]


@pytest.mark.parametrize("filter", ["", f"?sessionId={THEIRS}", "?type=node.*", "run"])
async def test_the_feed_holds_no_event_of_a_foreign_session(filter: str, world: World) -> None:
    if filter == "run":
        filter = f"?executionId={world.runs['chatty']}"
    own = filter in ("", "?type=node.*")
    async with world.limited.stream(f"/api/events/stream{filter}") as stream:
        hello = await stream.type("stream.hello")
        run = await world.limited.start("echo", {}, MINE)
        await world.limited.ended(run)
        if own:
            await stream.until(lambda event: event.type == "node.status")
    kept = await world.limited.ok("GET", f"/api/events{filter}")

    shown = [event.json for event in stream.events[1:]] + kept["items"]
    assert {event["sessionId"] for event in shown} == ({MINE} if own else set())
    assert THEIRS not in str(hello.json["filters"])
    assert not any(word in str(shown) for word in world.hidden())


async def test_a_program_that_steers_sees_and_commands_its_own_sessions_only(
    world: World,
) -> None:
    run = await world.limited.start("waits", {}, MINE)
    lease = {"id": "steers", "description": "steers", "leaseSeconds": 60}
    await world.limited.ok("POST", "/api/supervisors", lease)
    commands = [
        {"type": "PauseWorkflow", "executionId": world.runs["chatty"]},
        {"type": "PauseWorkflow", "executionId": run},
    ]
    async with world.limited.stream("/api/supervisors/steers/events") as stream:
        await stream.next()
        given = await world.limited.ok(
            "POST", "/api/supervisors/steers/commands", {"commands": commands}
        )
        await stream.until(lambda event: run in event.data)

    outcomes = [item.get("outcome") or item["code"] for item in given["results"]]
    assert outcomes == ["execution_not_found", "APPLIED"]
    told = "".join(event.data for event in stream.events)
    assert not any(word in told for word in world.hidden())


async def test_a_session_is_put_where_the_key_allows_and_nowhere_else(world: World) -> None:
    allowed = await world.limited("PUT", "/api/sessions/not-yet-there", {"name": "new"})
    other = await world.limited("PUT", "/api/sessions/elsewhere", {"name": "new"})
    brought = await world.limited(
        "POST", "/api/import", {"sessions": [{"sessionId": "elsewhere", "workflows": []}]}
    )

    assert allowed.status == 201
    assert (other.status, other.code) == (404, "session_not_found")
    assert (brought.status, brought.code) == (404, "session_not_found")
    assert (await world.all("GET", "/api/sessions/elsewhere")).status == 404


async def test_the_cookie_of_a_limited_key_is_limited_as_well(
    world: World, server: HttpServer, connect: Any
) -> None:
    browser = await connect(server, cookie_jar=aiohttp.CookieJar(unsafe=True))
    await browser("POST", "/api/auth/session", {"key": LIMITED})

    shown = await browser.ok("GET", "/api/whoami")
    foreign = await browser("GET", f"/api/executions/{world.runs['waits']}")

    assert shown["sessions"] == [MINE, "not-yet-there"]
    assert (foreign.status, foreign.code) == (404, "execution_not_found")
