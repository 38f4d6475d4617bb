"""The JavaScript client that the server ships, in Node against real servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.http.routes import ui
from yukta_rx.http.server import HttpServer
from yukta_rx.model.sse_parser import SseParser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NODE = shutil.which("node")
SHIPPED = Path(ui.__file__).parents[1] / "ui" / "yukta-events.js"
FEED = "/api/events/stream"
# Waits are a hundredth of what they would be; how long they would be is told.
PROGRAM = """
const [module, url, key] = process.argv.slice(1);
const source = module.startsWith("http") ? await (await fetch(module)).text()
  : (await import("node:fs")).readFileSync(module, "utf8");
const { followEvents } = await import("data:text/javascript," + encodeURIComponent(source));
const tell = (what) => process.stdout.write(JSON.stringify(what) + "\\n");
const following = followEvents(url, {
  key,
  on: { "*": (event) => tell({ event }) },
  onState: (state) => tell({ state }),
  onError: ({ error, ...more }) => tell({ error: error ? String(error) : undefined, ...more }),
  pace: (ms) => (tell({ wait: ms }), ms / 100),
});
process.stdin.on("data", () => following.close()).on("end", () => process.exit());
"""

pytestmark = [
    pytest.mark.feature("OBS-01"),
    pytest.mark.skipif(NODE is None, reason="needs node, which is not installed"),
]


class Following:
    """A Node process that follows a stream and tells what it is told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: list[dict[str, Any]] = []

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read on up to something that is wanted."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            while line := await self.process.stdout.readline():
                self.told.append(json.loads(line))
                if wanted(self.told[-1]):
                    return self.told[-1]
        raise AssertionError(f"the client ended after {self.told[-10:]}")

    async def event(self, type: str) -> dict[str, Any]:
        """Read on up to an event of a type."""
        told = await self.until(lambda told: told.get("event", {}).get("type") == type)
        return dict(told["event"])

    def close(self) -> None:
        """Have it close."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"close\n")

    @property
    def events(self) -> list[dict[str, Any]]:
        return [told["event"] for told in self.told if "event" in told]

    @property
    def waits(self) -> list[float]:
        return [told["wait"] for told in self.told if "wait" in told]

    def numbers(self) -> list[int]:
        """The numbers of the facts that it was told, in order."""
        return [
            int(event["id"].rpartition(":")[2])
            for event in self.events
            if isinstance(event["data"], dict) and "id" in event["data"]
        ]


@asynccontextmanager
async def following(url: str, module: str = str(SHIPPED), key: str = "") -> AsyncIterator[Any]:
    """A client of a stream."""
    assert NODE is not None
    process = await asyncio.create_subprocess_exec(
        *(NODE, "--input-type=module", "--eval", PROGRAM, module, url, key),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Following(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Wire:
    """A server beside ours: passes connections on in small pieces and cuts them when told.

    Args:
        port: where connections are passed on to; None answers `answers` instead, one after another.
        answers: what to send and then hang up, as pieces.
    """

    def __init__(self, port: int | None, answers: list[list[bytes]] | None = None) -> None:
        self.port = port
        self.answers = answers or []
        self.open: set[asyncio.StreamWriter] = set()
        self.requests: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.open.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head.decode())
            await (self.answer(writer) if self.port is None else self.passed_on(head, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def answer(self, writer: asyncio.StreamWriter) -> None:
        for piece in self.answers.pop(0) if self.answers else []:
            writer.write(piece)
            await writer.drain()
            # Long enough that Node sees most pieces by themselves.
            await asyncio.sleep(0.001)

    async def passed_on(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        reader, upstream = await asyncio.open_connection("127.0.0.1", self.port)
        upstream.write(head)
        try:
            while piece := await reader.read(97):
                writer.write(piece)
                await writer.drain()
        finally:
            upstream.close()

    def cut(self) -> None:
        for writer in tuple(self.open):
            writer.transport.abort()


@asynccontextmanager
async def wire(port: int | None, answers: Any = None) -> AsyncIterator[tuple[Wire, str]]:
    made = Wire(port, answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    try:
        yield made, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        made.cut()
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


# --- the file ------------------------------------------------------------------------------------


async def test_the_server_hands_the_client_out_to_anyone(client: Any) -> None:
    async with client.session.get("/ui/yukta-events.js") as answer:
        text = await answer.text()
        tag = answer.headers["ETag"]
    async with client.session.get("/ui/yukta-events.js", headers={"If-None-Match": tag}) as again:
        assert again.status == 304

    assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert text == SHIPPED.read_text(encoding="utf-8")


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_lines_end_as_they_may_and_are_cut_anywhere(ends: str, size: int) -> None:
    lines = [": note", "retry: 50", "id: e:1", "event: a", 'data: {"n":', "data: 1}", ""]
    lines += [
        "data:é\u2028𝄞",
        "",
        "id: e:2",
        "",
        "",
        "event: c",
        "data",
        "",
        "id: e:3",
        "data: cut",
    ]
    raw = ("\ufeff" + ends.join(lines) + ends).encode()
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    model = SseParser()
    expected = [(event.type, event.data, event.id) for event in model.feed(raw)]

    async with wire(None, [[HEAD, *pieces]]) as (server, url), following(url) as seen:
        await seen.until(lambda told: told.get("state") == "waiting")
        await seen.until(lambda told: told.get("error") is not None)

    found = [(event["type"], event["data"], event["id"]) for event in seen.events]
    assert [(kind, id) for kind, _, id in found] == [(kind, id) for kind, _, id in expected]
    assert [data for _, data, _ in found] == [{"n": 1}, "é\u2028𝄞", ""]
    # What was cut off is asked for again: the place is behind the last whole event.
    assert "last-event-id: e:2" in server.requests[1].lower()


async def test_a_server_that_is_busy_is_asked_again_ever_later() -> None:
    busy = (
        b"HTTP/1.1 503 Busy\r\nRetry-After: %d\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    )
    frame = b"id: e:1\ndata: 1\n\n"
    answers = [[busy % 0], [busy % 60], [busy % 0], [busy % 0], [HEAD, frame]]

    async with wire(None, answers) as (server, url), following(url) as seen:
        await seen.event("message")

    first, second, third, fourth = seen.waits
    assert 1000 <= first <= 2000
    assert 60_000 <= second <= 62_000  # as the server said
    assert 4000 <= third <= 8000
    assert 8000 <= fourth <= 16_000
    assert [told["status"] for told in seen.told if "status" in told] == [503] * 4
    assert len(server.requests) == 5


@pytest.mark.parametrize("status", [401, 429])
async def test_who_is_refused_does_not_ask_again(status: int) -> None:
    refusal = f"HTTP/1.1 {status} No\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode()

    async with wire(None, [[refusal]]) as (server, url), following(url) as seen:
        told = await seen.until(lambda told: "status" in told)
        await seen.until(lambda told: told.get("state") == "closed")

    assert (told["status"], told["final"]) == (status, True)
    assert len(server.requests) == 1


async def test_the_standby_and_the_wait_it_asks_for_are_told() -> None:
    frame = b'retry: 5000\nevent: stream.standby\ndata: {"leader":null}\n\n'

    async with wire(None, [[HEAD, frame]]) as (_, url), following(url) as seen:
        event = await seen.event("stream.standby")
        await seen.until(lambda told: "wait" in told)

    assert event["data"] == {"leader": None}
    assert 2500 <= seen.waits[0] <= 5000


# --- a real server -------------------------------------------------------------------------------


async def test_a_stream_that_is_cut_again_and_again_goes_on_without_loss(
    client: Any, make: Any, server: HttpServer
) -> None:
    await client.session_with(make.chatty(count=150, every_ms=4))

    async with wire(server.port) as (proxy, url), following(f"{url}{FEED}") as seen:
        await seen.event("stream.hello")
        await client.start("chatty")
        for _ in range(4):
            await seen.event("node.log")
            proxy.cut()
            await seen.event("stream.hello")
        await seen.event("execution.finished")

    numbers = seen.numbers()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) > 150
    assert len(proxy.requests) == 5
    kinds = {event["type"] for event in seen.events}
    assert not kinds & {"stream.gap", "stream.reset"}


async def test_the_server_is_restarted_on_the_same_port_and_nothing_is_missed(
    client: Any, make: Any, engine: Any, connect: Any
) -> None:
    await client.session_with(make.chatty(count=100, every_ms=5))
    first = HttpServer(engine, port=0)
    await first.__aenter__()
    port = first.port

    async with following(f"{first.url}{FEED}", f"{first.url}/ui/yukta-events.js") as seen:
        await seen.event("stream.hello")
        await client.start("chatty")
        await seen.event("node.log")
        await first.__aexit__(None, None, None)
        closing = await seen.event("stream.closing")
        await seen.until(lambda told: told.get("error") is not None)
        async with HttpServer(engine, port=port):
            await seen.event("execution.finished")
            seen.close()
            await seen.until(lambda told: told.get("state") == "closed")

    numbers = seen.numbers()
    assert closing["data"] == {"reason": "shutting_down"}
    assert seen.waits[0] <= 1000
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) > 100


async def test_a_server_with_a_new_life_is_told_once_and_the_key_is_sent_each_time() -> None:
    key = "k" * 40
    settings = Settings(api_key=key)
    async with Engine(settings) as old, HttpServer(old, port=0) as server:
        port = server.port
        async with following(f"{server.url}{FEED}") as stranger:
            told = await stranger.until(lambda told: "status" in told)
        async with AsyncExitStack() as stack:
            seen = await stack.enter_async_context(following(f"{server.url}{FEED}", key=key))
            await seen.event("stream.hello")
            left = stack.pop_all()
    async with left, Engine(settings) as new, HttpServer(new, port=port):
        reset = await seen.event("stream.reset")

    assert (told["status"], told["problem"]["code"]) == (401, "unauthenticated")
    assert reset["data"]["reason"] == "epoch"
    assert [event["type"] for event in seen.events].count("stream.reset") == 1
