"""Memory over a long stream: `python -m bench.memory --minutes 60` prints RSS as it goes.

One run of the whole engine: 2,000 messages a second through retries, dead letters, a dropping and
a spilling buffer, threads and concurrent calls, with its events read by a subscriber.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.plugins.contract import processor, trigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PER_TICK = 20
TICK = 0.01


@trigger("STEADY", pure=True)
async def steady(cfg: Any, ctx: Any) -> AsyncIterator[Any]:
    """Emit 2,000 messages a second, without end."""
    n = 0
    while True:
        for _ in range(PER_TICK):
            n += 1
            yield {"n": n, "text": f"message {n}", "tags": ["a", "b", "c"]}
        await asyncio.sleep(TICK)


@processor("SHAKY", blocking=False, pure=True)
def shaky(msg: Any, cfg: Any, ctx: Any) -> Any:
    """Fail the first attempt at every 100th message, and every attempt at every 1000th."""
    n = msg.payload["n"]
    if n % 1000 == 0 or (n % 100 == 0 and msg.attempt == 1):
        raise LookupError(f"no luck with {n}")
    return msg


@processor("CALL")
async def call(msg: Any, cfg: Any, ctx: Any) -> Any:
    """Wait a little, as a call over the network would."""
    await asyncio.sleep(0.002)
    return {**msg.payload, "called": True}


@processor("THREAD")
def thread(msg: Any, cfg: Any, ctx: Any) -> Any:
    """Work in a thread."""
    return dict(msg.payload)


@processor("SLOW")
async def slow(msg: Any, cfg: Any, ctx: Any) -> Any:
    """Be too slow for what comes."""
    await asyncio.sleep(0.01)
    return msg


DOCUMENT: dict[str, Any] = {
    "workflowId": "long",
    "nodes": [
        {"nodeId": "in", "type": "STEADY"},
        {
            "nodeId": "shaky",
            "type": "SHAKY",
            "config": {"engine": {"retry": {"maxAttempts": 2, "backoffMs": 1}, "onError": "ROUTE"}},
        },
        {
            "nodeId": "call",
            "type": "CALL",
            "config": {"engine": {"concurrency": {"max": 50}, "elementTimeoutMs": 1000}},
        },
        {"nodeId": "thread", "type": "THREAD"},
        {
            "nodeId": "slow",
            "type": "SLOW",
            "config": {"engine": {"edgeBuffer": {"size": 100, "overflow": "DROP_OLDEST"}}},
        },
        {
            "nodeId": "spill",
            "type": "TRANSFORM",
            "config": {
                "set": {"seen": True},
                "engine": {"edgeBuffer": {"size": 10, "overflow": "SPILL"}},
            },
        },
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        {"nodeId": "dead", "type": "COLLECT_TERMINAL"},
        {"nodeId": "rest", "type": "NULL_TERMINAL"},
    ],
    "edges": [
        {"source": "in", "target": "shaky"},
        {"source": "shaky", "target": "call"},
        {"source": "shaky", "sourcePort": "error", "target": "dead"},
        {"source": "call", "target": "thread"},
        {"source": "thread", "target": "spill"},
        {"source": "spill", "target": "out"},
        {"source": "shaky", "target": "slow"},
        {"source": "slow", "target": "rest"},
    ],
}


def rss() -> float:
    """Resident memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def stream(minutes: float, every: float) -> None:
    """Run, and print a line now and then."""
    settings = load_settings(environ={}, overrides={})
    async with Engine(settings, plugins=[steady, shaky, call, thread, slow]) as engine:
        await engine.definitions.apply_session(
            {"sessionId": "s", "executionTimeoutMs": int(10 * minutes * 60_000 + 60_000)}
        )
        run = await engine.start("s", DOCUMENT)
        began = time.monotonic()
        print("| minute | RSS MiB | objects | messages in | events read |\n|-|-|-|-|-|")
        read = 0

        async def listen() -> None:
            nonlocal read
            async for _ in run.events():
                read += 1

        async with asyncio.TaskGroup() as group:
            listener = group.create_task(listen())
            while (now := time.monotonic() - began) < minutes * 60:
                await asyncio.sleep(every)
                nodes = {node["nodeId"]: node for node in run.detail["nodes"]}
                objects = len(gc.get_objects())
                seen = nodes["in"]["out"]
                print(
                    f"| {now / 60:.1f} | {rss():.1f} | {objects:,} | {seen:,} | {read:,} |",
                    flush=True,
                )
            await run.stop()
            await run.wait()
            await listener
        print(
            run.detail["status"],
            {
                n["nodeId"]: (n["in"], n["out"], n["failed"], n["dropped"])
                for n in run.detail["nodes"]
            },
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=60, help="seconds between two lines")
    given = parser.parse_args()
    asyncio.run(stream(given.minutes, given.every))
