"""Crash images: what a dead server leaves on its disk, taken from one that lives.

A copy of the data folder of a running engine is what the disk holds if the process is killed at
that moment: what was written is there, what it only meant to write is not.
"""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.streams.circuit import StopMode
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from yukta_rx.plugins.registry import PluginRegistry


def engine_on(folder: Path, registry: PluginRegistry | None = None, **settings: Any) -> Engine:
    """An engine that keeps everything in files below `folder`."""
    given = {"profile": "file", "data.dir": str(folder), **settings}
    overrides = {f"yukta.{name}": value for name, value in given.items()}
    return Engine(load_settings(overrides=overrides, environ={}), registry=registry)


@asynccontextmanager
async def doomed(engine: Engine) -> AsyncIterator[Engine]:
    """An engine whose runs are cut off at the end, since only its images matter."""
    async with engine:
        try:
            yield engine
        finally:
            for run in tuple(engine._starter.live.values()):
                run.stop(StopMode.KILL)


@asynccontextmanager
async def dethroned(engine: Engine) -> AsyncIterator[Engine]:
    """As `doomed`, on PostgreSQL: nothing is written any more from the end of the block on."""
    async with doomed(engine):
        try:
            yield engine
        finally:
            database = engine.stores.database
            assert database is not None
            await database.change(lambda made: raise_epoch(made, database.part, "a crash"))


async def image(folder: Path, name: str) -> Path:
    """What the disk holds now, as the folder of the next server."""
    copy = folder.with_name(f"{folder.name}-{name}")
    # A thread of the engine's kind: virtual time waits for it.
    pool = BlockingPool(1)
    try:
        await pool.call(shutil.copytree, folder, copy)
    finally:
        pool.close()
    return copy
