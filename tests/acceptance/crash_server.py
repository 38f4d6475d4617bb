"""A server in a process of its own that can be killed, a client of it, and what its nodes call."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import sys
import tempfile
from collections import defaultdict
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from tests.acceptance.random_workflows import SESSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]


@cache
def compiled() -> str:
    """A folder for compiled modules, as long as the tests go."""
    folder = tempfile.TemporaryDirectory(prefix="yukta-compiled-")
    atexit.register(folder.cleanup)
    return folder.name


class RefusedError(Exception):
    """The server answered with an error.

    Attributes:
        status: of the answer.
        problem: its body.
    """

    def __init__(self, status: int, problem: Any) -> None:
        super().__init__(f"{status} {problem}")
        self.status = status
        self.problem = problem


class Api:
    """Calls a server."""

    def __init__(self, client: aiohttp.ClientSession, server: Server, url: str) -> None:
        self._client = client
        self._url = url
        self._server = server

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Accept"] = "application/json"
        url = self._url + path
        async with self._client.request(method, url, json=body, headers=named) as answer:
            text = await answer.text()
        shown = json.loads(text) if text else None
        if answer.status >= 300:
            raise RefusedError(answer.status, shown)
        return shown

    async def all(self, path: str) -> list[Any]:
        """All items of a list."""
        found: list[Any] = []
        more = ""
        while True:
            page = await self("GET", f"{path}{'&' if '?' in path else '?'}limit=200{more}")
            found += page["items"]
            if page["nextCursor"] is None or not page["items"]:
                return found
            more = f"&afterCursor={page['nextCursor']}"

    async def results(self, execution_id: str) -> list[Any]:
        """What reached the terminals of a run, and the ends of those."""
        return await self.all(f"/api/sessions/{SESSION}/executions/{execution_id}/results")

    async def ended(self, execution_id: str) -> Any:
        """How a run ended, once it has and that is written."""
        async with asyncio.timeout(60):
            while True:
                found = await self("GET", f"/api/executions/{execution_id}/wait?timeout=20")
                if found is not None and found["recorded"]:
                    return found
                await asyncio.sleep(0.01)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._server.kill()


class Server:
    """A server process; killed in the end if it still lives.

    Args:
        settings: environment variables of its settings.
    """

    def __init__(self, settings: dict[str, str]) -> None:
        clean = {name: text for name, text in os.environ.items() if not name.startswith("YUKTA_")}
        # What the first has compiled spares the others half of their start.
        clean.pop("PYTHONDONTWRITEBYTECODE", None)
        clean["PYTHONPYCACHEPREFIX"] = compiled()
        self._environ = clean | settings
        self._process: asyncio.subprocess.Process
        self._address: asyncio.Future[str]
        self._listens: asyncio.Task[None]
        self.said: list[str] = []

    async def __aenter__(self) -> Server:
        self._address = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "yukta_rx", "serve", "--port", "0"),
            cwd=ROOT,
            env=self._environ,
            stderr=asyncio.subprocess.PIPE,
        )
        self._listens = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill()
        await self._process.wait()
        await self._listens
        wrong = [line for line in self.said if "Traceback" in line or "defect" in line]
        assert not wrong, "".join(self.said)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := (await self._process.stderr.readline()).decode():
            self.said.append(line)
            if "serving on http://" in line and not self._address.done():
                self._address.set_result(f"http://{line.partition('http://')[2].split(',')[0]}")
        if not self._address.done():
            self._address.cancel()

    async def address(self) -> str:
        """Where it listens, once it does."""
        async with asyncio.timeout(60):
            try:
                return await self._address
            except asyncio.CancelledError:
                if self._address.cancelled():
                    raise AssertionError(f"it ended before it served: {self.said}") from None
                raise

    def kill(self) -> None:
        """End it as a crash would, if it still lives."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)


@asynccontextmanager
async def serving(settings: dict[str, str]) -> AsyncIterator[Api]:
    """A server that listens."""
    async with (
        Server(settings) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as client,
    ):
        yield Api(client, server, await server.address())


class Shop:
    """The other side of HTTP_REQUEST nodes: keeps what it is sent, by workflow and node."""

    def __init__(self) -> None:
        self.sent: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)

    async def _order(self, request: web.Request) -> web.Response:
        body = await request.json()
        place = request.match_info["workflow"], request.match_info["node"]
        self.sent[place].append((body["id"], request.headers["Idempotency-Key"]))
        await asyncio.sleep(0.003)
        return web.json_response({"payload": body["payload"]})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Its address, while it is open."""
        app = web.Application()
        app.router.add_post("/{workflow}/{node}", self._order)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
