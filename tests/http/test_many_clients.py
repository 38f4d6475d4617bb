"""Many event streams at once: some that never read, some that come and go."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

FEED = "/api/events/stream"
ROUND = 25
"""Lines that a run writes before it waits for its readers."""

ROUNDS = 24


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
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


class Follower:
    """Reads the feed, perhaps leaving and coming back at random, and keeps the ids of all facts."""

    def __init__(self, client: Any, seed: int, *, restless: bool) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.restless = restless
        self.ids: list[str] = []
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
                    if event.type == "stream.hello":
                        last = last or event.id
                        self.begun.set()
                        continue
                    if event.type.startswith("stream."):
                        self.odd.append(f"{event.type} {event.data}")
                    elif "id" in event.json:
                        left -= 1
                        last = event.id
                        self.ids.append(event.id)
                        self.lines += event.type == "node.log"
                    done = event.type == "execution.finished"


@pytest.mark.slow
@pytest.mark.feature("OBS-01")
async def test_a_hundred_clients_see_every_fact_once_and_in_order(
    client: Any, make: Any, server: Any, engine: Any
) -> None:
    await client.session_with(make.chatty(count=ROUNDS * ROUND))
    before = megabytes()
    stalled = await never_reading(server.port, 10)
    followers = [Follower(client, seed, restless=seed < 20) for seed in range(90)]

    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        for follower in followers:
            group.create_task(follower.follow())
        await asyncio.gather(*(follower.begun.wait() for follower in followers))
        await until(lambda: engine.feed.cap.open == 100)
        body = {"sessionId": "s", "workflowId": "chatty", "stepMode": True}
        started = await client.ok("POST", "/workflow/start", body)
        step = f"/api/executions/{started['executionId']}/step?n={ROUND}"
        for lines in range(ROUND, ROUND * ROUNDS + 1, ROUND):
            await client.ok("POST", step)
            # Readers that keep up, whatever the machine has to do besides.
            await until(lambda lines=lines: all(f.lines >= lines for f in followers))
        await client("POST", f"/api/executions/{started['executionId']}/resume")

    assert megabytes() - before < 100
    for writer in stalled:
        writer.transport.abort()
    expected = followers[-1].ids
    numbers = [int(text.rpartition(":")[2]) for text in expected]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) > ROUNDS * ROUND
    for follower in followers:
        assert follower.odd == []
        assert follower.ids == expected
    assert sum(follower.visits for follower in followers[:20]) > 100


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
