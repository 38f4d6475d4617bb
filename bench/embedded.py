"""The whole system in one process: an Engine with its tracker, and somebody who reads its feed."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bench.workflows import PLUGINS, SETTINGS
from yukta_rx.app import Engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def engine_with(made: dict[str, Any]) -> AsyncIterator[Engine]:
    """An engine in whose session `bench` the document is saved, and a reader of its events."""
    async with Engine(SETTINGS, plugins=PLUGINS) as engine, asyncio.TaskGroup() as group:
        await engine.definitions.apply_session({"sessionId": "bench"})
        await engine.definitions.save("bench", made["workflowId"], made)
        with engine.feed.subscribe() as reader:

            async def read() -> None:
                while await reader.frames():
                    pass

            group.create_task(read())
            yield engine


async def timed_start(engine: Engine, count: int) -> float:
    """Seconds from `Engine.start` to the end of a run that ends in a node `out`."""
    start = time.perf_counter()
    run = await engine.start("bench", "bench")
    status = await run.wait()
    seconds = time.perf_counter() - start
    got = {each["nodeId"]: each["in"] for each in run.detail["nodes"]}["out"]
    assert (status, got) == ("SUCCESS", count), run.detail
    return seconds
