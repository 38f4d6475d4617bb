"""Servers as processes of their own, for tests that end, freeze or starve them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]

ENDED = {str(status) for status in TaskStatus if status.terminal}

STARTED = 30
"""Seconds after which a server that has not said that it serves never will."""


class Served:
    """A server process, and calls of its interface."""

    def __init__(self, process: asyncio.subprocess.Process, http: aiohttp.ClientSession) -> None:
        self.process = process
        self.said: list[str] = []
        self.url = ""
        self._http = http
        self._heard = asyncio.Event()
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            self.said.append(line.rstrip())
            if found := re.search(r"serving on (\S+),", line):
                self.url = found[1]
            self._heard.set()
        self.said.append("(end)")
        self._heard.set()

    async def until(self, word: str) -> str:
        """The line that says `word`, said or yet to be said."""
        seen = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTED):
                while "(end)" not in self.said[:seen]:
                    for line in self.said[seen:]:
                        if word in line:
                            return line
                    seen = len(self.said)
                    self._heard.clear()
                    await self._heard.wait()
        raise AssertionError(f"not said: {word}\n" + "\n".join(self.said))

    async def serves(self) -> Served:
        """This, once it serves."""
        await self.until("serving on ")
        return self

    # -- what becomes of it

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        # That of asyncio would take the exit code of a process that has ended just now.
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    async def kill(self) -> None:
        """End it at once."""
        self.send(signal.SIGKILL)
        await self.process.wait()

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        async with asyncio.timeout(STARTED):
            code = await self.process.wait()
            await self._listening
        return code

    # -- its interface

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        async with self._http.request(method, self.url + path, json=body) as answer:
            return answer.status, await answer.json(content_type=None)

    async def get(self, path: str) -> Any:
        """The JSON of an answer that is not an error."""
        status, shown = await self.call("GET", path)
        assert status < 300, shown
        return shown

    async def start(self, workflow_id: str, payload: Any = None) -> str:
        """Start a workflow of the session `s`; the id of the run."""
        path = f"/api/workflow/s/{workflow_id}/start"
        status, shown = await self.call("POST", path, payload)
        assert status < 300, shown
        found: str = shown["executionId"]
        return found

    async def run(self, execution_id: str) -> Any:
        """What is shown of a run."""
        return await self.get(f"/api/executions/{execution_id}")

    async def over(self, execution_id: str) -> Any:
        """What is shown of a run once it has ended and that is recorded."""
        async with asyncio.timeout(90):
            while True:
                status, shown = await self.call("GET", f"/api/executions/{execution_id}")
                if status < 300 and shown["recorded"] and shown["status"] in ENDED:
                    return shown
                await asyncio.sleep(0.05)

    async def results(self, execution_id: str) -> list[Any]:
        """The payloads that reached the terminals of a run."""
        found: list[Any] = []
        path = f"/api/sessions/s/executions/{execution_id}/results?limit=500"
        cursor = ""
        while True:
            page = await self.get(path + cursor)
            found += [one["payload"] for one in page["items"] if one["type"] == "RESULT"]
            if page["nextCursor"] is None:
                return found
            cursor = f"&afterCursor={page['nextCursor']}"

    async def meter(self, name: str) -> float:
        """The sum of a meter over its labels."""
        async with self._http.get(self.url + "/metrics") as answer:
            lines = (await answer.text()).splitlines()
        found = [line for line in lines if re.match(rf"{name}[ {{]", line)]
        return sum(float(line.rpartition(" ")[2]) for line in found)


@asynccontextmanager
async def started(folder: Path, *args: str, **settings: str) -> AsyncIterator[Served]:
    """A server process with these settings (`KV_STORE_TYPE`); killed in the end if it lives."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("YUKTA_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "yukta_rx", "serve", "--port", "0", *args),
        cwd=folder,
        env=clean
        | {"PYTHONPATH": str(ROOT)}
        | {f"YUKTA_{name}": value for name, value in settings.items()},
        stderr=asyncio.subprocess.PIPE,
    )
    limit, wants = aiohttp.ClientTimeout(total=60), {"Accept": "application/json"}
    async with aiohttp.ClientSession(timeout=limit, headers=wants) as http:
        made = Served(process, http)
        try:
            yield made
        finally:
            if process.returncode is None:
                made.send(signal.SIGKILL)
            await process.wait()
            await made._listening
