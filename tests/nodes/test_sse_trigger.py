"""SSE_TRIGGER: event streams of real servers, with connections that end and fail."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web as aiohttp_web

from yukta_rx.errors import BadInputError
from yukta_rx.model.status import TaskStatus
from yukta_rx.nodes import sse_trigger as module
from yukta_rx.nodes._http_client import HttpStatusError
from yukta_rx.nodes.sse_trigger import MAX_EVENT, sse_trigger
from yukta_rx.plugins.contract import bind_config, check_config, check_environment, spec_of
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from yukta_rx.model.message import Message

pytestmark = pytest.mark.feature("ENG-01")
SEC = pytest.mark.feature("SEC-03")

SPEC = spec_of(sse_trigger)
OPEN = {"yukta.http-request.allow-private": True}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
NO_MORE = b"HTTP/1.1 204 No Content\r\n\r\n"
WAIT = 10
"""Seconds in which what a test waits for has to happen."""


class Listening:
    """One trigger, drawn from as the engine does, in time that a test moves by hand."""

    def __init__(self, b: Any) -> None:
        self.b = b

    def __call__(self, url: str, **config: Any) -> AsyncIterator[Message]:
        cfg = bind_config(SPEC, {"url": url} | config).constant
        return sse_trigger(cfg, self.b.ctx)

    async def all(self, url: str, **config: Any) -> list[Message]:
        """Everything until the trigger ends, with all waits skipped."""
        taking = asyncio.create_task(self._all(url, **config))
        async with asyncio.timeout(WAIT):
            while not taking.done():
                await self.skip_a_wait()
        return await taking

    async def skip_a_wait(self) -> None:
        """Let the loop go on, and time pass if the trigger waits for it."""
        await asyncio.sleep(0)
        if self.b.base.waiting:
            await self.b.base.advance(self.b.base.next_in)

    async def _all(self, url: str, **config: Any) -> list[Message]:
        async with aclosing(self(url, **config)) as events:
            return [msg async for msg in events]


@pytest.fixture
async def listen(bench) -> AsyncIterator[Listening]:
    """A trigger that may connect to this machine."""
    b = bench(**OPEN)
    await SPEC.open(None, b.ctx)
    yield Listening(b)
    await SPEC.close(None, b.ctx)


def in_turn(*answers: Any) -> Any:
    """Answer one connection after the other; the last answer stays."""
    number = count()

    async def answer(reader: Any, writer: Any) -> None:
        this = answers[min(next(number), len(answers) - 1)]
        if callable(this):
            await this(reader, writer)
        else:
            writer.write(this)
            await writer.drain()

    return answer


# --- events --------------------------------------------------------------------------------------


async def test_each_event_is_a_message_with_its_name_data_and_id(web, listen) -> None:
    stream = b'id: 7\nevent: price\ndata: {"a": 1}\n\ndata: plain\n\nid\ndata: 3\n\n'
    url = await web.raw(in_turn(HEAD + stream, NO_MORE))

    messages = await listen.all(url)

    assert [msg.payload for msg in messages] == [
        {"event": "price", "data": {"a": 1}, "id": "7"},
        {"event": "message", "data": "plain", "id": "7"},
        {"event": "message", "data": 3},
    ]
    assert [dict(msg.headers) for msg in messages] == [{"sse.id": "7"}, {"sse.id": "7"}, {}]


async def test_only_the_events_that_are_named_are_taken_and_the_others_counted(web, listen) -> None:
    stream = b"event: a\ndata: 1\n\ndata: 2\n\nevent: b\ndata: 3\n\nevent: A\ndata: 4\n\n"
    url = await web.raw(in_turn(HEAD + stream, NO_MORE))

    messages = await listen.all(url, events=["a", "message"])

    assert [msg.payload["data"] for msg in messages] == [1, 2]
    assert listen.b.counts.count(("unwanted", 1)) == 2


async def test_an_event_comes_before_the_next_one_is_sent(web, listen) -> None:
    taken = asyncio.Event()

    async def one_by_one(reader: Any, writer: Any) -> None:
        writer.write(HEAD + b"data: 1\n\n")
        await taken.wait()
        writer.write(b"data: 2\n\n")

    url = await web.raw(one_by_one)

    async with aclosing(listen(url)) as events, asyncio.timeout(WAIT):
        first = await anext(events)
        taken.set()
        second = await anext(events)

    assert (first.payload["data"], second.payload["data"]) == (1, 2)


async def test_the_request_says_what_it_wants_and_where_to_begin(web, listen) -> None:
    url = await web.serve({"status": 204})

    await listen.all(f"{url}/s", lastEventId="41", headers={"Authorization": "s", "Accept": "x/y"})
    await listen.all(f"{url}/s")

    (method, path, headers, body), (_, _, second, _) = web.requests
    assert (method, path, body) == ("GET", "/s", b"")
    assert (headers["last-event-id"], headers["authorization"]) == ("41", "s")
    assert (headers["accept"], second["accept"]) == ("x/y", "text/event-stream")
    assert "last-event-id" not in second


@pytest.mark.feature("DUR-03")
async def test_a_run_that_goes_on_begins_behind_the_last_event_on_its_record(web, listen) -> None:
    url = await web.serve({"status": 204})
    listen.b.ctx.emitted_headers = {"sse.id": "97"}

    await listen.all(f"{url}/s", lastEventId="41")

    [(_, _, headers, _)] = web.requests
    assert headers["last-event-id"] == "97"


# --- connecting again ----------------------------------------------------------------------------


async def test_a_stream_that_ends_goes_on_behind_its_last_event(web, listen) -> None:
    async def part(request: Any) -> Any:
        done = int(request.headers.get("Last-Event-ID", 0))
        if done == 9:
            return aiohttp_web.Response(status=204)
        # The last event is cut: its blank line is missing.
        text = "".join(f"id: {n}\ndata: {n}\n\n" for n in range(done + 1, done + 4))
        cut = f"id: {done + 4}\ndata: {done + 4}\n"
        return aiohttp_web.Response(text=text + cut, content_type="text/event-stream")

    url = await web.serve(part)

    messages = await listen.all(f"{url}/")

    assert [msg.payload["data"] for msg in messages] == list(range(1, 10))
    assert listen.b.counts == [("reconnect", 1)] * 3
    assert all(stream == "stderr" for _, stream in listen.b.lines)
    assert f"GET {url}/: the stream ended; connecting again in" in listen.b.lines[0][0]


@pytest.mark.parametrize(
    "failure",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 408 X\r\nContent-Length: 0\r\n\r\n",
        HEAD[:-2] + b"Content-Length: 9\r\n\r\n:",
        HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n9",
    ],
)
async def test_a_connection_that_fails_is_followed_by_another(web, listen, failure) -> None:
    # A GET that is closed without an answer is sent once more at once, by the client library.
    failures = [failure] * (4 if failure == b"" else 2)
    url = await web.raw(in_turn(*failures, HEAD + b"data: 1\n\n", NO_MORE))

    messages = await listen.all(url)

    assert [msg.payload["data"] for msg in messages] == [1]
    assert listen.b.counts == [("reconnect", 1)] * 3


async def test_a_server_that_is_not_there_is_tried_again(listen) -> None:
    async with aclosing(listen("http://127.0.0.1:1/")) as events, asyncio.timeout(WAIT):
        waiting = asyncio.create_task(anext(events))
        while len(listen.b.lines) < 3:
            await listen.skip_a_wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    assert "cannot connect" in listen.b.lines[0][0]


async def waits(listen: Listening, url: str, n: int) -> list[float]:
    """The first `n` waits, as the trigger logs them."""
    async with aclosing(listen(url)) as events, asyncio.timeout(WAIT):
        taking = asyncio.create_task(_exhaust(events))
        while len(listen.b.lines) < n:
            await listen.skip_a_wait()
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
    return [float(line.rpartition(" in ")[2].removesuffix(" s")) for line, _ in listen.b.lines[:n]]


async def _exhaust(events: AsyncIterator[Any]) -> None:
    async for _ in events:
        pass


async def test_waits_double_up_to_a_bound_while_no_event_comes(web, listen) -> None:
    url = await web.raw(HEAD)

    seconds = await waits(listen, url, 10)

    steps = [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert all(step <= s <= 1.5 * step + 0.1 for step, s in zip(steps, seconds, strict=True))
    assert len(set(seconds[-4:])) > 1


async def test_an_event_makes_waits_short_again(web, listen) -> None:
    url = await web.raw(HEAD + b"data: 1\n\n")

    assert all(1 <= s <= 1.6 for s in await waits(listen, url, 6))


@pytest.mark.parametrize(
    ("retry", "step"), [(3000, 3), (300_000, 300), (0, 0.1), (10**9 - 1, 3600), (10**12, 3600)]
)
async def test_a_server_says_how_long_to_wait_within_reason(web, listen, retry, step) -> None:
    url = await web.raw(in_turn(HEAD + f"retry: {retry}\ndata: 1\n\n".encode()))

    first, second = await waits(listen, url, 2)

    assert step <= first <= 1.5 * step + 0.1
    assert step <= second <= 1.5 * step + 0.1


async def test_a_server_that_is_busy_says_when_to_come_back(web, listen) -> None:
    busy = b"HTTP/1.1 503 X\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n"
    url = await web.raw(busy)

    assert await waits(listen, url, 2) == [120, 120]


async def test_a_pause_holds_the_next_connection_back(web, listen) -> None:
    url = await web.raw(in_turn(HEAD, HEAD + b"data: 1\n\n"))
    b = listen.b
    async with aclosing(listen(url)) as events, asyncio.timeout(WAIT):
        taking = asyncio.create_task(anext(events))
        while not b.base.waiting:
            await asyncio.sleep(0)

        b.clock.pause()
        await b.base.advance(3600)
        assert web.connections == 1
        b.clock.resume()
        await b.base.advance(2)

        assert (await taking).payload["data"] == 1


async def test_a_server_that_does_not_begin_to_answer_is_left(web, listen, monkeypatch) -> None:
    monkeypatch.setattr(module, "_HEAD_TIMEOUT", 0.05)

    async def silent(reader: Any, writer: Any) -> None:
        await reader.read()

    url = await web.raw(in_turn(silent, NO_MORE))

    assert await listen.all(url) == []
    assert "no answer within 0.05 s" in listen.b.lines[0][0]


async def test_a_stream_may_be_silent_for_longer_than_its_server_may_take_to_answer(
    web, listen, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_HEAD_TIMEOUT", 0.2)
    loop = asyncio.get_running_loop()
    told = False

    async def late(reader: Any, writer: Any) -> None:
        nonlocal told
        if told:
            writer.write(NO_MORE)
            return
        writer.write(HEAD)
        await writer.drain()
        later = loop.create_future()
        loop.call_later(0.4, later.set_result, None)
        await later
        told = True
        writer.write(b"data: 1\n\n")

    url = await web.raw(late)

    assert [msg.payload["data"] for msg in await listen.all(url)] == [1]


# --- the end -------------------------------------------------------------------------------------


async def test_a_server_that_has_no_more_ends_the_trigger(web, listen) -> None:
    url = await web.serve({"status": 204})

    assert await listen.all(url) == []
    assert listen.b.counts == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
async def test_a_status_that_blames_the_request_fails_the_trigger(web, listen, status) -> None:
    url = await web.serve({"status": status})

    with pytest.raises(BadInputError, match=f"answered {status} .*expected 200"):
        await listen.all(url)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"text": "<html>"}, "answered with 'text/plain', no event stream"),
        ({"status": 201, "content_type": "text/event-stream"}, "answered 201 Created"),
        ({"status": 302}, "answered 302 Found"),
        (
            {"content_type": "text/event-stream", "headers": {"Content-Encoding": "gzip"}},
            "a packed stream",
        ),
    ],
)
async def test_what_is_no_event_stream_fails_the_trigger(web, listen, answer, complaint) -> None:
    url = await web.serve(answer)

    with pytest.raises(BadInputError, match=complaint) as failed:
        await listen.all(url)

    assert not isinstance(failed.value, HttpStatusError)


async def test_an_event_without_bound_fails_the_trigger_after_those_before_it(web, listen) -> None:
    async def endless(reader: Any, writer: Any) -> None:
        writer.write(HEAD + b"data: 1\n\ndata: ")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    url = await web.raw(endless)

    async with aclosing(listen(url)) as events, asyncio.timeout(WAIT):
        first = await anext(events)
        with pytest.raises(BadInputError, match=f"larger than {MAX_EVENT} bytes"):
            await anext(events)

    assert first.payload["data"] == 1


async def test_a_trigger_that_is_closed_closes_its_connection(web, listen) -> None:
    closed = asyncio.Event()

    async def silent(reader: Any, writer: Any) -> None:
        writer.write(HEAD + b"data: 1\n\ndata: 2\n\n")
        with suppress(ConnectionError):
            await reader.read()
        closed.set()

    url = await web.raw(silent)

    async with aclosing(listen(url)) as events:
        await anext(events)

    assert await asyncio.wait_for(closed.wait(), WAIT)


# --- demand --------------------------------------------------------------------------------------


async def test_nothing_is_read_while_nobody_asks_so_the_server_has_to_wait(web, listen) -> None:
    event = b"data: " + b"x" * 10_000 + b"\n\n"
    written, stuck = 0, asyncio.Event()

    async def endless(reader: Any, writer: Any) -> None:
        nonlocal written
        writer.write(HEAD)
        while True:
            writer.write(event)
            written += 1
            try:
                # Buffers of the system hold some megabytes; then this waits until the client reads.
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                stuck.set()
                await writer.drain()

    url = await web.raw(endless)
    async with aclosing(listen(url)) as events, asyncio.timeout(3 * WAIT):
        await anext(events)
        await stuck.wait()
        before = written

        for _ in range(before + 100):
            await anext(events)

    assert before < 10_000
    assert written > before


# --- in whole runs -------------------------------------------------------------------------------

SINK = ("COLLECT_TERMINAL", {})


async def test_a_run_gets_the_events_until_there_are_no_more(web, line) -> None:
    stream = HEAD + b"retry: 1\n\n" + b"".join(b"id: %d\ndata: %d\n\n" % (n, n) for n in range(500))
    url = await web.raw(in_turn(stream, NO_MORE))
    run = line.run(("SSE_TRIGGER", {"url": url}), SINK, **OPEN)

    async with asyncio.timeout(WAIT):
        outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert [payload["data"] for payload in line.payloads] == list(range(500))
    assert run.nodes["n0"].counts == {"reconnect": 1}
    assert any("connecting again" in text for _, _, text in line.lines)


async def test_a_run_that_is_stopped_leaves_the_stream(web, line) -> None:
    closed = asyncio.Event()

    async def silent(reader: Any, writer: Any) -> None:
        writer.write(HEAD + b"data: 1\n\n")
        with suppress(ConnectionError):
            await reader.read()
        closed.set()

    url = await web.raw(silent)
    run = line.run(("SSE_TRIGGER", {"url": url}), SINK, **OPEN)

    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        execution = group.create_task(run.execute())
        while not line.payloads:
            await asyncio.sleep(0)
        run.stop(StopMode.CANCEL)
        await closed.wait()

    assert execution.result().status is TaskStatus.CANCELLED


@SEC
async def test_a_run_may_not_listen_to_this_machine_by_name(web, line) -> None:
    url = (await web.raw(NO_MORE)).replace("127.0.0.1", "localhost")
    run = line.run(("SSE_TRIGGER", {"url": url}), SINK)

    outcome = await run.execute()

    assert outcome.nodes["n0"]["status"] == "FAILURE"
    assert "allow-private" in outcome.nodes["n0"]["error"]["detail"]
    assert web.connections == 0


@SEC
def test_an_address_that_is_refused_is_told_before_the_run(bench) -> None:
    where = {"settings": bench().ctx.settings, "base_dir": None}

    (fault,) = check_environment(SPEC, {"url": "http://[::1]:8080/events"}, **where)

    assert (fault.option, fault.code) == ("url", "address_not_allowed")


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "url"),
        ({"url": "ws://h/"}, "url"),
        ({"events": "a"}, "events"),
        ({"events": [1]}, "events.0"),
        ({"lastEventId": "a\nb"}, "lastEventId"),
        ({"headers": {"Last-Event-ID": "1"}}, "headers"),
        ({"headers": {"X": "a\r\nb"}}, "headers.X"),
        ({"reconnect": False}, "reconnect"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    (fault,) = check_config(SPEC, ({"url": "http://h/"} if config else {}) | config)

    assert fault.option == option


def test_a_trigger_has_no_message_for_its_options() -> None:
    (fault,) = check_config(SPEC, {"url": "http://h/${payload.x}"})

    assert (fault.option, fault.code) == ("url", "invalid_expression")
