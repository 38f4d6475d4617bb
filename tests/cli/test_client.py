"""The client against small servers: addresses, leaders, refusals, and streams that break."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from yukta_rx.cli.client import Client
from yukta_rx.cli.console import CliError, Console
from yukta_rx.cli.follow import Follower
from yukta_rx.cli.reading import pages, wait_for_end
from yukta_rx.cli.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

pytestmark = pytest.mark.feature("OBS-01")


@pytest.fixture
async def site() -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Serve one handler for every path on a port of its own; returns the address."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start

    for runner in runners:
        await runner.cleanup()


def free_address() -> str:
    """An address on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def problem(status: int, code: str, **members: Any) -> web.Response:
    body = {"type": f"urn:yukta:problem:{code}", "title": code, "status": status, "code": code}
    text = json.dumps({**body, "detail": f"about {code}", **members})
    return web.Response(status=status, text=text, content_type="application/problem+json")


async def get(*urls: str, key: str | None = None) -> Any:
    async with Client(Target(urls, key)) as client:
        return (await client.get("/api/x", [("a", "b")])).json()


# --- addresses and leaders -----------------------------------------------------------------------


async def test_a_request_carries_agent_key_and_query(site) -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response([request.rel_url.raw_path_qs, dict(request.headers)])

    path, headers = await get(await site(echo), key="k3y")

    assert path == "/api/x?a=b"
    assert headers["Authorization"] == "Bearer k3y"
    assert headers["User-Agent"].startswith("yukta-cli/")


async def test_an_address_where_nobody_listens_is_passed_over(site) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response("here")

    assert await get(free_address(), await site(answer)) == "here"


async def test_without_any_server_every_address_is_named_and_the_code_is_8() -> None:
    urls = [free_address(), free_address()]

    with pytest.raises(CliError) as caught:
        await get(*urls)

    assert caught.value.exit_code == 8
    assert [line.startswith(url) for line, url in zip(caught.value.lines, urls, strict=True)]
    assert all("connection refused" in line for line in caught.value.lines)


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
async def test_other_names_of_this_machine_are_refused_in_the_same_words(host) -> None:
    with pytest.raises(CliError, match=r"connection refused|network is unreachable|cannot assign"):
        await get(f"http://{host}:{free_address().rpartition(':')[2]}")


@pytest.mark.feature("SCL-02")
async def test_a_standby_sends_the_request_on_to_the_leader_with_the_key(site) -> None:
    async def lead(request: web.Request) -> web.Response:
        return web.json_response(request.headers["Authorization"])

    leader = await site(lead)

    async def stand_by(_request: web.Request) -> web.Response:
        return problem(503, "not_leader", leader={"instanceId": "b", "url": leader})

    assert await get(await site(stand_by), key="k3y") == "Bearer k3y"


@pytest.mark.feature("SCL-02")
async def test_standbys_that_name_each_other_are_asked_once_each(site) -> None:
    asked: list[str] = []
    urls: list[str] = []

    async def stand_by(request: web.Request) -> web.Response:
        asked.append(f"http://{request.host}")
        other = next(url for url in urls if url != asked[-1])
        return problem(503, "not_leader", leader={"url": other})

    urls += [await site(stand_by), await site(stand_by)]

    with pytest.raises(CliError) as caught:
        await get(urls[0])

    assert asked == urls
    assert caught.value.exit_code == 8
    assert "a standby of" in caught.value.lines[0]


@pytest.mark.feature("SCL-02")
@pytest.mark.parametrize("leader", [None, {}, {"url": None}, {"url": "ftp://x"}, "nonsense"])
async def test_a_standby_that_knows_no_leader_leaves_the_other_addresses(site, leader) -> None:
    async def stand_by(_request: web.Request) -> web.Response:
        return problem(503, "not_leader", leader=leader)

    async def lead(_request: web.Request) -> web.Response:
        return web.json_response("leads")

    assert await get(await site(stand_by), await site(lead)) == "leads"


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "invalid_parameter", 1),
        (401, "unauthenticated", 5),
        (403, "control_rejected", 5),
        (404, "execution_not_found", 4),
        (409, "execution_not_running", 6),
        (412, "stale_definition", 6),
        (422, "validation", 3),
        (422, "idempotency_key_reused", 1),
        (429, "queue_full", 7),
        (500, "internal", 1),
        (503, "shutting_down", 8),
    ],
)
async def test_a_refusal_has_its_exit_code_and_keeps_what_the_server_said(
    site, status, code, exit_code
) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return problem(status, code, instance="r1")

    with pytest.raises(CliError) as caught:
        await get(await site(refuse))

    assert caught.value.exit_code == exit_code
    assert caught.value.code == code
    assert caught.value.lines == (f"about {code}",)
    assert caught.value.members == {"status": status, "instance": "r1"}


