"""The shipped JavaScript client in a real browser: a cut stream, a server that is restarted.

Needs playwright and Chromium: `make browser`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import Engine
from yukta_rx.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright = pytest.importorskip("playwright.async_api", reason="needs playwright")

pytestmark = [
    pytest.mark.feature("OBS-01"),
    pytest.mark.slow,
]

FOLLOW = """
async () => {
  const { followEvents } = await import("/ui/yukta-events.js");
  window.told = [];
  window.following = followEvents("/api/events/stream", {
    on: { "*": ({ type, id, data }) => window.told.push({ type, id, fact: "id" in data }) },
    onState: (state) => window.told.push({ state }),
    pace: (ms) => ms / 20,
  });
}
"""
TOLD = "(type) => window.told.filter((told) => told.type === type || told.state === type).length"


def chatty(lines: int) -> dict[str, Any]:
    """A workflow whose log lines, which are facts, come one by one."""
    numbers = {"count": lines, "intervalMs": 5}
    return {
        "workflowId": "chatty",
        "nodes": [
            {"nodeId": "numbers", "type": "SEQUENCE_TRIGGER", "config": numbers},
            {"nodeId": "say", "type": "CONSOLE_TERMINAL"},
        ],
        "edges": [{"source": "numbers", "target": "say"}],
    }


class Pipe:
    """A port whose connections lead to another one until they are cut."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            upstream, up = await asyncio.open_connection("127.0.0.1", self.port)
            self.writers |= {writer, up}
            async with asyncio.TaskGroup() as group:
                group.create_task(self.copy(reader, up))
                group.create_task(self.copy(upstream, writer))
        writer.close()

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(4096):
                writer.write(piece)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


@asynccontextmanager
async def page_of(url: str) -> AsyncIterator[Any]:
    """A page of the server in a browser."""
    async with playwright.async_playwright() as started:
        try:
            # Without one of the system, playwright takes its own.
            browser = await started.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
            )
        except playwright.Error as error:
            if CHROMIUM is not None:
                raise
            pytest.skip(f"needs Chromium: {error}")
        page = await browser.new_page()
        await page.goto(f"{url}/health/live")
        yield page
        await browser.close()


async def told(page: Any, what: str, times: int = 1) -> None:
    """Wait until the client told something so many times."""
    await page.wait_for_function(f"({TOLD})({what!r}) >= {times}", timeout=20_000)


async def test_a_browser_follows_through_cut_streams_and_a_restart_without_loss() -> None:
    async with Engine() as engine:
        server = HttpServer(engine, port=0)
        await server.__aenter__()
        port = server.port
        pipe = Pipe(port)
        proxy = await asyncio.start_server(pipe.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with page_of(url) as page:
            await page.evaluate(FOLLOW)
            await told(page, "stream.hello")
            run = await engine.start("s", chatty(300))
            await told(page, "node.log", 3)
            pipe.cut()
            await told(page, "stream.hello", 2)
            pipe.cut()
            await told(page, "stream.hello", 3)
            await server.__aexit__(None, None, None)
            await told(page, "stream.closing")
            async with HttpServer(engine, port=port):
                await told(page, "stream.hello", 4)
                await run.wait()
                await told(page, "execution.finished")
                events = await page.evaluate("window.told")
                await page.evaluate("window.following.close()")
                await told(page, "closed")
                pipe.cut()
        proxy.close()

    numbers = [int(event["id"].rpartition(":")[2]) for event in events if event.get("fact")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) > 300
    kinds = [event.get("type") for event in events]
    assert not {"stream.gap", "stream.reset"} & set(kinds)
    assert kinds.count("execution.finished") == 1
