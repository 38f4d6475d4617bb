"""The control plane over HTTP: commands while a run streams at full speed, and starts.

The server is a process of its own, as it would be; `python -m bench.control` is that process.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from bench.harness import Bar, Family, Form, Found, at_most, table
from bench.workflows import NODES, PLUGINS, chain
from yukta_rx import Engine, create_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ENDLESS = 10**12
TOGETHER = 50
LIMIT = 50.0
"""Milliseconds in which 99 of 100 commands are to be acknowledged."""


async def serve() -> None:
    """Be the server: say the address, then serve until killed."""
    async with Engine(plugins=PLUGINS) as engine:
        runner = web.AppRunner(create_app(engine), handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        [address] = runner.addresses
        print(f"http://127.0.0.1:{address[1]}", flush=True)
        await asyncio.Event().wait()


class Remote:
    """Talks to the server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, self._url + path, json=body) as answer:
            made = await answer.json()
            assert answer.status < 300, made
            return made


@asynccontextmanager
async def remote(**workflows: dict[str, Any]) -> AsyncIterator[Remote]:
    """A server that has these workflows, and a client of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.control", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            call = Remote(session, url)
            documents = [{**made, "workflowId": name} for name, made in workflows.items()]
            await call("PUT", "/api/sessions/s", {"workflows": documents})
            yield call
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def commands(count: int, *, beside: bool, pick: Callable[[list[float]], float]) -> float:
    """Milliseconds from POST to acknowledged, of commands that change one node each time."""
    async with remote(long=chain("SYNC", ENDLESS)) as call:
        started = await call("POST", "/api/workflow/s/long/start", {})
        path = f"/api/executions/{started['executionId']}"
        if not beside:
            await call("POST", f"{path}/pause")
        waits = []
        before = (await call("GET", f"{path}/nodes/out"))["in"]
        for turn in range(count):
            begun = time.perf_counter()
            method = "DELETE" if turn % 2 else "POST"
            made = await call(method, f"{path}/nodes/n{NODES // 2}/skip")
            waits.append((time.perf_counter() - begun) * 1000)
            assert made["outcome"] == "APPLIED"
        after = (await call("GET", f"{path}/nodes/out"))["in"]
        assert (after > before) is beside
    return pick(waits)


async def starts(count: int, *, together: int) -> float:
    """Starts per second that are answered, of runs of three nodes that end at once."""
    async with remote(short=chain("SYNC", 1, nodes=1)) as call:
        left = iter(range(count))

        async def work() -> None:
            for _ in left:
                await call("POST", "/api/workflow/s/short/start", {})

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(together):
                group.create_task(work())
        return count / (time.perf_counter() - begun)


def _p99(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.99)]


COMMANDS = tuple(
    Form(f"{what}, {where}", partial(commands, beside=beside, pick=pick))
    for where, beside in (("run paused", False), (f"{NODES} nodes at full speed", True))
    for what, pick in (("median", statistics.median), ("p99", _p99))
)
STARTS = tuple(
    Form(f"starts, {how}", partial(starts, together=together))
    for how, together in (("one client", 1), (f"{TOGETHER} clients", TOGETHER))
)


def tables(found: Found) -> list[str]:
    """Milliseconds of commands, and starts per second."""
    waits = [(form.name, found.spread(form.name)) for form in COMMANDS]
    rates = [(form.name, found.spread(form.name)) for form in STARTS]
    return [
        f"{found.size:,} commands one after the other, each changing one node, from POST to answer"
        f"; as many starts of runs of three nodes. Server and client are two processes.",
        "",
        *table(("commands", "ms", "range"), [(name, s.show(), s.range()) for name, s in waits]),
        *table(
            ("starts", "per second", "range"),
            [(name, s.show(0), s.range(0)) for name, s in rates],
        ),
    ]


def bars(found: Found) -> list[Bar]:
    """What is promised of commands."""
    name = COMMANDS[-1].name
    about = f"POST to acknowledged beside {NODES} nodes at full speed, p99"
    return [at_most(about, LIMIT, found.spread(name), " ms")]


FAMILY = Family(
    "control", "The control plane over HTTP", (500,), (*COMMANDS, *STARTS), tables, bars
)


if __name__ == "__main__":
    asyncio.run(serve())