async def test_an_answer_of_something_else_is_told_by_its_status(site) -> None:
    async def proxy(_request: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>", content_type="text/html")

    with pytest.raises(CliError, match="answered 502 Bad Gateway") as caught:
        await get(await site(proxy))

    assert caught.value.exit_code == 8


async def test_a_redirect_is_refused_as_it_would_lose_the_key(site) -> None:
    async def away(_request: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/elsewhere")

    with pytest.raises(CliError, match="answered 302"):
        await get(await site(away))


async def test_a_good_answer_that_is_not_json_is_refused(site) -> None:
    async def other(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    with pytest.raises(CliError, match="is this a yukta server"):
        await get(await site(other))


async def test_what_was_sent_when_its_connection_broke_is_not_sent_again(site) -> None:
    asked = []

    async def hang_up(request: web.Request) -> web.Response:
        asked.append(request.path)
        request.transport.abort()
        return web.Response()

    async with Client(Target((await site(hang_up), free_address()))) as client:
        with pytest.raises(CliError, match="connection was lost") as caught:
            await client.post("/api/x", body={})

    assert len(asked) == 1
    assert caught.value.exit_code == 8


# --- lists and waiting ---------------------------------------------------------------------------


async def test_pages_are_read_to_the_last_one(site) -> None:
    async def numbers(request: web.Request) -> web.Response:
        after = int(request.query.get("afterCursor", "0"))
        items = list(range(after + 1, min(after + 3, 8)))
        following = str(items[-1]) if items and items[-1] < 7 else None
        return web.json_response({"items": items, "nextCursor": following})

    async with Client(Target((await site(numbers),))) as client:
        found = [item async for page in pages(client, "/x", size=2) for item in page["items"]]

    assert found == [1, 2, 3, 4, 5, 6, 7]


async def test_a_list_that_always_has_a_next_place_ends_where_there_is_nothing(site) -> None:
    async def feed(request: web.Request) -> web.Response:
        items = [] if "afterCursor" in request.query else [1, 2]
        return web.json_response({"items": items, "nextCursor": "e:2"})

    async with Client(Target((await site(feed),))) as client:
        found = [item async for page in pages(client, "/x") for item in page["items"]]

    assert found == [1, 2]


async def test_waiting_asks_again_until_the_run_has_ended(site) -> None:
    answers = [web.Response(status=204), web.json_response({"status": "SUCCESS"})]

    async def wait(request: web.Request) -> web.Response:
        assert float(request.query["timeout"]) > 0
        return answers.pop(0)

    async with Client(Target((await site(wait),))) as client:
        detail = await wait_for_end(client, "e1")

    assert detail == {"status": "SUCCESS"}
    assert answers == []


async def test_waiting_ends_when_the_limit_has_passed(site) -> None:
    async def wait(_request: web.Request) -> web.Response:
        return web.Response(status=204)

    async with Client(Target((await site(wait),))) as client:
        assert await wait_for_end(client, "e1", 0.0) is None


# --- streams -------------------------------------------------------------------------------------

HELLO = b'event: stream.hello\ndata: {"epoch":"e","headSeq":%d}\n\n'


def script(*connections: bytes | web.Response) -> tuple[Handler, list[str | None]]:
    """A handler that gives each connection what the script says and notes what it asked for."""
    waiting = list(connections)
    asked: list[str | None] = []

    async def stream(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Last-Event-ID"))
        if not waiting:
            return problem(404, "execution_not_found")
        now = waiting.pop(0)
        if isinstance(now, web.Response):
            return now
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 1\n\n" + now)
        await response.write_eof()
        return response

    return stream, asked


async def follow(url: str, **options: Any) -> tuple[list[str], CliError | None]:
    """Follow until it ends; returns the data of what came, and why it ended."""
    console = options.pop("console", None) or Console()
    found: list[str] = []
    async with Client(Target((url,))) as client:
        follower = Follower(client, console, "/x", **options)
        try:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    found += [event.data for event in batch]
        except CliError as error:
            return found, error
    return found, None


async def test_a_stream_that_breaks_goes_on_behind_the_last_event(site, capsys) -> None:
    handler, asked = script(
        b"id: e:1\ndata: a\n\nid: e:2\ndata: b\n\nid: e:3\ndata: cut", b"id: e:3\ndata: c\n\n"
    )

    found, end = await follow(await site(handler))

    assert found == ["a", "b", "c"]
    assert asked == [None, "e:2", "e:3"]
    assert end is not None
    assert end.exit_code == 4
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "yukta: the server ended the stream; connecting again"


async def test_a_live_stream_goes_on_behind_its_begin_if_nothing_came(site) -> None:
    handler, asked = script(HELLO % 41, b"")

    await follow(await site(handler), live=True)

    assert asked == [None, "e:41", "e:41"]


async def test_the_items_of_a_run_begin_at_the_first_again_if_nothing_came(site) -> None:
    handler, asked = script(HELLO % 41)

    await follow(await site(handler))

    assert asked == [None, None]


async def test_a_gap_is_said_and_is_no_event(site, capsys) -> None:
    handler, _ = script(
        b"id: 1\ndata: a\n\n"
        b'event: stream.gap\ndata: {"from":2,"to":9,"dropped":8,"reason":"slow-consumer"}\n\n'
        b"id: 10\ndata: b\n\n"
    )

    found, _ = await follow(await site(handler))

    assert found == ["a", "b"]
    assert "yukta: gap: 8 items are missing here (slow-consumer)" in capsys.readouterr().err


async def test_a_reset_is_said_once_and_the_stream_goes_on_from_its_new_begin(site, capsys) -> None:
    handler, asked = script(
        b"id: old:7\ndata: a\n\n",
        HELLO % 3 + b'event: stream.reset\ndata: {"reason":"epoch","oldestSeq":1}\n\n',
        HELLO % 3 + b"id: e:4\ndata: b\n\n",
    )

    found, _ = await follow(await site(handler), live=True)

    assert found == ["a", "b"]
    assert asked == [None, "old:7", "e:3", "e:4"]
    err = capsys.readouterr().err
    assert err.count("reset: the server cannot go on behind old:7 (epoch)") == 1


async def test_with_json_gaps_and_losses_are_objects_on_stderr(site, capsys) -> None:
    handler, _ = script(b'event: stream.gap\ndata: {"dropped":8}\n\n')
    console = Console()
    console.as_json = True

    await follow(await site(handler), console=console)

    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert said[0] == {"type": "stream.gap", "dropped": 8}
    assert said[1]["type"] == "client.reconnecting"


async def test_heartbeats_and_what_later_versions_say_are_passed_over(site) -> None:
    handler, _ = script(
        b': ping\n\nevent: stream.heartbeat\ndata: {"headSeq":1}\n\n'
        b"event: stream.unheard-of\ndata: nonsense\n\ndata: a\n\n"
    )

    found, _ = await follow(await site(handler))

    assert found == ["a"]


async def test_a_stream_ends_when_nothing_more_can_come(site) -> None:
    handler, asked = script(b"data: a\n\n", b"data: b\n\n")
    answers = [False, True]

    async def ended() -> bool:
        return answers.pop(0)

    found, end = await follow(await site(handler), ended=ended)

    assert (found, end) == (["a", "b"], None)
    assert len(asked) == 2


async def test_a_stream_that_a_closing_server_ends_is_not_over(site, capsys) -> None:
    handler, asked = script(
        b'data: a\n\nevent: stream.closing\ndata: {"reason":"shutting_down"}\nretry: 1\n\n',
        b"data: b\n\n",
    )

    async def ended() -> bool:
        return True

    found, end = await follow(await site(handler), ended=ended)

    assert (found, end) == (["a", "b"], None)
    assert len(asked) == 2
    assert "the server ended the stream: shutting down; connecting again" in capsys.readouterr().err


async def test_a_server_that_is_away_for_a_moment_is_asked_again(site) -> None:
    handler, asked = script(
        b"id: 1\ndata: a\n\n",
        problem(503, "shutting_down"),
        problem(500, "internal"),
        problem(429, "too_many_streams"),
        b"id: 2\ndata: b\n\n",
    )

    found, _ = await follow(await site(handler))

    assert found == ["a", "b"]
    assert asked == [None, "1", "1", "1", "1", "2"]


async def test_without_contact_for_too_long_a_follower_gives_up_and_names_its_place(site) -> None:
    handler, _ = script(b"id: 9\ndata: a\n\n", *[problem(503, "shutting_down") for _ in range(9)])

    found, end = await follow(await site(handler), patience=-1.0)

    assert found == ["a"]
    assert end is not None
    assert end.exit_code == 8
    assert end.lines[-1].endswith("behind 9")
    assert end.members["lastEventId"] == "9"


async def test_a_first_connection_that_fails_is_refused_at_once() -> None:
    found, end = await follow(free_address())

    assert found == []
    assert end is not None
    assert end.exit_code == 8


async def test_what_is_no_event_stream_is_refused(site) -> None:
    async def other(_request: web.Request) -> web.Response:
        return web.json_response({})

    _, end = await follow(await site(other))

    assert end is not None
    assert "no event stream" in end.lines[0]


@pytest.mark.feature("SCL-02")
async def test_the_stream_of_a_standby_goes_on_at_the_leader(site) -> None:
    leading, asked = script(b"id: e:1\ndata: a\n\n")
    leader = await site(leading)
    hint = json.dumps({"leader": {"instanceId": "b", "url": leader}}).encode()
    standing_by, _ = script(b"event: stream.standby\ndata: " + hint + b"\nretry: 1\n\n")

    found, end = await follow(await site(standing_by))

    assert found == ["a"]
    assert asked == [None, "e:1"]
    assert end is not None


async def test_a_reader_that_stops_closes_its_connection(site) -> None:
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"data: a\n\n")
                await asyncio.sleep(0)
        except ConnectionError:
            gone.set()
            raise

    async with Client(Target((await site(endless),))) as client:
        async with aclosing(Follower(client, Console(), "/x").batches()) as batches:
            async for batch in batches:
                assert batch[0].data == "a"
                break
        await gone.wait()

    assert gone.is_set()
