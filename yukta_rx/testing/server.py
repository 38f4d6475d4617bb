"""What the fixtures are made of: settings of an engine under test, its server, and a client.

Feature: EXT-01.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import aiohttp

from yukta_rx.config.load import load_settings
from yukta_rx.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from yukta_rx.app import Engine
    from yukta_rx.config.settings import Settings

SHUTDOWN: Final = "100ms"
"""How long an engine waits at its end for runs that a test left behind."""

HOST: Final = "127.0.0.1"


def default_settings() -> Settings:
    """The settings of an engine under test: in memory, with a quick end."""
    return load_settings(environ={}, overrides={"yukta.execution.shutdown-timeout": SHUTDOWN})


@asynccontextmanager
async def served(engine: Engine) -> AsyncIterator[HttpServer]:
    """Serve an engine on a free port of this machine."""
    async with HttpServer(engine, host=HOST, port=0) as server:
        yield server


@asynccontextmanager
async def connected(server: HttpServer) -> AsyncIterator[aiohttp.ClientSession]:
    """A client session whose paths are those of the server."""
    async with aiohttp.ClientSession(server.url) as session:
        yield session
