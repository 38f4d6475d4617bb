"""Supervisors over HTTP: the list, the switch, and programs outside with their leases."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Settings
from yukta_rx.control.commands import PauseWorkflow
from yukta_rx.errors import ConflictError, RejectedError, RoleError
from yukta_rx.http.server import HttpServer
from yukta_rx.observe.filters import EventFilter
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-07")


async def idle(events):
    """A supervisor of the server that only watches."""
    async for event in events:
        if event.type == "never":
            yield PauseWorkflow(execution_id=event.execution_id)


class Careful:
    """A reviewer that keeps programs from stopping runs."""

    order = 2

    def review(self, request):
        return None


@pytest.fixture
async def engine():
    settings = Settings(execution={"shutdown_timeout": timedelta(milliseconds=100)})
    async with Engine(settings, supervisors=[idle], reviewers=[Careful()]) as made:
        yield made


@pytest.fixture
async def run(client, make) -> str:
    """An endless run."""
    await client.session_with(make.chatty(count=0, every_ms=5))
    return await client.start("chatty")


def command(kind: str, run: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "executionId": run, **members}


async def registered(client, id: str = "outside", **members: Any) -> dict[str, Any]:
    return await client.ok("POST", "/api/supervisors", {"id": id, **members})


# --- what there is, and the switch ---------------------------------------------------------------


async def test_reviewers_and_supervisors_are_listed(client) -> None:
    shown = await client.ok("GET", "/api/supervisors")

    assert shown["nextCursor"] is None
    assert [(one["id"], one["kind"], one["order"]) for one in shown["items"]] == [
        ("Careful", "CONTROL_PLANE", 2),
        ("idle", "SUPERVISOR", 0),
    ]
    assert await client.ok("GET", "/api/supervisors/Careful") == shown["items"][0]
    assert await client.ok("GET", "/api/supervisors/idle") == {
        "id": "idle",
        "kind": "SUPERVISOR",
        "order": 0,
        "enabled": True,
        "dryRun": False,
        "maxCommandsPerSecond": 20,
        "counts": {},
        "droppedEvents": 0,
        "external": False,
        "state": "RUNNING",
    }


async def test_a_supervisor_is_switched_off_and_bounded(client) -> None:
    path = "/api/supervisors/idle"
    off = await client.ok("PUT", path, {"enabled": False, "maxCommandsPerSecond": 3})
    same = await client.ok("PUT", path, {"dryRun": True})
    on = await client.ok("PUT", path, {"enabled": True, "dryRun": False})

    assert (off["enabled"], off["state"], off["maxCommandsPerSecond"]) == (False, "DISABLED", 3)
    assert (same["enabled"], same["dryRun"]) == (False, True)
    assert (on["enabled"], on["state"], on["dryRun"]) == (True, "RUNNING", False)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/supervisors/none", None, 404, "supervisor_not_found"),
        ("PUT", "/api/supervisors/none", {}, 404, "supervisor_not_found"),
        ("PUT", "/api/supervisors/Careful", {"enabled": False}, 422, "validation"),
        ("PUT", "/api/supervisors/idle", {"maxCommandsPerSecond": 0}, 422, "validation"),
        ("PUT", "/api/supervisors/idle", {"enable": False}, 422, "validation"),
        ("POST", "/api/supervisors", {"id": "idle"}, 409, "in_use"),
        ("POST", "/api/supervisors", {"id": "Careful"}, 409, "in_use"),
        ("POST", "/api/supervisors", {"id": "a b"}, 422, "validation"),
        ("POST", "/api/supervisors", {"id": "x", "leaseSeconds": -1}, 422, "validation"),
        ("GET", "/api/supervisors/none/events", None, 404, "supervisor_not_found"),
        ("GET", "/api/supervisors/idle/events", None, 409, "in_use"),
    ],
)
async def test_what_cannot_be_is_refused(client, method, path, body, status, code) -> None:
    answer = await client(method, path, body)

    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize(
    ("commands", "pointer"),
    [
        ([], "/commands"),
        ([{"type": "Nothing"}], "/commands/0/type"),
        ([command("PauseWorkflow", "x"), command("PauseNode", "x")], "/commands/1/nodeId"),
    ],
)
async def test_faults_of_commands_are_named_by_their_place(client, commands, pointer) -> None:
    await registered(client)

    answer = await client("POST", "/api/supervisors/outside/commands", {"commands": commands})

    assert (answer.status, answer.code) == (422, "validation")
    assert pointer in [fault["pointer"] for fault in answer.body["errors"]]


# --- programs outside ----------------------------------------------------------------------------


async def test_a_program_registers_watches_and_steers(client, run) -> None:
    lease = await registered(client, description="pauses", leaseSeconds=5)
    path = "/api/supervisors/outside"
    async with client.stream(f"{path}/events?type=node.log,control.*") as stream:
        hello = await stream.type("stream.hello")
        await stream.type("node.log")
        body = {"commands": [command("PauseWorkflow", run, reason="enough", commandId="c-1")]}
        done = await client.ok("POST", f"{path}/commands", body)
        outcome = await stream.type("supervisor.command")
        await client.ok("POST", f"/api/executions/{run}/resume")
        foreign = await stream.type("control.applied")
    shown = await client.ok("GET", path)
    audit = await client.ok("GET", f"/api/executions/{run}/commands")

    assert hello.json["filters"] == {"type": ["control.*", "node.log"]}
    assert (lease["external"], lease["description"]) == (True, "pauses")
    assert lease["lease"]["seconds"] == 5
    assert lease["lease"]["expired"] is False
    assert [one["outcome"] for one in done["results"]] == ["APPLIED"]
    assert outcome.json["executionId"] == run
    assert outcome.json["data"] == {"commandId": "c-1", "outcome": "APPLIED", "reason": "enough"}
    assert foreign.json["data"]["command"] == "ResumeWorkflow"
    assert shown["counts"] == {"APPLIED": 1}
    first = audit["items"][0]
    assert (first["actor"], first["via"], first["commandId"]) == ("outside", "SUPERVISOR", "c-1")


async def test_a_stream_goes_on_behind_the_last_event(client, run) -> None:
    await registered(client)
    path = "/api/supervisors/outside/events?type=node.log"
    async with client.stream(path) as stream:
        first = await stream.type("node.log")
    async with client.stream(path, Last_Event_ID=first.id) as stream:
        following = await stream.type("node.log")
        types = [event.type for event in stream.events]
    async with client.stream(path, Last_Event_ID="other:1") as stream:
        reset = await stream.type("stream.reset")

    assert types == ["stream.hello", "node.log"]
    cursor = int(first.json["data"]["cursor"])
    assert int(following.json["data"]["cursor"]) == cursor + 1
    assert reset.json["reason"] == "epoch"


@pytest.mark.feature("OBS-01", "DUR-05")
async def test_a_stream_goes_on_over_a_restart_of_the_server(tmp_path, connect, make) -> None:
    overrides = {
        "yukta.profile": "file",
        "yukta.data.dir": str(tmp_path),
        "yukta.execution.shutdown-timeout": "100ms",
    }
    # Nearly all has to come from the store there, once anything happens.
    little = {**overrides, "yukta.streaming.replay-events": 2}
    settings, small = [load_settings(environ={}, overrides=one) for one in (overrides, little)]
    path = "/api/supervisors/outside/events?type=node.log,execution.finished"
    async with Engine(settings) as engine, HttpServer(engine, port=0) as server:
        client = await connect(server)
        await client.session_with(make.chatty(count=20))
        await registered(client)
        async with client.stream(path) as stream:
            run = await client.start("chatty")
            first = await stream.type("node.log")
        await client.ended(run)
    async with Engine(small) as engine, HttpServer(engine, port=0) as server:
        client = await connect(server)
        refused = await client("GET", path)
        await registered(client)
        await client.session_with(make.line("other"), session="other")
        async with client.stream(path, Last_Event_ID=first.id) as stream:
            await stream.type("execution.finished")
            seen = list(stream.events)
            shown = await client.ok("GET", "/api/supervisors/outside")
            again = await client.start("other", session="other")
            last = await stream.type("execution.finished")

    begin = int(first.json["data"]["cursor"])
    assert (refused.status, refused.code) == (404, "supervisor_not_found")
    assert [event.type for event in seen] == [
        *("stream.hello", *["node.log"] * (20 - begin), "execution.finished")
    ]
    assert [int(event.json["data"]["cursor"]) for event in seen[1:-1]] == [*range(begin + 1, 21)]
    assert {event.json["executionId"] for event in seen[1:]} == {run}
    assert last.json["executionId"] == again
    assert shown["droppedEvents"] == 0


async def test_more_than_the_rate_is_429_and_a_batch_gets_what_there_is(client, run) -> None:
    await registered(client)
    path = "/api/supervisors/outside"
    await client.ok("PUT", path, {"maxCommandsPerSecond": 3})
    five = {"commands": [command("PauseNode", run, nodeId=f"n{n}") for n in range(5)]}

    some = await client.ok("POST", f"{path}/commands", five)
    none = await client("POST", f"{path}/commands", five)
    counts = (await client.ok("GET", path))["counts"]

    assert [one["code"] for one in some["results"]] == [
        *["node_not_found"] * 3,
        *["rate_limited"] * 2,
    ]
    assert (none.status, none.code) == (429, "rate_limited")
    assert none.headers["Retry-After"] == "1"
    assert counts == {"REJECTED": 3, "rate_limited": 7}


@pytest.mark.parametrize("by", ["query", "switch"])
async def test_a_dry_run_changes_nothing(client, run, by) -> None:
    await registered(client)
    path = "/api/supervisors/outside"
    if by == "switch":
        await client.ok("PUT", path, {"dryRun": True})
    query = "?dryRun=true" if by == "query" else ""

    body = {"commands": [command("StopWorkflow", run)]}
    done = await client.ok("POST", f"{path}/commands{query}", body)

    assert done["results"][0]["outcome"] == "DRY_RUN"
    assert (await client.ok("GET", f"/api/executions/{run}"))["status"] == "RUNNING"


async def test_an_id_is_registered_once_and_renewed_by_its_token(client) -> None:
    first = await registered(client, leaseSeconds=60)
    refused = await client("POST", "/api/supervisors", {"id": "outside"})
    wrong = await client("POST", "/api/supervisors", {"id": "outside", "leaseToken": "no"})
    foreign = await client("POST", "/api/supervisors", {"id": "outside", "leaseToken": "é"})
    token = {"leaseToken": first["leaseToken"]}
    renewed = await client("POST", "/api/supervisors", {"id": "outside", **token})
    ended = await client.ok(
        "POST", "/api/supervisors", {"id": "outside", "leaseSeconds": 0, **token}
    )
    again = await client("POST", "/api/supervisors", {"id": "outside"})

    assert (refused.status, refused.code) == (409, "in_use")
    assert wrong.status == 409
    assert foreign.status == 409
    assert renewed.status == 200
    assert renewed.body["leaseToken"] == first["leaseToken"]
    assert (ended["lease"]["expired"], ended["state"]) == (True, "EXPIRED")
    assert again.status == 201
    assert again.body["leaseToken"] != first["leaseToken"]


async def test_one_that_was_switched_off_is_cut_off_and_refused_and_stays_so(client, run) -> None:
    lease = await registered(client)
    path = "/api/supervisors/outside"
    async with client.stream(f"{path}/events") as stream:
        await stream.type("stream.hello")
        await client.ok("PUT", path, {"enabled": False})
        closing = await stream.type("stream.closing")
        await stream.rest()
    refused = await client(
        "POST", f"{path}/commands", {"commands": [command("PauseWorkflow", run)]}
    )
    watching = await client("GET", f"{path}/events", headers={"Accept": "text/event-stream"})
    end = {"id": "outside", "leaseToken": lease["leaseToken"], "leaseSeconds": 0}
    await client.ok("POST", "/api/supervisors", end)
    again = await registered(client)

    assert closing.json["reason"] == "supervisor_disabled"
    assert (refused.status, refused.code) == (409, "supervisor_disabled")
    assert watching.code == "supervisor_disabled"
    assert (again["enabled"], again["state"]) == (False, "DISABLED")


async def test_the_loop_guard_switches_a_program_off(client, run) -> None:
    await registered(client)
    path = "/api/supervisors/outside"
    body = {"commands": [command("ResumeWorkflow", run) for _ in range(12)]}

    done = await client.ok("POST", f"{path}/commands", body)

    assert [one.get("outcome", one.get("code")) for one in done["results"]] == [
        *["NO_OP"] * 10,
        "loop_guard",
        "supervisor_disabled",
    ]
    shown = await client.ok("GET", path)
    assert shown["enabled"] is False
    assert "more than 10 times in 60 s" in shown["lastError"]


async def test_a_client_that_reads_slowly_is_told_what_it_lost(engine, client) -> None:
    await registered(client, leaseSeconds=1000)
    external = engine.supervisors.external

    with external.listening("outside", "anonymous", EventFilter(), None) as inbox:
        for _ in range(300):
            engine.supervisors._seats["idle"].say("supervisor.failed", reason="test")
        while engine.supervisors.get("outside")["droppedEvents"] < 44:
            await asyncio.sleep(0)
        frames = []
        while len(frames) < 258:
            frames += await inbox.frames()

    gap = next(frame for frame in frames if frame.type == "stream.gap")
    assert frames[0].type == "stream.hello"
    assert b'"dropped":44' in gap.data
    assert b'"reason":"slow-consumer"' in gap.data


# --- leases in virtual time ----------------------------------------------------------------------


async def lease_of(engine: Engine, seconds: float, id: str = "p") -> dict[str, Any]:
    return engine.supervisors.external.register(id, "ann", "", seconds)[0]


@virtual_time
async def test_a_lease_that_is_not_used_expires_and_is_told() -> None:
    async with Engine() as engine:
        external = engine.supervisors.external
        await lease_of(engine, 10)
        told: list[Any] = []
        with engine.feed.subscribe() as feed:
            await asyncio.sleep(9)
            alive = engine.supervisors.get("p")
            await external.commands("p", "ann", [])
            await asyncio.sleep(9)
            renewed = engine.supervisors.get("p")["state"]
            await asyncio.sleep(2)
            expired = engine.supervisors.get("p")
            told = [frame.type for frame in await feed.take()]
        answer = await lease_of(engine, 10)

    assert alive["state"] == renewed == "RUNNING"
    assert (expired["state"], expired["lease"]["expired"]) == ("EXPIRED", True)
    assert expired["lastError"] == "nothing was heard of it for 10 s"
    assert "supervisor.failed" in told
    assert answer["state"] == "RUNNING"


@virtual_time
async def test_an_open_stream_keeps_a_lease() -> None:
    async with Engine() as engine:
        await lease_of(engine, 10)
        with engine.supervisors.external.listening("p", "ann", EventFilter(), None):
            await asyncio.sleep(1000)
            open_state = engine.supervisors.get("p")["state"]
        await asyncio.sleep(9)
        left = engine.supervisors.get("p")["state"]
        await asyncio.sleep(2)
        gone = engine.supervisors.get("p")["state"]

    assert (open_state, left, gone) == ("RUNNING", "RUNNING", "EXPIRED")


@virtual_time
async def test_an_expired_lease_is_refused_and_a_lease_is_its_owners_alone() -> None:
    async with Engine() as engine:
        external = engine.supervisors.external
        await lease_of(engine, 10)
        with pytest.raises(RoleError):
            await external.commands("p", "bob", [])
        await asyncio.sleep(11)
        with pytest.raises(ConflictError) as refused:
            await external.commands("p", "ann", [])

    assert refused.value.code == "lease_expired"


@virtual_time
async def test_only_so_many_programs_register_and_one_that_is_off_is_not_forgotten() -> None:
    async with Engine() as engine:
        for n in range(100):
            await lease_of(engine, 10, f"p{n}")
        with pytest.raises(RejectedError):
            await lease_of(engine, 10, "one-more")
        engine.supervisors.change("p0", enabled=False)
        await asyncio.sleep(11)
        await lease_of(engine, 10, "one-more")
        ids = {one["id"] for one in engine.supervisors.list()}

    assert len(ids) == 100
    assert "p0" in ids
    assert "p1" not in ids


async def test_the_end_of_the_server_ends_the_streams(engine, times, connect) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(HttpServer(engine, port=0, times=times))
        client = await connect(server)
        await registered(client)
        async with client.stream("/api/supervisors/outside/events") as stream:
            await stream.type("stream.hello")
            async with asyncio.TaskGroup() as group:
                group.create_task(stack.aclose())
                rest = await stream.rest()

    assert rest[-1].type == "stream.closing"
