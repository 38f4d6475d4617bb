"""The example supervisor as a process of its own, against a server that is another."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "supervisors"
STORMY = json.loads((EXAMPLE / "stormy.json").read_text())

# Several processes start in each test, and each imports the whole system.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.feature("CTL-07")]


@asynccontextmanager
async def process(*args: str, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command line as a process; killed in the end if it still lives."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("YUKTA_")}
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "yukta_rx", *args),
        cwd=ROOT,
        env=clean | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.communicate()


async def said(stream: asyncio.StreamReader | None, words: str) -> str:
    """The next line of a process that has these words."""
    assert stream is not None
    before = []
    async with asyncio.timeout(60):
        while line := (await stream.readline()).decode():
            before.append(line)
            if words in line:
                return line
    raise AssertionError(f"it ended without {words!r}: {before}")


@asynccontextmanager
async def serving(port: int = 0, **settings: str) -> AsyncIterator[tuple[Any, str]]:
    """A server and its address."""
    async with process("serve", "--port", str(port), **settings) as server:
        line = await said(server.stderr, "http://")
        yield server, next(word.rstrip(",") for word in line.split() if "http://" in word)


class Api:
    """Calls a server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        async with self.session.request(method, self.url + path, json=body) as answer:
            shown = await answer.json()
            assert answer.status < 300, shown
            return shown

    async def start(self) -> str:
        await self("PUT", "/api/sessions/s", {"workflows": [STORMY]})
        started = await self("POST", "/api/workflow/s/stormy/start", {})
        return str(started["executionId"])

    async def until(self, path: str, wanted: Any) -> Any:
        """What a read shows once that is wanted."""
        async with asyncio.timeout(60):
            while not wanted(shown := await self("GET", path)):
                await asyncio.sleep(0.02)
        return shown


@pytest.mark.parametrize("form", ["PauseOnFailureStorm", "pause_on_failure_storm"])
async def test_the_example_pauses_a_run_on_a_storm_of_failures(form: str) -> None:
    what = f"examples/supervisors/failure_storm.py:{form}"
    async with serving() as (_, url), aiohttp.ClientSession() as session:
        api = Api(session, url)
        async with process("supervise", what, "--url", url) as program:
            await said(program.stderr, "supervising as failure-storm")
            await api.until("/api/supervisors/failure-storm", lambda one: one["external"])
            run = await api.start()
            shown = await api.until(f"/api/executions/{run}", lambda one: one["paused"])
            line = await said(program.stdout, "PauseWorkflow")
            audit = await api("GET", f"/api/executions/{run}/commands")
            program.send_signal(signal.SIGINT)
            code = await asyncio.wait_for(program.wait(), 20)
        ended = await api("GET", "/api/supervisors/failure-storm")

    assert shown["status"] == "RUNNING"
    assert line == f"{run}: APPLIED PauseWorkflow: the run is RUNNING, paused\n"
    [row] = audit["items"]
    assert (row["actor"], row["via"]) == ("failure-storm", "SUPERVISOR")
    assert row["reason"] == "3 messages failed"
    assert code == 0
    assert ended["counts"] == {"APPLIED": 1}
    assert ended["state"] == "EXPIRED"


async def test_a_program_outlives_the_server_and_steers_the_next() -> None:
    what = "examples/supervisors/failure_storm.py:pause_on_failure_storm"
    async with aiohttp.ClientSession() as session:
        async with serving() as (server, url):
            port = int(url.rpartition(":")[2])
            program_context = process("supervise", what, "--url", url, "--json", "--dry-run")
            program = await program_context.__aenter__()
            await said(program.stderr, "supervising")
            api = Api(session, url)
            run = await api.start()
            tried = json.loads(await said(program.stdout, "PauseWorkflow"))
            running = await api("GET", f"/api/executions/{run}")
            await api("POST", f"/api/executions/{run}/stop?mode=KILL")
            server.send_signal(signal.SIGTERM)
            await asyncio.wait_for(server.wait(), 20)
        try:
            async with serving(port) as (_, url):
                api = Api(session, url)
                await api.until(
                    "/api/supervisors",
                    lambda shown: any(one["id"] == "failure-storm" for one in shown["items"]),
                )
                later = await api.start()
                again = json.loads(await said(program.stdout, later))
                program.send_signal(signal.SIGTERM)
                code = await asyncio.wait_for(program.wait(), 20)
        finally:
            await program_context.__aexit__(None, None, None)

    assert (tried["executionId"], tried["outcome"]) == (run, "DRY_RUN")
    assert running["paused"] is False
    assert (again["executionId"], again["outcome"]) == (later, "DRY_RUN")
    assert code == 0


async def test_the_rules_of_the_example_do_the_same_inside_the_server() -> None:
    rules = {"YUKTA_SUPERVISOR_RULES_FILE": str(EXAMPLE / "rules.json")}
    async with serving(**rules) as (_, url), aiohttp.ClientSession() as session:
        api = Api(session, url)
        run = await api.start()
        await api.until(f"/api/executions/{run}", lambda one: one["paused"])
        audit = await api("GET", f"/api/executions/{run}/commands")

    [row] = audit["items"]
    assert (row["actor"], row["command"]) == ("rules", "PauseWorkflow")
    assert row["reason"] == "rule failure storm: node risky fails"
