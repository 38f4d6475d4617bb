"""Event streams over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from aiohttp import web
from jsonschema import Draft202012Validator

from yukta_rx.config.settings import Settings
from yukta_rx.http.app import create_app
from yukta_rx.http.server import HttpServer
from yukta_rx.http.sse import StreamTimes
from yukta_rx.http.state import SHARED
from yukta_rx.http.stream_shapes import stream_types
from yukta_rx.observe.frames import Frame, standby
from yukta_rx.observe.journal import Gap

FEED = "/api/events/stream"
TCP_REPAIR = 19


async def gone(engine: Any, server: Any) -> None:
    """Wait until no stream is open and no reader is left."""
    async with asyncio.timeout(10):
        while len(server.app[SHARED].streams) or engine.feed.cap.open:
            await asyncio.sleep(0.01)


def asks_for_the_feed(port: int) -> socket.socket:
    """A client that asks for the feed and then does nothing."""
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(f"GET {FEED} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    made.recv(10)
    return made


def vanish(client: socket.socket) -> None:
    """Drop a connection without telling the other side, as a machine does that loses power."""
    try:
        client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError:
        pytest.skip("only root can drop a connection silently")
    client.close()


# --- the feed ------------------------------------------------------------------------------------


@pytest.mark.feature("OBS-01")
async def test_a_stream_begins_with_hello_and_how_long_to_wait(client: Any, engine: Any) -> None:
    async with client.stream(FEED) as stream:
        hello = await stream.next()

    assert hello.type == "stream.hello"
    assert hello.json["epoch"] == engine.feed.epoch
    assert hello.json["leader"] is True
    assert hello.json["coalesceMs"] == 500
    assert stream.parser.retry == hello.json["retryMs"] == 2000
    assert stream.response.headers["X-Accel-Buffering"] == "no"
    assert stream.response.headers["Cache-Control"] == "no-store"
    assert stream.response.headers["Yukta-Leader"] == "true"


@pytest.mark.feature("OBS-01")
async def test_every_fact_of_a_run_arrives_in_order(client: Any, make: Any) -> None:
    await client.session_with(make.chatty())

    async with client.stream(FEED) as stream:
        await stream.next()
        execution_id = await client.start("chatty")
        await stream.type("execution.finished")

    facts = [event for event in stream.events if event.json.get("executionId") == execution_id]
    facts = [event for event in facts if event.json.get("id")]
    numbers = [int(event.id.rpartition(":")[2]) for event in facts]
    assert facts[0].type == "execution.started"
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert [e.json["data"]["line"] for e in facts if e.type == "node.log"] == [
        'said {"n":0}',
        'said {"n":1}',
        'said {"n":2}',
    ]
    assert all(event.id == event.json["id"] for event in facts)
    assert all(event.type == event.json["type"] for event in facts)


@pytest.mark.feature("OBS-01")
async def test_without_names_every_event_is_a_message(client: Any) -> None:
    async with client.stream(f"{FEED}?named=false") as stream:
        hello = await stream.next()

    assert hello.type == "message"
    assert "epoch" in hello.json


@pytest.mark.feature("OBS-01")
async def test_a_stream_shows_only_what_is_asked_for(client: Any, make: Any) -> None:
    await client.session_with(make.chatty(), make.line())

    async with client.stream(f"{FEED}?workflowId=chatty&type=node.*,execution.finished") as stream:
        await client.ended(await client.start("w"))
        await client.start("chatty")
        await stream.type("execution.finished")

    shown = [event for event in stream.events if not event.type.startswith("stream.")]
    assert {event.json["workflowId"] for event in shown} == {"chatty"}
    assert {event.type.partition(".")[0] for event in shown} == {"node", "execution"}
    assert "execution.started" not in {event.type for event in shown}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("type=nothing.known", "invalid_parameter"),
        ("executionId=", "invalid_parameter"),
        ("executionId=&executionId=", "invalid_parameter"),
        ("type=node.log,,edge.dropped", "invalid_parameter"),
        ("sessionId=a/b", "invalid_parameter"),
        ("nodeid=a", "invalid_parameter"),
        ("coalesceMs=99", "invalid_parameter"),
        ("coalesceMs=10001", "invalid_parameter"),
        ("named=maybe", "invalid_parameter"),
        ("heartbeat=yes", "invalid_parameter"),
    ],
)
async def test_a_wrong_filter_is_a_problem(client: Any, query: str, code: str) -> None:
    answer = await client("GET", f"{FEED}?{query}")

    assert (answer.status, answer.code) == (400, code)


async def test_who_takes_no_event_stream_gets_none(client: Any) -> None:
    answer = await client("GET", FEED, headers={"Accept": "application/json"})

    assert (answer.status, answer.code) == (406, "not_acceptable")


@pytest.mark.feature("OBS-01")
async def test_case_26_two_clients_of_one_run_both_see_everything(client: Any, make: Any) -> None:
    await client.session_with(make.chatty())

    async with client.stream(FEED) as one, client.stream(FEED) as two:
        await one.next()
        await two.next()
        await client.start("chatty")
        for stream in (one, two):
            await stream.type("execution.finished")

    facts = [[e.id for e in s.events if e.json.get("id")] for s in (one, two)]
    assert facts[0] == facts[1]
    assert len(facts[0]) > 5


@pytest.mark.feature("OBS-01")
@pytest.mark.parametrize("how", ["header", "lastEventId", "afterCursor"])
async def test_case_27_a_stream_goes_on_where_it_was_left(client: Any, make: Any, how: str) -> None:
    await client.session_with(make.chatty(count=40, every_ms=2))
    seen: list[str] = []
    last = ""

    async with client.stream(FEED) as stream:
        await stream.next()
        await client.start("chatty")
    done = False
    while not done:
        path, headers = FEED, {}
        if how == "header":
            headers = {"Last-Event-ID": last} if last else {}
        elif last:
            path = f"{FEED}?{how}={last}"
        async with client.stream(path, **headers) as stream:
            for _ in range(7):
                event = await stream.next()
                if event.type.startswith("stream."):
                    assert event.type == "stream.hello", event
                    last = last or event.id
                    continue
                if event.json.get("id"):
                    seen.append(event.id)
                    last = event.id
                if event.type == "execution.finished":
                    done = True
                    break

    numbers = [int(text.rpartition(":")[2]) for text in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.feature("OBS-01")
async def test_case_27_a_place_of_another_life_gives_exactly_one_reset(
    client: Any, make: Any
) -> None:
    await client.session_with(make.chatty())

    async with client.stream(FEED, **{"Last-Event-ID": "otherepoch:5"}) as stream:
        await client.start("chatty")
        await stream.type("execution.finished")

    kinds = [event.type for event in stream.events]
    assert kinds[:2] == ["stream.hello", "stream.reset"]
    assert kinds.count("stream.reset") == 1
    assert stream.events[1].json["reason"] == "epoch"


@pytest.mark.feature("OBS-01")
async def test_the_feed_is_read_page_by_page_too(client: Any, make: Any) -> None:
    await client.session_with(make.chatty())
    await client.ended(await client.start("chatty"))

    items: list[Any] = []
    cursor = ""
    while True:
        page = await client.ok("GET", f"/api/events?limit=3{cursor}")
        items += page["items"]
        if len(page["items"]) < 3:
            break
        cursor = f"&afterCursor={page['nextCursor']}"

    assert [item["type"] for item in items[:2]] == ["definition.saved", "execution.started"]
    assert items[-1]["type"] == "execution.finished"
    assert len({item["id"] for item in items}) == len(items)
    gone = await client("GET", "/api/events?afterCursor=otherlife:1")
    assert (gone.status, gone.code) == (410, "cursor_expired")
    bad = await client("GET", "/api/events?afterCursor=nonsense")
    assert (bad.status, bad.code) == (400, "invalid_cursor")


async def test_every_event_type_is_in_the_catalogue_with_its_schema(
    client: Any, make: Any, engine: Any
) -> None:
    schemas = {
        item["type"]: Draft202012Validator(item["schema"])
        for item in (await client.ok("GET", "/api/events/types"))["items"]
    }
    await client.session_with(make.chatty())

    path = f"{FEED}?coalesceMs=100&heartbeat=event&lastEventId=other:1"
    async with client.stream(path) as stream:
        execution_id = await client.start("chatty")
        await client("POST", f"/api/executions/{execution_id}/pause")
        await client("POST", f"/api/executions/{execution_id}/resume")
        await stream.type("execution.finished")
        await engine.close()
        events = await stream.rest()

    assert len(events) > 10
    assert {"stream.hello", "stream.reset", "stream.closing"} <= {event.type for event in events}
    assert [e.type for e in events if not schemas[e.type].is_valid(e.json)] == []


@pytest.mark.feature("OBS-01")
@pytest.mark.parametrize(
    ("frame", "right"),
    [
        (standby({"instanceId": "b", "url": "http://b:8080"}), True),
        (standby(None), True),
        (Frame.of("stream.gap", Gap(1, 2, 2, "slow-consumer").as_dict()), True),
        (Frame.of("stream.gap", Gap(1, 2, 2, "bored").as_dict()), False),
        (Frame.of("stream.heartbeat", {"headSeq": 3}), True),
        (Frame.of("stream.heartbeat", {}), False),
    ],
)
def test_what_a_stream_says_of_itself_has_a_schema_too(frame: Frame, right: bool) -> None:
    [schema] = [item["schema"] for item in stream_types() if item["type"] == frame.type]

    assert Draft202012Validator(schema).is_valid(json.loads(frame.data)) == right


@pytest.mark.feature("OBS-01")
async def test_a_stream_of_http_1_0_comes_without_chunks(
    client: Any, make: Any, server: Any
) -> None:
    await client.session_with(make.chatty())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET {FEED} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    raw = await reader.readuntil(b"\n\n")
    await client.start("chatty")
    async with asyncio.timeout(15):
        while b"event: execution.finished" not in raw:
            raw += await reader.readuntil(b"\n\n")
    writer.close()

    assert b"chunked" not in head.lower()
    assert b"\r" not in raw
    lines = [line.partition(b":")[0] for line in raw.split(b"\n")]
    assert set(lines) == {b"retry", b"id", b"event", b"data", b""}


@pytest.mark.feature("OBS-01")
async def test_a_place_without_a_value_is_none_on_every_stream(client: Any, make: Any) -> None:
    await client.session_with(make.chatty())
    execution_id = await client.start("chatty")
    await client.ended(execution_id)
    await client.ok("POST", "/api/supervisors", {"id": "watch", "leaseSeconds": 60})
    page = await client.ok("GET", "/api/events?limit=1")
    place = page["nextCursor"]

    for path in (FEED, "/api/supervisors/watch/events"):
        async with client.stream(path, **{"Last-Event-ID": ""}) as stream:
            assert [(await stream.next()).type] == ["stream.hello"]
        for name in ("lastEventId", "afterCursor"):
            asked = f"{path}?{name}={place}"
            async with client.stream(asked, **{"Last-Event-ID": ""}) as stream:
                assert (await stream.next()).id == place
                following = await stream.next()
            assert following.type == "execution.started"
            empty = await client("GET", f"{path}?{name}=")
            assert (empty.status, empty.code) == (400, "invalid_parameter")
    for path in (
        f"/api/executions/{execution_id}/progress",
        f"/api/executions/{execution_id}/logs",
        f"/api/sessions/s/executions/{execution_id}/results",
    ):
        async with client.stream(path, **{"Last-Event-ID": ""}) as stream:
            assert await stream.next() is not None


# --- what one run says ---------------------------------------------------------------------------


@pytest.mark.feature("OBS-03")
async def test_case_24_the_end_of_a_run_is_the_last_of_its_results(client: Any, make: Any) -> None:
    await client.session_with(make.echo())
    execution_id = await client.start("echo", {"a": 1})

    async with client.stream(f"/api/sessions/s/executions/{execution_id}/results") as stream:
        events = await stream.rest()

    kinds = [event.type for event in events]
    assert kinds[-1] == "EXECUTION_END"
    assert kinds.count("NODE_END") == 2
    assert [event.id for event in events] == [str(n + 1) for n in range(len(events))]
    assert events[0].json["payload"] == {"a": 1}


@pytest.mark.feature("OBS-03")
async def test_results_go_on_where_they_were_left(client: Any, make: Any) -> None:
    await client.session_with(make.line(count=20))
    execution_id = await client.start()
    await client.ended(execution_id)
    path = f"/api/sessions/s/executions/{execution_id}/results"

    async with client.stream(path, **{"Last-Event-ID": "15"}) as stream:
        events = await stream.rest()
    async with client.stream(path, **{"Last-Event-ID": events[-1].id}) as stream:
        nothing = await stream.rest()

    assert [event.id for event in events] == [str(n) for n in range(16, 23)]
    assert nothing == []


@pytest.mark.feature("OBS-02")
async def test_log_lines_are_followed_to_the_end(client: Any, make: Any) -> None:
    await client.session_with(make.chatty(count=5, every_ms=5))
    execution_id = await client.start("chatty")

    async with client.stream(f"/api/executions/{execution_id}/logs?nodeId=say") as stream:
        events = await stream.rest()

    lines = [event.json["line"] for event in events]
    assert lines == [f'said {{"n":{n}}}' for n in range(5)]
    assert {event.type for event in events} == {"node.log"}


@pytest.mark.feature("OBS-01")
async def test_case_23_progress_never_goes_back(client: Any, make: Any) -> None:
    await client.session_with(make.line(count=60, every_ms=10))
    execution_id = await client.start()

    async with client.stream(f"/api/executions/{execution_id}/progress") as stream:
        events = await stream.rest()

    versions = [event.json["version"] for event in events]
    counts = [event.json["nodes"][0]["out"] for event in events]
    assert versions == sorted(set(versions))
    assert counts == sorted(counts)
    assert len(events) > 1
    assert events[-1].json["execution"]["status"] == "SUCCESS"
    assert events[-1].json["nodes"][-1]["in"] == 60


# --- what clients send and logs say --------------------------------------------------------------


@pytest.mark.feature("OBS-02")
async def test_case_31_text_cannot_forge_an_event(client: Any, make: Any) -> None:
    forged = "a\rdata: b\nevent: spoof\n\nid: 99\r\n\r\ndata: c"
    document = make.chatty(count=1)
    document["nodes"][1]["config"]["prefix"] = forged
    await client.session_with(document)
    execution_id = await client.start("chatty")

    async with client.stream(f"/api/executions/{execution_id}/logs") as stream:
        events = await stream.rest()
    bad_node = await client("GET", f"/api/executions/{execution_id}/nodes/a%0Aevent%3A%20spoof")

    assert {event.type for event in events} == {"node.log"}
    assert "\n".join(event.json["line"] for event in events).startswith("a\rdata: b")
    assert bad_node.code == "invalid_parameter"


@pytest.mark.feature("OBS-02")
async def test_case_32_separators_that_split_lines_elsewhere_are_escaped(
    client: Any, make: Any
) -> None:
    document = make.chatty(count=1)
    document["nodes"][1]["config"]["prefix"] = "a\u2028b\u2029c\u0085d\0e"
    await client.session_with(document)
    execution_id = await client.start("chatty")
    await client.ended(execution_id)

    path = f"/api/executions/{execution_id}/logs"
    async with client.session.get(path) as response:
        raw = await response.read()
    async with client.stream(path) as stream:
        [event] = await stream.rest()

    assert not any(sign in raw.decode() for sign in "\u2028\u2029\u0085\0")
    # However a reader splits lines, there is one line of data.
    assert [line for line in raw.decode().splitlines() if line.startswith("data:")][1:] == []
    assert event.json["line"].startswith("a\u2028b\u2029c\u0085d\0e")


# --- ends ----------------------------------------------------------------------------------------


@pytest.mark.feature("OBS-01")
async def test_a_client_that_leaves_leaves_nothing_behind(
    client: Any, make: Any, engine: Any, server: Any
) -> None:
    await client.session_with(make.line("endless", count=0, every_ms=5))
    execution_id = await client.start("endless")
    before = len(asyncio.all_tasks())

    for path in (
        FEED,
        f"/api/executions/{execution_id}/progress",
        f"/api/executions/{execution_id}/logs",
        f"/api/sessions/s/executions/{execution_id}/results",
    ):
        async with client.stream(path) as stream:
            if path != f"/api/executions/{execution_id}/logs":
                await stream.next()
            stream.response.close()
    await gone(engine, server)

    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) <= before + 1


@pytest.mark.feature("OBS-01")
async def test_a_closing_server_ends_its_streams_first(
    engine: Any, connect: Any, make: Any, caplog: Any
) -> None:
    server = HttpServer(engine, port=0)
    await server.__aenter__()
    client = await connect(server)
    await client.session_with(make.line("endless", count=0, every_ms=50))
    execution_id = await client.start("endless")

    async with (
        client.stream(FEED) as feed,
        client.stream(f"/api/executions/{execution_id}/progress") as progress,
        client.stream(f"/api/executions/{execution_id}/logs") as logs,
        client.stream(f"/api/sessions/s/executions/{execution_id}/results") as results,
    ):
        await feed.next()
        began = asyncio.get_running_loop().time()
        await server.__aexit__(None, None, None)
        took = asyncio.get_running_loop().time() - began
        ends = [(await stream.rest())[-1] for stream in (feed, progress, logs, results)]

    assert took < 1
    assert [end.type for end in ends] == ["stream.closing"] * 4
    assert {end.json["reason"] for end in ends} == {"shutting_down"}
    assert feed.parser.retry == 1000
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.feature("OBS-01")
async def test_an_engine_that_closes_ends_the_feed(client: Any, engine: Any) -> None:
    async with client.stream(FEED) as stream:
        await stream.next()
        await engine.close()
        events = await stream.rest()
    async with client.stream(FEED) as late:
        told = await late.rest()

    assert events[-1].type == "stream.closing"
    assert told[-1].type == "stream.closing"


class TestFewStreams:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(streaming={"max_streams": 2})

    @pytest.mark.feature("OBS-01")
    async def test_one_stream_too_many_is_refused(
        self, client: Any, engine: Any, server: Any
    ) -> None:
        async with client.stream(FEED), client.stream(FEED):
            refused = await client("GET", FEED)

        assert (refused.status, refused.code) == (429, "too_many_streams")
        await gone(engine, server)
        async with client.stream(FEED) as stream:
            assert (await stream.next()).type == "stream.hello"


class TestImpatient:
    """Streams whose pings and send timeout are short."""

    @pytest.fixture
    def times(self) -> StreamTimes:
        return StreamTimes(ping=0.05, send=0.4)

    async def test_a_silent_stream_is_kept_alive_by_comments(self, client: Any) -> None:
        async with client.stream(f"{FEED}?sessionId=nobody") as stream:
            await stream.next()
            async with asyncio.timeout(5):
                while stream.parser.comments < 2:
                    stream.parser.feed(await stream.response.content.readany())

        assert stream.parser.comments >= 2

    @pytest.mark.feature("OBS-01")
    async def test_case_30_a_client_that_vanished_without_a_word_is_noticed(
        self, engine: Any, server: Any
    ) -> None:
        lost = await asyncio.to_thread(asks_for_the_feed, server.port)
        async with asyncio.timeout(5):
            while not engine.feed.cap.open:
                await asyncio.sleep(0.01)

        vanish(lost)

        await gone(engine, server)
        assert engine.feed.cap.open == 0

    @pytest.mark.feature("OBS-01")
    async def test_a_client_that_leaves_is_noticed_where_handlers_are_not_cancelled(
        self, engine: Any, times: StreamTimes
    ) -> None:
        runner = web.AppRunner(create_app(engine, times=times))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        lost = await asyncio.to_thread(asks_for_the_feed, runner.addresses[0][1])
        async with asyncio.timeout(5):
            while not engine.feed.cap.open:
                await asyncio.sleep(0.01)

        lost.close()

        async with asyncio.timeout(5):
            while engine.feed.cap.open:
                await asyncio.sleep(0.01)
        await runner.cleanup()
        assert engine.feed.cap.open == 0

    @pytest.mark.slow
    @pytest.mark.feature("OBS-01")
    async def test_a_client_that_stalls_does_not_hold_up_the_shutdown(
        self, engine: Any, connect: Any, make: Any
    ) -> None:
        server = HttpServer(engine, port=0, times=StreamTimes(send=60))
        await server.__aenter__()
        client = await connect(server)
        document = make.chatty(count=400)
        document["nodes"][1]["config"]["prefix"] = "x" * 100_000
        await client.session_with(document)
        stalled = await asyncio.to_thread(asks_for_the_feed, server.port)
        await client.ended(await client.start("chatty"))
        await asyncio.sleep(0.2)

        began = asyncio.get_running_loop().time()
        await server.__aexit__(None, None, None)

        took = asyncio.get_running_loop().time() - began
        assert 0.9 < took < 4  # it got a second for the last words
        stalled.close()

    @pytest.mark.slow
    @pytest.mark.feature("OBS-01")
    async def test_case_30_a_client_that_stalls_is_cut_off(
        self, client: Any, make: Any, engine: Any, server: Any
    ) -> None:
        document = make.chatty(count=0)
        document["nodes"][1]["config"]["prefix"] = "x" * 20_000
        await client.session_with(document)
        execution_id = await client.start("chatty")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(f"GET {FEED} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await writer.drain()
        writer.transport.pause_reading()

        async with asyncio.timeout(10):
            while not engine.feed.cap.open:
                await asyncio.sleep(0.01)
        await gone(engine, server)

        assert (await client.ok("GET", f"/api/executions/{execution_id}"))["status"] == "RUNNING"
        await client("POST", f"/api/executions/{execution_id}/stop?mode=KILL")
        writer.transport.abort()
        del reader
