"""Many event streams at once: some that never read, some slow, some that come and go.

A hundred of them; with `YUKTA_TEST_CLIENTS=1000` as many as that.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

FEED = "/api/events/stream"
ROUND = 25
"""Lines that a run writes before it waits for its readers."""

ROUNDS = 24

CLIENTS = int(os.environ.get("YUKTA_TEST_CLIENTS", "100"))
PATIENCE = 40 + 0.4 * CLIENTS
"""Seconds that all clients get to read everything, on a machine that does other things too."""


@pytest.fixture
def settings() -> Settings:
    return Settings(
        execution={"shutdown_timeout": timedelta(milliseconds=100)},
        streaming={"max_streams": 2 * CLIENTS},  # one that left is still open for a moment
    )


@pytest.fixture(autouse=True)
def enough_sockets() -> None:
    """Each client here has two: its own, and the server's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CLIENTS + 500
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"{wanted} files have to be open at once, only {hard} may be")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def megabytes() -> float:
    """Resident memory of this process, clients included."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


async def never_reading(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Clients that ask for the feed and take nothing of it."""
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(f"GET {FEED} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await writer.drain()
        writer.transport.pause_reading()
        writers.append(writer)
    return writers


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


class Follower:
    """Reads the feed and keeps the numbers of all facts.

    A restless one leaves and comes back at random; a slow one dawdles, and takes what it is told to
    have lost as accounted for.
    """

    def __init__(
        self, client: Any, seed: int, *, restless: bool = False, slow: bool = False
    ) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.restless = restless
        self.slow = slow
        self.numbers: list[int] = []
        self.odd: list[str] = []
        self.visits = self.lines = 0
        self.begun = asyncio.Event()

    async def follow(self) -> None:
        last = ""
        done = False
        while not done:
            headers = {"Last-Event-ID": last} if last else {}
            left = self.random.randint(5, 60) if self.restless else 1_000_000
            self.visits += 1
            async with self.client.stream(FEED, **headers) as stream:
                while left and not done:
                    event = await stream.next()
                    assert event is not None, "the server ends no stream"
                    if self.slow:
                        await asyncio.sleep(0.003)
                    if event.type == "stream.hello":
                        last = last or event.id
                        self.begun.set()
                    elif event.type == "stream.gap" and self.slow:
                        last = event.id
                        gap = event.json
                        self.numbers += range(gap["from"], gap["to"] + 1)
                    elif event.type.startswith("stream."):
                        self.odd.append(f"{event.type} {event.data}")
                    elif event.id != last:  # a sample moves no place
                        left -= 1
                        last = event.id
                        self.numbers.append(int(last.rpartition(":")[2]))
                        self.lines += event.type == "node.log"
                    done = event.type == "execution.finished"


@pytest.mark.slow
@pytest.mark.feature("OBS-01")
async def test_many_clients_see_every_fact_once_and_in_order(
    client: Any, make: Any, server: Any, engine: Any
) -> None:
    await client.session_with(make.chatty(count=ROUNDS * ROUND))
    before = megabytes()
    tenth = CLIENTS // 10
    stalled = await never_reading(server.port, tenth)
    slow = [Follower(client, seed, slow=True) for seed in range(tenth)]
    restless = [Follower(client, seed, restless=True) for seed in range(2 * tenth)]
    steady = [Follower(client, seed) for seed in range(CLIENTS - 4 * tenth)]
    prompt = [*restless, *steady]

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for follower in (*prompt, *slow):
            group.create_task(follower.follow())
        await asyncio.gather(*(follower.begun.wait() for follower in (*prompt, *slow)))
        await until(lambda: engine.feed.cap.open == CLIENTS)
        body = {"sessionId": "s", "workflowId": "chatty", "stepMode": True}
        started = await client.ok("POST", "/workflow/start", body)
        step = f"/api/executions/{started['executionId']}/step?n={ROUND}"
        for lines in range(ROUND, ROUND * ROUNDS + 1, ROUND):
            await client.ok("POST", step)
            # Readers that keep up, whatever the machine has to do besides.
            await until(lambda lines=lines: all(f.lines >= lines for f in prompt))
        await client("POST", f"/api/executions/{started['executionId']}/resume")

    # Clients and their sockets are in this process, too.
    assert megabytes() - before < 30 + 0.7 * CLIENTS
    for writer in stalled:
        writer.transport.abort()
    expected = steady[-1].numbers
    assert expected == list(range(expected[0], expected[0] + len(expected)))
    assert len(expected) > ROUNDS * ROUND
    for follower in (*prompt, *slow):
        assert follower.odd == []
        assert follower.numbers == expected
    assert sum(follower.visits for follower in restless) > 5 * len(restless)


@pytest.mark.slow
@pytest.mark.feature("OBS-01")
async def test_case_29_clients_that_never_read_cost_a_bounded_amount_and_hold_nobody_up(
    client: Any, make: Any, server: Any, engine: Any
) -> None:
    lines, size = 20_000, 1000
    document = make.chatty(count=lines)
    document["nodes"][1]["config"]["prefix"] = "x" * size
    await client.session_with(document)

    async def run() -> float:
        began = asyncio.get_running_loop().time()
        await client.ended(await client.start("chatty"))
        await engine.tracker.drained()
        return asyncio.get_running_loop().time() - began

    alone = await run()
    before = megabytes()
    stalled = await never_reading(server.port, 10)
    await until(lambda: engine.feed.cap.open == 10)

    async with client.stream(f"{FEED}?type=execution.*") as stream:
        beside = await run()
        finished = await stream.type("execution.finished")

    assert finished.json["data"]["totals"]["out"] == lines
    # 200 MB went by; per client there is at most one batch here and what the kernel takes.
    assert megabytes() - before < 60
    assert beside < 5 * alone + 5
    assert engine.feed.lost_events.value > 0
    for writer in stalled:
        writer.transport.abort()
    await until(lambda: engine.feed.cap.open == 0)
